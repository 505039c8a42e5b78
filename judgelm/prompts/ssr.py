"""The prompts of SSR-Judge: which of two responses is better, with the judge's own answer beside them or without.

The paper prints one sentence of each (section 3.4): "Given question Q, the correct answer is A. Which response is
better: R1 or R2?" and "Given question Q, which response is better: R1 or R2?". These sentences are kept. The blocks,
the request to reason first and the verdict's format are ours. So is the choice of the prompt for the self-solves, which
the paper does not print: Figure 6 of Self-Reference, or its Figure 5 where the answer is a number.

Source: SSR-Judge, section 3.4.
"""

from judgelm.prompts.correctness import question_of
from judgelm.prompts.self_reference import CHOICE, CHOICE_OF_NO_CATEGORY, NUMBER, PromptFamily, PromptText
from judgelm.records import Prompt, Sample

_BLOCKS = (
    "[Question]\n{question}\n\n"
    "[The Start of Response 1]\n{answer_1}\n[The End of Response 1]\n\n"
    "[The Start of Response 2]\n{answer_2}\n[The End of Response 2]\n\n"
    "[Task]\n"
)
_VERDICT = (
    " Judge by whether the final answer is right; neither order nor length of the responses matters. Explain briefly "
    'first. Then end with your verdict, in exactly this form: "[[1]]" if Response 1 is better, "[[2]]" if Response 2 '
    "is better."
)
_DELIMITERS = (
    "[Question]",
    "[The Start of Response {n}]",
    "[The End of Response {n}]",
    "[Task]",
    "[[1]]",
    "[[2]]",
)
_WHOLE = frozenset({"answer_1", "answer_2"})

COMPARE = PromptText(
    text=f"{_BLOCKS}Given the question above, which response is better: Response 1 or Response 2?{_VERDICT}",
    delimiters=_DELIMITERS,
    whole=_WHOLE,
)
"""Gate off: no reference."""

COMPARE_WITH_ANSWER = PromptText(
    text=(
        f"{_BLOCKS}Given the question above, the correct answer is {{reference}}. Which response is better: Response 1 "
        f"or Response 2?{_VERDICT}"
    ),
    delimiters=_DELIMITERS,
    whole=_WHOLE,
)
"""Gate on: the majority answer alone."""

SSR = PromptFamily(
    id="ssr",
    texts={
        "number": NUMBER,
        "choice": CHOICE,
        "choice_of_no_category": CHOICE_OF_NO_CATEGORY,
        "compare": COMPARE,
        "compare_with_answer": COMPARE_WITH_ANSWER,
    },
)


def comparing_prompt(sample: Sample, order: tuple[int, int], reference: str | None, *, chat: bool) -> Prompt:
    """The two answers in this order, with the answer that counts as right if it is not None.

    Args:
        sample: with two answers.
        order: indices into `sample.answers`.
        reference: the majority answer of the self-solves.
        chat: one user message; else plain text.

    Raises:
        InputError: the sample's options are no texts.
    """
    first, second = (sample.answers[index] for index in order)
    values = {"question": question_of(sample).text, "answer_1": first, "answer_2": second}
    if reference is None:
        return COMPARE.render(values, chat=chat)
    return COMPARE_WITH_ANSWER.render(values | {"reference": reference}, chat=chat)
