"""Published results on questions with one right answer: MMLU-Pro's own extraction as a judge of correctness.

A prediction that equals the gold letter says `correct`, another says `incorrect`, none is a failure. Predictions of
some published files are random guesses where no letter could be extracted, so this is a judge to be checked, and not
the truth.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from re import compile as pattern

from judgelm.data.benchmarks.base import model_from_filename
from judgelm.data.judgments.base import JudgmentFormat, PublishedJudgment, location_of
from judgelm.data.readers.fields import describe, field_error, required_id, text_field
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rejects import OnReject, convert_rows
from judgelm.data.readers.rows import Row
from judgelm.records import Judgment, LabelVerdict, Shown, Unparsed

_NEEDS = ("question_id", "options", "answer")
_LEVELS = ("stored_pred", "l1", "l2")
_MODEL_IN_NAME = pattern(r"model_outputs_(.+?)(?:_\d+-?shots?(?:_[\d_]+)?)?$")


def _read(files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
    for path in files:
        convert = partial(_row, path=path)
        rows = convert_rows(read_rows(path), convert, path=path, expected=", ".join(_NEEDS), on_reject=on_reject)
        yield from chain.from_iterable(rows)


def _row(row: Row, path: str) -> list[PublishedJudgment]:
    gold = text_field(row, "answer", ", ".join(_NEEDS))
    question = required_id(row, "question_id", "it names the question")
    return [
        PublishedJudgment(
            judgment=_judgment(f"mmlu-pro-{question}/{model}", prediction, gold, row),
            judge=level,
            fields={**row.data, "model": model},
            location=location_of(row),
        )
        for model, level, prediction in _predictions(row, path)
    ]


def _predictions(row: Row, path: str) -> list[tuple[str, str, object]]:
    """Model, level of extraction and letter, of one model in the published results, of several in `outputs`."""
    several = row.data.get("outputs")
    if isinstance(several, Mapping):
        return [
            (str(model), level, output[level])
            for model, output in several.items()
            if isinstance(output, Mapping)
            for level in _LEVELS
            if level in output
        ]
    if "pred" not in row.data:
        raise field_error(row, "pred", "is missing; give MMLU-Pro's eval_results, or rows of outputs with predictions")
    name = model_from_filename(path)
    match = _MODEL_IN_NAME.search(name)
    return [(match[1] if match else name, "pred", row.data["pred"])]


def _judgment(sample_id: str, prediction: object, gold: str, row: Row) -> Judgment:
    if prediction is not None and not isinstance(prediction, str):
        raise field_error(row, "pred", f"expected a letter or null, got {describe(prediction)}")
    if prediction is None:
        failure = Unparsed("off_grammar", "", "no letter was extracted from the answer")
        shown = Shown(order=(0,), text="", failure=failure)
        return Judgment(sample_id=sample_id, mode="correctness", verdict=None, shown=(shown,), failure=failure)
    label = "correct" if prediction == gold else "incorrect"
    shown = Shown(order=(0,), text=prediction, label=label)
    return Judgment(sample_id=sample_id, mode="correctness", verdict=LabelVerdict(label=label), shown=(shown,))


MMLU_PRO = JudgmentFormat(
    name="mmlu-pro",
    files="eval_results/model_outputs_MODEL_5shots.json, or rows of outputs with stored_pred, l1 and l2",
    needs=_NEEDS,
    source="Wang et al. 2024; TIGER-AI-Lab/MMLU-Pro, eval_results/ and compute_accuracy.py",
    read=_read,
    mode={"name": "correctness", "task": "choice"},
)
