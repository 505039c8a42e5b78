"""Shared steps of recognisers: the text of a request, and the task in a split prompt."""

from collections.abc import Mapping, Sequence
from typing import Any

from judgelm.dialects.contract import ChatRequest, JudgeTask, TaskKind
from judgelm.dialects.patterns import Split
from judgelm.dialects.text import digest
from judgelm.records import Sample

AMBIGUOUS = "the texts hold the prompt's own fixed lines, so that other borders between them are possible"


def user_text(request: ChatRequest) -> str | None:
    """The user's message of a chat of one turn, with or without a system message before it."""
    roles = tuple(message.role for message in request.messages)
    return request.messages[-1].text if roles in (("user",), ("system", "user")) else None


def lone_text(request: ChatRequest) -> str | None:
    """The only text of a request: a plain prompt, or a chat's only message by the user."""
    texts = request.only("prompt") or request.only("user")
    return None if texts is None else texts[0]


def ambiguity_note(*splits: Split) -> str:
    """The doubt about splits of which another would have been possible; else nothing."""
    return AMBIGUOUS if any(split.ambiguous for split in splits) else ""


def sample_of(question: str, answers: Sequence[str], reference: str | None = None, **metadata: object) -> Sample:
    """A sample whose id is a hash of its texts; metadata that is None is left out."""
    name = digest("\0".join([question, *answers]))[:16]
    present = {key: value for key, value in metadata.items() if value is not None}
    return Sample(id=name, question=question, answers=tuple(answers), reference=reference, metadata=present)


def task_from_split(
    dialect: str,
    kind: TaskKind,
    split: Split,
    *,
    scale: tuple[float, float] | None = None,
    facts: Mapping[str, Any] | None = None,
    **metadata: object,
) -> JudgeTask:
    """The task in a split whose slots are called `question`, `first`, `second` and `reference`, as far as it has them.

    Args:
        dialect: name of the dialect.
        kind: of the task.
        split: of the prompt.
        scale: of a grade.
        facts: of the prompt, for rendering.
        metadata: of the sample; None is left out.
    """
    values = split.values
    answers = [values[slot] for slot in ("first", "second") if slot in values]
    return JudgeTask(
        dialect=dialect,
        kind=kind,
        sample=sample_of(values.get("question", ""), answers, values.get("reference"), **metadata),
        scale=scale,
        facts=facts or {},
        doubt=ambiguity_note(split),
    )
