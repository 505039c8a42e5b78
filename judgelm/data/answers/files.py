"""Seed questions, the answers of many models to them, and pairs drawn from those for a teacher to judge.

Source: JudgeLM, section 3.1: answers of LLMs, with the reference answer, make a question's answer set; pairs are drawn
from it at random.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice
from operator import attrgetter
from typing import Any, NamedTuple

from judgelm.data.readers.fields import (
    content_id,
    extra_fields,
    optional_text,
    reference_field,
    required_id,
    row_id,
    text_field,
)
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import OnReject, Row, convert_rows, field_error, raise_reject, unique
from judgelm.data.sources.codes import winner_field
from judgelm.modes.generation import GeneratedAnswer, QuestionTask
from judgelm.records import Sample, Winner

REFERENCE_MODEL = "reference"
"""Model name of a reference that is used as an answer."""

_QUESTION_NEEDS = "question_body, or question"
_ANSWER_NEEDS = "question_id, model, text"
_IDS = ("question_id", "id", "idx")
_PAIR = ("answer_1", "answer_2")
_LETTERS: Mapping[Winner, str] = {1: "A", 2: "B", "tie": "C"}
_QUESTION_FIELDS = frozenset({*_IDS, "question_body", "question", "reference", "category", *_PAIR, "winner"})


def read_questions(
    path: str,
    *,
    on_reject: OnReject = raise_reject,
    limit: int | None = None,
    columns: Mapping[str, str] | None = None,
) -> list[Sample]:
    """Questions as samples without answers: `question_body` or `question`, and an id, reference, category if any.

    All other fields are kept as metadata, such as `options` and `context`. A row of two answers asks which is better:
    they are its `pair`, and its winner (A, B, or C for a tie) is the reference.

    Raises:
        InputError: the file cannot be read, or holds no question.
    """
    read = unique(_question, attrgetter("id"))
    rows = read_rows(path, columns=columns)
    questions = convert_rows(rows, read, path=path, expected=_QUESTION_NEEDS, on_reject=on_reject)
    return list(islice(questions, limit))


def _question(row: Row) -> Sample:
    name = "question_body" if "question_body" in row.data else "question"
    text = text_field(row, name, _QUESTION_NEEDS)
    if not text.strip():
        raise field_error(row, name, "is empty; remove the row")
    reference, metadata = reference_field(row), extra_fields(row, _QUESTION_FIELDS)
    if all(name in row.data for name in _PAIR):
        metadata["pair"] = [text_field(row, name, ", ".join(_PAIR)) for name in _PAIR]
        reference = None if row.data.get("winner") is None else _LETTERS[winner_field(row)]
    return Sample(
        id=row_id(row, _IDS) or content_id(text, (), None),
        question=text,
        answers=(),
        reference=reference,
        category=optional_text(row, "category"),
        metadata=metadata,
    )


def answer_row(answer: GeneratedAnswer, model: str, task: QuestionTask = "question") -> dict[str, Any]:
    """An answer as a line of its model's run file, in the fields of JudgeLM's answer files.

    Tasks whose replies end in an answer have it beside the text.
    """
    question, failure = answer.draw.question, answer.failure
    return {
        "id": answer.draw.id,
        "question_id": question.id,
        "question_body": question.question,
        "category": question.category,
        "decoding_method": answer.draw.decoding.name,
        "model": model,
        "text": answer.text,
        **({} if task == "question" else {"task": task, "answer": answer.final}),
        **({} if answer.thinking is None else {"thinking": answer.thinking}),
        "finish_reason": answer.finish_reason,
        "failure": None if failure is None else {"code": failure.code, "text": failure.text, "why": failure.why},
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
    }


class Candidate(NamedTuple):
    """An answer that a pair may use; candidates are sorted by these fields before the draw."""

    model: str
    decoding: str
    text: str


class AnswerSet:
    """The answers of several files by question; a later answer of one model and decoding replaces an earlier one."""

    def __init__(self, paths: Sequence[str], *, drop_truncated: bool = False) -> None:
        """Read the files.

        Raises:
            InputError: a file cannot be read, or a row is no answer.
        """
        self._found: dict[str, dict[tuple[str, str], str | None]] = {}
        for path in paths:
            take = partial(self._take, drop_truncated=drop_truncated)
            for _ in convert_rows(read_rows(path), take, path=path, expected=_ANSWER_NEEDS):
                pass

    def _take(self, row: Row, *, drop_truncated: bool) -> None:
        question = required_id(row, "question_id", f"each row needs {_ANSWER_NEEDS}")
        key = (text_field(row, "model", _ANSWER_NEEDS), optional_text(row, "decoding_method") or "")
        text = None
        if row.data.get("failure") is None:
            text = text_field(row, "text", _ANSWER_NEEDS)
            if drop_truncated and row.data.get("finish_reason") == "length":
                text = None
        self._found.setdefault(question, {})[key] = text

    @property
    def left_out(self) -> int:
        """Number of answers that no pair may use: failed, or truncated where those are dropped."""
        return sum(text is None for texts in self._found.values() for text in texts.values())

    def of(self, question: Sample, *, with_reference: bool = False) -> list[Candidate]:
        """A question's answers, sorted, whatever the order of files; with the reference where requested."""
        candidates = [
            Candidate(*key, text) for key, text in self._found.get(question.id, {}).items() if text is not None
        ]
        if with_reference and question.reference is not None:
            candidates.append(Candidate(REFERENCE_MODEL, "", question.reference))
        return sorted(candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSampler:
    """Draws pairs from the answers of a question.

    Attributes:
        pairs: most pairs of a question.
        seed: with the question's id, it decides the pairs and the order of their answers.
        same_model: pair two answers of one model as well.
    """

    pairs: int = 1
    seed: int = 0
    same_model: bool = False

    def __call__(self, question_id: str, answers: Sequence[Candidate]) -> list[tuple[Candidate, Candidate]]:
        """At most `pairs` different pairs of different texts; more pairs begin with those of fewer."""
        rng = random.Random(f"{self.seed}:{question_id}")
        possible = [
            (first, second)
            for first, second in combinations(answers, 2)
            if first.text.strip() != second.text.strip() and (self.same_model or first.model != second.model)
        ]
        rng.shuffle(possible)
        return [(second, first) if rng.random() < 0.5 else (first, second) for first, second in possible[: self.pairs]]


def pair_rows(
    questions: Sequence[Sample],
    answers: AnswerSet,
    draw: PairSampler,
    *,
    with_reference: bool = False,
    counts: Counter[str],
) -> Iterator[dict[str, Any]]:
    """JudgeLM rows without scores: the first pair of every question, then the second, ...

    So a run with more pairs per question appends to the same file, and judgments that a teacher has made stay valid.
    """
    drawn = [draw(question.id, answers.of(question, with_reference=with_reference)) for question in questions]
    for pairs in drawn:
        counts[f"questions with {len(pairs)} pairs"] += 1
    for index in range(draw.pairs):
        for question, pairs in zip(questions, drawn, strict=True):
            if index < len(pairs):
                counts["pairs"] += 1
                yield _pair_row(question, index + 1, pairs[index])


def _pair_row(question: Sample, pair_number: int, pair: tuple[Candidate, Candidate]) -> dict[str, Any]:
    row: dict[str, Any] = {"question_id": f"{question.id}-{pair_number}", "question_body": question.question}
    for position, answer in enumerate(pair, 1):
        row[f"answer{position}_body"] = answer.text
        row[f"answer{position}_model_id"] = answer.model
        row[f"answer{position}_metadata"] = {"decoding_method": answer.decoding or None}
    if question.reference is not None:
        row["reference"] = {"text": question.reference}
    category = {} if question.category is None else {"category": question.category}
    return row | {"metadata": {"question_id": question.id, **category}}
