"""Templates of judges that reason before their verdict, which `train/grpo.py` trains.

The judge explains which answer is better and ends with `[[1]]` or `[[2]]`. `reasoned-chat` is for instruct models;
`reasoned-compact` has the blocks of `judgelm-compact`, for judges of a few million parameters. The words are ours.

Reasoning first and a verdict in double brackets: J1 (Whitehouse et al. 2025) and RM-R1 (Chen et al. 2025).
"""

from collections.abc import Callable, Sequence
from functools import cache

from judgelm.prompts.template import Layout, Messages, Template

_SYSTEM = "You are an impartial judge. You compare answers to a question and reason before you give your verdict."
_BLOCKS = (
    "[Question]",
    "[Reference Answer]",
    "[The Start of Assistant {n}'s Answer]",
    "[The End of Assistant {n}'s Answer]",
    "[Task]",
)


def verdict_text(label: str) -> str:
    """The end of a reply that names this answer, by its place among those shown."""
    return f"[[{label}]]"


def _verdicts(answers: int) -> tuple[str, ...]:
    return tuple(verdict_text(str(rank)) for rank in range(1, answers + 1))


def _chat(slots: Sequence[str], referenced: bool) -> Messages:
    blocks = "".join(
        f"[The Start of Assistant {n}'s Answer]\n{{{slot}}}\n[The End of Assistant {n}'s Answer]\n\n"
        for n, slot in enumerate(slots, 1)
    )
    reference = "[Reference Answer]\n{reference}\n\n" if referenced else ""
    measure = "Compare the answers with the reference answer. " if referenced else ""
    better = "better" if len(slots) == 2 else "best"
    verdicts = ", ".join(
        f'"{verdict}" if the answer of Assistant {n} is {better}' for n, verdict in enumerate(_verdicts(len(slots)), 1)
    )
    task = (
        f"Which assistant answers the question {better}? {measure}Judge what the answers say; neither their order nor "
        "their length matters. First explain your reasons. Then end with your verdict on a line of its own: "
        f"{verdicts}."
    )
    return (("system", _SYSTEM), ("user", f"[Question]\n{{question}}\n\n{reference}{blocks}[Task]\n{task}"))


def _compact(slots: Sequence[str], referenced: bool) -> Messages:
    shown = "".join(f"[{n}] {{{slot}}}\n" for n, slot in enumerate(slots, 1))
    return ((None, "[Q] {question}\n" + ("[R] {reference}\n" if referenced else "") + f"{shown}[S] "),)


def _template(
    template_id: str, messages: Callable[[Sequence[str], bool], Messages], delimiters: tuple[str, ...]
) -> Template:
    """A template out of its messages; the delimiters include the verdicts, which only the judge may write."""

    @cache
    def layout(answers: int) -> Layout:
        marks = (*delimiters, *_verdicts(max(answers, 2)))
        if answers == 1:
            return Layout(plain=None, with_reference=messages(("reference", "answer_1"), False), delimiters=marks)
        slots = [f"answer_{rank}" for rank in range(1, answers + 1)]
        return Layout(plain=messages(slots, False), with_reference=messages(slots, True), delimiters=marks)

    return Template(id=template_id, layout=layout, reasons_first=True)


REASONED_CHAT = _template("reasoned-chat", _chat, _BLOCKS)
REASONED_COMPACT = _template("reasoned-compact", _compact, ("[Q]", "[R]", "[{n}]", "[S]"))
