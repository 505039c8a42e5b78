"""Collect model answers to questions, and create pairs and rows to judge from the answers.

Rows with one answer store the question's id in `metadata["source_id"]`. An answer is correct if its final answer equals
the reference. Source: JudgeLM, section 3.1; Self-Reference, section 4; QA-Judge, section 4.2 (answer in tags).
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, combinations, islice
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from judgelm.data.label_codes import winner_field
from judgelm.data.plain_rows import plain_row
from judgelm.data.readers.files import read_converted, read_rows
from judgelm.data.readers.rows import OnReject, Row, convert_rows, raise_reject, unique
from judgelm.data.readers.values import content_id, describe
from judgelm.errors import InputError
from judgelm.modes.generation import GeneratedAnswer, QuestionTask
from judgelm.parsing.short_answers import canonical, final_answer
from judgelm.prompts.self_reference import question_of
from judgelm.records import Sample, Winner

T = TypeVar("T")


REFERENCE_MODEL = "reference"
"""Model name to use when the reference serves as an answer."""

_QUESTION_NEEDS = "question_body, or question"
_QUESTION_TEXTS = ("question_body", "question", "instruction", "prompt", "turns")
"""The question fields of JudgeLM, plain rows, AlpacaEval, Arena-Hard, and MT-bench (first turn)."""
_ANSWER_NEEDS = "question_id, model, text"
_ANSWER_MODELS, _ANSWER_TEXTS = ("model", "model_id", "generator"), ("text", "output")
_IDS = ("question_id", "id", "idx", "uid")
_PAIR = ("answer_1", "answer_2")
_LETTERS: Mapping[Winner, str] = {1: "A", 2: "B", "tie": "C"}
_QUESTION_FIELDS = frozenset({*_IDS, "question_body", "question", "reference", "category", *_PAIR, "winner"})


def read_questions(
    path: str,
    *,
    on_reject: OnReject = raise_reject,
    limit: int | None = None,
    columns: Mapping[str, str] | None = None,
    sheet: str | None = None,
) -> list[Sample]:
    """Read questions from JudgeLM, plain, AlpacaEval, MT-bench, or Arena-Hard rows, as samples without answers.

    If a row has two answers, the question is which answer is better. The answers are stored as `pair`, and the winner
    (A, B, or C for a tie) as the reference.

    Raises:
        InputError: the file cannot be read or contains no questions.
    """
    read = unique(_question, attrgetter("id"))
    rows = read_rows(path, columns=columns, sheet=sheet)
    questions = convert_rows(rows, read, path=path, expected=_QUESTION_NEEDS, on_reject=on_reject)
    return list(islice(questions, limit))


def _question(row: Row) -> Sample:
    name = _first_of(row, _QUESTION_TEXTS, "question")
    for field_name in (name, "reference"):  # MT-bench and Arena-Hard have one value per turn
        if isinstance(turns := row.data.get(field_name), list) and turns:
            first = turns[0].get("content") if isinstance(turns[0], dict) else turns[0]
            row = row.with_data({**row.data, field_name: first})
    text = row.text(name, _QUESTION_NEEDS)
    if not text.strip():
        raise row.field_error(name, "is empty; remove the row")
    reference, metadata = row.reference(), row.extras(_QUESTION_FIELDS | {name})
    if all(name in row.data for name in _PAIR):
        metadata["pair"] = [row.text(name, ", ".join(_PAIR)) for name in _PAIR]
        reference = None if row.data.get("winner") is None else _LETTERS[winner_field(row)]
    return Sample(
        id=row.id(_IDS) or content_id(text, (), None),
        question=text,
        answers=(),
        reference=reference,
        category=row.optional_text("category"),
        metadata=metadata,
    )


def _first_of(row: Row, names: Sequence[str], otherwise: str) -> str:
    return next((name for name in names if name in row.data), otherwise)


def answer_row(answer: GeneratedAnswer, model: str, task: QuestionTask = "question") -> dict[str, Any]:
    """Return an answer as a row of the model's run file, in the format of JudgeLM's answer files."""
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
    """An answer that can be used in a pair."""

    model: str
    decoding: str
    text: str


class CollectedAnswer(NamedTuple):
    """A row of an answer file. `text` is None if the model failed; `final` is None if no final answer was extracted."""

    model: str
    decoding: str
    text: str | None
    final: str | None
    task: str
    finish_reason: str
    question: str | None = None


def read_collected(paths: Iterable[str]) -> dict[str, list[CollectedAnswer]]:
    """Read answer files, grouped by question. If a combination of model and decoding is repeated, the last row is used.

    AlpacaEval outputs without ids are supported, as are the first turns of MT-bench and Arena-Hard answers.

    Raises:
        InputError: a row is not an answer, or an instruction without an id has two outputs from one model.
    """
    answers: dict[str, dict[tuple[str, str], CollectedAnswer]] = {}
    for path in paths:
        for question, answer in read_converted(path, _collected, expected=_ANSWER_NEEDS):
            by_model = answers.setdefault(question, {})
            earlier = by_model.setdefault((answer.model, answer.decoding), answer)
            if earlier.text != answer.text and question == content_id(answer.question or "", (), None):
                finding = f"{answer.model} has two outputs for the instruction {describe(answer.question)}"
                raise InputError(f"{path}: {finding}; keep one, or add a question_id to each row")
            by_model[answer.model, answer.decoding] = answer

    def by_name(answer: CollectedAnswer) -> tuple[str, int, str]:
        return answer.model, len(answer.decoding), answer.decoding

    return {question: sorted(by_model.values(), key=by_name) for question, by_model in answers.items()}


def answers_to(question: Sample, answers: Mapping[str, T]) -> T | None:
    """Look up the answers to a question by its id, or else by its text."""
    return answers.get(question.id) or answers.get(content_id(question.question, (), None))


def _collected(row: Row) -> tuple[str, CollectedAnswer]:
    asked = row.optional_text("question_body") or row.optional_text("instruction")
    question = row.id(("question_id", "uid"))
    if question is None and asked is not None:
        question = content_id(asked, (), None)
    if question is None:
        question = row.required_id("question_id", f"each row must contain {_ANSWER_NEEDS}")
    row, text = _with_first_answer(row), _first_of(row, _ANSWER_TEXTS, "text")
    return question, CollectedAnswer(
        model=row.text(_first_of(row, _ANSWER_MODELS, "model"), _ANSWER_NEEDS),
        decoding=row.optional_text("decoding_method") or "",
        text=None if row.data.get("failure") is not None else row.text(text, _ANSWER_NEEDS),
        final=row.optional_text("answer"),
        task=row.optional_text("task") or "question",
        finish_reason=str(row.data.get("finish_reason", "stop")),
        question=asked,
    )


def _with_first_answer(row: Row) -> Row:
    choices, messages = row.data.get("choices"), row.data.get("messages")
    with suppress(KeyError, IndexError, TypeError):
        if isinstance(choices, list):
            answer = choices[0]["turns"][0]
        elif isinstance(messages, list):
            answer = next(message for message in messages if message["role"] == "assistant")["content"]
        else:
            return row
        if isinstance(answer, dict):
            answer = answer.get("content", answer.get("answer"))
        return row.with_data({"text": answer} | row.data)
    return row


def read_model_answers(path: str) -> tuple[str, dict[str, CollectedAnswer]]:
    """Return the model name in an answer file and the answers, keyed by question id."""
    by_question = read_collected([path])
    models = sorted({answer.model for answers in by_question.values() for answer in answers})
    if len(models) > 1:
        raise InputError(f"{path}: contains answers from several models ({', '.join(models)}); use one file per model")
    for question, answers in by_question.items():
        if len(answers) > 1:
            ways = ", ".join(answer.decoding or "greedy" for answer in answers)
            raise InputError(f"{path}: {len(answers)} answers to question {question} ({ways}); keep only one")
    return models[0], {question: answers[0] for question, answers in by_question.items()}


def pair_of_models(
    questions: Sequence[Sample], names: tuple[str, str], paths: tuple[str, str], counts: Counter[str]
) -> list[Sample]:
    """Return a pair for each question that both models answered, with the answers in the order of `names`.

    The numbers of failed and truncated answers per model are added to `counts`.
    """
    pairs, sides = {question.id: replace(question, answer_models=names) for question in questions}, []
    for name, path in zip(names, paths, strict=True):
        given = read_model_answers(path)[1]
        answers = {question.id: answer for question in questions if (answer := answers_to(question, given)) is not None}
        if missing := [question.id for question in questions if question.id not in answers]:
            counted = f"{len(missing):,} of {len(questions):,} questions (first: {missing[0]}; {_keys(given)})"
            raise InputError(f"{path}: contains no answer to {counted}; add the answers, or remove these questions")
        for question in questions:
            answer = answers[question.id]
            if answer.question not in (None, question.question):
                raise InputError(f"{path}: the answer to {question.id} is for another question: {answer.question!r}")
            counts[f"{name}: failed"] += answer.text is None
            counts[f"{name}: at the token limit"] += answer.text is not None and answer.finish_reason == "length"
        sides.append(answers)
    both = ((question, [side[question.id].text for side in sides]) for question in questions)
    return [
        replace(pairs[question.id], answers=(first, second))
        for question, (first, second) in both
        if first is not None and second is not None
    ]


def _keys(answers: Mapping[str, CollectedAnswer]) -> str:
    key, answer = next(iter(answers.items()))
    by_text = answer.question is not None and key == content_id(answer.question, (), None)
    return "the answers have no ids and are joined by instruction" if by_text else f"the answers have ids such as {key}"


class AnswerSet:
    """The answers in several files, grouped by question."""

    def __init__(self, paths: Sequence[str], *, drop_truncated: bool = False) -> None:
        """Set `drop_truncated` to skip answers truncated at the token limit."""
        self._answers = read_collected(paths)
        self._drop_truncated = drop_truncated

    def _usable(self, answers: Iterable[CollectedAnswer]) -> list[Candidate]:
        return [
            Candidate(answer.model, answer.decoding, answer.text)
            for answer in answers
            if answer.text is not None and not (self._drop_truncated and answer.finish_reason == "length")
        ]

    @property
    def left_out(self) -> int:
        """Number of answers that cannot be used in pairs."""
        return sum(len(answers) - len(self._usable(answers)) for answers in self._answers.values())

    def of(self, question: Sample, *, with_reference: bool = False) -> list[Candidate]:
        """Return the sorted answers to a question, optionally including the reference."""
        candidates = self._usable(answers_to(question, self._answers) or ())
        if with_reference and question.reference is not None:
            candidates.append(Candidate(REFERENCE_MODEL, "", question.reference))
        return sorted(candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSampler:
    """Draws pairs of answers to a question.

    Attributes:
        pairs: maximum number of pairs per question.
        seed: together with the question's id, determines the pairs and the order of the answers.
        same_model: also pair two answers from the same model.
    """

    pairs: int = 1
    seed: int = 0
    same_model: bool = False

    def __call__(self, question_id: str, answers: Sequence[Candidate]) -> list[tuple[Candidate, Candidate]]:
        """Return up to `pairs` pairs of different answers. Increasing `pairs` only appends pairs."""
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
    """Yield JudgeLM rows without scores: the first pair for every question, then the second pair, and so on.

    Increasing the number of pairs per question only appends rows.
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


_UNKNOWN_SET = "not given"


class JudgedRow(NamedTuple):
    """A row to judge and its ground-truth row (None if the truth is unknown)."""

    row: dict[str, object]
    truth: dict[str, object] | None


def judged_rows(
    questions: Sequence[Sample], answers: dict[str, list[CollectedAnswer]], task: QuestionTask, *, counts: Counter[str]
) -> Iterator[JudgedRow]:
    """Yield a row for each answer, in the order of the questions."""
    counted = chain.from_iterable(Counter(each.model for each in collected).items() for collected in answers.values())
    several = {model for model, count in counted if count > 1}
    for question in questions:
        collected = answers_to(question, answers) or []
        counts["questions without an answer"] += not collected
        for answer in collected:
            text = answer.final if task == "qa" else answer.text
            if text is None:
                counts["answers left out: failed" if answer.text is None else "answers left out: none in tags"] += 1
                continue
            counts["rows"] += 1
            name = f"{question.id}/{answer.model}"
            sample = replace(
                question,
                id=f"{name}/{answer.decoding or 'greedy'}" if answer.model in several else name,
                answers=(text,),
                answer_models=(answer.model,),
                metadata={**question.metadata, "source_id": question.id},
            )
            yield JudgedRow(plain_row(sample), _truth(question, sample, answer, task, counts))


def _truth(
    question: Sample, sample: Sample, answer: CollectedAnswer, task: QuestionTask, counts: Counter[str]
) -> dict[str, object] | None:
    if task == "question" or task == "qa" or question.reference is None:
        return None
    gold = canonical(question.reference, task)
    if gold is None:
        raise InputError(f"question {question.id}: the reference is not a valid answer for task {task}; fix it")
    final = answer.final
    if answer.task != task:
        letters = question_of(question).letters
        final = final_answer(answer.text or "", task, letters=letters, finished=answer.finish_reason == "stop")
    counts["rows with a right answer" if final == gold else "rows with a wrong answer"] += 1
    return {
        "id": sample.id,
        "agent": answer.model,
        "dataset": str(question.metadata.get("data_set", _UNKNOWN_SET)),
        "truth": final == gold,
        "question": question.id,
        "answer": gold,
    }
