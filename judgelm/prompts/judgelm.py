"""The JudgeLM family's templates, for one answer, a pair, and more.

`judgelm-v1` holds the bytes that the released checkpoints were trained on (the original code's templates),
`judgelm-paper` those of Figures 3 to 6, `judgelm-chat` the same words as chat messages for newer instruct models, and
`judgelm-compact` the same blocks with short markers, for judges of a few million parameters.

A single answer stands behind the reference, in the words of a pair without reference. In the paper (Figure 5) what
comes before the forced score is `[Response]`; the other templates have nothing that a pair's has not.
"""

from collections.abc import Callable, Sequence
from functools import cache

from judgelm.prompts.template import Layout, Messages, Template

_SYSTEM = "You are a helpful and precise assistant for checking the quality of the answer."
_NUMBERS = (
    *("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
"""In words as far as the original code has them; from there on in digits."""

_QUESTION = "[Question]\n{question}\n\n"
_REFERENCE = "[Reference Answer]\n{reference}\n\n"
_BLOCKS = (
    "[Question]",
    "[Reference Answer]",
    "[The Start of Assistant {n}'s Answer]",
    "[The End of Assistant {n}'s Answer]",
    "[System]",
    "[Response]",
)


def _instruction(opening: str, answers: int) -> str:
    count = _NUMBERS[answers] if answers < len(_NUMBERS) else str(answers)
    names = f"{', '.join(str(rank) for rank in range(1, answers))} and {answers}"
    return (
        f"We would like to request your feedback on the performance of {count} AI assistants in response to the user "
        f"question displayed above.\n{opening} rate the helpfulness, relevance, accuracy, level of details of their "
        "responses. Each assistant receives an overall score on a scale of 1 to 10, where a higher score indicates "
        f"better overall performance.\nPlease first output a single line containing only {count} values indicating the "
        f"scores for Assistant {names}, respectively. The {count} scores are separated by a space. In the subsequent "
        "line, please provide a comprehensive explanation of your evaluation, avoiding any potential bias and ensuring "
        "that the order in which the responses were presented does not affect your judgment."
    )


def _opening(referenced: bool) -> str:
    return "Based on the reference answer, please" if referenced else "Please"


def _blocks(slots: Sequence[str], before_end: str) -> str:
    return "".join(
        f"[The Start of Assistant {n}'s Answer]\n{{{slot}}}{before_end}[The End of Assistant {n}'s Answer]\n\n"
        for n, slot in enumerate(slots, 1)
    )


def _v1(slots: Sequence[str], referenced: bool) -> Messages:
    shown = _QUESTION + (_REFERENCE if referenced else "") + _blocks(slots, "\n\n")
    return ((None, f"{_SYSTEM}\n{shown}[System]\n{_instruction('Please', len(slots))}\n\n### Response:"),)


def _asked(slots: Sequence[str], referenced: bool) -> str:
    """The text that the paper's figures have in common with the chat messages."""
    shown = _QUESTION + (_REFERENCE if referenced else "") + _blocks(slots, "\n")
    return f"{shown}[System]\n{_instruction(_opening(referenced), len(slots))}"


def _paper(slots: Sequence[str], referenced: bool) -> Messages:
    response = "[Response]\n" if "reference" in slots else ""
    return ((None, f"{_SYSTEM}\n\n{_asked(slots, referenced)}\n\n{response}"),)


def _chat(slots: Sequence[str], referenced: bool) -> Messages:
    return (("system", _SYSTEM), ("user", _asked(slots, referenced)))


def _compact(slots: Sequence[str], referenced: bool) -> Messages:
    shown = "".join(f"[{n}] {{{slot}}}\n" for n, slot in enumerate(slots, 1))
    return ((None, "[Q] {question}\n" + ("[R] {reference}\n" if referenced else "") + f"{shown}[S]"),)


def _template(
    template_id: str, messages: Callable[[Sequence[str], bool], Messages], delimiters: Callable[[int], tuple[str, ...]]
) -> Template:
    """A template out of its messages, by what stands in the answers' blocks and whether the reference has its own."""

    @cache
    def layout(answers: int) -> Layout:
        if answers == 1:
            return Layout(
                plain=None, with_reference=messages(("reference", "answer_1"), False), delimiters=delimiters(2)
            )
        slots = [f"answer_{rank}" for rank in range(1, answers + 1)]
        return Layout(
            plain=messages(slots, False), with_reference=messages(slots, True), delimiters=delimiters(answers)
        )

    return Template(id=template_id, layout=layout)


JUDGELM_V1 = _template("judgelm-v1", _v1, lambda answers: (*_BLOCKS, "### Response:"))
JUDGELM_PAPER = _template("judgelm-paper", _paper, lambda answers: _BLOCKS)
JUDGELM_CHAT = _template("judgelm-chat", _chat, lambda answers: _BLOCKS)
JUDGELM_COMPACT = _template(
    "judgelm-compact",
    _compact,
    lambda answers: ("[Q]", "[R]", *(("[1]", "[2]") if answers == 2 else ("[{n}]",)), "[S]"),
)
