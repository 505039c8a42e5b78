"""Templates, which turn a sample into a `Prompt`.

A template shows one, two or more answers; each number of them has its layout. A layout is text with `{question}`,
`{reference}`, `{answer_1}`, `{answer_2}` and on. The bytes of the pair's are pinned by a sha that stands in every model
card and every run, so that training, batch runs, server and page cannot drift apart; those of the others by tests.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from judgelm.prompts.sanitization import Sanitizer, sanitizer_for
from judgelm.records import Prompt, Role, Sample, Span

Messages = tuple[tuple[Role | None, str], ...]
"""(role, text) of each message; one message of role None is plain text."""

_SLOT = re.compile(r"\{(question|reference|answer_\d+)\}")

_Pieces = tuple[tuple[Role | None, tuple[str, ...]], ...]


def sha_of(content: object) -> str:
    """sha256 (hex) over the canonical JSON of a prompt's bytes."""
    return hashlib.sha256(json.dumps(content, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


def fill(
    messages: Iterable[tuple[Role | None, Sequence[str]]],
    show: Callable[[str], Iterable[Span]],
    sanitizer: Sanitizer,
    *,
    chat: bool,
    prefill: str = "",
) -> Prompt:
    """A prompt with its slots filled.

    Args:
        messages: (role, text and slot names in turns) of each message.
        show: the spans for a slot, without their role.
        sanitizer: for the untrusted text in slots.
        chat: whether the messages are for the tokenizer's chat template.
        prefill: the forced beginning of the reply.
    """
    spans: list[Span] = []
    sanitized = 0
    for role, pieces in messages:
        for index, piece in enumerate(pieces):
            if index % 2 == 0:
                spans += [Span(piece, "template", role)] if piece else []
                continue
            for span in show(piece):
                text, count = (span.text, 0) if span.kind in ("template", "image") else sanitizer(span.text)
                sanitized += count
                spans.append(Span(text, span.kind, role))
    return Prompt(spans=tuple(spans), chat=chat, prefill=prefill, sanitized=sanitized)


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

    @cached_property
    def pieces(self) -> dict[bool, _Pieces]:
        """Messages split at their slots, by whether the reference is shown: text and slot names alternate."""
        shown = {True: self.with_reference} | ({} if self.plain is None else {False: self.plain})
        return {
            referenced: tuple((role, tuple(_SLOT.split(text))) for role, text in messages)
            for referenced, messages in shown.items()
        }


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
        shown = {"question": Span(sample.question, "question"), "reference": Span(reference or "", "reference")}
        shown |= {f"answer_{rank}": Span(sample.answers[index], "answer") for rank, index in enumerate(order, 1)}
        prompt = fill(
            layout.pieces[reference is not None],
            lambda slot: [shown[slot]],
            layout.sanitizer,
            chat=self.chat,
            prefill=f"{full_score:g}" if len(order) == 1 else "",
        )
        return replace(prompt, compares=len(order))
