"""Templates, which turn a sample into a `Prompt`.

A template shows one, two or more answers; each number of them has its layout. A layout is text with `{question}`,
`{reference}`, `{answer_1}`, `{answer_2}` and on. The bytes of the pair's are pinned by a sha that stands in every model
card and every run, so that training, batch runs, server and page cannot drift apart; those of the others by tests.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from judgelm.prompts.sanitization import Sanitizer, sanitizer_for
from judgelm.records import Prompt, Role, Sample, Span, SpanKind

Messages = tuple[tuple[Role | None, str], ...]
"""(role, text) of each message; one message of role None is plain text."""


def sha_of(content: object) -> str:
    """sha256 (hex) over the canonical JSON of a prompt's bytes."""
    return hashlib.sha256(json.dumps(content, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


def read_texts(path: Path) -> dict[str, Any]:
    """The texts of prompts from a TOML file beside a module, byte for byte."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def fill(
    messages: Iterable[tuple[Role | None, str]],
    slots: Mapping[str, Sequence[Span]],
    sanitizer: Sanitizer,
    *,
    chat: bool,
    prefill: str = "",
) -> Prompt:
    """A prompt with its slots filled.

    Args:
        messages: (role, text with slots such as `{question}`) of each message.
        slots: the spans for each slot, without their role.
        sanitizer: for the untrusted text in slots.
        chat: whether the messages are for the tokenizer's chat template.
        prefill: the forced beginning of the reply.
    """
    spans: list[Span] = []
    sanitized = 0
    for role, message in messages:
        for index, piece in enumerate(pieces := _split(message, tuple(slots))):
            if index % 2 == 0:
                # an empty message stays, since a chat template would fill in its own
                spans += [Span(piece, "template", role)] if piece or len(pieces) == 1 else []
                continue
            for span in slots[piece]:
                text, count = (span.text, 0) if span.kind in ("template", "image") else sanitizer(span.text)
                sanitized += count
                spans.append(Span(text, span.kind, role))
    return Prompt(spans=tuple(spans), chat=chat, prefill=prefill, sanitized=sanitized)


@lru_cache(maxsize=1024)
def _split(message: str, slots: tuple[str, ...]) -> list[str]:
    """Text and slot names in turns."""
    return re.split(rf"\{{({'|'.join(slots)})\}}", message)


ONE_ANSWER: Mapping[str, SpanKind] = {"question": "question", "answer_1": "answer"}
"""The slots of a prompt about one answer."""


@dataclass(frozen=True, kw_only=True)
class PromptText:
    """One prompt with its slots, for a chat template or as plain text.

    Attributes:
        text: the user's message, with `{question}` and the like.
        kinds: slots that the text may have -> what fills them; only an `answer` is cut where the window ends.
        delimiters: what bounds its blocks, and the verdicts that only the judge may give; confusables in untrusted
            text are sanitized.
        system: a chat's system message; None for none.
        before: precedes the message in plain text.
        after: ends the plain text; no chat template opens the reply there.
    """

    text: str
    kinds: Mapping[str, SpanKind]
    delimiters: tuple[str, ...]
    system: str | None = None
    before: str = ""
    after: str = ""

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """The slots that the text has."""
        return tuple(slot for slot in self.kinds if f"{{{slot}}}" in self.text)

    def render(self, values: Mapping[str, str], *, chat: bool) -> Prompt:
        """The prompt with its slots filled.

        Args:
            values: what goes into each slot; all of it is untrusted.
            chat: messages for the tokenizer's chat template; else plain text.

        Raises:
            KeyError: a slot has no value.
        """
        messages: list[tuple[Role | None, str]] = [(None, f"{self.before}{self.text}{self.after}")]
        if chat:
            messages = [] if self.system is None else [("system", self.system)]
            messages.append(("user", self.text))
        slots = {slot: [Span(values[slot], self.kinds[slot])] for slot in self.slots}
        return fill(messages, slots, sanitizer_for(self.delimiters), chat=chat)


@dataclass(frozen=True, kw_only=True)
class PromptFamily:
    """All prompts of one way of judging, by name, under the id that manifests have."""

    id: str
    texts: Mapping[str, PromptText]

    @cached_property
    def sha(self) -> str:
        """sha256 (hex) over the id and every text: those that ask for the judge's own answers too."""
        return sha_of({"id": self.id, "texts": {name: text.text for name, text in self.texts.items()}})


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The messages for one number of answers.

    Attributes:
        plain: the messages without reference; None where the answer is always shown beside one.
        with_reference: the same with `{reference}`.
        delimiters: what bounds the blocks; confusables in untrusted text are sanitized. `{n}` stands for a number.
    """

    plain: Messages | None
    with_reference: Messages
    delimiters: tuple[str, ...]

    @cached_property
    def sanitizer(self) -> Sanitizer:
        """Sanitizes confusables of the delimiters."""
        return sanitizer_for(self.delimiters)

    def messages(self, *, referenced: bool) -> Messages:
        """The messages, with or without reference."""
        if referenced:
            return self.with_reference
        assert self.plain is not None, "an answer that always stands beside a reference has one"
        return self.plain


@dataclass(frozen=True, kw_only=True)
class Template:
    """A family of layouts, one for each number of answers.

    Attributes:
        id: the name users write, kept in cards and manifests.
        layout: number of answers, from 1 -> how they are shown.
        reasons_first: whether the judge reasons and ends with a verdict; else it begins with a score line.
    """

    id: str
    layout: Callable[[int], Layout]
    reasons_first: bool = False

    @property
    def chat(self) -> bool:
        """True if the tokenizer's chat template wraps the messages."""
        return self.layout(2).with_reference[0][0] is not None

    @cached_property
    def sha(self) -> str:
        """That of the pair's bytes, which stands in cards."""
        return self.sha_for(2)

    def sha_for(self, answers: int) -> str:
        """sha256 (hex) over id and both texts: a change of any byte that judges were trained on changes it."""
        layout = self.layout(answers)
        return sha_of({"id": self.id, "plain": layout.plain, "with_reference": layout.with_reference})

    @property
    def sanitizer(self) -> Sanitizer:
        """Sanitizes confusables of the pair's delimiters."""
        return self.layout(2).sanitizer

    def render(
        self, sample: Sample, order: tuple[int, ...], reference: str | None, *, full_score: float = 10
    ) -> Prompt:
        """Show a sample's answers in `order` (indices into `sample.answers`), with `reference` if it is not None.

        A single answer is shown as the second of a pair, the reference as the first; the reply is forced to begin with
        the reference's score, `full_score`, so that the judge writes ` 7` or the like behind it.

        Args:
            sample: what is judged.
            order: one index or more.
            reference: what a single answer cannot do without.
            full_score: the highest of the judge's scale; what more answers than one get does not depend on it.

        Raises:
            ValueError: no answer to show, or a single one without reference.
        """
        if not order or (len(order) == 1 and reference is None):
            raise ValueError(f"sample {sample.id}: {'a single answer without reference' if order else 'no answers'}")
        layout = self.layout(len(order))
        slots = {"question": [Span(sample.question, "question")], "reference": [Span(reference or "", "reference")]}
        slots |= {f"answer_{rank}": [Span(sample.answers[index], "answer")] for rank, index in enumerate(order, 1)}
        prompt = fill(
            layout.messages(referenced=reference is not None),
            slots,
            layout.sanitizer,
            chat=self.chat,
            prefill=f"{full_score:g}" if len(order) == 1 else "",
        )
        return replace(prompt, compares=len(order))
