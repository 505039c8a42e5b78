"""AlpacaEval's annotators that show a worked example first: `Output (a)` or `Output (b)`, and `A` or `B`.

The example's texts are always the same; the task stands behind the first line that announces it. Outputs stand raw
between headings, so any text may be in them.

Source: AlpacaEval (Li et al. 2023), tatsu-lab/alpaca_eval, `chatgpt`, `gpt4`, `gpt4_turbo` and their kin.
"""

import json
from collections.abc import Mapping
from functools import partial

from judgelm.dialects.alpaca_eval import render_token
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import task_from_split, user_text
from judgelm.dialects.verdicts import results_per_reply, winner_of_two

_OPENING = "Select the output "
_TASK = "\n# Task:\nNow is the real task"
_CHOICE = Pattern(
    ", do not explain your answer, just say Output (a) or Output (b).\n\n## Instruction:\n{question}\n\n"
    "## Output (a):\n{first}\n\n## Output (b):\n{second}\n\n## Which is best, Output (a) or Output (b)?"
)
_LETTER = Pattern(
    ", do not explain your answer, just say A or B.\n\n## Instruction:\n{question}\n\n## Output A:\n{first}\n\n"
    "## Output B:\n{second}\n\n## Which is best, A or B?"
)
_LETTER_EXPLAINED = Pattern(
    ".\n\n## Instruction:\n{question}\n\n## Output `A`:\n{first}\n\n## Output `B`:\n{second}\n\n"
    "## Concise explanation followed by `A` or `B`\n\n### Concise explanation"
)
_LETTERS = {1: "A", 2: "B"}
_OUTPUTS = {1: "Output (a)", 2: "Output (b)"}
_ARGUMENT = "best_output"


def _recognise(name: str, patterns: Mapping[Pattern, bool], request: ChatRequest) -> JudgeTask | None:
    """The task behind the worked example; `patterns` have whether an explanation is wanted."""
    text = user_text(request)
    if text is None or not text.startswith(_OPENING):
        return None
    _, announced, body = text.partition(_TASK)
    for pattern, explanation in patterns.items():
        if announced and (split := pattern.split(body)) is not None:
            return task_from_split(name, "pair", split, facts={"explanation": explanation})
    return None


def _render_choice(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
    """The better output's name; in a call where a function that wants it is on offer."""
    chosen = [_OUTPUTS[winner_of_two(task, drawn)] for drawn in results_per_reply(request, result)]
    for tool in request.tools:
        if _ARGUMENT in (tool.parameters.get("properties") or ()):
            return Reply(tool=tool.name, arguments=json.dumps({_ARGUMENT: chosen[0]}))
    return Reply(texts=tuple(chosen))


DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        name="alpaca-eval-choice",
        recognise=partial(_recognise, "alpaca-eval-choice", {_CHOICE: False}),
        render=_render_choice,
        templates=(_CHOICE,),
    ),
    Dialect(
        name="alpaca-eval-letter",
        recognise=partial(_recognise, "alpaca-eval-letter", {_LETTER: False, _LETTER_EXPLAINED: True}),
        render=partial(render_token, names=_LETTERS),
        templates=(_LETTER, _LETTER_EXPLAINED),
    ),
)
