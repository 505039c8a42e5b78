"""What every mode asks of a completion before it reads the reply."""

from judgelm.records import Completion, Unparsed


def failure_of(completion: Completion) -> Unparsed | None:
    """Why a request has no reply at all; None where it has one.

    A judge that was cut off in its thinking has not replied: `truncated`. Of several replies one is enough.
    """
    ended = completion.finish_reasons[0]
    if ended == "error":
        return Unparsed("engine", completion.error)
    if ended == "too_long":
        return Unparsed("too_long", "", completion.error)
    endless = all(reason == "thinking" for reason in completion.finish_reasons)
    return Unparsed("truncated", "", completion.error) if endless else None


def thinking_of(completion: Completion, reply: int = 0) -> str | None:
    """The thinking before a reply; None where it did not."""
    return (completion.thinking[reply] or None) if reply < len(completion.thinking) else None
