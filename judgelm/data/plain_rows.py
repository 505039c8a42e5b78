"""Convert samples and labels to plain rows."""

import math
from collections.abc import Mapping

from judgelm.records import Label, Sample


def json_scores(scores: tuple[float, ...]) -> list[float]:
    """Convert scores to JSON, with whole numbers as integers."""
    return [int(score) if score.is_integer() else score for score in scores]


def plain_row(sample: Sample, label: Label | None = None) -> dict[str, object]:
    """Convert a sample and its label to a plain row; empty fields are omitted."""
    row: dict[str, object] = {"id": sample.id, "question": sample.question}
    if len(sample.answers) == 2:
        row |= {"answer_1": sample.answers[0], "answer_2": sample.answers[1]}
    elif len(sample.answers) == 1:
        row["answer"] = sample.answers[0]
    elif sample.answers:
        row["answers"] = list(sample.answers)
    if label is not None and label.winner is not None:
        row["winner"] = label.winner
    if label is not None and label.scores is not None:
        row["scores"] = json_scores(label.scores)
    if label is not None and label.preference is not None:
        row["preference"] = label.preference
    more = {
        "votes": list(label.votes) if label is not None else None,
        "reason": None if label is None else label.reason,
        "answer_models": list(sample.answer_models),
        "reference": sample.reference,
        "category": sample.category,
        "metadata": {name: _in_json(value) for name, value in sample.metadata.items()},
    }
    return row | {name: value for name, value in more.items() if value}


def _in_json(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(name): _in_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)
