"""SimpleQA's grader: `A` (correct), `B` (incorrect) or `C` (not attempted), and nothing else.

The worked examples before the new one are the user's to change. A probability of being correct cannot tell a wrong
answer from one not attempted; `C` is never given.

Source: SimpleQA as lighteval asks it (captured requests and replies).
"""

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.probabilities import is_fulfilled
from judgelm.dialects.recognition import ambiguity_note, sample_of

_NAME = "simpleqa"
_PATTERN = Pattern(
    "Your job is to look at a question, a gold target, and a predicted answer, and then assign a grade of either "
    '["CORRECT", "INCORRECT", "NOT_ATTEMPTED"].\n{examples}\nHere is a new example. Simply reply with either CORRECT, '
    "INCORRECT, NOT ATTEMPTED. Don't apologize or correct yourself if there was a mistake; we are just trying to grade "
    "the answer.\n```\nQuestion: {question}\nGold target: {target}\nPredicted answer: {answer}\n```\n\n"
    "Grade the predicted answer of this new question as one of:\nA: CORRECT\nB: INCORRECT\nC: NOT_ATTEMPTED\n\n"
    'Just return the letters "A", "B", or "C", with no text around it.'
)


def _recognise(asked: ChatRequest) -> JudgeTask | None:
    texts = asked.only("user")
    found = _PATTERN.split(texts[0].strip()) if texts else None
    if found is None:
        return None
    sample = sample_of(found.values["question"], (found.values["answer"],), found.values["target"])
    return JudgeTask(dialect=_NAME, task="label", sample=sample, doubt=ambiguity_note(found))


def _render(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    return Reply(texts=("A" if is_fulfilled(finding) else "B",) * asked.n)


DIALECTS: tuple[Dialect, ...] = (Dialect(name=_NAME, recognise=_recognise, render=_render),)
