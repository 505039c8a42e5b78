"""EVOUNA: answers of five models to questions of NaturalQuestions and TriviaQA, each judged by a person."""

from collections.abc import Iterator, Sequence
from functools import partial

from judgelm.data.benchmarks.base import Benchmark, Entry, Shape, convert_file, model_from_filename, plain_row
from judgelm.data.readers.fields import describe, field_error, row_error, text_field
from judgelm.data.readers.rejects import OnReject, reject_row
from judgelm.data.readers.rows import Row
from judgelm.errors import InputError
from judgelm.records import Label, Sample

MODELS = ("fid", "gpt35", "chatgpt", "gpt4", "newbing")
_EVOUNA = Shape(
    name="EVOUNA",
    needs=(
        *("question", "golden_answer", "improper"),
        *(f"{part}_{model}" for model in MODELS for part in ("answer", "judge")),
    ),
)


def _load(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    for path in files:
        make = partial(_entries, on_reject, model_from_filename(path))
        for entries in convert_file(path, _EVOUNA, make, on_reject):
            yield from entries


def _entries(on_reject: OnReject, data_set: str, row: Row, row_number: int) -> list[Entry]:
    """A row for each model's answer; answers without a person's verdict are rejects, as improper questions are."""
    if row.data["improper"] is not False:
        raise row_error(row, "the question is marked as improper, which EVOUNA leaves out")
    question = text_field(row, "question", ", ".join(_EVOUNA.needs))
    golds = [gold.strip() for gold in text_field(row, "golden_answer", "golden_answer").split("/") if gold.strip()]
    if not golds:
        raise field_error(row, "golden_answer", "expected answers between slashes, got none; leave the row out")
    entries = []
    for model in MODELS:
        try:
            answer, correct = _answer(row, model)
        except InputError as error:
            on_reject(reject_row(row, error))
            continue
        sample = Sample(
            id=f"{data_set}-{row_number}-{model}",
            question=question,
            answers=(answer,),
            reference=golds[0],
            answer_models=(model,),
            category=f"{data_set} {model}",
            metadata={"references": golds},
        )
        entries.append(Entry(plain_row(sample, Label(sample_id="", winner=None, scores=(float(correct),)))))
    return entries


def _answer(row: Row, model: str) -> tuple[str, bool]:
    correct = row.data[f"judge_{model}"]
    if not isinstance(correct, bool):
        raise field_error(row, f"judge_{model}", f"expected true or false, got {describe(correct)}; it was not judged")
    return text_field(row, f"answer_{model}", "an answer"), correct


EVOUNA = Benchmark(
    name="evouna",
    files="NQ.json, TQ.json, or both",
    protocol="Accuracy and F1 (of correct) of the verdicts correct and incorrect against people's, for each data set "
    "and model; a failure counts as the wrong verdict; improper questions are left out; lexical match beside it "
    "asks whether a gold answer occurs in the answer, both normalised as in the authors' code.",
    judge_with="--mode qa --mode-arg judge_all=true",
    source="Wang et al. 2023, Evaluating Open-QA Evaluation; wangcunxiang/QA-Eval, EVOUNA/ and lexical_match.py; "
    "Apache-2.0",
    load=_load,
)
