"""The prompt for one answer with nothing beside it: a plain grade, score line first.

JudgeLM grades a single answer beside a reference that has the full score (Figure 5). Where there is no reference, this
prompt asks for the one score alone. Its words are ours, after those of Figure 3: no released judge was trained on it,
so it is for judges that follow instructions.
"""

from functools import cache

from judgelm.prompts.self_reference import PromptFamily, PromptText
from judgelm.records import Prompt, Sample

_ID = "judgelm-grade"
_DELIMITERS = (
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
        id=_ID,
        texts={
            "chat": PromptText(text=text, delimiters=_DELIMITERS),
            "plain": PromptText(text=f"{text}\n\n### Response:\n", delimiters=_DELIMITERS),
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
