"""inspect_ai's model-graded scorers: against a criterion (`model_graded_qa`) and against a fact (`model_graded_fact`).

The instructions behind the data are the user's; the letters offered in them are `C` and `I`, or `C`, `P` and `I`. A
probability of being correct says nothing about being partly so; `P` is never given. The client has taken out of the
answer what looks like its own delimiters; the split gives what the prompt holds.

Source: inspect_ai 0.3 (captured requests and replies).
"""

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.probabilities import is_fulfilled
from judgelm.dialects.recognition import ambiguity_note, sample_of
from judgelm.dialects.text import explanation

_QA = Pattern(
    "You are assessing a submitted answer on a given task based on a criterion. Here is the data:\n\n[BEGIN DATA]\n"
    "***\n[Task]: {question}\n***\n[Submission]: {answer}\n***\n[Criterion]: {criterion}\n***\n[END DATA]\n\n"
    "Does the submission meet the criterion?\n{instructions}"
)
_FACT = Pattern(
    "You are comparing a submitted answer to an expert answer on a given question. Here is the data:\n\n[BEGIN DATA]\n"
    "************\n[Question]: {question}\n************\n[Expert]: {criterion}\n************\n[Submission]: {answer}\n"
    "************\n[END DATA]\n\nCompare the factual content of the submitted answer with the expert answer. Ignore "
    "any differences in style, grammar, or punctuation.\n\nDoes the submission contain the content in the expert "
    "answer?\n{instructions}"
)
_NAMES = {"inspect-model-graded-qa": _QA, "inspect-model-graded-fact": _FACT}


def _recognise(name: str, asked: ChatRequest) -> JudgeTask | None:
    texts = asked.only("user")
    found = _NAMES[name].split(texts[0].lstrip("\n")) if texts else None
    if found is None or "GRADE: " not in found.values["instructions"]:
        return None
    sample = sample_of(found.values["question"], (found.values["answer"],), found.values["criterion"])
    return JudgeTask(dialect=name, task="label", sample=sample, doubt=ambiguity_note(found))


def _recognise_qa(asked: ChatRequest) -> JudgeTask | None:
    return _recognise("inspect-model-graded-qa", asked)


def _recognise_fact(asked: ChatRequest) -> JudgeTask | None:
    return _recognise("inspect-model-graded-fact", asked)


def _render(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    letter = "C" if is_fulfilled(finding) else "I"
    return Reply(texts=(f"{explanation(finding)}\n\nGRADE: {letter}",) * asked.n)


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name="inspect-model-graded-qa", recognise=_recognise_qa, render=_render),
    Dialect(name="inspect-model-graded-fact", recognise=_recognise_fact, render=_render),
)
