"""Records that connect a client's request, a dialect, and the judge.

A dialect has two pure functions. `recognise` finds the question, answers, reference and kind of verdict in a request.
`render` writes the judge's result in the format of the client's parser.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from judgelm.dialects.splits import TEMPLATES, Pattern, TemplateSplit
from judgelm.records import Sample, Winner

TaskKind = Literal["pair", "choice", "grade", "label", "prepare"]
"""`pair`: the better of two answers. `choice`: the best of three or more. `grade`: the quality of one answer. `label`:
whether one answer is correct or meets a criterion. `prepare`: no verdict, but input for the client's next request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A chat message with its text parts joined."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function offered by the client; `parameters` is its JSON schema."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request to a chat or completion route.

    Attributes:
        messages: a plain completion has one message with role `prompt`.
        forced_tool: name of the tool that must be called.
        schema: JSON schema of the reply; `json_object` requests any JSON object.
        temperature: used only for ordinary chats, as are `stop` and `seed`.
        ignored: unused sampling fields, such as `top_p`.
    """

    messages: tuple[Message, ...]
    roles: tuple[str, ...] = field(init=False, compare=False)
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
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Set the roles, which every dialect reads."""
        object.__setattr__(self, "roles", tuple(message.role for message in self.messages))

    def only(self, *roles: str) -> tuple[str, ...] | None:
        """Return the messages' texts if they have exactly these roles, else None."""
        return tuple(message.text for message in self.messages) if self.roles == roles else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTask:
    """The judgment requested by a client.

    Attributes:
        sample: answers in the order shown. `metadata` may have `criterion` and a dialogue's `turns`.
        scale: the client's lowest and highest grade.
        facts: prompt properties for `render`.
        doubt: reason why the split may be wrong.
    """

    dialect: str
    kind: TaskKind
    sample: Sample
    scale: tuple[float, float] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeResult:
    """The judge's result for a task, on the scale 1 to 10, in the order shown.

    Attributes:
        scores: expected score of each answer.
        first_better: P(the first answer shown is better), with ties counted as half.
        tie: P(both have the same score).
        draws: one score line per reply, drawn from the judge's distribution.
        grades: scores of a single answer and their probabilities.
        correct: P(the answer is correct or meets the criterion).
        batch: results for the samples in the task's `batch` fact.
    """

    winner: Winner | None = None
    scores: tuple[float, ...] = ()
    first_better: float | None = None
    tie: float | None = None
    draws: tuple[tuple[float, ...], ...] = ()
    grades: tuple[tuple[float, float], ...] = ()
    correct: float | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()
    batch: tuple["JudgeResult", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """A reply token, with candidates and their log-probabilities."""

    token: str
    logprob: float
    candidates: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The reply to a client: `texts`, or a call to `tool`. `logprobs` cover the tokens of the first text."""

    texts: tuple[str, ...] = ()
    tool: str | None = None
    arguments: str = ""
    logprobs: tuple[TokenLogprobs, ...] = ()


Render = Callable[[JudgeTask, ChatRequest, JudgeResult], Reply]
ReplyText = Callable[[JudgeTask, ChatRequest, JudgeResult], str]
"""Renders the text of one reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Prompts and replies of one client.

    Attributes:
        render: writes the reply, with exactly one verdict and no text from the answers.
        templates: used by `nearest_prompt`.
    """

    name: str
    recognise: Callable[[ChatRequest], JudgeTask | None]
    render: Render
    templates: tuple[Pattern, ...] = ()


AMBIGUOUS = "a text contains the prompt's fixed lines, so other splits are possible"


def user_text(request: ChatRequest) -> str | None:
    """Return the user's message of a one-turn chat."""
    return request.messages[-1].text if request.roles in (("user",), ("system", "user")) else None


def lone_text(request: ChatRequest) -> str | None:
    """Return a plain prompt, or a chat's only user message."""
    texts = request.only("prompt") or request.only("user")
    return None if texts is None else texts[0]


def last_text(*roles: str, strip: Callable[[str], str] = str) -> Callable[[ChatRequest], str | None]:
    """Return a getter for the stripped last message of a chat with exactly these roles."""

    def text(request: ChatRequest) -> str | None:
        texts = request.only(*roles)
        return None if texts is None else strip(texts[-1])

    return text


def digest(text: str) -> str:
    """Return a text's hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def ambiguity_note(*splits: TemplateSplit) -> str:
    """Return a note if a split is ambiguous."""
    return AMBIGUOUS if any(split.ambiguous for split in splits) else ""


def sample_of(question: str, answers: Sequence[str], reference: str | None = None, **metadata: object) -> Sample:
    """Return a sample with a hash of its texts as its id."""
    name = digest("\0".join([question, *answers]))[:16]
    present = {key: value for key, value in metadata.items() if value is not None}
    return Sample(id=name, question=question, answers=tuple(answers), reference=reference, metadata=present)


def task_from_split(
    dialect: str,
    kind: TaskKind,
    split: TemplateSplit,
    *,
    scale: tuple[float, float] | None = None,
    facts: Mapping[str, Any] | None = None,
    answers: Sequence[str] = ("first", "second"),
    **metadata: object,
) -> JudgeTask:
    """Return the task for a split with slots `question`, `first`, `second`, `reference`, `criterion` or `input`.

    `answers` are the answer slots, some of which may be missing.
    """
    values = split.values
    texts: dict[str, object] = {name: values[name] for name in ("criterion", "input") if name in values}
    shown = [values[slot] for slot in answers if slot in values]
    sample = sample_of(values.get("question", ""), shown, values.get("reference"), **(texts | metadata))
    doubt = ambiguity_note(split)
    return JudgeTask(dialect=dialect, kind=kind, sample=sample, scale=scale, facts=facts or {}, doubt=doubt)


def template_dialect(
    name: str,
    kind: TaskKind,
    *templates: Pattern,
    text: Callable[[ChatRequest], str | None],
    render: Render,
    split: Callable[[Pattern, str], TemplateSplit | None] = Pattern.split,
    accepts: Callable[[ChatRequest, TemplateSplit], bool] = lambda request, split: True,
    scale: tuple[float, float] | None = None,
    facts: Callable[[Pattern, str], Mapping[str, Any]] = lambda template, text: {},
) -> Dialect:
    """Return a dialect that uses the first matching template.

    The default template has the dialect's name. `text` returns the text to match, and `accepts` checks a split.
    """
    patterns = templates or (TEMPLATES[name],)

    def recognise(request: ChatRequest) -> JudgeTask | None:
        prompt = text(request)
        for template in patterns if prompt is not None else ():
            values = split(template, prompt or "")
            if values is not None and accepts(request, values):
                return task_from_split(name, kind, values, scale=scale, facts=facts(template, prompt or ""))
        return None

    return Dialect(name=name, recognise=recognise, render=render, templates=patterns)
