"""Requests to engines, and the completions that they return."""

from dataclasses import dataclass
from typing import Any, Literal

from judgelm.errors import ConfigError, out_of_range

MAX_TEMPERATURE = 100.0
MIN_TEMPERATURE = 0.01
"""Logits divided by less overflow; a temperature between 0 and this is raised to it, as vLLM does."""

MAX_REPLIES = 10_000
MAX_SEED = 2**62
"""Engines add the index of a reply to a seed, and the sum must fit into 64 bits."""

MAX_TOKENS = 2**20
"""Of a reply that a user asks for."""

_MAX_LENGTH = 2**31 - 1
"""Of a reply with its thinking; engines count in 32 bits."""

FinishReason = Literal["stop", "length", "thinking", "too_long", "error"]
"""Why a reply ended; `thinking`: within its thinking, so that there is no reply."""

ThinkingMode = Literal["on", "off", "absent"]
"""Thinking before the reply: requested, suppressed, or left to the chat template (`absent`)."""

SpanKind = Literal["template", "question", "reference", "answer", "image"]

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a prompt; `answer` may be cut, all but `template` is untrusted, an `image`'s text is where it lies."""

    text: str
    kind: SpanKind = "template"
    role: Role | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The judge's input: plain text, or chat messages if `chat` is set.

    Plain text is the spans' texts, joined. For a chat, neighbouring spans of one role make one message and the
    tokenizer's own chat template wraps them. `prefill` is the forced start of the reply. `sanitized` counts
    the confusables of the template's delimiters that rendering sanitized in the untrusted spans.
    """

    spans: tuple[Span, ...]
    chat: bool = False
    prefill: str = ""
    sanitized: int = 0

    @property
    def images(self) -> tuple[str, ...]:
        """Paths or URLs of its images, in the order shown."""
        return tuple(span.text for span in self.spans if span.kind == "image")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters. Greedy at temperature 0; otherwise `seed` makes a reply repeat within an engine.

    Attributes:
        max_tokens: a reply ends here at the latest, or at the end of the model's window.
        temperature: 0 is greedy; above it at least `MIN_TEMPERATURE`.
        stop: a reply ends before the first of these strings, which is not part of it unless `include_stop`.
        n: how many replies.
        grammar: regular expression that the reply must match, for the engines that can.
        reserve: tokens that the length policy keeps free behind the prompt; None keeps `max_tokens`. A reply that goes
            on from an earlier one has the earlier one's, so that the same answers are cut in the same way.

    Raises:
        ConfigError: a number that no engine could use, or an empty stop string.
    """

    max_tokens: int
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    n: int = 1
    seed: int = 0
    grammar: str | None = None
    reserve: int | None = None

    def __post_init__(self) -> None:
        """Check all numbers here, since an engine that fails on one of them fails for all its requests."""
        for name, value, least, most in (
            ("temperature", self.temperature, 0, MAX_TEMPERATURE),
            ("max_tokens", self.max_tokens, 1, _MAX_LENGTH),
            ("n", self.n, 1, MAX_REPLIES),
            ("seed", self.seed, 0, MAX_SEED),
            ("reserve", self.reserve or 0, 0, _MAX_LENGTH),
        ):
            if not least <= value <= most:  # also true of NaN
                raise out_of_range(name, value, least, most)
        if "" in self.stop:
            raise ConfigError("stop has an empty string, before which every reply would end; leave it out")
        if 0 < self.temperature < MIN_TEMPERATURE:
            object.__setattr__(self, "temperature", MIN_TEMPERATURE)

    def cut_at_stop(self, text: str) -> str | None:
        """The text up to its first stop string; None where it has none."""
        starts = [start for stop in self.stop if (start := text.find(stop)) >= 0]
        if not starts:
            return None
        end = min(starts)
        if self.include_stop:
            end += next(len(stop) for stop in self.stop if text.startswith(stop, end))
        return text[:end]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt for an engine.

    Attributes:
        key: names the request within its flow; the runner makes it unique in the engine.
        candidates: replies whose probabilities are asked for, see `Completion.candidate_logprobs`.
        adapter: folder or hub id of the LoRA adapter that answers; None takes what the engine was loaded with.
    """

    key: str
    prompt: Prompt
    sampling: Sampling
    candidates: tuple[str, ...] = ()
    adapter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """One answer that the length policy shortened: its place among the answers shown, and tokens before and after."""

    answer: int
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """An engine's answer to one request.

    Attributes:
        texts: `n` replies; empty when `finish_reasons` tells of a failure. A reply that begins with thinking has the
            thinking's opening, also where the chat template wrote that into the prompt.
        thinking: of each reply, what the judge thought before it, without tags; empty where none of them has any.
        finish_reasons: one per reply, or a single `too_long` or `error` for the whole request.
        candidate_logprobs: for each candidate the natural log of the probability that a reply drawn at temperature 1
            begins with it and with no longer candidate; -inf where there is none, or where the engine left it out
            because all that it left out has at most 0.01 together. None where not asked for or not to be had.
        approximation: in what the log-probabilities are not exact, in words; empty where they are.
        prompt_tokens: tokens of the prompt as the model read it.
        completion_tokens: tokens of all replies together.
        truncations: what the length policy shortened.
        sanitized: confusables of the tokenizer's special tokens that were sanitized.
        error: the engine's message when the request failed.
    """

    key: str
    texts: tuple[str, ...]
    finish_reasons: tuple[FinishReason, ...]
    thinking: tuple[str, ...] = ()
    candidate_logprobs: tuple[float, ...] | None = None
    approximation: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    truncations: tuple[Truncation, ...] = ()
    sanitized: int = 0
    error: str = ""

    @classmethod
    def failed(cls, key: str, error: str, reason: FinishReason = "error", **fields: Any) -> "Completion":
        """The completion of a request that failed as a whole."""
        return cls(key=key, texts=(), finish_reasons=(reason,), error=error, **fields)
