"""The response to a chat request, and the errors raised instead of one."""

from dataclasses import dataclass

from judgelm.dialects.contract import Reply
from judgelm.errors import InputError, JudgelmError
from judgelm.records import Unparsed


class UnrecognisedError(InputError):
    """No dialect knows the prompt, and ordinary chats are off."""


class UnjudgedError(JudgelmError):
    """The judge gave no readable verdict: never a tie, never a score.

    Attributes:
        failure: why.
    """

    def __init__(self, failure: Unparsed) -> None:
        wrote = f"; it wrote {failure.text!r}" if failure.text and failure.why else ""
        super().__init__(f"no verdict ({failure.code}): {failure.why or failure.text or 'no reason known'}{wrote}")
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatResponse:
    """The reply to a client, with its costs and notes.

    Attributes:
        reply: for the client.
        dialect: its name; None where the model answered as in an ordinary chat.
        prompt_tokens: read by the judge, over all requests.
        completion_tokens: written by the judge.
        notes: in words, doubt about the split, inexact values, truncations, reasons that failed.
        thinking: of each text, the model's thinking before it; empty where there is none.
        finish_reasons: of an ordinary chat, `stop` or `length` of each text; a verdict always ends with `stop`.
    """

    reply: Reply
    dialect: str | None
    prompt_tokens: int
    completion_tokens: int
    notes: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    finish_reasons: tuple[str, ...] = ()
