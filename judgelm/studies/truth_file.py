"""Truth files for `judgelm study self-reference` and `ssr`: JSON lines for judged answers or pairs, joined by `id`.

    {"id": "gsm8k-17/ministral", "agent": "ministral", "dataset": "GSM8K", "truth": true}
    {"id": "mmlu-17", "winner": 1, "answer": "G", "category": "math"}

Samples with the same `question` (default: the id) are resampled together. `answer` is the correct final answer, in the
form that the judging mode extracts. If `judge_correct` is not set, `answer` is compared with the judge's self-solves.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from judgelm.errors import InputError
from judgelm.jsonl import read_jsonl
from judgelm.parsing.short_answers import canonical


class SampleTruth(BaseModel):
    """Fields in both kinds of file; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)

    id: str
    question: str | None = None
    answer: str | None = None


class AnswerTruth(SampleTruth):
    """An agent's answer to a question.

    Attributes:
        truth: whether the agent's answer is correct (A_i, equation 12).
        judge_correct: whether the judge's own answer is right (G_i, equation 10), for all judges or for each judge.
    """

    agent: str
    dataset: str
    truth: bool
    judge_correct: bool | Mapping[str, bool] | None = None

    def own(self, judge: str) -> bool | None:
        """Return `judge_correct` for this judge."""
        return self.judge_correct.get(judge) if isinstance(self.judge_correct, Mapping) else self.judge_correct


class PairTruth(SampleTruth):
    """A pair; `winner` is in sample order.

    `judge_correct` is whether the majority answer is right. If `judge_correct` and `answer` are missing, the pair is
    excluded from gate precision, calibration, and the four slices.
    """

    winner: int = Field(ge=1, le=2)
    judge_correct: bool | None = None
    category: str | None = None


Truth = TypeVar("Truth", bound=SampleTruth)


def truth_from_row(kind: type[Truth], row: Mapping[str, Any], location: str) -> Truth:
    """Parse the line at `location`.

    Raises:
        InputError: a field is missing or invalid.
    """
    try:
        return kind.model_validate(row)
    except ValidationError as error:
        finding = error.errors()[0]
        needed = ", ".join(name for name, field in kind.model_fields.items() if field.is_required())
        raise InputError(
            f'{location}: field "{finding["loc"][0]}": {finding["msg"]}, got {row.get(str(finding["loc"][0]))!r}; '
            f"required fields: {needed}; leave out fields without a value"
        ) from error


def read_truths(path: Path, kind: type[Truth]) -> dict[str, Truth]:
    """Read a truth file, keyed by sample id.

    Raises:
        InputError: a line is invalid, or a sample occurs twice.
    """
    return by_sample(truth_from_row(kind, row, f"{path}:{line}") for line, row in read_jsonl(path))


def by_sample(truths: Iterable[Truth]) -> dict[str, Truth]:
    """Return truths by sample id; raise `InputError` for duplicates."""
    unique: dict[str, Truth] = {}
    for truth in truths:
        if truth.id in unique:
            raise InputError(f"truth: sample {truth.id} occurs twice; keep only one line")
        unique[truth.id] = truth
    return unique


def same_answer(extracted: str, right: str) -> bool:
    """Return whether an extracted answer equals the right answer in any format, such as `1,234.0` for 1234."""
    return extracted in (right, canonical(right, "number"), canonical(right, "choice"))
