"""The template of a judge prompt: fills its slots, sanitizes their text, and describes how its verdict is read."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import cast

from judgelm.errors import ConfigError, InputError
from judgelm.prompts.catalog import JudgeReading, Layout, Messages, Template, VerdictForm, fill
from judgelm.prompts.judge_prompt import FIELDS, JudgePrompt, PromptKind, pieces_of, slots_of
from judgelm.prompts.passages import CONTEXT, read_passages
from judgelm.records import Prompt, Role, Sample, Span

_MARK = "\ue000"
"""Precedes the names of slots in a layout, so that literal braces are never mistaken for slots."""


def verdict_form(prompt: JudgePrompt) -> VerdictForm:
    """Return how the verdict is read.

    Raises:
        ConfigError: the form of the reply does not allow it.
    """
    reply = prompt.reply
    before, _, after = reply.form.partition("{verdict}")
    key = next((json.dumps(name) for name, slot in reply.json.items() if slot == "verdict"), "")
    head, between = "", before
    if reply.reason is not None:
        if reply.reason < 1:
            raise ConfigError(f"reply.reason is {reply.reason}; it is a number of tokens, so it must be above 0")
        head, slot, between = before.rpartition("{reason}")
        if not slot:
            late = "{reason}" in after
            finding = "the verdict precedes the reason" if late else "there is no {reason}"
            raise ConfigError(f'reply: {finding}; write, for example, text: "{{reason}}\\nVerdict: {{verdict}}"')
        if not between.strip() or slots_of(head + between):
            raise ConfigError("reply: expected fixed text without slots between {reason} and {verdict}")
    elif key:
        quote = '"' if before.endswith('"') else ""
        between = f"{{{key}: {quote}"
    else:
        parts = pieces_of(before.rpartition("\n")[2], "braces")
        between = "" if not parts or parts[-1].is_slot else parts[-1].text.lstrip()
    words = reply.words
    return VerdictForm(
        words=words,
        scores=reply.scores,
        tie=len(words) == 3 and reply.kind == "pair",
        before=between,
        head=head,
        stop=key if key and reply.reason is not None else between.strip(),
        reason_tokens=reply.reason,
        min_coverage=reply.min_coverage,
    )


_READINGS: dict[PromptKind, JudgeReading] = {
    "pair": "letters", "choice": "letters", "grade": "grade", "label": "yes-no",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PromptTemplate(Template):
    """The template of a prompt file."""

    judge_prompt: JudgePrompt

    @property
    def sha(self) -> str:
        """Hash of the prompt."""
        return self.judge_prompt.sha

    def sha_for(self, answers: int) -> str:
        """Return the hash, which does not depend on the number of answers."""
        return self.judge_prompt.sha

    @property
    def shows_reference(self) -> bool:
        """Whether the prompt has a slot for the reference."""
        return "reference" in self.judge_prompt.slots

    @property
    def chat(self) -> bool:
        """Prompt files always use the tokenizer's chat template."""
        return True

    def render(
        self,
        sample: Sample,
        order: tuple[int, ...],
        reference: str | None,
        *,
        scale: tuple[float, float] = (1, 10),
        criterion: str | None = None,
    ) -> Prompt:
        """Render the prompt, which shows a sample's answers in `order`.

        Raises:
            InputError: the sample has no value for a slot, or another number of answers.
        """
        prompt = self.judge_prompt
        values = {"question": Span(sample.question, "question"), "reference": Span(reference or "", "reference")}
        for name in prompt.fields:
            values[name] = Span(slot_text(sample, prompt, name, criterion), "reference")
        for slot, index in zip(prompt.answers, order, strict=True):
            values[slot] = Span(sample.answers[index], "answer")
        slots = {f"{_MARK}{name}": [span] for name, span in values.items()}
        layout = self.layout(len(order))
        return fill(layout.with_reference, slots, layout.sanitizer, chat=True, compares=len(order))


def check_fields(sample: Sample, prompt: JudgePrompt, criterion: str | None = None) -> None:
    """Check that a sample has a value for each slot.

    Raises:
        InputError: a value is missing; the message names the sample and the slot.
    """
    if "reference" in prompt.slots and sample.reference is None:
        raise InputError(f"sample {sample.id}: prompt {prompt.name} shows {{reference}}, but the row has none; add one")
    for name in prompt.fields:
        slot_text(sample, prompt, name, criterion)
    if prompt.reply.kind == "choice" and len(sample.answers) != len(prompt.answers):
        shown = len(prompt.answers)
        raise InputError(f"sample {sample.id}: prompt {prompt.name} shows {shown} answers, not {len(sample.answers)}")


def field_check(prompt: JudgePrompt | None) -> Callable[[Sample], None]:
    """Return a check that a sample has a value for each slot, for `SampleStream`."""
    return lambda sample: None if prompt is None else check_fields(sample, prompt)


def slot_text(sample: Sample, prompt: JudgePrompt, name: str, criterion: str | None = None) -> str:
    """Return the text for a slot that shows another field of the row: the passages of `context`, or text, or else JSON.

    Raises:
        InputError: the sample has no such field.
    """
    fields = sample.metadata.get(FIELDS)
    value = fields.get(name) if isinstance(fields, Mapping) else None
    if value in (None, "") and name == "criterion" and criterion is not None:
        value = criterion
    if value is None:
        value = sample.metadata.get(name)
    if value is None:
        if name in sample.metadata:
            raise InputError(f"sample {sample.id}: prompt {prompt.name} shows {{{name}}}, which is null; write a value")
        known = sorted({*(fields if isinstance(fields, Mapping) else ()), *sample.metadata} - {FIELDS})
        has = f"the row's other fields are {', '.join(known)}" if known else "the row has no other fields"
        option = "--criterion TEXT" if name == "criterion" else f"--column {name}=COLUMN"
        raise InputError(
            f"sample {sample.id}: prompt {prompt.name} shows {{{name}}}, but {has}; add a column {name}, pass "
            f"{option}, or write {{{{{name}}}}} for literal text"
        )
    if name == CONTEXT and (isinstance(value, list) or str(value).lstrip()[:1] == "["):
        with suppress(ConfigError):
            return "\n\n".join(passage.text for passage in read_passages(value, split=False))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@cache
def prompt_template(prompt: JudgePrompt) -> Template:
    """Return the template that shows a prompt."""
    messages: Messages = tuple(
        (
            cast(Role, message.role),
            "".join(f"{{{_MARK}{piece.text}}}" if piece.is_slot else piece.text for piece in pieces),
        )
        for message, pieces in zip(prompt.prompt, prompt.pieces, strict=True)
    )
    verdict = verdict_form(prompt)
    layout = Layout(plain=messages, with_reference=messages, delimiters=_delimiters(prompt, verdict))
    return PromptTemplate(
        id=f"prompt:{prompt.name}",
        layout=lambda answers: layout,
        reading=_READINGS[prompt.reply.kind],
        takes_criterion="criterion" in prompt.slots,
        verdict=verdict,
        judge_prompt=prompt,
    )


_MAX_DELIMITER = 60
_MIN_WORD = 3


def _delimiters(prompt: JudgePrompt, verdict: VerdictForm) -> tuple[str, ...]:
    """Return the fixed text next to slots, and the form of the reply, which answers must not imitate."""
    marks: dict[str, None] = {}
    for pieces in prompt.pieces:
        for index, piece in enumerate(pieces):
            if not piece.is_slot:
                lines = [line for line in piece.text.split("\n") if line.strip()]
                ends = [*lines[:1], *lines[-1:]] if index else lines[-1:]
                marks |= dict.fromkeys(_delimiter(line) for line in ends)
    reply, after = verdict.before.rpartition("\n")[2], prompt.reply.form.partition("{verdict}")[2].partition("\n")[0]
    if reply.strip():
        shown = "{n}" if prompt.reply.kind == "grade" and not isinstance(prompt.reply.grade, dict) else None
        marks |= dict.fromkeys(
            f"{reply.strip()}{word}{after.strip()}" for word in ([shown] if shown else verdict.words)
        )
    return tuple(mark for mark in marks if _is_distinct(mark))


def _is_distinct(mark: str) -> bool:
    """Exclude marks that ordinary text contains, such as a single letter, but not headings, such as `A:`."""
    characters = sum(map(str.isalnum, mark))
    is_heading = mark.startswith("\n") and characters > 0 and not mark[-1].isalnum()
    return characters >= _MIN_WORD or is_heading or mark[:1] in ("[", "<", "#")


def _delimiter(line: str) -> str:
    line = line.strip()[:_MAX_DELIMITER]
    return line if line[:1] in ("[", "<", "#") else f"\n{line}"
