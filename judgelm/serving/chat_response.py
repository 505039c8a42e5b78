"""Responses and errors for chat requests."""

from dataclasses import dataclass

from judgelm.dialects.contract import Reply
from judgelm.errors import InputError, JudgelmError
from judgelm.records import TokenLogprobs, Unparsed


class UnrecognisedError(InputError):
    """No dialect recognises the prompt, and the judge does not answer unrecognised prompts."""


class UnjudgedError(JudgelmError):
    """The judge did not return a valid verdict, or the model did not return a reply; `failure` explains why."""

    def __init__(self, failure: Unparsed, wanted: str = "verdict") -> None:
        wrote = f"; the judge wrote {failure.text!r}" if failure.text and failure.why else ""
        super().__init__(f"no {wanted} ({failure.code}): {failure.why or failure.text or 'unknown reason'}{wrote}")
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatResponse:
    """The reply to a client, with token counts and notes.

    Attributes:
        dialect: None if the model answered an unrecognised prompt.
        thinking: the model's thinking before each reply.
        finish_reasons: `stop` or `length` for each reply by the model; empty for verdicts.
        logprobs: the tokens of each reply by the model, if requested; empty for verdicts.
        abstained: number of judgments in which the judge abstained, so that the reply is only the likelier answer.
    """

    reply: Reply
    dialect: str | None
    prompt_tokens: int
    completion_tokens: int
    notes: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    finish_reasons: tuple[str, ...] = ()
    logprobs: tuple[tuple[TokenLogprobs, ...], ...] = ()
    abstained: int = 0


def abstained_header(count: int) -> dict[str, str]:
    """Return the response header with the number of abstentions; empty if there are none."""
    return {"X-Judgelm-Abstained": str(count)} if count else {}
