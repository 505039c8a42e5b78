"""The interface between client requests, dialects, and the judge.

A dialect has two pure functions. `recognise` extracts the question, the answers, the reference, and the kind of
verdict from a request. `render` formats the judge's result for the client's parser.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from judgelm.dialects.splits import TEMPLATES, Pattern, TemplateSplit
from judgelm.prompts.judge_prompt import JudgePrompt
from judgelm.records import Sample, TokenLogprobs, Winner

TaskKind = Literal["pair", "choice", "grade", "label", "prepare"]
"""`pair`: the better of two answers. `choice`: the best of three or more answers. `grade`: a score for a single answer.
`label`: whether a single answer is correct or meets a criterion. `prepare`: no verdict, but input for the client's next
request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A chat message, with its text parts joined."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function offered by the client. `parameters` is a JSON schema."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A chat or plain completion request.

    Attributes:
        messages: for a plain completion, a single message with the role `prompt`.
        forced_tool: name of the tool that must be called.
        schema: JSON schema for the reply; `json_object` allows any JSON object.
        temperature: used only for prompts that the model answers, like `top_p`, `stop`, and `seed`.
        ignored: names of sampling fields that do not affect verdicts, such as `top_p`.
        body: the request as an OpenAI body, with everything that the model needs to answer it.
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
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    ignored: tuple[str, ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Compute the roles once, because every dialect checks them."""
        object.__setattr__(self, "roles", tuple(message.role for message in self.messages))

    def only(self, *roles: str) -> tuple[str, ...] | None:
        """Return the texts if the messages have exactly these roles, otherwise None."""
        return tuple(message.text for message in self.messages) if self.roles == roles else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTask:
    """The judgment that a client requests.

    Attributes:
        sample: answers in the client's order. `metadata` can contain a `criterion` and the `turns` of a dialogue.
        scale: lowest and highest grade on the client's scale.
        facts: prompt properties for `render`.
        doubt: why the prompt may have been split incorrectly.
    """

    dialect: str
    kind: TaskKind
    sample: Sample
    scale: tuple[float, float] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeResult:
    """The judge's result for a task. Scores are from 1 to 10, in the client's order of answers.

    Attributes:
        scores: expected score of each answer.
        first_better: P(the first answer is better), where a tie counts as half.
        tie: P(both answers have the same score).
        draws: scores drawn from the judge's distribution, for each reply.
        grades: scores of a single answer and their probabilities.
        correct: P(the answer is correct or meets the criterion).
        batch: one result per sample in the task's `batch` fact.
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
class Reply:
    """A reply to a client: `texts`, or a call to `tool`.

    Attributes:
        verdicts: the verdict of each text in the words of a prompt file; empty for other dialects.
        logprobs: of the first text.
    """

    texts: tuple[str, ...] = ()
    verdicts: tuple[str | float, ...] = ()
    tool: str | None = None
    arguments: str = ""
    logprobs: tuple[TokenLogprobs, ...] = ()


Render = Callable[[JudgeTask, ChatRequest, JudgeResult], Reply]
ReplyText = Callable[[JudgeTask, ChatRequest, JudgeResult], str]
"""Renders the text of a single reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The prompt and reply format of a client.

    Attributes:
        render: returns a reply with exactly one verdict and no text from the answers.
        templates: used by `nearest_prompt`.
        prompt: the prompt to judge with, instead of the judge's template.
    """

    name: str
    recognise: Callable[[ChatRequest], JudgeTask | None]
    render: Render
    templates: tuple[Pattern, ...] = ()
    prompt: JudgePrompt | None = None


AMBIGUOUS = "a text contains fixed lines of the prompt, so the prompt could be split differently"


def user_text(request: ChatRequest) -> str | None:
    """Return the user message of a single-turn chat, otherwise None."""
    return request.messages[-1].text if request.roles in (("user",), ("system", "user")) else None


def lone_text(request: ChatRequest) -> str | None:
    """Return a plain prompt, or the user message if it is the only message."""
    texts = request.only("prompt") or request.only("user")
    return None if texts is None else texts[0]


def last_text(*roles: str, strip: Callable[[str], str] = str) -> Callable[[ChatRequest], str | None]:
    """Return a function that extracts the last message of a chat with exactly these roles."""

    def text(request: ChatRequest) -> str | None:
        texts = request.only(*roles)
        return None if texts is None else strip(texts[-1])

    return text


def digest(text: str) -> str:
    """Return a hash of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def ambiguity_note(*splits: TemplateSplit) -> str:
    """Return a note if any of the splits is ambiguous, otherwise ""."""
    return AMBIGUOUS if any(split.ambiguous for split in splits) else ""


def sample_of(question: str, answers: Sequence[str], reference: str | None = None, **metadata: object) -> Sample:
    """Create a sample whose id is a hash of its texts."""
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
    """Create a task from a split with the slots `question`, `first`, `second`, `reference`, `criterion`, and `input`.

    All slots are optional. `answers` lists the answer slots.
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
    """Create a dialect that uses the first matching template.

    The default template has the dialect's name. `text` extracts the text to match; `accepts` can reject a split.
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
