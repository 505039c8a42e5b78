"""What passes between a client's request, a dialect, and whoever judges.

A dialect is two pure functions: `recognise` finds the true question, answers and reference in a request and says what
is to be found out about them; `render` puts what was found into the words that the client's parser wants. Neither
knows an engine, a server or another dialect.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from judgelm.records import Sample, Winner

TaskKind = Literal["pair", "choice", "grade", "label", "prepare"]
"""What is to be found out.

`pair`: which of two answers is better. `choice`: which of three and more. `grade`: how good the one answer is. `label`:
whether the one answer is correct, or fulfils a criterion. `prepare`: nothing, the client only wants its next request
prepared (evaluation steps out of a criterion).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat, its text parts joined."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the client offers or forces; `parameters` is its JSON schema."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request as far as dialects look at it.

    Attributes:
        messages: of a chat; of a plain completion one message of role `prompt`.
        plain: whether it came as a plain completion.
        n: how many replies.
        logprobs: whether log-probabilities of tokens are wanted; `top_logprobs` of how many candidates at each place.
        tools: functions on offer; `forced_tool` is the name of the one that must be called.
        schema: JSON schema of the reply, where one was given; `json_object` is whether any JSON object is wanted.
        max_tokens: most tokens of a reply; None where the client does not say.
        temperature: of an ordinary chat, in [0, 2]; None where the client does not say. It moves no score.
        stop: texts before which a reply of an ordinary chat ends.
        seed: of an ordinary chat; None where the client does not say.
    """

    messages: tuple[Message, ...]
    plain: bool = False
    n: int = 1
    logprobs: bool = False
    top_logprobs: int = 0
    tools: tuple[Tool, ...] = ()
    forced_tool: str | None = None
    schema: Mapping[str, Any] | None = None
    json_object: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None

    def only(self, *roles: str) -> tuple[str, ...] | None:
        """The messages' texts where their roles are exactly these, in this order; else None."""
        if len(self.messages) != len(roles) or tuple([one.role for one in self.messages]) != roles:
            return None  # found out fast: every dialect asks
        return tuple([one.text for one in self.messages])


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTask:
    """What a client wants judged.

    Attributes:
        dialect: name of the dialect that recognised it.
        task: what is to be found out.
        sample: question, answers in the order shown in the prompt, reference; its `metadata` may have `turns` of a
            dialogue (`{"question", "answers", "reference"}` each) and `criterion`.
        scale: of `grade`, the lowest and the highest that the client expects.
        facts: what `render` has to know of the prompt, such as the names that it gives the answers.
        doubt: why the split may not be the true one, in words; empty where no other split is possible.
    """

    dialect: str
    task: TaskKind
    sample: Sample
    scale: tuple[float, float] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeResult:
    """What the judge says of a case, on its own scale of 1 to 10, in the order shown.

    Attributes:
        winner: of a pair, a tie included.
        scores: expected score of each answer, in [1, 10].
        first_better: P(the answer shown first is better), ties counted half, in [0, 1]; of a pair.
        tie: P(both have the same score); of a pair.
        draws: as many score lines as replies were asked for, drawn from the judge's distribution; they repeat for the
            same request, whatever the client's temperature.
        grades: of a single answer, each score of the judge's scale with its probability; they sum to 1.
        correct: P(the one answer is correct, or fulfils the criterion), in [0, 1]; of a label.
        reason: the judge's own words, where it was asked for them.
    """

    winner: Winner | None = None
    scores: tuple[float, ...] = ()
    first_better: float | None = None
    tie: float | None = None
    draws: tuple[tuple[float, ...], ...] = ()
    grades: tuple[tuple[float, float], ...] = ()
    correct: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """One token of a reply, and the candidates at its place: natural logs of their probabilities."""

    token: str
    logprob: float
    candidates: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the client gets.

    Attributes:
        texts: as many as it asked for; empty where a function is called instead.
        tool: name of the function called; `arguments` is its JSON text.
        logprobs: of the tokens of the first text, where they were asked for; their tokens joined are the text.
    """

    texts: tuple[str, ...] = ()
    tool: str | None = None
    arguments: str = ""
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One client's way of asking.

    Attributes:
        name: in lower case with hyphens, as manifests, headers and metrics name it.
        recognise: the case in a request, or None where it is not of this dialect.
        render: the reply to a case; a verdict stands in it exactly once, and nothing of the answers does.
    """

    name: str
    recognise: Callable[[ChatRequest], JudgeTask | None]
    render: Callable[[JudgeTask, ChatRequest, JudgeResult], Reply]
