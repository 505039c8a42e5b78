"""SimpleQA's grader: `A` (correct), `B` (incorrect) or `C` (not attempted), and nothing else.

The worked examples before the new one are the user's to change. A probability of being correct cannot tell a wrong
answer from one not attempted; `C` is never given.

Source: SimpleQA as lighteval asks it (captured requests and replies).
"""

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeTask
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import task_from_split
from judgelm.dialects.verdicts import is_fulfilled, same_reply

_NAME = "simpleqa"
_PATTERN = Pattern(
    "Your job is to look at a question, a gold target, and a predicted answer, and then assign a grade of either "
    '["CORRECT", "INCORRECT", "NOT_ATTEMPTED"].\n{examples}\nHere is a new example. Simply reply with either CORRECT, '
    "INCORRECT, NOT ATTEMPTED. Don't apologize or correct yourself if there was a mistake; we are just trying to grade "
    "the answer.\n```\nQuestion: {question}\nGold target: {reference}\nPredicted answer: {first}\n```\n\n"
    "Grade the predicted answer of this new question as one of:\nA: CORRECT\nB: INCORRECT\nC: NOT_ATTEMPTED\n\n"
    'Just return the letters "A", "B", or "C", with no text around it.'
)


def _recognise(request: ChatRequest) -> JudgeTask | None:
    texts = request.only("user")
    split = _PATTERN.split(texts[0].strip()) if texts else None
    return None if split is None else task_from_split(_NAME, "label", split)


DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        name=_NAME,
        recognise=_recognise,
        render=same_reply(lambda task, result: "A" if is_fulfilled(result) else "B"),
        templates=(_PATTERN,),
    ),
)
