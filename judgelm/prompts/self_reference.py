"""Prompts for Self-Reference and SSR-Judge, where the judge answers the question before it judges other answers.

The texts are from Figures 5 to 11 of Self-Reference; in a chat, everything is in one user message. The figures do not
show where blank lines belong; here, there is one after the instruction and none between blocks. We added the
meta-judge's `{question}`, the opening of Figure 6 for questions without a category, and the text around the sentence
from the SSR-Judge paper.

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
    "response": "question",  # never cut, because the judged part is at the end
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
    """A question as shown to the judge, with the number of option letters."""

    text: str
    letters: int


def question_of(sample: Sample) -> QuestionText:
    """Return the question with its options below it, as in Figure 6.

    Raises:
        InputError: `options` is not a list of 2 to 26 strings.
    """
    options = _texts(sample, "options")
    if options is None:
        return QuestionText(sample.question, MAX_LETTERS)
    if not 2 <= len(options) <= len(ascii_uppercase):
        raise _wrong(sample, "options", f"expected 2 to {len(ascii_uppercase)} strings, got {len(options)}")
    lines = [f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False)]
    return QuestionText("\n".join([sample.question, "Options:", *lines]), len(options))


def solving_prompt(sample: Sample, task: Task, *, chat: bool) -> Prompt:
    """Return the prompt that asks the judge the question: Figure 5, 6, or 7."""
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
    """Return the prompt that asks whether an answer is correct: Figures 8 and 9, or 10 and 11 with a reference."""
    if len(sample.answers) != 1:
        finding = f"expected 1 answer, got {len(sample.answers)}"
        raise InputError(f"sample {sample.id}: {finding}; use one answer per sample")
    values = {"question": question_of(sample).text, "response": sample.answers[0]}
    if task == "preference":
        values |= _pair(sample)
    name = "meta" if task == "preference" else "judge"
    if reference is not None:
        name, values["reference"] = f"{name}_guided", reference
    return _TEXTS[name].render(values, chat=chat)


def comparing_prompt(sample: Sample, order: tuple[int, int], reference: str | None, *, chat: bool) -> Prompt:
    """Return the prompt for comparing two answers; `reference` is the judge's majority answer."""
    first, second = (sample.answers[index] for index in order)
    values = {"question": question_of(sample).text, "answer_1": first, "answer_2": second}
    name = "compare"
    if reference is not None:
        name, values["reference"] = "compare_with_answer", reference
    return _TEXTS[name].render(values, chat=chat)


def _pair(sample: Sample) -> dict[str, str]:
    pair = _texts(sample, "pair")
    if pair is None or len(pair) != 2:
        raise _wrong(
            sample, "pair", f"expected the two answers that were compared, got {'none' if pair is None else len(pair)}"
        )
    return {"answer_1": pair[0], "answer_2": pair[1]}


def _texts(sample: Sample, name: str) -> list[str] | None:
    texts = sample.metadata.get(name)
    if texts is None:
        return None
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise _wrong(sample, name, "expected a list of strings")
    return list(texts)


def _wrong(sample: Sample, name: str, finding: str) -> InputError:
    return InputError(f'sample {sample.id}: field "{name}": {finding}; correct the row or remove the sample')
