"""FairEval's prompts: evidence first, and the two scores in the last two lines.

The client asks for several replies (three, as it comes) and takes the mean of their scores; its parser wants no line
end behind the last score.
"""

import re

from judgelm.dialects.ambiguity import resolve_split
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import task_from_split
from judgelm.dialects.text import safe_reason, words_and_verdict
from judgelm.dialects.verdicts import consistent_scores, each_reply, winner_sentence

NAME = "faireval"

_SHOWN = Pattern(
    "[Question]\n{question}\n\n[The Start of Assistant 1's Answer]\n{first}\n[The End of Assistant 1's Answer]\n\n"
    "[The Start of Assistant 2's Answer]\n{second}\n[The End of Assistant 2's Answer]\n\n[System]\n{instruction}"
)
_BLOCKS = tuple((f"[The Start of Assistant {n}'s Answer]", f"[The End of Assistant {n}'s Answer]") for n in "12")
_LAST_LINES = re.compile(r"Score of the Assistant 1:[^\n]*\n[ \t]*Score of the Assistant 2:[^\n]*\s*\Z")


def recognise(request: ChatRequest) -> JudgeTask | None:
    """A pair between the blocks, whose instruction ends with the two lines that are wanted."""
    texts = request.only("system", "user")
    split = None if texts is None else resolve_split(_SHOWN, texts[1], blocks=_BLOCKS)
    if split is None or not _LAST_LINES.search(split.values["instruction"]):
        return None
    return task_from_split(NAME, "pair", split)


def _text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    first, second = consistent_scores(task, result)
    return words_and_verdict(
        request,
        f"{winner_sentence(task, result)} {safe_reason(result.reason)}".strip(),
        f"Score of the Assistant 1: {first}\nScore of the Assistant 2: {second}",
        "Evaluation evidence: {words}\n{verdict}",
    )


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name=NAME, recognise=recognise, render=each_reply(_text), templates=(_SHOWN,)),
)
