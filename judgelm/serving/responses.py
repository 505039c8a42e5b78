"""What the desk gives: an answer, what it made of a request, or why there is none."""

from dataclasses import dataclass

from judgelm.dialects.contract import JudgeTask, Reply
from judgelm.errors import InputError, JudgelmError
from judgelm.records import Prompt, Unparsed
from judgelm.serving.tasks import ModeTask


class UnrecognisedError(InputError):
    """No dialect knows the prompt, and ordinary chats are not answered."""


class UnjudgedError(JudgelmError):
    """The judge gave no verdict that could be read: never a tie, never a score.

    Attributes:
        failure: why.
    """

    def __init__(self, failure: Unparsed) -> None:
        wrote = f"; it wrote {failure.text!r}" if failure.text and failure.why else ""
        super().__init__(f"no verdict ({failure.code}): {failure.why or failure.text or 'no reason known'}{wrote}")
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatResponse:
    """A client's reply, and what it rests on.

    Attributes:
        reply: what the client gets.
        dialect: its name; None where the model answered as in an ordinary chat.
        prompt_tokens: that the judge read, over all that was asked.
        completion_tokens: that it wrote.
        notes: in words, doubt about the split, what is not exact, what was cut, reasons that failed.
        thinking: of each text, what the model thought before it; empty where it did not.
        finish_reasons: of an ordinary chat, `stop` or `length` of each text; a verdict always ends with `stop`.
    """

    reply: Reply
    dialect: str | None
    prompt_tokens: int
    completion_tokens: int
    notes: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    finish_reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What the desk makes of a request.

    Attributes:
        dialect: None where the model answers as in an ordinary chat.
        case: what the client wants judged; None of an ordinary chat.
        questions: what the judge is asked; none of an ordinary chat or where nothing is judged.
        prompts: what the judge reads first for each of them; a reason is asked for behind them.
    """

    dialect: str | None
    case: JudgeTask | None
    questions: tuple[ModeTask, ...]
    prompts: tuple[Prompt, ...]
