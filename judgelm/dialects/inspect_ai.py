"""inspect_ai's model-graded scorers, with a criterion (`model_graded_qa`) or a reference answer (`model_graded_fact`).

Users write the instructions after the data. Replies are `C` or `I`, never `P` (partly correct). Source: requests and
replies captured from inspect_ai 0.3.
"""

from judgelm.dialects.contract import Dialect, JudgeResult, JudgeTask, last_text, template_dialect
from judgelm.dialects.replies import explanation, is_fulfilled, same_reply


def _grade_text(task: JudgeTask, result: JudgeResult) -> str:
    return f"{explanation(result)}\n\nGRADE: {'C' if is_fulfilled(result) else 'I'}"


DIALECTS: tuple[Dialect, ...] = tuple(
    template_dialect(
        name,
        "label",
        text=last_text("user", strip=lambda text: text.lstrip("\n")),
        accepts=lambda request, split: "GRADE: " in split.values["instructions"],
        render=same_reply(_grade_text),
    )
    for name in ("inspect-model-graded-qa", "inspect-model-graded-fact")
)
