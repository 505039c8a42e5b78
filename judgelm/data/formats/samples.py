"""Conversion of each format's rows to samples; `judgelm.data.formats.catalog` detects the format.

Every function raises InputError with file, line, field, finding and way out.
"""

from collections.abc import Mapping

from judgelm.data.readers.fields import (
    ID_FIELDS,
    content_id,
    extra_fields,
    field_error,
    images_field,
    numbered_fields,
    optional_text,
    reference_field,
    row_error,
    row_id,
    text_field,
    texts_field,
)
from judgelm.data.readers.rows import Row
from judgelm.records import Sample

_JUDGELM_NEEDS = "question_body, answer1_body, answer2_body"
_PLAIN_NEEDS = "question, answer_1, answer_2"
_LABEL_FIELDS = frozenset({"winner", "votes", "score", "text", "score_w_reference", "text_w_reference", "preference"})
_JUDGELM_FIELDS = _LABEL_FIELDS | {
    *("question_body", "reference", "category", *ID_FIELDS),
    *(f"answer{index}_{part}" for index in range(1, 27) for part in ("body", "model_id")),
}
_PANDALM_FIELDS = frozenset(
    {"instruction", "input", "response1", "response2", "reference", "motivation_app", *ID_FIELDS}
    | {f"annotator{index}" for index in range(1, 10)}
)
_ALPACA_FIELDS = frozenset(
    {"instruction", "output_1", "output_2", "generator_1", "generator_2", "dataset", "preference", *ID_FIELDS}
)
_PLAIN_FIELDS = frozenset(
    {"question", "answer", "answers", "answer_1", "answer_2", "reference", "category", "answer_models", *ID_FIELDS}
    | {"image", "images"}
    | {"model_1", "model_2", "winner", "votes", "score", "scores", "score_1", "score_2", "reason"}
    | {"score_a", "score_b", "preference"}
)


def judgelm_sample(row: Row) -> Sample:
    """JudgeLM: `question_body`, `answer1_body`, `answer2_body` and on; line ends around the question stay."""
    data = row.data
    question = text_field(row, "question_body", _JUDGELM_NEEDS)
    answers = numbered_fields(row, "answer{}_body", _JUDGELM_NEEDS)
    models = [data.get(f"answer{index}_model_id") for index in range(1, len(answers) + 1)]
    reference = reference_field(row)
    metadata = extra_fields(row, _JUDGELM_FIELDS)
    return Sample(
        id=row_id(row, ("question_id", "id", "review_id", "idx")) or content_id(question, answers, reference),
        question=question,
        answers=answers,
        reference=reference,
        answer_models=tuple(str(model) for model in models) if None not in models else (),
        category=optional_text(row, "category") or _category(metadata),
        metadata=metadata,
    )


def _category(metadata: Mapping[str, object]) -> str | None:
    category = metadata.get("category")
    return category if isinstance(category, str) else None


def _coerced_text(row: Row, name: str, needs: str, coerced: list[str]) -> str:
    value = row.data.get(name)
    if isinstance(value, bool | int | float):
        coerced.append(name)
        return str(value)
    return text_field(row, name, needs)


def _pandalm_texts(row: Row, needs: str) -> tuple[str, tuple[str, str], dict[str, object]]:
    coerced: list[str] = []
    question = text_field(row, "instruction", needs)
    context = optional_text(row, "input")
    answers = (_coerced_text(row, "response1", needs, coerced), _coerced_text(row, "response2", needs, coerced))
    return f"{question}\n\n{context}" if context else question, answers, {"coerced": coerced} if coerced else {}


def pandalm_sample(row: Row) -> Sample:
    """PandaLM's test set. Responses that are JSON booleans or numbers become text, and `metadata` names them."""
    question, answers, metadata = _pandalm_texts(row, "instruction, response1, response2")
    # No model of the test set has an underscore in its name; where one had, the split would be a guess.
    pair = (optional_text(row, "cmp_key") or "").split("_")
    return Sample(
        id=row_id(row, ("idx", "id", "question_id", "review_id")) or content_id(question, answers, None),
        question=question,
        answers=answers,
        reference=reference_field(row),
        answer_models=tuple(pair) if len(pair) == 2 else (),
        category=optional_text(row, "motivation_app"),
        metadata={**extra_fields(row, _PANDALM_FIELDS), **metadata},
    )


def pandalm_train_sample(row: Row) -> Sample:
    """PandaLM's training set: `inputs` and `outputs`."""
    inputs, outputs = row.data.get("inputs"), row.data.get("outputs")
    if not isinstance(inputs, dict):
        raise field_error(row, "inputs", "expected an object with instruction, response1, response2")
    inner = Row(row.file, row.line, inputs)
    question, answers, metadata = _pandalm_texts(inner, "inputs with instruction, response1, response2")
    reference = None
    if isinstance(outputs, dict):
        reference = reference_field(Row(row.file, row.line, outputs), "reference_response")
    return Sample(
        id=row_id(row, ("idx", "id", "question_id", "review_id")) or content_id(question, answers, reference),
        question=question,
        answers=answers,
        reference=reference,
        metadata={**extra_fields(row, {"inputs", "outputs", *ID_FIELDS}), **metadata},
    )


def alpaca_eval_sample(row: Row) -> Sample:
    """AlpacaEval's annotations, and two files of its outputs once joined; named by what they say, in either order."""
    data = row.data
    needs = "instruction, output_1, output_2"
    question = text_field(row, "instruction", needs)
    answers = (text_field(row, "output_1", needs), text_field(row, "output_2", needs))
    models = [data.get("generator_1"), data.get("generator_2")]
    return Sample(
        id=row_id(row) or content_id(question, sorted(answers), None),
        question=question,
        answers=answers,
        answer_models=tuple(str(model) for model in models) if None not in models else (),
        category=optional_text(row, "dataset"),
        metadata=extra_fields(row, _ALPACA_FIELDS),
    )


def llmbar_sample(row: Row) -> Sample:
    """LLMBar: `input`, `output_1`, `output_2`."""
    needs = "input, output_1, output_2"
    question = text_field(row, "input", needs)
    answers = (text_field(row, "output_1", needs), text_field(row, "output_2", needs))
    metadata = extra_fields(row, {"input", "output_1", "output_2", "label", *ID_FIELDS})
    name = row_id(row) or content_id(question, answers, None)
    return Sample(id=name, question=question, answers=answers, metadata=metadata)


def plain_sample(row: Row) -> Sample:
    """Plain: `question` with `answer_1`, `answer_2`, ..., `answers`, or one `answer`; other fields are metadata."""
    data = row.data
    question = text_field(row, "question", _PLAIN_NEEDS)
    answers = plain_answers(row)
    reference = reference_field(row)
    metadata = {name: value for name, value in data.items() if name not in _PLAIN_FIELDS}
    if metadata:
        metadata = extra_fields(row, _PLAIN_FIELDS)
        metadata = {name: value for name, value in metadata.items() if not _is_numbered_field(name, len(answers))}
    return Sample(
        id=row_id(row) or content_id(question, answers, reference),
        question=question,
        answers=answers,
        reference=reference,
        answer_models=texts_field(row, "answer_models", len(answers)) if data.get("answer_models") else _models(row),
        images=images_field(row),
        category=optional_text(row, "category") or _category(metadata),
        metadata=metadata,
    )


def plain_answers(row: Row) -> tuple[str, ...]:
    """The answers of a plain row."""
    if "answers" in row.data:
        return texts_field(row, "answers")
    if "answer" in row.data and "answer_1" not in row.data:
        return (text_field(row, "answer", _PLAIN_NEEDS),)
    return numbered_fields(row, "answer_{}", _PLAIN_NEEDS)


def _is_numbered_field(name: str, count: int) -> bool:
    kind, _, suffix = name.partition("_")
    return kind in ("answer", "score") and suffix.isdecimal() and int(suffix) <= count


def _models(row: Row) -> tuple[str, ...]:
    if row.data.get("model_1") is None or row.data.get("model_2") is None:
        return ()
    return text_field(row, "model_1", "model_1"), text_field(row, "model_2", "model_2")


def no_sample(row: Row) -> Sample:
    """Raise an error: rows of this format hold no pair."""
    raise row_error(row, "this row has no pair of answers to judge")


def label_alone(row: Row) -> Sample:
    """A sample without answers for a row that is only a label: its id and groups."""
    name = row_id(row, ("question_id", "id", "idx", "review_id"))
    if name is None:
        raise row_error(row, f"no id; a row of labels needs one of {', '.join(ID_FIELDS)}")
    metadata = extra_fields(row, _PLAIN_FIELDS | _LABEL_FIELDS)
    return Sample(
        id=name,
        question="",
        answers=(),
        category=optional_text(row, "category") or _category(metadata),
        metadata=metadata,
    )
