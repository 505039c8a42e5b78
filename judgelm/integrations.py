"""Use a judge as a scorer in inspect_ai, lm-evaluation-harness, or lighteval.

    Task(dataset, scorer=inspect_scorer("my-judge"))                  # inspect_ai
    process_results = lm_eval_results("my-judge")                     # lm-eval: !function mine.process_results
    LightevalTaskConfig(..., metrics=[lighteval_metric("my-judge")])  # lighteval

Grades are on the judge's scale, and the task's target is the reference. Failed judgments have no score: inspect_ai
marks the sample as unscored, and the other frameworks count it as `judge_failed` and exclude it from the mean.

Based on the source code of inspect_ai 0.3.285, lm_eval 0.4.13, and lighteval 0.13.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from judgelm.judge import Judge
from judgelm.records import GradeVerdict, Judgment, failure_name


class Grader:
    """Grades answers one by one with a judge that is loaded on first use. `options` are passed to `Judge`.

    Only judges that use token probabilities support `criterion`.
    """

    def __init__(self, model: str | None, criterion: str | None = None, **options: Any) -> None:
        self._model, self._options = model, options
        self._mode: dict[str, Any] = {} if criterion is None else {"criterion": criterion}
        self._judge: Judge | None = None
        self._lock = Lock()

    def __call__(self, question: str, answer: str, target: str) -> Judgment:
        """Grade an answer. An empty target is ignored."""
        with self._lock:  # frameworks call this from several threads
            self._judge = self._judge or Judge(self._model, **self._options)
            return self._judge.grade(question, answer, reference=target or None, **self._mode)


def _score(judgment: Judgment) -> float | None:
    return judgment.verdict.score if isinstance(judgment.verdict, GradeVerdict) else None


def inspect_scorer(model: str | None = None, *, criterion: str | None = None, **options: Any) -> Any:
    """Return an inspect_ai scorer with the metrics `mean` and `stderr` (see `Grader`)."""
    from inspect_ai.scorer import Score, mean, scorer, stderr

    grader = Grader(model, criterion, **options)

    @scorer(metrics=[mean(), stderr()], name="judgelm")  # type: ignore[untyped-decorator]
    def judgelm() -> Any:
        async def score(state: Any, target: Any) -> Any:
            answer = state.output.completion
            judgment = await asyncio.to_thread(grader, state.input_text, answer, target.text)
            if (grade := _score(judgment)) is None:
                failure = failure_name(judgment.failure.code) if judgment.failure is not None else "no grade"
                return Score.unscored(reason=failure, answer=answer)
            return Score(value=grade, answer=answer, explanation=judgment.reason)

        return score

    return judgelm()


def lm_eval_results(
    model: str | None = None, *, question: str = "question", target: str = "", **options: Any
) -> Callable[[Mapping[str, Any], Sequence[str]], dict[str, float]]:
    """Return a `process_results` function for lm-eval with `judge_score` and `judge_failed` (0 or 1).

    `question` and `target` are the names of the document fields that contain the question and the reference. `target`
    may be empty.
    """
    grader = Grader(model, **options)

    def process_results(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
        grade = _score(grader(str(doc[question]), results[0], str(doc[target]) if target else ""))
        return {"judge_failed": 1.0} if grade is None else {"judge_failed": 0.0, "judge_score": grade}

    return process_results


def lighteval_metric(model: str | None = None, **options: Any) -> Any:
    """Return a lighteval metric that computes the mean of all grades (see `Grader`)."""
    from lighteval.metrics.metrics_sample import SampleLevelComputation
    from lighteval.metrics.utils.metric_utils import SampleLevelMetricGrouping
    from lighteval.tasks.requests import SamplingMethod

    grader = Grader(model, **options)

    class Graded(SampleLevelComputation):  # type: ignore[misc]
        """Grades the first answer."""

        def compute(self, doc: Any, model_response: Any, **_: Any) -> dict[str, float]:
            """Return the grade (NaN if the judge failed), and whether the judge failed."""
            grade = _score(grader(doc.query, model_response.text[0], "".join(doc.get_golds()[:1])))
            failed = grade is None
            return {"judge_score": math.nan if grade is None else grade, "judge_failed": float(failed)}

    return SampleLevelMetricGrouping(
        metric_name=["judge_score", "judge_failed"],
        higher_is_better={"judge_score": True, "judge_failed": False},
        category=SamplingMethod.GENERATIVE,
        sample_level_fn=Graded(),
        corpus_level_fn={"judge_score": _mean_of_grades, "judge_failed": _mean_of_grades},
    )


def _mean_of_grades(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan
