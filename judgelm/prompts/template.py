"""What a template is, and how a sample becomes a `Prompt` with it.

A template is text with `{question}`, `{reference}`, `{answer_1}` and `{answer_2}`; its bytes are pinned by a sha that
stands in every model card and every run, so that training, batch runs, server and page cannot drift apart.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import cached_property

from judgelm.prompts.neutralise import Neutraliser
from judgelm.records import Prompt, Role, Sample, Span, SpanKind

_SLOT = re.compile(r"\{(question|reference|answer_[12])\}")
_KINDS: dict[str, SpanKind] = {
    "question": "question",
    "reference": "reference",
    "answer_1": "answer",
    "answer_2": "answer",
}


@dataclass(frozen=True, kw_only=True)
class PairTemplate:
    """How a pair is shown.

    Attributes:
        id: the name users write, kept in cards and manifests.
        plain: messages (role, text) without reference; one message of role None is plain text.
        with_reference: the same with `{reference}`.
        delimiters: what bounds the blocks; look-alikes in untrusted text are defused. `{n}` stands for a number.
    """

    id: str
    plain: tuple[tuple[Role | None, str], ...]
    with_reference: tuple[tuple[Role | None, str], ...]
    delimiters: tuple[str, ...] = field(default=())

    @property
    def chat(self) -> bool:
        """Whether the tokenizer's chat template wraps the messages."""
        return self.plain[0][0] is not None

    @cached_property
    def sha(self) -> str:
        """sha256 (hex) over id and both texts: a change of any byte that judges were trained on changes it."""
        texts = {"id": self.id, "plain": self.plain, "with_reference": self.with_reference}
        canonical = json.dumps(texts, ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @cached_property
    def neutraliser(self) -> Neutraliser:
        """Defuses look-alikes of this template's delimiters."""
        return Neutraliser(self.delimiters)

    @cached_property
    def _pieces(self) -> dict[bool, tuple[tuple[Role | None, tuple[str, ...]], ...]]:
        """Messages split at their slots, by whether the reference is shown: text and slot names alternate."""
        return {
            referenced: tuple((role, tuple(_SLOT.split(text))) for role, text in messages)
            for referenced, messages in ((False, self.plain), (True, self.with_reference))
        }

    def render(self, sample: Sample, order: tuple[int, int], reference: str | None) -> Prompt:
        """Show a sample's answers in `order` (indices into `sample.answers`), with `reference` if it is not None."""
        values = {
            "question": sample.question,
            "reference": reference or "",
            "answer_1": sample.answers[order[0]],
            "answer_2": sample.answers[order[1]],
        }
        spans: list[Span] = []
        neutralised = 0
        for role, pieces in self._pieces[reference is not None]:
            for place, piece in enumerate(pieces):
                if place % 2 == 0:
                    if piece:
                        spans.append(Span(piece, "template", role))
                    continue
                text, found = self.neutraliser(values[piece])
                neutralised += found
                spans.append(Span(text, _KINDS[piece], role))
        return Prompt(spans=tuple(spans), chat=self.chat, neutralised=neutralised)
