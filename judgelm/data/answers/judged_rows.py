"""Collected answers as rows to be judged, one answer each, and the truth about them where it is known.

A row has the question's id in `metadata["source_id"]`, so that a judge's own answers to the questions
(`--self-answers`) are found. An answer is right where its final answer is the reference; one without a final answer is
wrong, as in the papers.

Source: Self-Reference, section 4 (agents' answers judged one by one); QA-Judge, section 4.2 (the answer in the tags).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from judgelm.data.readers.fields import optional_text, required_id, text_field
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Row, convert_rows
from judgelm.data.sources.source import plain_row
from judgelm.errors import InputError
from judgelm.modes.generation import QuestionTask
from judgelm.parsing.short_answers import canonical, final_answer
from judgelm.prompts.self_reference import question_of
from judgelm.records import Sample

_NEEDS = "question_id, model, text"
_UNKNOWN_SET = "not given"


class CollectedAnswer(NamedTuple):
    """A line of a file of answers; `text` is None for a failure, `final` where no final answer was extracted."""

    model: str
    decoding: str
    text: str | None
    final: str | None
    task: str
    finished: bool


def read_collected(paths: Iterable[str]) -> dict[str, list[CollectedAnswer]]:
    """The answers of files of `judgelm data answers collect` by question; of two with one id the later counts.

    Raises:
        InputError: a file cannot be read, or a row is no answer.
    """
    answers: dict[str, dict[tuple[str, str], CollectedAnswer]] = {}
    for path in paths:
        for question, answer in convert_rows(read_rows(path), _collected, path=path, expected=_NEEDS):
            answers.setdefault(question, {})[answer.model, answer.decoding] = answer
    return {
        question: sorted(by_model.values(), key=lambda answer: (answer.model, len(answer.decoding), answer.decoding))
        for question, by_model in answers.items()
    }


def _collected(row: Row) -> tuple[str, CollectedAnswer]:
    question = required_id(row, "question_id", f"each row needs {_NEEDS}")
    return question, CollectedAnswer(
        model=text_field(row, "model", _NEEDS),
        decoding=optional_text(row, "decoding_method") or "greedy",
        text=None if row.data.get("failure") is not None else text_field(row, "text", _NEEDS),
        final=optional_text(row, "answer"),
        task=optional_text(row, "task") or "question",
        finished=row.data.get("finish_reason", "stop") == "stop",
    )


class JudgedRow(NamedTuple):
    """A row to judge, and its line of a truth file; None where the truth is not known."""

    row: dict[str, object]
    truth: dict[str, object] | None


def judged_rows(
    questions: Sequence[Sample],
    answers: dict[str, list[CollectedAnswer]],
    task: QuestionTask,
    *,
    counts: Counter[str],
) -> Iterator[JudgedRow]:
    """One row for each answer, in the order of the questions.

    Args:
        questions: with their references, where the truth is to be known.
        answers: by question, see `read_collected`.
        task: of the answers: `qa` rows hold the answer in the tags, all others the whole text.
        counts: counts rows, and answers that are left out, by reason.

    Raises:
        InputError: a reference is no answer of the task.
    """
    several = _models_with_several(answers)
    for question in questions:
        if question.id not in answers:
            counts["questions without an answer"] += 1
        for answer in answers.get(question.id, ()):
            text = answer.final if task == "qa" else answer.text
            if text is None:
                counts["answers left out: failed" if answer.text is None else "answers left out: none in tags"] += 1
                continue
            counts["rows"] += 1
            name = f"{question.id}/{answer.model}"
            sample = replace(
                question,
                id=f"{name}/{answer.decoding}" if answer.model in several else name,
                answers=(text,),
                answer_models=(answer.model,),
                metadata={**question.metadata, "source_id": question.id},
            )
            yield JudgedRow(plain_row(sample), _truth(question, sample, answer, task, counts))


def _models_with_several(answers: dict[str, list[CollectedAnswer]]) -> set[str]:
    """The models with more than one answer to a question, whose rows need the decoding in their id."""
    return {
        model
        for collected in answers.values()
        for model, count in Counter(answer.model for answer in collected).items()
        if count > 1
    }


def _truth(
    question: Sample, sample: Sample, answer: CollectedAnswer, task: QuestionTask, counts: Counter[str]
) -> dict[str, object] | None:
    if task == "question" or task == "qa" or question.reference is None:
        return None
    gold = canonical(question.reference, task)
    if gold is None:
        raise InputError(f"question {question.id}: its reference is no answer of task {task}; give the right one")
    final = answer.final
    if answer.task != task:
        letters = question_of(question).letters
        final = final_answer(answer.text or "", task, letters=letters, finished=answer.finished)
    counts["rows with a right answer" if final == gold else "rows with a wrong answer"] += 1
    return {
        "id": sample.id,
        "agent": answer.model,
        "dataset": str(question.metadata.get("data_set", _UNKNOWN_SET)),
        "truth": final == gold,
        "question": question.id,
        "answer": gold,
    }
