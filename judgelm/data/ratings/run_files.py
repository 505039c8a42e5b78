"""Judges' own run files as ratings in long format: what each judge of rubrics or single answers gave whose answer.

The rows that were judged say whose answer it is (`answer_models`), which prompt it answers (a field `item`, else the
question's text) and its type of task (`category`). The rows and the ratings of people must name items and models alike.
"""

from collections.abc import Iterator, Mapping

from judgelm.data.readers.rows import Row
from judgelm.errors import InputError
from judgelm.records import GradeVerdict, Judgment, Sample

_SHOWN_TEXT = 80


def run_ratings(
    judge: str, judgments: Mapping[str, Judgment], samples: Mapping[str, Sample], *, item: str = "item"
) -> Iterator[Row]:
    """One row per answer and dimension: `item`, `dimension`, `judge`, `model`, `score`, `task`, `length`, and others.

    A dimension is a part of the rubric; a judgment without parts is one row without dimension, with its grade. What
    failed, or has a level without a score, is a row with a missing score. The length is in words: no tokenizer is at
    hand. The sample's own fields stand beside, for whoever fits by one of them.

    Args:
        judge: who wrote the run, spelled as its own answers' model is.
        judgments: by sample id.
        samples: the rows judged, by id.
        item: field of the rows that names the prompt.

    Raises:
        InputError: a judgment is no grade of one answer, its row is not there, or says nothing of the answer's model.
    """
    for index, (key, judgment) in enumerate(judgments.items(), 1):
        location = f"run of {judge}: judgment {key}"
        if judgment.verdict is not None and not isinstance(judgment.verdict, GradeVerdict):
            raise InputError(f"{location}: not a grade; give runs of mode rubric or single")
        sample = samples.get(key)
        if sample is None:
            raise InputError(f"{location}: not among the rows; give those that were judged")
        if len(sample.answers) != 1 or len(sample.answer_models) != 1:
            counts = f"{len(sample.answers)} answers and {len(sample.answer_models)} models"
            raise InputError(
                f"{location}: its row has {counts}; each needs one answer, and answer_models that names one"
            )
        common = dict(sample.metadata) | {
            "item": sample.metadata.get(item) or sample.question,
            "judge": judge,
            "model": sample.answer_models[0],
            "task": sample.category,
            "length": len(sample.answers[0].split()),
        }
        for dimension, score in _scores(judgment):
            yield Row(location[:_SHOWN_TEXT], index, common | {"dimension": dimension, "score": score})


def _scores(judgment: Judgment) -> Iterator[tuple[str | None, float | None]]:
    """Dimension and score; the last reading of each part counts."""
    parts = {shown.part: shown for shown in judgment.shown if shown.part}
    if not parts:
        yield None, judgment.verdict.score if isinstance(judgment.verdict, GradeVerdict) else None
    for name, shown in parts.items():
        yield name, None if shown.scores is None or shown.failure is not None else shown.scores[0]
