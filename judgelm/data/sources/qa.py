"""Read questions with gold answers: published extractive QA, and open QA judged by humans.

- HotpotQA and 2WikiMultiHopQA: `_id` (or `id`), `question`, `answer`, `context` as (title, sentences) pairs;
- flat rows: the same fields, with `context` as a string; `pred_answer` or `prediction` may contain the answer of
  `model`;
- DROP: passages with `qa_pairs`; answers are a `number`, `spans`, or `date`; `validated_answers` contains more answers;
- Quoref: `data` contains `paragraphs`, which contain `qas`; the `answers` are the spans of one answer.

The metadata contains `data_set`, `answer_type`, `context`, and, if there are several validated answers, `references`
and `reference_spans`. EVOUNA consists of human-judged answers to NQ and TriviaQA.
"""

import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Literal, get_args

from judgelm.data.plain_rows import plain_row
from judgelm.data.readers.files import first_row, read_json, read_rows
from judgelm.data.readers.rows import OnReject, Reject, Row, convert_rows, raise_reject, reject_row, unique
from judgelm.data.readers.values import describe
from judgelm.data.sources.answer_types import ANSWER_TYPES, answer_type
from judgelm.data.sources.source import Entry, Shape, Source, model_from_filename
from judgelm.errors import ConfigError, InputError
from judgelm.parsing.short_answers import Gold
from judgelm.records import Label, Sample

QaDataSet = Literal["hotpotqa", "2wiki", "drop", "quoref"]
QA_NAMES: tuple[QaDataSet, ...] = get_args(QaDataSet)

_IDS = ("_id", "id", "query_id", "question_id")
_NEEDS = "question, and answer or answers"
_PREDICTED = ("pred_answer", "prediction")


def read_qa(path: str, data_set: QaDataSet | None = None, *, on_reject: OnReject = raise_reject) -> Iterator[Sample]:
    """Read questions as samples; rows with predictions also have an answer to judge.

    If `data_set` is None, it is taken from a row's `data_set`, if present. Otherwise, DROP and Quoref are detected by
    their structure and 2WikiMultiHopQA by `evidences`; the default is HotpotQA.

    Questions with repeated ids are rejected.
    """
    if data_set is not None and data_set not in QA_NAMES:
        raise ConfigError(f"data set {data_set!r} not found; available: {', '.join(QA_NAMES)}")
    read = unique(lambda row: _sample(row, data_set), attrgetter("id"))
    expected = f"_id (or id), {_NEEDS}"
    yield from convert_rows(_rows(path), read, path=path, expected=expected, on_reject=on_reject)


def has_predictions(path: str) -> bool:
    """Return True if the first usable row contains a predicted answer."""
    first = first_row(path)
    return first is not None and any(name in first.data for name in _PREDICTED)


def qa_row(sample: Sample) -> dict[str, object]:
    """Convert a sample to a plain row."""
    row: dict[str, object] = {"id": sample.id, "question": sample.question, "reference": sample.reference}
    if sample.answers:
        row["answer"] = sample.answers[0]
    if sample.answer_models:
        row["answer_models"] = list(sample.answer_models)
    return {**row, "category": sample.category, "metadata": dict(sample.metadata)}


def _rows(path: str) -> Iterator[Row | Reject]:
    nested = None if path == "-" else _nested(path)
    if nested is None:
        yield from read_rows(path)
        return
    for row_number, data in enumerate(_flattened(path, nested), 1):
        yield Row(path, row_number, data)


def _nested(path: str) -> dict[str, Any] | None:
    try:
        value: Any = read_json(path)
    except (OSError, ValueError, EOFError, zlib.error):
        return None
    if not isinstance(value, dict):
        return None
    data = value.get("data")
    articles = isinstance(data, list) and any(isinstance(item, dict) and "paragraphs" in item for item in data)
    passages = any(isinstance(item, dict) and "qa_pairs" in item for item in value.values())
    return value if articles or passages else None


def _flattened(path: str, nested: dict[str, Any]) -> Iterator[dict[str, object]]:
    try:
        if isinstance(nested.get("data"), list):
            for article in nested["data"]:
                for paragraph in article["paragraphs"]:
                    yield from (question | {"context": paragraph["context"]} for question in paragraph["qas"])
            return
        for passage in nested.values():
            yield from (question | {"context": passage["passage"]} for question in passage["qa_pairs"])
    except (KeyError, TypeError) as error:
        finding = f"is in neither Quoref's nor DROP's format ({error!r})"
        raise InputError(f"{path}: {finding}; pass the published file") from error


def _sample(row: Row, data_set: QaDataSet | None) -> Sample:
    question = row.text("question", _NEEDS)
    golds = _golds(row)
    texts = [", ".join(gold) for gold in golds]
    name_of_set = data_set or _data_set(row)
    metadata: dict[str, object] = {"data_set": name_of_set, "answer_type": _type(row, question, texts)}
    context = _context(row)
    if context is not None:
        metadata["context"] = context
    if len(golds) > 1:
        metadata["references"] = texts
    if any(len(gold) > 1 for gold in golds):
        metadata["reference_spans"] = [list(gold) for gold in golds]
    predicted = next((row.optional_text(name) for name in _PREDICTED if row.data.get(name) is not None), None)
    model = row.optional_text("model")
    name = row.id(_IDS)
    if name is None:
        raise row.error("no _id or id, which is required to join questions")
    return Sample(
        id=name,
        question=question,
        answers=() if predicted is None else (predicted,),
        reference=texts[0],
        answer_models=() if predicted is None or model is None else (model,),
        category=str(metadata["answer_type"]),
        metadata=metadata,
    )


def _data_set(row: Row) -> str:
    named = row.data.get("data_set")
    if named is not None:
        if named not in QA_NAMES:
            raise row.field_error("data_set", f"expected one of {', '.join(QA_NAMES)}, got {named!r}")
        return str(named)
    if "answers" in row.data:
        return "quoref"
    if isinstance(row.data.get("answer"), dict):
        return "drop"
    return "2wiki" if "evidences" in row.data else "hotpotqa"


def _type(row: Row, question: str, golds: list[str]) -> str:
    named = row.optional_text("answer_type")
    if named is None:
        return answer_type(question, golds)
    if named.lower() not in ANSWER_TYPES:
        raise row.field_error("answer_type", f"expected one of {', '.join(ANSWER_TYPES)}, got {named!r}")
    return named.lower()


def _golds(row: Row) -> list[Gold]:
    if "answers_spans" in row.data:
        raise row.field_error("answers_spans", "does not show which spans belong together; pass DROP's original file")
    if "answers" in row.data:
        golds = [_quoref_gold(row)]
    else:
        more = row.data.get("validated_answers") or []
        if not isinstance(more, list):
            raise row.field_error("validated_answers", f"expected a list, got {describe(more)}")
        golds = [_gold(row, value) for value in [row.data.get("answer", row.data.get("gold_ans")), *more]]
    distinct = list(dict.fromkeys(gold for gold in golds if gold and gold[0].strip()))
    if not distinct:
        raise row.error("no gold answer, so answers cannot be scored; remove the row")
    return distinct


def _quoref_gold(row: Row) -> Gold:
    answers = row.data["answers"]
    spans = answers.get("text") if isinstance(answers, dict) else answers
    texts = [span.get("text") if isinstance(span, dict) else span for span in spans] if isinstance(spans, list) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise row.field_error("answers", f"expected a list of objects with text, got {describe(answers)}")
    return tuple(str(text) for text in texts)


def _gold(row: Row, value: object) -> Gold:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (str(value),)
    if not isinstance(value, dict):
        raise row.field_error("answer", f"expected text, or DROP's number, spans or date, got {describe(value)}")
    if value.get("number"):
        return (str(value["number"]),)
    if value.get("spans"):
        return tuple(str(span) for span in value["spans"])
    date = value.get("date") or {}
    parts = [str(date.get(part, "")).strip() for part in ("day", "month", "year")] if isinstance(date, dict) else []
    return (" ".join(part for part in parts if part),)


def _context(row: Row) -> str | None:
    context: Any = row.data.get("context")
    if context is None or isinstance(context, str):
        return row.optional_text("context")
    try:
        if isinstance(context, dict):
            context = list(zip(context["title"], context["sentences"], strict=True))
        return "\n\n".join(f"{title}: {' '.join(map(str.strip, sentences))}" for title, sentences in context)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        finding = f"expected text, or (title, sentences) pairs, got {describe(context)}"
        raise row.field_error("context", finding) from error


def load_qa(data_set: QaDataSet, files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """Read the questions in a published data set."""
    for path in files:
        _check_shape(path, data_set)
        for sample in read_qa(path, data_set, on_reject=on_reject):
            yield Entry({name: value for name, value in qa_row(sample).items() if value is not None})


def _check_shape(path: str, data_set: QaDataSet) -> None:
    """Flat rows are accepted for any data set."""
    first = next(read_qa(path, on_reject=lambda reject: None))  # raises an error if there are no usable questions
    data_set_found = first.metadata["data_set"]
    if data_set_found not in (data_set, "hotpotqa") or (data_set_found != data_set and _has_titles(path)):
        raise InputError(f"{path}: is in {data_set_found} format, not {data_set}; import it as {data_set_found}")


def _has_titles(path: str) -> bool:
    row = first_row(path)
    return row is not None and isinstance(row.data.get("context"), list | dict)


MODELS = ("fid", "gpt35", "chatgpt", "gpt4", "newbing")
_JUDGED = tuple(f"{part}_{model}" for model in MODELS for part in ("answer", "judge"))
EVOUNA = Shape(name="EVOUNA", needs=("question", "golden_answer", "improper", *_JUDGED))


def evouna_entries(row: Row, row_number: int) -> list[Entry | Reject]:
    """Return a row for each model's answer, rejecting unjudged answers and improper questions."""
    if row.data["improper"] is not False:
        raise row.error("the question is marked as improper and is excluded from EVOUNA")
    question = row.text("question", ", ".join(EVOUNA.needs))
    golds = [gold.strip() for gold in row.text("golden_answer", "golden_answer").split("/") if gold.strip()]
    if not golds:
        raise row.field_error("golden_answer", "expected answers separated by slashes, got none; remove the row")
    data_set, entries = model_from_filename(row.file), list[Entry | Reject]()
    for model in MODELS:
        try:
            answer, correct = _evouna_answer(row, model)
        except InputError as error:
            entries.append(reject_row(row, error))
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


def _evouna_answer(row: Row, model: str) -> tuple[str, bool]:
    correct = row.typed(f"judge_{model}", bool, "true or false; the answer was not judged")
    return row.text(f"answer_{model}", "an answer"), correct


SOURCES = (
    Source(name="evouna", shape=EVOUNA, entry=evouna_entries),
    *(Source(name=name, load=partial(load_qa, name)) for name in QA_NAMES),
)
