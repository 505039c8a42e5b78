"""Arena-Hard's prompts: version 0.1 with its second try, version 2, and JudgeBench's copy with or without a tie.

All show the same blocks and offer labels such as `[[A>>B]]` in the system's message. Their parsers agree on a reply
with exactly one label; 0.1 asks once more where it found none, and reads both replies together.
"""

import re

from judgelm.dialects.ambiguity import resolve_split
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import task_from_split
from judgelm.dialects.text import scores_and_reason, words_and_verdict
from judgelm.dialects.verdicts import each_reply, winner_of_two

NAME = "arena-hard"

_SHOWN = Pattern(
    "<|User Prompt|>\n{question}\n\n<|The Start of Assistant A's Answer|>\n{first}\n<|The End of Assistant A's Answer|>"
    "\n\n<|The Start of Assistant B's Answer|>\n{second}\n<|The End of Assistant B's Answer|>"
)
_BLOCKS = tuple(
    (f"<|The Start of Assistant {name}'s Answer|>", f"<|The End of Assistant {name}'s Answer|>") for name in "AB"
)
_LABEL = re.compile(r"\[\[([AB]>{1,2}[AB]|A=B)\]\]")
_AGAIN = "continue your judgment and finish by outputting a final verdict label"
_MUCH_BETTER = 3.0  # points between expected scores, from which one answer is significantly better


def recognise(request: ChatRequest) -> JudgeTask | None:
    """A pair between the blocks, with the labels that the system's message offers."""
    roles = [message.role for message in request.messages]
    texts = [message.text for message in request.messages]
    if roles != ["system", "user", *["assistant", "user"] * (len(roles) // 2 - 1)]:
        return None
    if any(text != _AGAIN for text in texts[3::2]):
        return None
    labels = tuple(dict.fromkeys(_LABEL.findall(texts[0])))
    if not {"A>B", "B>A"} <= set(labels):
        return None
    split = resolve_split(_SHOWN, texts[1], blocks=_BLOCKS)
    return None if split is None else task_from_split(NAME, "pair", split, facts={"labels": labels})


def _text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """Words, and one label behind them."""
    words, label = scores_and_reason(result, None), f"[[{_label(task, result)}]]"
    return words_and_verdict(request, words, label, "{words}\n\nMy final verdict is: {verdict}")


def _label(task: JudgeTask, result: JudgeResult) -> str:
    labels = task.facts["labels"]
    if result.winner == "tie" and "A=B" in labels:
        return "A=B"
    winner = winner_of_two(task, result)
    lead = (result.scores[0] - result.scores[1]) * (1 if winner == 1 else -1) if len(result.scores) == 2 else 0.0
    much, little = ("A>>B", "A>B") if winner == 1 else ("B>>A", "B>A")
    return much if much in labels and lead >= _MUCH_BETTER else little


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name=NAME, recognise=recognise, render=each_reply(_text), templates=(_SHOWN,)),
)
