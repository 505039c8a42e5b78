"""Follow-up questions about a judgment: the judge's prompt, its reply, then questions and replies in turn.

For a chat template the turns are messages: what the judge read is the first user message, what it wrote the assistant's
answer to it, and so on. A plain template continues in the form in which it opens its reply:

- `judgelm-v1` ends `### Response:`, as Alpaca's prompts do, so a question stands under `### Instruction:`;
- `judgelm-paper` names its blocks, so a question stands in a `[Question]` block and the reply in a `[Response]` block;
- `judgelm-compact` has its short markers `[Q]` and `[S]`.

The papers do not say how plain turns were written, so this is ours, and the released judges were trained on a single
turn. No end-of-sequence token stands between plain turns.

Source: JudgeLM, section 6 (multi-turn chat about judgments) and Figure 19.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from judgelm.errors import ConfigError
from judgelm.prompts.sanitization import sanitizer_for
from judgelm.prompts.template import Template, sha_of
from judgelm.records import Prompt, Span


@dataclass(frozen=True, kw_only=True)
class PlainTurns:
    """The text between the turns of a plain template.

    Attributes:
        before: stands between a reply and the next question.
        after: stands between a question and its reply.
        markers: what begins a turn; confusables in what was said are sanitized, and a reply ends before `before`'s.
    """

    before: str
    after: str
    markers: tuple[str, ...]

    @property
    def stop(self) -> tuple[str, ...]:
        """The string with which a judge would begin another question."""
        return (f"\n{self.before.strip()}",)


_PLAIN: Mapping[str, PlainTurns] = {
    "judgelm-v1": PlainTurns(
        before="\n\n### Instruction:\n", after="\n\n### Response:", markers=("### Instruction:", "### Response:")
    ),
    "judgelm-paper": PlainTurns(
        before="\n\n[Question]\n", after="\n\n[Response]\n", markers=("[Question]", "[Response]")
    ),
    "judgelm-compact": PlainTurns(before="\n[Q] ", after="\n[S]", markers=("[Q]", "[S]")),
}


def plain_turns(template: Template) -> PlainTurns:
    """The turns of a plain template.

    Raises:
        ConfigError: this one has none.
    """
    if template.id not in _PLAIN:
        there_are = ", ".join(_PLAIN)
        raise ConfigError(f"template {template.id}: no turns to follow a reply; choose one of {there_are}, or a chat's")
    return _PLAIN[template.id]


def stops(template: Template) -> tuple[str, ...]:
    """Stop strings of a reply to a follow-up question; a chat's ends with its message."""
    return () if template.chat else plain_turns(template).stop


def talk_sha(template: Template) -> str:
    """sha256 (hex) over the template's bytes for a pair and those between turns; a chat has none of its own."""
    turns = None if template.chat else plain_turns(template)
    between = None if turns is None else [turns.before, turns.after]
    return sha_of([template.sha, between])


def follow_up_prompt(template: Template, judged: Prompt, texts: Sequence[str]) -> Prompt:
    """The judge's prompt with all that was said since.

    Only the answers under judgment may be cut when it all grows too long for the window. What the judge wrote is
    treated as untrusted, since it may quote an answer.

    Args:
        template: that the judge was asked with.
        judged: what it read; the prefill of its reply is expected at the beginning of `texts`.
        texts: its reply, a question, its reply, ... and at last the question that is open: an even number.

    Raises:
        ConfigError: a plain template without turns.
        ValueError: an odd number of texts, or none.
    """
    if not texts or len(texts) % 2:
        raise ValueError(f"expected the judge's reply, then questions and replies in turn, got {len(texts)} texts")
    opened = replace(judged, prefill="")
    if template.chat:
        spans = [Span(text, "question", "user" if index % 2 else "assistant") for index, text in enumerate(texts)]
        return replace(opened, spans=(*judged.spans, *spans))
    turns = plain_turns(template)
    added: list[Span] = []
    sanitized = judged.sanitized
    for index, text in enumerate(texts):
        harmless, count = sanitizer_for(turns.markers)(text)
        sanitized += count
        span = Span(harmless, "question")
        added += [Span(turns.before), span, Span(turns.after)] if index % 2 else [span]
    return replace(opened, spans=(*judged.spans, *added), sanitized=sanitized)
