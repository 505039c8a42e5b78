"""The six dimensions of Play Favorites, word for word from its appendix D.

Bold and italic type of the print is not part of the bytes. Levels stand in the order printed: of logical correctness
and helpfulness the best comes first. Scores run from 1 (worst) in steps of 1. The options `NA` of the human rubric
(Table 3) are not offered to judges.

Source: Play Favorites, appendix D (prompts), section 4.2 and Table 3 (scales).
"""

from collections.abc import Sequence

from judgelm.prompts.rubric import DELIMITERS, FORM, Scale
from judgelm.prompts.self_reference import PromptText

_OPENING = "You are given a task in some context (Input), and a candidate answer. "
_SHOWN = "\n\nTask: {question}\n\nCandidate Response: {answer_1}\n\nInstruction: "
_EXPLAIN = "First explain your reasoning, then provide your final answer. Use the following format:\n\n"
_ENDING = f"{_EXPLAIN}{FORM}\n\nwhere [Answer] is one of:\n\n"


def _scale(name: str, text: str, levels: Sequence[str], *, best_first: bool = False, bullet: str = "") -> Scale:
    worst_first = levels[::-1] if best_first else levels
    return Scale(
        name=name,
        text=PromptText(text=text + "\n".join(f"{bullet}{level}" for level in levels), delimiters=DELIMITERS),
        levels={level: float(worst_first.index(level) + 1) for level in levels},
    )


_YES = ("Not at all", "Not generally", "Neutral/Mixed", "Generally yes", "Yes")

_FAITHFULNESS = _scale(
    "faithfulness",
    f"{_OPENING}Is the candidate answer faithful to the task description and context?\n\n"
    "A response is considered unfaithful only when (1) it clearly contradicts the context, or (2) the task implies "
    "that the response must be based on the context (e.g., a summarization task). If the task does not require "
    "grounding in the context, the model may use its own knowledge, even if unverifiable."
    f"{_SHOWN}Evaluate how much of the information in the answer is faithful to the available context.\n\n{_ENDING}",
    (
        *("none is faithful", "some is faithful", "approximately half is faithful", "most is faithful"),
        "all is faithful",
    ),
)
_LOGICAL_ROBUSTNESS = _scale(
    "logical_robustness",
    f"{_OPENING}Evaluate whether the arguments in the response follow logically from one another.\n\n"
    "Consider the following aspects:\n\n"
    "- Self-contradictions within the response\n"
    "- Logic gaps or errors in reasoning\n"
    "- Soundness of reasoning (given the premises)\n"
    "- Proper argumentation where required\n\n"
    "Note that factual correctness is separate from logical cohesion - evaluate the reasoning process, not the "
    f"accuracy of claims.{_SHOWN}Evaluate the logical cohesion of the response.\n\n{_ENDING}",
    _YES,
)
_LOGICAL_CORRECTNESS = _scale(
    "logical_correctness",
    f"{_OPENING}Evaluate whether the response is correct and accurate, focusing only on content and solution "
    "validity.\n\n"
    "Note that style, presentation, format, or language issues should not affect the evaluation of correctness."
    f"{_SHOWN}Evaluate whether the response is correct and accurate for the given task.\n\n{_ENDING}",
    ("correct", "partially correct", "incorrect"),
    best_first=True,
)
_HELPFULNESS = _scale(
    "helpfulness",
    f"{_OPENING}Evaluate how helpful the completion is for the user's request.\n\n"
    "A response is considered helpful when it satisfies both explicit and implicit expectations in the user's request. "
    "Consider factors such as:\n\n"
    "- Coherence and clarity given the context\n"
    "- Task completion (if applicable)\n"
    "- Following provided instructions\n"
    "- Appropriate style and format\n"
    "- Audience appropriateness\n"
    "- Specificity level\n"
    "- Conciseness vs. elaboration as needed\n"
    "- Avoiding unnecessary content\n"
    "- Anticipating user needs\n"
    "- Interest level (when appropriate)\n"
    "- Solution elegance (for technical problems)\n"
    "- Appropriate chat formatting (for conversations)"
    f"{_SHOWN}Evaluate how helpful the response is for the given task.\n\n{_ENDING}",
    (
        *("above and beyond", "very helpful", "somewhat helpful", "neither helpful nor unhelpful"),
        *("somewhat unhelpful", "very unhelpful", "not helpful at all"),
    ),
    best_first=True,
)
_COMPLETENESS = _scale(
    "completeness",
    f"{_OPENING}Determine whether the response contains all necessary information and detail to properly answer the "
    "input. Focus only on information completeness, not on accuracy, style, or coherence. A response is considered "
    "incomplete when it:\n\n"
    "- Misses explicitly requested items\n"
    "- Fails to address all parts of multi-part requests\n"
    "- Provides insufficient detail\n"
    "- Misunderstands or ignores the input\n\n"
    'For evasive responses ("I can\'t answer that"), rate as complete if appropriate, or evaluate the provided portion '
    f"if partially evasive.{_SHOWN}Evaluate how complete the response is relative to the task requirements. {_ENDING}",
    _YES,
)
_CONCISENESS = _scale(
    "conciseness",
    f"{_OPENING}Assess how focused and relevant the response is to the given question.\n\n"
    'Note that responses indicating inability to answer (e.g., "I don\'t know") are considered relevant if '
    "appropriate. However, irrelevant additional content should be penalized even if preceded by such statements."
    f"{_SHOWN}Evaluate how relevant and focused the response is to the task.\n\n{_ENDING}",
    ("not at all", "slightly", "somewhat", "mostly", "completely"),
    bullet="- ",
)

PLAY_FAVORITES = {
    scale.name: scale
    for scale in (
        *(_COMPLETENESS, _CONCISENESS, _LOGICAL_ROBUSTNESS, _LOGICAL_CORRECTNESS, _HELPFULNESS, _FAITHFULNESS),
    )
}
"""By name, in the order of Table 1 of the paper."""
