"""What recognisers share: a message's text, a sample out of its slots, and the words for a doubtful split."""

from collections.abc import Sequence

from judgelm.dialects.contract import ChatRequest
from judgelm.dialects.patterns import Pattern, Split
from judgelm.dialects.text import digest
from judgelm.records import Sample

AMBIGUOUS = "the texts hold the prompt's own fixed lines, so that other borders between them are possible"


def user_text(asked: ChatRequest) -> str | None:
    """The user's message of a chat of one turn, with a system's message before it or without."""
    roles = tuple(one.role for one in asked.messages)
    return asked.messages[-1].text if roles in (("user",), ("system", "user")) else None


def system_text(asked: ChatRequest) -> str:
    """The system's first message; empty where there is none."""
    return asked.messages[0].text if asked.messages[0].role == "system" else ""


def lone_text(asked: ChatRequest) -> str | None:
    """The only text of a request: a plain prompt, or a chat's only message by the user."""
    found = asked.only("prompt") or asked.only("user")
    return None if found is None else found[0]


def ambiguity_note(*splits: Split) -> str:
    """Words for the case where a split could have been another; else nothing."""
    return AMBIGUOUS if any(one.ambiguous for one in splits) else ""


def latest_split(pattern: Pattern, text: str) -> Split | None:
    """As `Pattern.split`, but where there are several ways, the one with every border as late as can be.

    For templates whose first inner anchor opens an answer, which questions that quote such a prompt hold.

    Args:
        pattern: of whole texts (not `anywhere`).
        text: the prompt.
    """
    found = pattern.split(text)
    if found is None or not found.ambiguous:
        return found
    first, *inner, last = pattern.anchors
    end = len(text) - len(last)
    values = []
    for anchor in reversed(inner):
        place = text.rfind(anchor, len(first), end)
        values.append(text[place + len(anchor) : end])
        end = place
    values.append(text[len(first) : end])
    return Split(values=dict(zip(pattern.slots, reversed(values), strict=True)), ambiguous=True)


def sample_of(question: str, answers: Sequence[str], reference: str | None = None, **metadata: object) -> Sample:
    """A sample whose id is a hash of its texts; metadata that is None is left out."""
    name = digest("\0".join([question, *answers]))[:16]
    kept = {key: value for key, value in metadata.items() if value is not None}
    return Sample(id=name, question=question, answers=tuple(answers), reference=reference, metadata=kept)
