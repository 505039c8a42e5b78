"""The prompts that judge one answer to a question about an image, beside an answer that is known to be right.

`multimodal-v1` has the bytes of the original code, which asks for a score line; `multimodal-paper` those of Figure 7,
which does not; `multimodal-chat` the words of the code as chat messages, for instruct and vision-language models. The
figure calls both answers "the predicted answer": the first one is "sampled from the reference answer set" (Figures 21
to 23), and its full score is forced, so that the judge writes the second one's behind it.

Judging needs no image (Figure 20). A judge that can see is shown the images before the text: that is ours.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from judgelm.errors import not_found
from judgelm.prompts.sanitization import sanitizer_for
from judgelm.prompts.template import Messages, fill, sha_of
from judgelm.records import Prompt, Sample, Span, SpanKind

Wording = Literal["code", "paper", "chat"]

_SYSTEM = "You are a helpful and precise assistant for checking the quality of the answer."
_TASK = (
    "We would like to request your feedback on the performance of two AI assistants' answers in comparing with the "
    "reference answer and determine if they match meaningfully. Please rate the helpfulness, relevance, accuracy, "
    "level of details of the Assistants' answers. To accomplish the task, you must : 1. Focus on the meaningful match "
    "between the reference answer and the Assistants' answers.\n 2. Consider synonyms or paraphrases as valid "
    "matches.\n 3. Evaluate the correctness of the Assistants' answers compared to the reference answer.\n 4. If there "
    "are multiple reference answers, the Assistants' answer is considered correct as long as it is close to any of the "
    "answers.\nPlease first output a single line containing only two values indicating the scores for Assistant 1 and "
    "2, respectively. The two scores are separated by a space. In the subsequent line, please provide a comprehensive "
    "explanation of your evaluation, avoiding any potential bias and ensuring that the order in which the responses "
    "were presented does not affect your judgment."
)
_FIGURE_TASK = (
    "Your task is to compare the predicted answer with the correct answer and determine if they match meaningfully. To "
    "accomplish the task, you must :\n1. Focus on the meaningful match between the predicted answer and the correct "
    "answer.\n2. Consider synonyms or paraphrases as valid matches.\n3. Evaluate the correctness of the prediction "
    "compared to the answer.\n4. If there are multiple correct answers, the predicted answer is considered correct as "
    "long as it is close to any of the answers"
)
_BLOCKS = (
    "[Question]",
    "[Reference Answer]",
    "[The Start of Assistant {n}'s Answer]",
    "[The End of Assistant {n}'s Answer]",
    "[System]",
)
_SLOT = re.compile(r"\{(question|reference|accepted|answer)\}")
# The accepted answer is never cut: it is what the judged one is measured by.
_KINDS: dict[str, SpanKind] = {
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
        messages: its text by role; role None is plain text.
        joined: what stands between the parts of an accepted answer.
        tagged: whether the reference is shown with its tags, as the original code does, or in words.
        delimiters: what bounds the blocks; confusables in untrusted text are sanitized.
    """

    id: str
    messages: Messages
    joined: str
    tagged: bool
    delimiters: tuple[str, ...]

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

        Raises:
            ValueError: no reference, or not one answer.
        """
        if sample.reference is None or len(sample.answers) != 1:
            raise ValueError(f"sample {sample.id}: multimodal judging needs one answer and a reference")
        gold = read_gold(sample.reference)
        if not gold.alternatives:
            raise ValueError(f"sample {sample.id}: the reference has tags and no answer")
        values = {
            "question": sample.question,
            "reference": sample.reference if self.tagged else gold.words(),
            "accepted": self.joined.join(gold.alternatives[0]),
            "answer": sample.answers[0],
        }
        shown = {slot: [Span(text, _KINDS[slot])] for slot, text in values.items()}
        shown["images"] = [*(Span(image, "image") for image in sample.images), Span("\n")]
        messages = [(role, _SLOT.split(text)) for role, text in self.messages]
        if images and sample.images:
            role, pieces = messages[-1]
            messages[-1] = (role, ["", "images", *pieces])
        return fill(
            messages,
            shown.__getitem__,
            sanitizer_for(self.delimiters),
            chat=self.messages[0][0] is not None,
            prefill="" if full_score is None else f"{full_score:g}",
        )


def multimodal_template(wording: Wording) -> MultimodalTemplate:
    """The template of that wording.

    Raises:
        ConfigError: there is none.
    """
    if wording not in _TEMPLATES:
        raise not_found("wording", wording, _TEMPLATES)
    return _TEMPLATES[wording]


def _shown(before_end: str) -> str:
    blocks = "".join(
        f"[The Start of Assistant {n}'s Answer]\n{{{slot}}}{before_end}[The End of Assistant {n}'s Answer]\n\n"
        for n, slot in enumerate(("accepted", "answer"), 1)
    )
    return f"[Question]\n{{question}}\n\n[Reference Answer]\n{{reference}}\n\n{blocks}[System]\n"


_NEWLINE, _BLANK_LINE = "\n", "\n\n"
_OPENING = "Please evaluate the following visual-based question-answer pair:"

_TEMPLATES: dict[str, MultimodalTemplate] = {
    "code": MultimodalTemplate(
        id="multimodal-v1",
        messages=((None, f"{_SYSTEM}\n{_shown(_BLANK_LINE)}{_TASK}\n\n### Response:"),),
        joined=" and ",
        tagged=True,
        delimiters=(*_BLOCKS, "### Response:"),
    ),
    "paper": MultimodalTemplate(
        id="multimodal-paper",
        messages=((None, f"{_OPENING}\n\n{_shown(_NEWLINE)}{_FIGURE_TASK}\n\n"),),
        joined=", and ",
        tagged=False,
        delimiters=(*_BLOCKS, "[Response]"),
    ),
    "chat": MultimodalTemplate(
        id="multimodal-chat",
        messages=(("system", _SYSTEM), ("user", f"{_shown(_NEWLINE)}{_TASK}")),
        joined=" and ",
        tagged=False,
        delimiters=(*_BLOCKS, "[Response]"),
    ),
}
