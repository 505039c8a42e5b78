"""One answer about an image."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from judgelm.errors import InputError, not_found
from judgelm.modes.completions import graded, read_reply, with_usage
from judgelm.modes.flow import Flow
from judgelm.modes.mode import BatchMode, check_above_zero, sampling_for
from judgelm.modes.reasons import Explained, explain, to_explain
from judgelm.parsing.scores import parse_pair
from judgelm.prompts.catalog import Messages, fill, read_texts, sha_of
from judgelm.prompts.sanitization import sanitizer_for
from judgelm.records import Completion, Prompt, Request, Sample, Shown, Span, SpanKind

Wording = Literal["code", "paper", "chat"]

# The accepted answer is never cut: it is what the judged one is measured by.
_KINDS: Mapping[str, SpanKind] = {
    "question": "question",
    "reference": "reference",
    "accepted": "reference",
    "answer": "answer",
}
_OR, _AND = "<OR>", "<AND>"


class Gold(NamedTuple):
    """A gold answer of MM-Vet: any one of the alternatives is right, and of one all parts are needed."""

    alternatives: tuple[tuple[str, ...], ...]

    def words(self) -> str:
        """The text in the form of the paper's figures: `0.75, or 3/4`; `oven, and dishwasher`."""
        return ", or ".join(", and ".join(parts) for parts in self.alternatives)


def read_gold(text: str) -> Gold:
    """Read `<OR>` and `<AND>`; `<AND>` binds more tightly, since a whole answer stands on each side of an `<OR>`.

    Parts are stripped of the blanks around them and empty ones left out; a text without either tag is one alternative
    of one part, as it is (line ends and all).

    Source: MM-Vet (Yu et al. 2023), section 3.2: `<AND>` wants all elements, `<OR>` any one.
    """
    if _OR not in text and _AND not in text:
        return Gold(((text,),))
    alternatives = (tuple(part.strip() for part in answer.split(_AND) if part.strip()) for answer in text.split(_OR))
    return Gold(tuple(parts for parts in alternatives if parts))


@dataclass(frozen=True, kw_only=True)
class MultimodalTemplate:
    """A prompt with places for question, reference, an accepted answer and the judged one.

    Attributes:
        id: the name that manifests keep.
        text: its message; plain text where there is no system message.
        system: of a chat.
        joined: what stands between the parts of an accepted answer.
        tagged: whether the reference is shown with its tags, as the original code does, or in words.
        delimiters: what bounds the blocks; confusables in untrusted text are sanitized.
    """

    id: str
    text: str
    system: str = ""
    joined: str
    tagged: bool
    delimiters: Sequence[str]

    @property
    def messages(self) -> Messages:
        """Its text by role; role None is plain text."""
        return (("system", self.system), ("user", self.text)) if self.system else ((None, self.text),)

    @cached_property
    def sha(self) -> str:
        """sha256 (hex) over id and all bytes."""
        return sha_of({"id": self.id, "messages": self.messages, "joined": self.joined, "tagged": self.tagged})

    def render(self, sample: Sample, *, full_score: float | None = 10, images: bool = False) -> Prompt:
        """The prompt for a sample's one answer.

        Args:
            sample: with a reference, which may hold `<OR>` and `<AND>`; the first alternative stands as answer 1.
            full_score: what that one is given, as the forced beginning of the reply; None lets the judge write both.
            images: show the sample's images too, before the question.
        """
        gold = read_gold(sample.reference or "")
        values = {
            "question": sample.question,
            "reference": sample.reference if self.tagged else gold.words(),
            "accepted": self.joined.join(gold.alternatives[0]),
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


_TEMPLATES = {
    wording: MultimodalTemplate(**fields)
    for wording, fields in read_texts(Path(__file__).with_name("multimodal.toml")).items()
}


def multimodal_template(wording: Wording) -> MultimodalTemplate:
    """The template of that wording.

    Raises:
        ConfigError: there is none.
    """
    if wording not in _TEMPLATES:
        raise not_found("wording", wording, _TEMPLATES)
    return _TEMPLATES[wording]


Images = Literal["ignore", "auto", "use"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Multimodal(BatchMode):
    """Grade one answer against the reference.

    `sample.answers[0]` is the answer, `sample.reference` the gold answer. That one may hold MM-Vet's `<OR>` and
    `<AND>`; its first alternative is shown as the first assistant's answer (the original code draws one, with no seed).

    Attributes:
        wording: `code` (the original code's, asks for a score line), `paper` (Figure 7, does not), `chat` (the code's
            words as chat messages).
        anchored: force the first answer's full score, as in Figures 21 to 23; else the judge writes both scores, and
            the first is kept as `Shown.anchor`.
        images: `ignore` judges by the reference alone, as the paper does; `auto` shows a vision-language judge the
            images of the samples that have some; `use` expects some. An engine or model that cannot see refuses them.
        scale: lowest and highest score of the judge.
        reasons: `all` judgments are explained, or `none`.
        reason_tokens: most tokens of a reason.
        temperature: 0 is greedy; otherwise each sample draws with its own seed, made of `seed` and its id.
        max_tokens: room for the score line.

    Raises:
        ConfigError: an option that does not exist, or is out of range.
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
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 24

    def __post_init__(self) -> None:
        """Check each option."""
        multimodal_template(self.wording)
        check_above_zero(self, "max_tokens", "reason_tokens")

    @property
    def prompt(self) -> MultimodalTemplate:
        """The prompt of this wording."""
        return multimodal_template(self.wording)

    @property
    def template(self) -> str:
        """Its id in manifests."""
        return self.prompt.id

    @property
    def template_sha(self) -> str:
        """Hash of its bytes."""
        return self.prompt.sha

    def check(self, sample: Sample) -> None:
        """See that a sample can be judged.

        Raises:
            InputError: it has not one answer and a reference, or no image where images are to be shown.
        """
        if len(sample.answers) != 1 or sample.reference is None or not read_gold(sample.reference).alternatives:
            raise InputError(
                f"sample {sample.id}: multimodal judging needs one answer and a reference, got {len(sample.answers)} "
                f"and {'none' if sample.reference is None else 'one'}; give each row `answer` and `reference`"
            )
        if self.images == "use" and not sample.images:
            raise InputError(
                f"sample {sample.id}: no image to show the judge; give each row `image`, or judge with images=ignore"
            )

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Ask for the score line, then for the reason.

        Raises:
            InputError: the sample cannot be judged.
        """
        self.check(sample)
        prompt = self.prompt_of(sample)
        sampling = sampling_for(self, sample.id, self.max_tokens, stop=("\n",))
        [completion] = yield [Request(key="0", prompt=prompt, sampling=sampling)]
        judgment = graded(self, sample, self._read(prompt, completion))
        begun = replace(prompt, prefill="")  # the text has it
        sampling = sampling_for(self, sample.id, self.reason_tokens, reserve=self.max_tokens)
        return (yield from explain(judgment, to_explain(judgment, self.reasons), [begun], sampling))

    def prompt_of(self, sample: Sample) -> Prompt:
        """The prompt that the judge reads."""
        full_score = self.scale[1] if self.anchored else None
        return self.prompt.render(sample, full_score=full_score, images=self.images != "ignore")

    def _read(self, prompt: Prompt, completion: Completion) -> Shown:
        """The score of the second answer; the prefill is part of the text, which a reason continues."""
        whole = replace(completion, texts=tuple(prompt.prefill + text for text in completion.texts))
        parse = partial(parse_pair, scale=self.scale)
        shown = read_reply(whole, parse, max_tokens=self.max_tokens, referenced=True)
        if shown.scores is None:
            return shown
        anchor, score = shown.scores
        return replace(shown, anchor=anchor, scores=(score,))
