"""Truth files of `judgelm study self-reference` and `ssr`: the truth about each judged sample.

Both are JSON lines, one per judged answer or pair, joined by `id`; other fields are passed over:

    {"id": "gsm8k-17/ministral", "agent": "ministral", "dataset": "GSM8K", "truth": true}
    {"id": "mmlu-17", "winner": 1, "answer": "G", "category": "math"}

In both, `question` is a key that samples of one question share (they are resampled together; the id where it is not
given), and `answer` is the right final answer as the judging mode extracts it, with which the judge's own answers in
the run file (`solves`) are compared where `judge_correct` does not say whether they are right.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from judgelm.errors import InputError
from judgelm.jsonl import read_jsonl
from judgelm.parsing.short_answers import canonical


class SampleTruth(BaseModel):
    """The fields that the files share."""

    model_config = ConfigDict(frozen=True, strict=True)

    id: str
    question: str | None = None
    answer: str | None = None


class AnswerTruth(SampleTruth):
    """One agent's answer to one question.

    Attributes:
        truth: whether the agent's answer is correct (A_i, equation 12).
        judge_correct: whether the judge's own answer is right (G_i, equation 10), for any judge or by judge.
    """

    agent: str
    dataset: str
    truth: bool
    judge_correct: bool | Mapping[str, bool] | None = None

    def own(self, judge: str) -> bool | None:
        """Whether this judge's own answer is right; None where the file does not say."""
        return self.judge_correct.get(judge) if isinstance(self.judge_correct, Mapping) else self.judge_correct


class PairTruth(SampleTruth):
    """The truth about a pair.

    Attributes:
        winner: the better answer, 1 or 2, in sample order.
        judge_correct: whether the majority answer is right. Where neither this nor `answer` says so, gate precision,
            calibration and the four slices leave the pair out.
    """

    winner: int = Field(ge=1, le=2)
    judge_correct: bool | None = None
    category: str | None = None


Truth = TypeVar("Truth", bound=SampleTruth)


def truth_from_row(kind: type[Truth], row: Mapping[str, Any], location: str) -> Truth:
    """One line of a truth file; `location` is its file and line.

    Raises:
        InputError: a field is missing or is not what it should be.
    """
    try:
        return kind.model_validate(row)
    except ValidationError as error:
        finding = error.errors()[0]
        needed = ", ".join(name for name, field in kind.model_fields.items() if field.is_required())
        raise InputError(
            f'{location}: field "{finding["loc"][0]}": {finding["msg"]}, got {row.get(str(finding["loc"][0]))!r}; '
            f"each line needs {needed}; leave other fields out if unknown"
        ) from error


def read_truths(path: Path, kind: type[Truth]) -> dict[str, Truth]:
    """Read a truth file: truths by sample id.

    Raises:
        InputError: a line is not usable, or two are of one sample.
    """
    return by_sample(truth_from_row(kind, row, f"{path}:{line}") for line, row in read_jsonl(path))


def by_sample(truths: Iterable[Truth]) -> dict[str, Truth]:
    """Truths by sample id.

    Raises:
        InputError: two of one sample.
    """
    unique: dict[str, Truth] = {}
    for truth in truths:
        if truth.id in unique:
            raise InputError(f"truth: sample {truth.id} appears twice; keep one of them")
        unique[truth.id] = truth
    return unique


def same_answer(extracted: str, right: str) -> bool:
    """True for an extracted answer that is the right one in any spelling: `1,234.0` for 1234, `(b)` for B."""
    return extracted in (right, canonical(right, "number"), canonical(right, "choice"))
