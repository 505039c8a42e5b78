"""All templates by id, and the prompt of a plain grade.

`judgelm-v1` holds the bytes that the released JudgeLM checkpoints were trained on (the original code's templates),
`judgelm-paper` those of Figures 3 to 6, `judgelm-chat` the same words as chat messages for newer instruct models, and
`judgelm-compact` the same blocks with short markers, for judges of a few million parameters. A single answer stands
behind the reference, in the words of a pair without reference. In the paper (Figure 5) what comes before the forced
score is `[Response]`; the other templates have nothing that a pair's has not.

`reasoned-chat` and `reasoned-compact` are for judges that reason before their verdict, which `train/grpo.py` trains:
they explain which answer is better and end with `[[1]]` or `[[2]]`. The words are ours. Reasoning first and a verdict
in double brackets: J1 (Whitehouse et al. 2025) and RM-R1 (Chen et al. 2025).

JudgeLM grades a single answer beside a reference that has the full score (Figure 5). Where there is no reference, the
plain grade asks for the one score alone. Its words are ours, after those of Figure 3: no released judge was trained on
it, so it is for judges that follow instructions.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial

from judgelm.errors import not_found
from judgelm.prompts.template import ONE_ANSWER, Layout, Messages, PromptFamily, PromptText, Template
from judgelm.records import Prompt, Sample

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
)
_JUDGELM_BLOCKS = (*_BLOCKS, "[System]", "[Response]")
_REASONED_SYSTEM = (
    "You are an impartial judge. You compare answers to a question and reason before you give your verdict."
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


def _blocks(slots: Sequence[str], referenced: bool, before_end: str = "\n") -> str:
    answers = "".join(
        f"[The Start of Assistant {n}'s Answer]\n{{{slot}}}{before_end}[The End of Assistant {n}'s Answer]\n\n"
        for n, slot in enumerate(slots, 1)
    )
    return _QUESTION + (_REFERENCE if referenced else "") + answers


def _v1(slots: Sequence[str], referenced: bool) -> Messages:
    shown = _blocks(slots, referenced, "\n\n")
    return ((None, f"{_SYSTEM}\n{shown}[System]\n{_instruction('Please', len(slots))}\n\n### Response:"),)


def _asked(slots: Sequence[str], referenced: bool) -> str:
    """The text that the paper's figures have in common with the chat messages."""
    opening = "Based on the reference answer, please" if referenced else "Please"
    return f"{_blocks(slots, referenced)}[System]\n{_instruction(opening, len(slots))}"


def _paper(slots: Sequence[str], referenced: bool) -> Messages:
    response = "[Response]\n" if "reference" in slots else ""
    return ((None, f"{_SYSTEM}\n\n{_asked(slots, referenced)}\n\n{response}"),)


def _chat(slots: Sequence[str], referenced: bool) -> Messages:
    return (("system", _SYSTEM), ("user", _asked(slots, referenced)))


def _compact(slots: Sequence[str], referenced: bool, ending: str = "[S]") -> Messages:
    shown = "".join(f"[{n}] {{{slot}}}\n" for n, slot in enumerate(slots, 1))
    return ((None, "[Q] {question}\n" + ("[R] {reference}\n" if referenced else "") + f"{shown}{ending}"),)


def _reasoned_chat(slots: Sequence[str], referenced: bool) -> Messages:
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
    return (("system", _REASONED_SYSTEM), ("user", f"{_blocks(slots, referenced)}[Task]\n{task}"))


def verdict_text(label: str) -> str:
    """The end of a reply that names this answer, by its place among those shown."""
    return f"[[{label}]]"


def _verdicts(answers: int) -> tuple[str, ...]:
    """The verdicts, which only the judge may write."""
    return tuple(verdict_text(str(rank)) for rank in range(1, answers + 1))


def _template(
    template_id: str,
    messages: Callable[[Sequence[str], bool], Messages],
    delimiters: Callable[[int], tuple[str, ...]],
    *,
    reasons_first: bool = False,
) -> Template:
    """A template out of its messages, by what stands in the answers' blocks and whether the reference has its own."""

    @cache
    def layout(answers: int) -> Layout:
        if answers == 1:
            alone = messages(("reference", "answer_1"), False)
            return Layout(plain=None, with_reference=alone, delimiters=delimiters(2))
        slots = [f"answer_{rank}" for rank in range(1, answers + 1)]
        return Layout(
            plain=messages(slots, False), with_reference=messages(slots, True), delimiters=delimiters(answers)
        )

    return Template(id=template_id, layout=layout, reasons_first=reasons_first)


def _compact_delimiters(answers: int) -> tuple[str, ...]:
    return ("[Q]", "[R]", *(("[1]", "[2]") if answers == 2 else ("[{n}]",)), "[S]")


def _reasoned_delimiters(answers: int, blocks: tuple[str, ...]) -> tuple[str, ...]:
    return (*blocks, *_verdicts(answers))


TEMPLATES = {
    template.id: template
    for template in (
        _template("judgelm-v1", _v1, lambda answers: (*_JUDGELM_BLOCKS, "### Response:")),
        _template("judgelm-paper", _paper, lambda answers: _JUDGELM_BLOCKS),
        _template("judgelm-chat", _chat, lambda answers: _JUDGELM_BLOCKS),
        _template("judgelm-compact", _compact, _compact_delimiters),
        _template(
            "reasoned-chat",
            _reasoned_chat,
            partial(_reasoned_delimiters, blocks=(*_BLOCKS, "[Task]")),
            reasons_first=True,
        ),
        _template(
            "reasoned-compact",
            partial(_compact, ending="[S] "),
            partial(_reasoned_delimiters, blocks=("[Q]", "[R]", "[{n}]", "[S]")),
            reasons_first=True,
        ),
    )
}


def get_template(template_id: str) -> Template:
    """The template of that id.

    Raises:
        ConfigError: not found; the message lists the available ones.

    Example:
        >>> from judgelm.records import Sample
        >>> sample = Sample(id="1", question="What is 2 + 2?", answers=("4", "5"))
        >>> prompt = get_template("judgelm-v1").render(sample, (0, 1), None)
        >>> [(span.kind, span.text) for span in prompt.spans if span.kind != "template"]
        [('question', 'What is 2 + 2?'), ('answer', '4'), ('answer', '5')]
    """
    if template_id not in TEMPLATES:
        raise not_found("template", template_id, TEMPLATES)
    return TEMPLATES[template_id]


_GRADE_DELIMITERS = (
    "[Question]",
    "[The Start of Assistant's Answer]",
    "[The End of Assistant's Answer]",
    "[System]",
    "### Response:",
)


@cache
def grading_family(scale: tuple[float, float]) -> PromptFamily:
    """The prompt on one scale, as a chat message (`chat`) and as plain text (`plain`)."""
    low, high = scale
    text = (
        "You are a helpful and precise assistant for checking the quality of the answer.\n\n"
        "[Question]\n{question}\n\n"
        "[The Start of Assistant's Answer]\n{answer_1}\n[The End of Assistant's Answer]\n\n"
        "[System]\nWe would like to request your feedback on the performance of an AI assistant in response to the "
        "user question displayed above.\n"
        "Please rate the helpfulness, relevance, accuracy, level of details of its response. The assistant receives an "
        f"overall score on a scale of {low:g} to {high:g}, where a higher score indicates better overall performance.\n"
        "Please first output a single line containing only one value indicating the score for the assistant. In the "
        "subsequent line, please provide a comprehensive explanation of your evaluation, avoiding any potential bias."
    )
    return PromptFamily(
        id="judgelm-grade",
        texts={
            "chat": PromptText(text=text, kinds=ONE_ANSWER, delimiters=_GRADE_DELIMITERS),
            "plain": PromptText(text=f"{text}\n\n### Response:\n", kinds=ONE_ANSWER, delimiters=_GRADE_DELIMITERS),
        },
    )


def grading_prompt(sample: Sample, scale: tuple[float, float], *, chat: bool) -> Prompt:
    """The sample's first answer by itself.

    Args:
        sample: with an answer.
        scale: lowest and highest score, which the prompt names.
        chat: one user message for the tokenizer's chat template; else plain text.
    """
    text = grading_family(scale).texts["chat" if chat else "plain"]
    return text.render({"question": sample.question, "answer_1": sample.answers[0]}, chat=chat)
