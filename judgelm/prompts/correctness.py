"""Fields of samples for Self-Reference and SSR, and the prompts made of them.

Beside `question` and `answers` a row may have, in `metadata` or as fields of its own:

- `options`: texts of a multiple-choice question, shown as `A. ...` below the question to solver and judge alike. A
  question without it is shown as it is and may hold its options itself.
- `pair`: the two answers compared, of a sample whose one answer is a judge's verdict on them (task `preference`).
- `solves`: the judge's own answers of an earlier run, see `judgelm.modes.self_answers`.
"""

from string import ascii_uppercase
from typing import NamedTuple

from judgelm.errors import InputError
from judgelm.parsing.short_answers import MOST_LETTERS, Task
from judgelm.prompts.self_reference import (
    CHOICE,
    CHOICE_OF_NO_CATEGORY,
    JUDGE,
    JUDGE_GUIDED,
    META,
    META_GUIDED,
    NUMBER,
    PREFERENCE,
)
from judgelm.records import Prompt, Sample


class QuestionText(NamedTuple):
    """A question as it is shown, and how many letters an answer to it can choose from."""

    text: str
    letters: int


def question_of(sample: Sample) -> QuestionText:
    """The question with its options below it, as Figure 6 prints them.

    Raises:
        InputError: `options` is no list of 2 to 26 texts.
    """
    options = _texts(sample, "options")
    if options is None:
        return QuestionText(sample.question, MOST_LETTERS)
    if not 2 <= len(options) <= len(ascii_uppercase):
        raise _wrong(sample, "options", f"expected 2 to {len(ascii_uppercase)} texts, got {len(options)}")
    lines = [f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False)]
    return QuestionText("\n".join([sample.question, "Options:", *lines]), len(options))


def solving_prompt(sample: Sample, task: Task, *, chat: bool) -> Prompt:
    """The question put to the judge itself: Figure 5, 6 or 7.

    Raises:
        InputError: the sample lacks what the task needs.
    """
    values = {"question": question_of(sample).text}
    if task == "number":
        return NUMBER.render(values, chat=chat)
    if task == "preference":
        return PREFERENCE.render(values | _pair(sample), chat=chat)
    if sample.category is None:
        return CHOICE_OF_NO_CATEGORY.render(values, chat=chat)
    return CHOICE.render(values | {"category": sample.category}, chat=chat)


def judging_prompt(sample: Sample, task: Task, reference: str | None, *, chat: bool) -> Prompt:
    """The prompt that asks if the one answer is correct: Figures 8 and 9, or 10 and 11 with a reference.

    Raises:
        InputError: the sample lacks what the task needs, or has not exactly one answer.
    """
    if len(sample.answers) != 1:
        finding = f"expected 1 answer, got {len(sample.answers)}"
        raise InputError(f"sample {sample.id}: {finding}; correctness is judged one answer at a time")
    values = {"question": question_of(sample).text, "response": sample.answers[0]}
    if task == "preference":
        values |= _pair(sample)
    plain, guided = (META, META_GUIDED) if task == "preference" else (JUDGE, JUDGE_GUIDED)
    if reference is None:
        return plain.render(values, chat=chat)
    return guided.render(values | {"reference": reference}, chat=chat)


def _pair(sample: Sample) -> dict[str, str]:
    pair = _texts(sample, "pair")
    if pair is None or len(pair) != 2:
        raise _wrong(sample, "pair", f"expected the 2 answers compared, got {'nothing' if pair is None else len(pair)}")
    return {"answer_1": pair[0], "answer_2": pair[1]}


def _texts(sample: Sample, name: str) -> list[str] | None:
    """A list of texts in the metadata; None where there is none."""
    texts = sample.metadata.get(name)
    if texts is None:
        return None
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise _wrong(sample, name, "expected a list of texts")
    return list(texts)


def _wrong(sample: Sample, name: str, finding: str) -> InputError:
    return InputError(f'sample {sample.id}: field "{name}": {finding}; correct the row, or leave the sample out')
