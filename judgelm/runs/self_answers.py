"""A judge's own answers from an earlier run, reused for the samples of another."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from judgelm.data.judged_texts import text_hashes
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Row, convert_rows, row_error
from judgelm.errors import InputError
from judgelm.records import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfAnswers:
    """The judge's own answers.

    Attributes:
        solves: sample id -> `{"text": ..., "answer": ...}` of each answer, as run files have them.
        questions: sample id -> hash of the question that was answered, of run files that keep hashes.
    """

    solves: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    questions: Mapping[str, str] = field(default_factory=dict)


_ANSWER_FIELDS = frozenset({"id", "question_id", "decoding_method", "text"})


def read_self_answers(path: str) -> SelfAnswers:
    """Read the judge's own answers: from a run file of a mode that asks for them, or from `judgelm data answers`.

    Answers of `judgelm data answers` stand under their question's id, those of one question in the order of their
    seeds; failures are left out.

    Raises:
        InputError: the file cannot be read, holds none, or has rows that are neither.
    """
    answers: dict[str, list[dict[str, Any]]] = {}
    questions: dict[str, str] = {}
    collected: dict[str, dict[str, dict[str, Any]]] = {}
    for row in convert_rows(read_rows(path), _checked, path=path, expected="id, solves"):
        if not _is_answer(row):
            if row.data.get("solves"):
                answers[str(row.data["id"])] = cast(list[dict[str, Any]], row.data["solves"])
                if isinstance(hashes := row.data.get("hashes"), dict):
                    questions[str(row.data["id"])] = str(hashes.get("question"))
            continue
        question = collected.setdefault(str(row.data["question_id"]), {})
        question.pop(str(row.data["id"]), None)
        if row.data.get("failure") is None:
            question[str(row.data["id"])] = {name: row.data[name] for name in ("text", "answer") if name in row.data}
    answers |= {
        question: [solves[name] for name in sorted(solves, key=lambda name: (len(name), name))]
        for question, solves in collected.items()
        if solves
    }
    if not answers:
        raise InputError(
            f"{path}: no judgment has own answers (solves); give the run file of a mode that asks for them, or the "
            "judge's file of judgelm data answers"
        )
    return SelfAnswers(solves=answers, questions=questions)


def with_self_answers(sample: Sample, own: SelfAnswers) -> Sample:
    """The sample with its own answers, where there are any; modes use them instead of asking.

    They stand under the sample's id, or under the id of its question, `metadata["source_id"]`.

    Raises:
        InputError: they answer another question.
    """
    key = next((key for key in (sample.id, sample.metadata.get("source_id")) if key in own.solves), None)
    if key is None:
        return sample
    if own.questions.get(str(key)) not in (None, text_hashes(sample).question):
        raise InputError(
            f"id {json.dumps(key, ensure_ascii=False)}: the judge's own answers under this id are to another question; "
            "give the run over the same input"
        )
    return replace(sample, metadata={**sample.metadata, "solves": own.solves[str(key)]})


def _is_answer(row: Row) -> bool:
    """True for a line of `judgelm data answers`."""
    return "solves" not in row.data and _ANSWER_FIELDS.issubset(row.data)


def _checked(row: Row) -> Row:
    """A judgment with an id, its own answers having texts; or an answer with a text or a failure."""
    if _is_answer(row):
        if isinstance(row.data["text"], str) or row.data.get("failure") is not None:
            return row
        raise row_error(row, "an answer without text; give a file of judgelm data answers")
    solves = row.data.get("solves", [])
    texts = (
        [answer.get("text") if isinstance(answer, dict) else None for answer in solves]
        if isinstance(solves, list)
        else [None]
    )
    if "id" not in row.data or not all(isinstance(text, str) for text in texts):
        raise row_error(row, "expected a judgment with id and solves, each with a text; give a run file")
    return row
