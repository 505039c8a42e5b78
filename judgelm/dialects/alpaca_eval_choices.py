"""AlpacaEval's annotators that show a worked example first: `Output (a)` or `Output (b)`, and `A` or `B`.

The example's texts are always the same; the task stands behind the first line that announces it. Outputs stand raw
between headings, so any text may be in them.

Source: AlpacaEval (Li et al. 2023), tatsu-lab/alpaca_eval, `chatgpt`, `gpt4`, `gpt4_turbo` and their kin.
"""

import json

from judgelm.dialects.alpaca_eval import render_token
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import ambiguity_note, sample_of, user_text
from judgelm.dialects.text import results_per_reply, winner_of_two

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


def _choice(asked: ChatRequest) -> JudgeTask | None:
    return _behind_example("alpaca-eval-choice", _CHOICE, asked)


def _letter(asked: ChatRequest) -> JudgeTask | None:
    name = "alpaca-eval-letter"
    bare = _behind_example(name, _LETTER, asked)
    return bare or _behind_example(name, _LETTER_EXPLAINED, asked, explanation=True)


def _behind_example(name: str, pattern: Pattern, asked: ChatRequest, *, explanation: bool = False) -> JudgeTask | None:
    text = user_text(asked)
    if text is None or not text.startswith(_OPENING):
        return None
    _, announced, task = text.partition(_TASK)
    found = pattern.split(task) if announced else None
    if found is None:
        return None
    values = found.values
    return JudgeTask(
        dialect=name,
        task="pair",
        sample=sample_of(values["question"], (values["first"], values["second"])),
        facts={"explanation": explanation},
        doubt=ambiguity_note(found),
    )


def _render_choice(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    """The better output's name; in a call where a function that wants it is on offer."""
    chosen = [_OUTPUTS[winner_of_two(case, one)] for one in results_per_reply(asked, finding)]
    for tool in asked.tools:
        if _ARGUMENT in (tool.parameters.get("properties") or ()):
            return Reply(tool=tool.name, arguments=json.dumps({_ARGUMENT: chosen[0]}))
    return Reply(texts=tuple(chosen))


def _render_letter(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    return render_token(case, asked, finding, _LETTERS)


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name="alpaca-eval-choice", recognise=_choice, render=_render_choice),
    Dialect(name="alpaca-eval-letter", recognise=_letter, render=_render_letter),
)
