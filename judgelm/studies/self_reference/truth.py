"""The truth about the answers that a judge calls correct or incorrect, and the join of both.

A truth file is JSON lines, one per judged answer:

    {"id": "gsm8k-17/ministral", "agent": "ministral", "dataset": "GSM8K", "truth": true}

`truth` says whether the agent's answer is correct. Optional: `question`, a key that answers to one question share
(they are resampled together; the id where it is not given); `judge_correct`, whether the judge's own answer to the
question is right, true or false or, for several judges, an object {judge: true or false}; `answer`, the right final
answer as the judging mode extracts it, with which the judge's own answer in the run file (`solves`) is compared where
`judge_correct` does not say. Other fields are passed over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from judgelm.errors import InputError
from judgelm.parsing.short_answers import canonical
from judgelm.records import Judgment, LabelVerdict
from judgelm.studies.truth_file import check_texts

Method = Literal["cot", "guided"]
METHODS: tuple[Method, ...] = ("cot", "guided")

Source = Literal["truth file", "solves", "unknown", "no answer extracted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTruth:
    """One agent's answer to one question, as `judgelm.studies.self_reference.truth` describes the file.

    Attributes:
        truth: whether the agent's answer is correct (A_i, equation 12).
        question: key of the question; the sample's id where None.
        own: judge -> whether its own answer is right (G_i, equation 10); the key "" is any judge's.
        answer: the right final answer, comparable with `SelfAnswer.answer`.
    """

    id: str
    agent: str
    dataset: str
    truth: bool
    question: str | None = None
    own: Mapping[str, bool] = field(default_factory=dict)
    answer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRuns:
    """A judge's judgments of the same answers, by sample id: with CoT alone and guided by its own answer."""

    judge: str
    cot: Mapping[str, Judgment] | None = None
    guided: Mapping[str, Judgment] | None = None

    def of(self, method: Method) -> Mapping[str, Judgment] | None:
        """The judgments of one method; None where it was not run."""
        return self.cot if method == "cot" else self.guided


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswer:
    """An answer with its truth and the judge's verdict.

    Attributes:
        own: whether the judge's own answer to the question is right; None where unknown.
        judged: whether it was judged correct; None where the judgment failed.
    """

    id: str
    dataset: str
    question: str
    truth: bool
    own: bool | None
    judged: bool | None


def truth_from_row(row: Mapping[str, Any], location: str) -> AnswerTruth:
    """One line of a truth file.

    Args:
        row: the line's object.
        location: file and line, for errors.

    Raises:
        InputError: a field is missing or is not what it should be.
    """
    check_texts(row, location, needed=("id", "agent", "dataset"), optional=("question", "answer"))
    if not isinstance(row.get("truth"), bool):
        raise InputError(f'{location}: field "truth": expected true or false, got {row.get("truth")!r}')
    return AnswerTruth(
        id=row["id"],
        agent=row["agent"],
        dataset=row["dataset"],
        truth=bool(row["truth"]),
        question=row.get("question"),
        own=_own(row.get("judge_correct"), location),
        answer=row.get("answer"),
    )


def judged_answers(runs: JudgeRuns, method: Method, truths: Mapping[str, AnswerTruth]) -> list[JudgedAnswer]:
    """One method's judgments of the answers of which the truth is known, in the run's order.

    Raises:
        InputError: none of them is known, or a verdict is not `correct` or `incorrect`.
    """
    judgments = runs.of(method) or {}
    rows = [
        JudgedAnswer(
            id=key,
            dataset=truths[key].dataset,
            question=truths[key].question or key,
            truth=truths[key].truth,
            own=own_correct(runs, truths[key])[0],
            judged=_judged_correct(judgment),
        )
        for key, judgment in judgments.items()
        if key in truths
    ]
    if not rows:
        examples = f"{next(iter(judgments), None)!r} against {next(iter(truths), None)!r}"
        raise InputError(f"self-reference: no judgment of {runs.judge} has a truth (ids: {examples}); ids must match")
    return rows


def own_correct(runs: JudgeRuns, truth: AnswerTruth) -> tuple[bool | None, Source]:
    """Correctness of the judge's own answer, and its source.

    The truth file goes first, then the first self-solve of the guided run or of the CoT run. A solve that no answer
    could be extracted from is a wrong answer, as in equation 3, and is told apart in the source.
    """
    for judge in (runs.judge, ""):
        if judge in truth.own:
            return truth.own[judge], "truth file"
    if truth.answer is None:
        return None, "unknown"
    for method in ("guided", "cot"):
        judgment = (runs.of(method) or {}).get(truth.id)
        if judgment is not None and judgment.self_answers:
            own = judgment.self_answers[0].answer
            return (False, "no answer extracted") if own is None else (same_answer(own, truth.answer), "solves")
    return None, "unknown"


def same_answer(extracted: str, right: str) -> bool:
    """True for an extracted answer that is the right one in any spelling: `1,234.0` for 1234, `(b)` for B."""
    return extracted in (right, canonical(right, "number"), canonical(right, "choice"))


def _own(value: object, location: str) -> dict[str, bool]:
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"": value}
    if isinstance(value, dict) and all(isinstance(right, bool) for right in value.values()):
        return dict(value)
    raise InputError(
        f'{location}: field "judge_correct": expected true, false or {{judge: true or false}}, got {value!r}'
    )


def _judged_correct(judgment: Judgment) -> bool | None:
    if judgment.verdict is None:
        return None
    label = judgment.verdict.label if isinstance(judgment.verdict, LabelVerdict) else None
    if label not in ("correct", "incorrect"):
        raise InputError(
            f"judgment {judgment.sample_id}: mode {judgment.mode!r} concludes in {judgment.verdict}, and this study "
            "needs correct or incorrect; give a run of the correctness mode"
        )
    return label == "correct"
