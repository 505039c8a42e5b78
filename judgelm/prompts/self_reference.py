"""The prompts of Self-Reference and SSR-Judge: a judge answers the question itself before it judges another's answer.

Their texts are in `self_reference.toml`. The words are those of Figures 5 to 11 of Self-Reference, `[System]` included,
which stands in the figures as a line of the prompt. A chat has all of it as one user message. The figures do not settle
blank lines: here there is one behind the instruction and none between the blocks, as Figures 7 and 8 are printed. Ours,
since the paper does not print it: what stands for `{question}` before a meta-judge (the question with both answers, in
the blocks of Figure 7, or it would judge blindly), and the opening of Figure 6 for a question that has no category.

SSR-Judge prints one sentence of each prompt: "Given question Q, the correct answer is A. Which response is better: R1
or R2?" and "Given question Q, which response is better: R1 or R2?". These sentences are kept. The blocks, the request
to reason first and the verdict's format are ours. So is the choice of the prompt for the judge's own answers: Figure 6
of Self-Reference, or its Figure 5 where the answer is a number.

Beside `question` and `answers` a row may have, in `metadata` or as fields of its own:

- `options`: texts of a multiple-choice question, shown as `A. ...` below the question to solver and judge alike. A
  question without it is shown as it is and may hold its options itself.
- `pair`: the two answers compared, of a sample whose one answer is a judge's verdict on them (task `preference`).
- `solves`: the judge's own answers of an earlier run, see `judgelm.modes.self_reference`.

Source: Self-Reference (*Do Before You Judge*), appendix B; SSR-Judge, section 3.4.
"""

from pathlib import Path
from string import ascii_uppercase
from typing import NamedTuple

from judgelm.errors import InputError
from judgelm.parsing.short_answers import MAX_LETTERS, Task
from judgelm.prompts.catalog import PromptFamily, PromptText, read_texts
from judgelm.records import Prompt, Sample, SpanKind

_KINDS: dict[str, SpanKind] = {
    "category": "question",
    "question": "question",
    "reference": "reference",
    "response": "question",  # never cut: what is judged stands at its end
    "answer_1": "answer",
    "answer_2": "answer",
}
_TEXTS = {
    name: PromptText(
        text=fields["text"],
        kinds=_KINDS | dict.fromkeys(fields.get("whole", ()), "question"),
        delimiters=tuple(fields["delimiters"]),
    )
    for name, fields in read_texts(Path(__file__).with_suffix(".toml")).items()
}
_SOLVING = ("number", "choice", "choice_of_no_category")


def _family(family_id: str, *names: str) -> PromptFamily:
    return PromptFamily(id=family_id, texts={name: _TEXTS[name] for name in (*_SOLVING, *names)})


SELF_REFERENCE = _family("self-reference", "preference", "judge", "judge_guided", "meta", "meta_guided")
SSR = _family("ssr", "compare", "compare_with_answer")


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
        return QuestionText(sample.question, MAX_LETTERS)
    if not 2 <= len(options) <= len(ascii_uppercase):
        raise _wrong(sample, "options", f"expected 2 to {len(ascii_uppercase)} texts, got {len(options)}")
    lines = [f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False)]
    return QuestionText("\n".join([sample.question, "Options:", *lines]), len(options))


def solving_prompt(sample: Sample, task: Task, *, chat: bool) -> Prompt:
    """The question put to the judge itself: Figure 5, 6 or 7.

    Raises:
        InputError: the sample lacks what the task needs.
    """
    name: str = task
    values = {"question": question_of(sample).text}
    if task == "preference":
        values |= _pair(sample)
    elif task == "choice" and sample.category is None:
        name = "choice_of_no_category"
    elif task == "choice":
        values["category"] = sample.category or ""
    return _TEXTS[name].render(values, chat=chat)


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
    name = "meta" if task == "preference" else "judge"
    if reference is not None:
        name, values["reference"] = f"{name}_guided", reference
    return _TEXTS[name].render(values, chat=chat)


def comparing_prompt(sample: Sample, order: tuple[int, int], reference: str | None, *, chat: bool) -> Prompt:
    """The two answers in this order, with the answer that counts as right if it is not None.

    Args:
        sample: with two answers.
        order: indices into `sample.answers`.
        reference: the majority answer of the judge's own.
        chat: one user message; else plain text.

    Raises:
        InputError: the sample's options are no texts.
    """
    first, second = (sample.answers[index] for index in order)
    values = {"question": question_of(sample).text, "answer_1": first, "answer_2": second}
    name = "compare"
    if reference is not None:
        name, values["reference"] = "compare_with_answer", reference
    return _TEXTS[name].render(values, chat=chat)


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
