"""The records between a client's request, a dialect and the judge.

A dialect is two pure functions: `recognise` finds the question, answers and reference in a request and the kind of
verdict wanted; `render` writes the judge's result in the words that the client's parser expects. Neither knows an
engine, a server or another dialect.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from judgelm.dialects.splits import TEMPLATES, Pattern, TemplateSplit
from judgelm.records import Sample, Winner

TaskKind = Literal["pair", "choice", "grade", "label", "prepare"]
"""The kind of verdict wanted.

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
    """A request to a chat or completion route, with the fields that dialects read.

    Attributes:
        messages: of a chat; of a plain completion one message of role `prompt`.
        plain: whether it came as a plain completion.
        n: number of replies.
        logprobs: whether log-probabilities of tokens are wanted; `top_logprobs` is the number of candidates for each.
        tools: functions on offer; `forced_tool` is the name of the one that must be called.
        schema: JSON schema of the reply, where one was given; `json_object` is whether any JSON object is wanted.
        max_tokens: most tokens of a reply; None where the client does not say.
        temperature: of an ordinary chat, in [0, 2]; None where the client does not say. It changes no score.
        stop: texts before which a reply of an ordinary chat ends.
        seed: of an ordinary chat; None where the client does not say.
        ignored: fields that would change what a model draws, such as `top_p`, and that have no effect here.
        roles: of the messages; every dialect looks at them.
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
        """Read the roles."""
        object.__setattr__(self, "roles", tuple(message.role for message in self.messages))

    def only(self, *roles: str) -> tuple[str, ...] | None:
        """The messages' texts where their roles are exactly these, in this order; else None."""
        return tuple(message.text for message in self.messages) if self.roles == roles else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTask:
    """The judgment that a client wants.

    Attributes:
        dialect: name of the dialect that recognised it.
        kind: of verdict.
        sample: question, answers in the order shown in the prompt, reference; its `metadata` may have `turns` of a
            dialogue (`{"question", "answers", "reference"}` each) and `criterion`.
        scale: of `grade`, the lowest and the highest that the client expects.
        facts: properties of the prompt that `render` needs, such as the names that it gives the answers.
        doubt: why the split may be wrong, in words; empty where no other split is possible.
    """

    dialect: str
    kind: TaskKind
    sample: Sample
    scale: tuple[float, float] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeResult:
    """The judge's result for a task, on its own scale of 1 to 10, in the order shown.

    Attributes:
        winner: of a pair, a tie included.
        scores: expected score of each answer, in [1, 10].
        first_better: P(the answer shown first is better), ties counted half, in [0, 1]; of a pair.
        tie: P(both have the same score); of a pair.
        draws: as many score lines as replies were asked for, drawn from the judge's distribution; they repeat for the
            same request, whatever the client's temperature.
        grades: of a single answer, each score of the judge's scale with its probability; they sum to 1.
        correct: P(the one answer is correct, or fulfils the criterion), in [0, 1]; of a label.
        reason: the judge's own words, where requested.
        notes: caveats in words, such as an inexact probability or a truncated answer.
        batch: the result of each sample in the task's fact `batch`.
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
    """One token of a reply, and the candidates at its position: natural logs of their probabilities."""

    token: str
    logprob: float
    candidates: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The reply to a client.

    Attributes:
        texts: as many as requested; empty where a function is called instead.
        tool: name of the function called; `arguments` is its JSON text.
        logprobs: of the tokens of the first text, where requested; their tokens joined are the text.
    """

    texts: tuple[str, ...] = ()
    tool: str | None = None
    arguments: str = ""
    logprobs: tuple[TokenLogprobs, ...] = ()


Render = Callable[[JudgeTask, ChatRequest, JudgeResult], Reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One client's prompts and replies.

    Attributes:
        name: in lower case with hyphens, as manifests, headers and metrics name it.
        recognise: finds the task in a request; None where the request is not of this dialect.
        render: writes the reply to a task; it contains the verdict exactly once, and nothing of the answers.
        templates: the prompts, or their parts, that consist of fixed texts around slots. They name the nearest known
            prompt of an unknown one.
    """

    name: str
    recognise: Callable[[ChatRequest], JudgeTask | None]
    render: Render
    templates: tuple[Pattern, ...] = ()


AMBIGUOUS = "the texts hold the prompt's own fixed lines, so that other borders between them are possible"


def user_text(request: ChatRequest) -> str | None:
    """The user's message of a chat of one turn, with or without a system message before it."""
    return request.messages[-1].text if request.roles in (("user",), ("system", "user")) else None


def lone_text(request: ChatRequest) -> str | None:
    """The only text of a request: a plain prompt, or a chat's only message by the user."""
    texts = request.only("prompt") or request.only("user")
    return None if texts is None else texts[0]


def last_text(*roles: str, strip: Callable[[str], str] = str) -> Callable[[ChatRequest], str | None]:
    """A function that returns the stripped last message of a chat with exactly these roles, else None."""

    def text(request: ChatRequest) -> str | None:
        texts = request.only(*roles)
        return None if texts is None else strip(texts[-1])

    return text


def digest(text: str) -> str:
    """A text's hash, to decide what the judge leaves open."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def ambiguity_note(*splits: TemplateSplit) -> str:
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
    split: TemplateSplit,
    *,
    scale: tuple[float, float] | None = None,
    facts: Mapping[str, Any] | None = None,
    **metadata: object,
) -> JudgeTask:
    """The task in a split whose slots are called `question`, `first`, `second`, `reference`, `criterion` and `input`.

    Args:
        dialect: name of the dialect.
        kind: of the task.
        split: of the prompt, with some of these slots.
        scale: of a grade.
        facts: of the prompt, for rendering.
        metadata: of the sample, beside `criterion` and `input`; None is left out.
    """
    values = split.values
    answers = [values[slot] for slot in ("first", "second") if slot in values]
    beside: dict[str, object] = {name: values[name] for name in ("criterion", "input") if name in values}
    return JudgeTask(
        dialect=dialect,
        kind=kind,
        sample=sample_of(values.get("question", ""), answers, values.get("reference"), **(beside | metadata)),
        scale=scale,
        facts=facts or {},
        doubt=ambiguity_note(split),
    )


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
    """A dialect whose prompts are of some templates, of which the first that fits is taken.

    Args:
        name: of the dialect.
        kind: of its tasks.
        templates: with the slots of `task_from_split`; by default that of the dialect's name in `TEMPLATES`.
        text: finds the text that is of a template in a request; None where there is none.
        render: as in `Dialect`.
        split: of that text.
        accepts: looks at instructions; a split that it refuses is not of this dialect.
        scale: of grades.
        facts: of a template and its text, for rendering.
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
