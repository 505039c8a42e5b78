"""Grading of an answer about an image by comparison with a known correct answer.

Showing images is our addition.

Source: JudgeLM, section 6.4, Figures 7 and 20 to 23; data as in MM-Vet (Yu et al. 2023).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar, Literal

from judgelm.errors import InputError
from judgelm.modes.completions import graded, read_reply, with_usage
from judgelm.modes.flow import Flow
from judgelm.modes.mode import SampledMode, check_above_zero, sampling_for, unreferenced
from judgelm.modes.reasons import Explained, explain, to_explain
from judgelm.parsing.scores import parse_pair
from judgelm.prompts.catalog import Messages, fill, read_texts, sha_of
from judgelm.prompts.sanitization import sanitizer_for
from judgelm.records import Completion, Prompt, Request, Sample, Shown, Span, SpanKind

Wording = Literal["code", "paper", "chat"]

# kind "reference", so that the accepted answer is never cut
_KINDS: Mapping[str, SpanKind] = {
    "question": "question",
    "reference": "reference",
    "accepted": "reference",
    "answer": "answer",
}
_OR, _AND = "<OR>", "<AND>"


def read_gold(text: str) -> tuple[tuple[str, ...], ...]:
    """Split a gold answer into alternatives, each with its required parts. A string without tags is a single part."""
    if _OR not in text and _AND not in text:
        return ((text,),)
    alternatives = (tuple(part.strip() for part in answer.split(_AND) if part.strip()) for answer in text.split(_OR))
    return tuple(parts for parts in alternatives if parts)


@dataclass(frozen=True, kw_only=True)
class MultimodalTemplate:
    """A prompt with slots for the question, the reference, the accepted answer, and the judged answer.

    Attributes:
        joined: separator between the parts of the accepted answer.
        tagged: whether the reference keeps its tags, as in the original code; otherwise, tags are replaced with words.
    """

    id: str
    text: str
    system: str = ""
    joined: str
    tagged: bool
    delimiters: Sequence[str]

    @property
    def messages(self) -> Messages:
        """Role and text of each message; a role of None means plain text."""
        return (("system", self.system), ("user", self.text)) if self.system else ((None, self.text),)

    @cached_property
    def sha(self) -> str:
        """SHA-256 (hex) of the prompt's ID and content."""
        return sha_of({"id": self.id, "messages": self.messages, "joined": self.joined, "tagged": self.tagged})

    def render(self, sample: Sample, *, full_score: float | None = 10, images: bool = False) -> Prompt:
        """Render the prompt for a sample with one answer. The first alternative in the reference is shown as answer 1.

        `full_score` is the prefilled score for answer 1; if it is None, the judge writes both scores.
        """
        gold = read_gold(sample.reference or "")
        in_words = ", or ".join(", and ".join(parts) for parts in gold)
        values = {
            "question": sample.question,
            "reference": sample.reference if self.tagged else in_words,
            "accepted": self.joined.join(gold[0]),
            "answer": sample.answers[0],
        }
        slots = {slot: [Span(text or "", _KINDS[slot])] for slot, text in values.items()}
        *before, (role, text) = self.messages
        if images and sample.images:
            slots["images"] = [*(Span(image, "image") for image in sample.images), Span("\n")]
            text = f"{{images}}{text}"
        return fill(
            [*before, (role, text)],
            slots,
            sanitizer_for(tuple(self.delimiters)),
            chat=role is not None,
            prefill="" if full_score is None else f"{full_score:g}",
        )


MULTIMODAL_TEMPLATES = {
    wording: MultimodalTemplate(**fields) for wording, fields in read_texts(Path(__file__).with_suffix(".toml")).items()
}

Images = Literal["ignore", "auto", "use"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Multimodal(SampledMode):
    """Grade one answer about an image against the reference, which may contain MM-Vet's `<OR>` and `<AND>`.

    Attributes:
        wording: `code` (from the original code), `paper` (Figure 7), or `chat` (like `code`, but as chat messages).
        anchored: prefill the first answer's full score, as in Figures 21 to 23. Otherwise, the judge writes both
            scores, and the first is `Shown.anchor`.
        images: `ignore` shows no images, as in the paper. `auto` shows the sample's images, if any, to a
            vision-language judge. `use` requires images.
        max_tokens: token limit for the score line.
    """

    name: ClassVar[str] = "multimodal"
    answers: ClassVar[tuple[int, int | None]] = (1, 1)
    reference: ClassVar[Literal["use"]] = "use"

    wording: Wording = "code"
    anchored: bool = True
    images: Images = "ignore"
    scale: tuple[float, float] = (1, 10)
    reasons: Explained = "none"
    reason_tokens: int = 512
    max_tokens: int = 24

    def __post_init__(self) -> None:
        check_above_zero(self, "max_tokens", "reason_tokens")

    @property
    def prompt(self) -> MultimodalTemplate:
        """The prompt with the selected wording."""
        return MULTIMODAL_TEMPLATES[self.wording]

    @property
    def template(self) -> str:
        """ID of the prompt."""
        return self.prompt.id

    @property
    def template_sha(self) -> str:
        """Hash of the prompt."""
        return self.prompt.sha

    def check(self, sample: Sample) -> None:
        """Check that the sample has one answer, a reference, and, for `use`, images."""
        if len(sample.answers) != 1 or sample.reference is None or not read_gold(sample.reference):
            raise unreferenced(sample)
        if self.images == "use" and not sample.images:
            raise InputError(f"sample {sample.id}: no image; add an `image` field to each row, or use images=ignore")

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        self.check(sample)
        full_score = self.scale[1] if self.anchored else None
        prompt = self.prompt.render(sample, full_score=full_score, images=self.images != "ignore")
        sampling = sampling_for(self, sample.id, self.max_tokens, stop=("\n",))
        [completion] = yield [Request(key="0", prompt=prompt, sampling=sampling)]
        judgment = graded(self, sample, self._read(prompt, completion))
        begun = replace(prompt, prefill="")  # the text already contains the prefilled score
        sampling = sampling_for(self, sample.id, self.reason_tokens, reserve=self.max_tokens)
        return (yield from explain(judgment, to_explain(judgment, self.reasons), [begun], sampling))

    def _read(self, prompt: Prompt, completion: Completion) -> Shown:
        whole = replace(completion, texts=tuple(prompt.prefill + text for text in completion.texts))
        parse = partial(parse_pair, scale=self.scale)
        shown = read_reply(whole, parse, max_tokens=self.max_tokens, referenced=True)
        if shown.scores is None:
            return shown
        anchor, score = shown.scores
        return replace(shown, anchor=anchor, scores=(score,))
