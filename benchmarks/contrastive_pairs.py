"""Pairs of a right and a wrong response to one question, written by a separate generator model.

Source: SSR-Judge, section 4.1: one response ends with the correct answer, the other with a random incorrect answer.
The paper does not print the generator prompt, so the wording is ours.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from string import ascii_uppercase

from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Row, convert_rows
from judgelm.data.readers.values import ID_FIELDS
from judgelm.errors import InputError
from judgelm.parsing.short_answers import Task, canonical, final_answer
from judgelm.prompts.self_reference import question_of
from judgelm.records import Sample

_ASK = (
    "{question}\n\nWrite a solution, step by step, that concludes with ({letter}), whatever you think of it. "
    'Do not say that the conclusion was given. Finish with "The answer is ({letter})".'
)
_MARK = "#concludes-"
_NEEDS = "id, question, reference"
_ANSWER_NEEDS = "question_id, text"


def read_solved_questions(path: str) -> Iterator[Sample]:
    """Read questions with known answers: `id`, `question`, `reference`, and optionally `options` and `category`.

    Raises:
        InputError: the file cannot be read, or a row lacks one of the first three.
    """
    yield from convert_rows(read_rows(path), _known, path=path, expected=_NEEDS)


def _known(row: Row) -> Sample:
    name, reference = row.id(ID_FIELDS), row.reference()
    if name is None or reference is None:
        raise row.error(f"no {'id' if name is None else 'reference'}; each row needs {_NEEDS}")
    return Sample(
        id=name,
        question=row.text("question", _NEEDS),
        answers=(),
        reference=reference,
        category=row.optional_text("category"),
        metadata=row.extras(frozenset({*ID_FIELDS, "question", "reference", "category"})),
    )


def read_answers(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Read question IDs and answers from `judgelm data answers collect` files, without failures.

    Raises:
        InputError: A file cannot be read, or a row is not an answer.
    """
    for path in paths:
        answers = convert_rows(read_rows(path), _answer, path=path, expected=_ANSWER_NEEDS)
        yield from (answer for answer in answers if answer is not None)


def _answer(row: Row) -> tuple[str, str] | None:
    """Return the question ID and the text, or None if the answer failed."""
    if row.data.get("failure") is not None:
        return None
    name = row.required_id("question_id", f"each row needs {_ANSWER_NEEDS}")
    return name, row.text("text", _ANSWER_NEEDS)


def generator_prompts(questions: Iterable[Sample], *, seed: int = 0) -> Iterator[Sample]:
    """Return two generator prompts per multiple-choice question: for the right option and for a wrong one.

    Args:
        questions: with `options` in their metadata and the right letter as their reference.
        seed: selects the wrong option, together with the question ID.

    Raises:
        InputError: A question has no options, or its reference is not an option letter.
    """
    for item in questions:
        shown = question_of(item)
        letters = ascii_uppercase[: shown.letters]
        right = None if item.reference is None else canonical(item.reference, "choice")
        if "options" not in item.metadata or right is None or right not in letters:
            raise InputError(f"question {item.id}: needs options and the letter of one as its reference")
        wrong = random.Random(f"{seed}:{item.id}").choice([letter for letter in letters if letter != right])
        for letter in (right, wrong):
            text = _ASK.format(question=shown.text, letter=letter)
            yield Sample(id=f"{item.id}{_MARK}{letter}", question=text, answers=(), category=item.category)


def source_question_id(question_id: str) -> str:
    """Return the question ID of one of the `generator_prompts`; return other IDs unchanged."""
    return question_id.partition(_MARK)[0]


def contrastive_pair(
    question: Sample, texts: Sequence[str], task: Task, *, seed: int = 0
) -> tuple[Sample, Mapping[str, object]] | None:
    """Sample one right and one wrong generator response, in random order.

    A response's conclusion is read from its text, not from the prompt. Without an extractable answer, a response is
    neither right nor wrong.

    Args:
        question: with its right answer as the reference, which the pair does not show.
        texts: the generator's responses.
        task: kind of final answer.
        seed: random seed, combined with the question ID.

    Returns:
        The pair and its line in a truth file, or None if no response is right or none is wrong.

    Raises:
        InputError: The reference is not a final answer for the task.
    """
    gold = None if question.reference is None else canonical(question.reference, task)
    if gold is None:
        raise InputError(f"question {question.id}: its reference is no answer of task {task}; give the right one")
    ends = [(text, final_answer(text, task, letters=question_of(question).letters)) for text in sorted(texts)]
    right = [text for text, end in ends if end == gold]
    wrong = [text for text, end in ends if end is not None and end != gold]
    if not right or not wrong:
        return None
    rng = random.Random(f"{seed}:{question.id}")
    drawn = [rng.choice(right), rng.choice(wrong)]
    winner = 1 if rng.random() < 0.5 else 2
    answers = (drawn[0], drawn[1]) if winner == 1 else (drawn[1], drawn[0])
    truth: dict[str, object] = {"id": question.id, "winner": winner, "answer": gold, "question": question.id}
    if question.category is not None:
        truth["category"] = question.category
    return replace(question, answers=answers, reference=None), truth
