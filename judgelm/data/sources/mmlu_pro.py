"""Read MMLU-Pro: questions, model answers, and pairs of answers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from judgelm.data.plain_rows import plain_row
from judgelm.data.readers.rows import OnReject, Row
from judgelm.data.readers.values import describe
from judgelm.data.sources.gsm8k import first_fields, judged_answer
from judgelm.data.sources.source import Entry, Shape, Source, choice_field, convert_file, model_from_filename
from judgelm.parsing.short_answers import canonical, final_answer
from judgelm.records import Label, Sample, Winner

_MMLU_PRO = "MMLU-Pro"
_MODEL_IN_NAME = re.compile(r"model_outputs_(.+?)(?:_\d+-?shots?(?:_[\d_]+)?)?$")
_OUTPUT_FIELDS = ("model_outputs", "generated_text")
"""The fields that contain the model's text in the published results (in 4 and 25 of 29 files)."""

_NEXT_QUESTION = re.compile(r"(?<=\S)\s*^Question:", re.MULTILINE)
_PAIR_LABELS: Mapping[object, Winner] = {"A": 1, "B": 2}


_RESULTS = Shape(name=_MMLU_PRO, needs=("question_id", "question", "options", "answer"))
_PAIRS = Shape(name=_MMLU_PRO, needs=("question_id", "model_a", "model_b", "label"))


def load_mmlu_pro(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """Read pairs if there is a file of pairs, otherwise read each model's answers."""
    pairs = [path for path in files if {"model_a", "model_b", "label"} <= first_fields(path)]
    others = [path for path in files if path not in pairs]
    questions: dict[str, Row] = {}
    texts: dict[tuple[str, str], str] = {}
    places: dict[tuple[str, str], str] = {}

    def add(row: Row, row_number: int) -> tuple[Row, dict[str, str]]:
        question, outputs = _question(row).id, _outputs(row)
        for model in outputs or ("",):
            if (location := places.get((question, model))) is not None:
                repeated = f"a second answer from {model} to" if model else "repeats"
                raise row.error(f"{repeated} question {question}; the first, in {location}, is used")
        places.update({(question, model): f"{row.file}:{row.line}" for model in outputs or ("",)})
        texts.update({(question, model): text for model, text in outputs.items()})
        questions.setdefault(question, row)
        return row, outputs

    for path in others:
        for row, outputs in convert_file(path, _RESULTS, add, on_reject):
            if not pairs:
                yield from _mmlu_entries(row, outputs)
    for path in pairs:
        yield from convert_file(path, _PAIRS, lambda row, _: _mmlu_pair(row, questions, texts), on_reject)


def _key(row: Row) -> str:
    return f"mmlu-pro-{row.required_id('question_id', 'it identifies the question')}"


def _question(row: Row, answers: tuple[str, ...] = (), models: tuple[str, ...] = ()) -> Sample:
    gold = canonical(row.text("answer", "question, options, answer"), "choice")
    options = row.text_list("options")
    if gold is None or ord(gold) - ord("A") >= len(options):
        raise row.field_error("answer", f"expected one of {len(options)} letters, got {row.data['answer']!r}")
    return Sample(
        id=_key(row) + "".join(f"/{model}" for model in models),
        question=row.text("question", "question, options, answer"),
        answers=answers,
        reference=gold,
        answer_models=models,
        category=row.text("category", "category") if row.data.get("category") is not None else None,
        metadata={"data_set": _MMLU_PRO, "options": list(options)},
    )


def _outputs(row: Row) -> dict[str, str]:
    several = row.data.get("outputs")
    if isinstance(several, dict):
        given = {str(model): output for model, output in several.items()}
        texts = {model: each.get("text") if isinstance(each, dict) else each for model, each in given.items()}
    elif (field := next((name for name in _OUTPUT_FIELDS if name in row.data), None)) is not None:
        text = row.data[field]
        texts = {model_of_results(row.file): _first_answer(text) if isinstance(text, str) else text}
    elif "pred" in row.data:
        expected, fields = " or ".join(_OUTPUT_FIELDS), ", ".join(row.data)
        raise row.error(f"the row has a prediction but no text: expected {expected}, found the fields {fields}")
    else:
        return {}
    for model, text in texts.items():
        if not isinstance(text, str):
            raise row.error(f"the output of {model}: expected text, got {describe(text)}; remove the row")
    return {model: str(text) for model, text in texts.items()}


def model_of_results(path: str) -> str:
    """Parse the model name from the file name of published results."""
    name = model_from_filename(path)
    match = _MODEL_IN_NAME.search(name)
    return match[1] if match else name


def _first_answer(text: str) -> str:
    """Remove further questions that a base model generated after its answer.

    MMLU-Pro's code stops at `Question:`. Two published files (Llama-3 8B and 70B) lack this stop string.
    """
    return _NEXT_QUESTION.split(text, maxsplit=1)[0]


def _mmlu_entries(row: Row, outputs: Mapping[str, str]) -> Iterator[Entry]:
    question = _question(row)
    if not outputs:
        yield Entry(plain_row(question))
        return
    letters = len(row.text_list("options"))
    for model, text in outputs.items():
        (letter,) = _stated(row, model) or (final_answer(text, "choice", letters=letters),)
        yield judged_answer(question, model, text, truth=letter == question.reference)


def _stated(row: Row, model: str) -> tuple[object] | None:
    several = row.data.get("outputs")
    output = several.get(model) if isinstance(several, dict) else None
    return (output["l2"],) if isinstance(output, dict) and "l2" in output else None


def _mmlu_pair(row: Row, questions: Mapping[str, Row], texts: Mapping[tuple[str, str], str]) -> Entry:
    key = _key(row)
    models = tuple(row.text(name, "question_id, model_a, model_b, label") for name in ("model_a", "model_b"))
    missing = [model for model in models if (key, model) not in texts]
    if missing:
        raise row.error(f"no output from {' and '.join(missing)} for {key}; add the file that contains it")
    answers = tuple(texts[key, model] for model in models)
    winner = choice_field(row, "label", _PAIR_LABELS)
    sample = _question(questions[key], answers, models)
    sample = replace(sample, metadata={**sample.metadata, "source_id": key})
    truth: dict[str, object] = {"id": sample.id, "winner": winner, "answer": sample.reference, "question": key}
    if sample.category is not None:
        truth["category"] = sample.category
    return Entry(plain_row(sample, Label(sample_id="", winner=winner)), truth)


SOURCES = (Source(name="mmlu-pro", load=load_mmlu_pro),)
