"""Review tables (Vicuna, FastChat, QLoRA): questions, answers and reviews in files of their own, joined by id."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from judgelm.data.formats.labels import json_scores, split_review
from judgelm.data.readers.fields import optional_text, required_id, row_error, row_id, scores_field, text_field
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rejects import convert_or_reject, convert_rows
from judgelm.data.readers.rows import Reject, Row

_NEEDS = "review_id, question_id, answer1_id, answer2_id, text, score"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedReview:
    """One review as a JudgeLM row, and the question it belongs to.

    `rebuilt`: the text did not open with its scores (reviews that first solve a problem), so they were put before it.
    """

    row: dict[str, object]
    question_id: str
    rebuilt: bool


def join_reviews(questions: str, answers: Sequence[str], reviews: Sequence[str]) -> Iterator[JoinedReview | Reject]:
    """Join each review with its two answers and its question; questions and answers are held in memory.

    Args:
        questions: rows of question_id, text, and optionally category.
        answers: files of rows of answer_id, question_id, text, model_id.
        reviews: files of rows of review_id, question_id, answer1_id, answer2_id, text, score.

    Returns:
        One joined review or reject per review row.

    Raises:
        InputError: a file cannot be read, a row of questions or answers is unusable, or no review of a file is usable.
    """
    question_rows = _by_id([questions], "question_id")
    answer_rows = _by_id(answers, "answer_id")
    seen: set[str] = set()
    for path in reviews:
        join = partial(_joined, questions=question_rows, answers=answer_rows, seen=seen)
        yield from convert_or_reject(read_rows(path), join, path=path, expected=_NEEDS)


def _by_id(paths: Sequence[str], field: str) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for path in paths:
        named = partial(_named, field=field, rows=rows)
        rows.update(convert_rows(read_rows(path), named, path=path, expected=field))
    return rows


def _named(row: Row, field: str, rows: dict[str, Row]) -> tuple[str, Row]:
    name = required_id(row, field, "the tables are joined by it")
    if name in rows:
        before = rows[name]
        raise row_error(row, f'{field} "{name}" appeared before in {before.file}:{before.line}; keep one')
    return name, row


def _joined(row: Row, questions: dict[str, Row], answers: dict[str, Row], seen: set[str]) -> JoinedReview:
    review_id = required_id(row, "review_id", "it becomes the id of the joined row")
    if review_id in seen:
        raise row_error(row, f'review_id "{review_id}" appeared before; ids must be unique')
    seen.add(review_id)
    question = _partner(row, "question_id", questions)
    first, second = _partner(row, "answer1_id", answers), _partner(row, "answer2_id", answers)
    question_id = row_id(row, ("question_id",)) or ""
    for answer in (first, second):
        if row_id(answer, ("question_id",)) != question_id:
            location = f"{answer.file}:{answer.line}"
            raise row_error(row, f'its answer in {location} belongs to another question than "{question_id}"')
    score, text, rebuilt = _score_and_text(row)
    joined: dict[str, object] = {
        "question_id": review_id,
        "question_body": text_field(question, "text", "question_id, text"),
        "answer1_body": text_field(first, "text", "answer_id, text"),
        "answer2_body": text_field(second, "text", "answer_id, text"),
        "answer1_model_id": optional_text(first, "model_id"),
        "answer2_model_id": optional_text(second, "model_id"),
        "score": score,
        "text": text,
        "metadata": {
            "question_id": question_id,
            "category": optional_text(question, "category"),
            "source": f"{Path(row.file).name}:{row.line}",
        },
    }
    return JoinedReview(row=joined, question_id=question_id, rebuilt=rebuilt)


def _partner(row: Row, field: str, rows: dict[str, Row]) -> Row:
    name = required_id(row, field, "the tables are joined by it")
    if name not in rows:
        raise row_error(row, f'field "{field}": "{name}" is in none of the given files; give the file that holds it')
    return rows[name]


def _score_and_text(row: Row) -> tuple[list[float], str, bool]:
    text = text_field(row, "text", _NEEDS)
    if row.data.get("score") is None:
        raise row_error(row, f'field "score" is missing; each row needs {_NEEDS}')
    scores = scores_field(row, "score")
    if scores == (-1.0, -1.0):
        raise row_error(row, "score [-1, -1]: the source could not read this review, so there is no label")
    written, _ = split_review(text)
    if written is None:
        return json_scores(scores), f"{scores[0]:g} {scores[1]:g}\n{text}", True
    if written != scores:
        shown = f"{written[0]:g} {written[1]:g}"
        raise row_error(row, f'score {json_scores(scores)} and the text, which opens "{shown}", disagree; correct one')
    return json_scores(scores), text, False
