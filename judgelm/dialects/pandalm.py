"""PandaLM's prompt, also as JudgeBench sends it: `1`, `2` or `Tie` on the first line, then a reason.

The client strips the answers and takes special tokens out of them before it asks; the split gives what the prompt
holds. A JudgeBench prompt has no input.

Source: Wang et al. 2023, PandaLM; WeOpenML/PandaLM.
"""

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import lone_text, task_from_split
from judgelm.dialects.text import room_for_words, scores_and_reason
from judgelm.dialects.verdicts import each_reply, winner_of_two

_REASON = "\n\n### Reason: "
_RESPONSES = "\n\n### Response 1:\n{first}\n\n### Response 2:\n{second}\n\n### Evaluation:"
_INTRODUCTION = "Below are two responses for a given task. The task is defined by the Instruction"
_REQUEST = ". Evaluate the responses and generate a reference answer for the task.\n\n### Instruction:\n{question}"
_WITHOUT_INPUT = Pattern(_INTRODUCTION + _REQUEST + _RESPONSES)
_WITH_INPUT = Pattern(
    _INTRODUCTION + " with an Input that provides further context" + _REQUEST + "\n\n### Input:\n{input}" + _RESPONSES
)


def _recognise(request: ChatRequest) -> JudgeTask | None:
    text = lone_text(request)
    if text is None:
        return None
    prompt = text.rstrip("\n")  # clients differ in the number of line ends
    split = _WITHOUT_INPUT.split(prompt) or _WITH_INPUT.split(prompt)
    return None if split is None else task_from_split("pandalm", "pair", split, input=split.values.get("input"))


def _text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    verdict = "Tie" if result.winner == "tie" else str(winner_of_two(task, result))
    words = scores_and_reason(result, room_for_words(request, len(_REASON) + 3))
    return f"{verdict}{_REASON}{words}" if words else verdict


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name="pandalm", recognise=_recognise, render=each_reply(_text), templates=(_WITHOUT_INPUT, _WITH_INPUT)),
)
