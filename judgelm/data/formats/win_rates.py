"""Comparisons of a model with a baseline, for win rates: AlpacaEval's annotations, or a judge's own run.

AlpacaEval's rows hold `instruction`, `output_1` (the baseline's), `output_2` (the model's), `generator_1`,
`generator_2`, `annotator` and `preference`: 1 is the first output, 2 the second, 1.5 (and the older 0) a tie, and a
number between them where the judge gave a probability.

Source: tatsu-lab/alpaca_eval, `src/alpaca_eval/utils.py` and `metrics/helpers.py`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from judgelm.data.readers.fields import field_error, number_field, optional_text, row_error, row_id, text_field
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rejects import OnReject, convert_rows, raise_reject
from judgelm.data.readers.rows import Row
from judgelm.errors import InputError
from judgelm.records import Judgment, PairVerdict, Sample

_NEEDS = "instruction, output_1, output_2, preference"
_DIFFICULTY = "instruction_difficulty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One instruction, answered by a baseline and by a model.

    Attributes:
        instruction: its text.
        index: its id where the row has one, which a table of difficulties may name it by.
        baseline: model of the first output.
        model: model of the second output.
        annotator: name of the judge.
        preference: probability that the model's output is better, 0.5 for a tie; None where the judge failed.
        lengths: of the baseline's and of the model's output, in characters.
    """

    instruction: str
    index: str | None
    baseline: str
    model: str
    annotator: str
    preference: float | None
    lengths: tuple[int, int]


def read_annotations(path: str, *, on_reject: OnReject = raise_reject) -> Iterator[Comparison]:
    """The comparisons of a file of AlpacaEval's annotations.

    Raises:
        InputError: the file cannot be read, or none of its rows can be used.
    """
    return convert_rows(read_rows(path), _comparison, path=path, expected=_NEEDS, on_reject=on_reject)


def _comparison(row: Row) -> Comparison:
    outputs = [text_field(row, name, _NEEDS) for name in ("output_1", "output_2")]
    return Comparison(
        instruction=text_field(row, "instruction", _NEEDS),
        index=row_id(row, ("index", "id", "idx")),
        baseline=optional_text(row, "generator_1") or "output_1",
        model=optional_text(row, "generator_2") or "output_2",
        annotator=optional_text(row, "annotator") or "",
        preference=_preference(row),
        lengths=(len(outputs[0]), len(outputs[1])),
    )


def _preference(row: Row) -> float | None:
    if "preference" not in row.data:
        raise row_error(row, f'field "preference" is missing; each row needs {_NEEDS}')
    value = row.data["preference"]
    if value in (None, "") or (isinstance(value, float) and math.isnan(value)):
        return None
    preference = number_field(row, "preference")
    if preference != 0 and not 1 <= preference <= 2:
        raise field_error(row, "preference", f"expected a number from 1 to 2, or 0 for a tie, got {preference:g}")
    return 0.5 if preference == 0 else preference - 1


def comparisons_of_run(
    judge: str, judgments: Mapping[str, Judgment], samples: Mapping[str, Sample]
) -> Iterator[Comparison]:
    """The comparisons of a judge's run over pairs; the first answer is the baseline's.

    Where the run has probabilities they are the preference, else the winner is.

    Raises:
        InputError: a judgment is not of a pair, or its row is missing.
    """
    for key, judgment in judgments.items():
        sample = samples.get(key)
        if sample is None or len(sample.answers) != 2:
            finding = "not among the rows" if sample is None else f"its row has {len(sample.answers)} answers"
            raise InputError(f"run of {judge}: judgment {key}: {finding}; give the rows of pairs that were judged")
        models = sample.answer_models or ("answer 1", "answer 2")
        yield Comparison(
            instruction=sample.question,
            index=key,
            baseline=models[0],
            model=models[1],
            annotator=judge,
            preference=_preferred(judge, judgment),
            lengths=(len(sample.answers[0]), len(sample.answers[1])),
        )


def _preferred(judge: str, judgment: Judgment) -> float | None:
    if judgment.verdict is None:
        return None
    if not isinstance(judgment.verdict, PairVerdict):
        raise InputError(f"run of {judge}: judgment {judgment.sample_id}: no verdict on a pair; give a run of pairs")
    if judgment.probability is not None:
        return 1 - judgment.probability
    return {1: 0.0, 2: 1.0, "tie": 0.5}[judgment.verdict.winner]


def read_difficulties(path: str) -> dict[str, float]:
    """Difficulty of each instruction, by its text or its index: rows of `instruction` or `index`, and the difficulty.

    AlpacaEval publishes its own as `instruction_difficulty.csv` beside its data set.

    Raises:
        InputError: the file cannot be read, or a row has no such fields.
    """

    def read(row: Row) -> tuple[str, float]:
        name = optional_text(row, "instruction") or row_id(row, ("index", "id", ""))
        if name is None or _DIFFICULTY not in row.data:
            raise row_error(row, f"no instruction or index with {_DIFFICULTY}")
        return name, number_field(row, _DIFFICULTY)

    return dict(convert_rows(read_rows(path), read, path=path, expected=f"instruction (or index), {_DIFFICULTY}"))
