"""Records shared by all packages.

A mode sends a `Request` for a `Sample` to an engine, receives a `Completion`, and returns a `Judgment`. A `Label` is a
verdict by a person or a teacher model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from judgelm.errors import ConfigError, out_of_range

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Winner = Literal[1, 2, "tie"]
"""The better answer of a pair, in the order of the *sample*, not the order shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A question with its images (paths or URLs) and the answers to judge."""

    id: str
    question: str
    answers: tuple[str, ...]
    reference: str | None = None
    answer_models: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    category: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A verdict by a person or a teacher model, in sample order.

    Attributes:
        winner: winner of a pair; None if the sample is not a pair.
        votes: verdicts by several annotators.
        preference: P(first is better); determines the winner if there are no scores.
    """

    sample_id: str
    winner: Winner | None
    scores: tuple[float, ...] | None = None
    reason: str | None = None
    votes: tuple[Winner, ...] = ()
    preference: float | None = None


MAX_TEMPERATURE = 100.0
MIN_TEMPERATURE = 0.01
"""Lower temperatures above 0 are raised to this value, as in vLLM, because the logits would overflow."""

MAX_REPLIES = 10_000
MAX_SEED = 2**62
"""Engines add the index of the reply to the seed, and the sum must fit into 64 bits."""

MAX_LOGPROBS = 20
"""Maximum number of alternatives per token, as in OpenAI's API."""

MAX_TOKENS = 2**20
"""Maximum reply length that a user can set."""

_MAX_LENGTH = 2**31 - 1
"""Maximum length of a reply with thinking; engines count in 32 bits."""

FinishReason = Literal["stop", "length", "thinking", "too_long", "equal_after_cut", "invalid", "error"]
"""Why a reply ended; `thinking` means that the reply ended during the thinking, `invalid` that a chat was rejected."""

ThinkingMode = Literal["on", "off", "absent"]
"""Request or suppress thinking before the reply, or leave the choice to the chat template (`absent`)."""

SpanKind = Literal["template", "question", "reference", "answer", "image"]

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlace:
    """The position of a span in a trajectory.

    Attributes:
        answer: position of the trajectory among the answers shown.
        step: number of the step, starting at 1.
        rank: order in which text is elided, starting with the lowest; None for text that is kept.
    """

    answer: int
    step: int
    rank: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a prompt. Only `answer` is truncated. Only `template` is trusted. An `image` is a path or URL."""

    text: str
    kind: SpanKind = "template"
    role: Role | None = None
    step: StepPlace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The judge's input: plain text, or chat messages if `chat` is set.

    In a chat, adjacent spans with the same role form one message.

    Attributes:
        messages: a client's own messages in OpenAI's format, used verbatim instead of `spans`, neither truncated nor
            sanitized. Each `content` is a string. If `chat` is unset, the prompt is the content of the only message.
        tools: functions for the chat template, in OpenAI's format.
        prefill: forced beginning of the reply.
        sanitized: number of sanitized lookalikes of the template's delimiters.
        compares: number of answers or dialogues to compare. The `answer` spans of each answer are consecutive.
    """

    spans: tuple[Span, ...] = ()
    chat: bool = False
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    prefill: str = ""
    sanitized: int = 0
    compares: int = 1

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts of the messages or spans, in order."""
        return tuple(str(message["content"]) for message in self.messages) or tuple(span.text for span in self.spans)

    @property
    def images(self) -> tuple[str, ...]:
        """Paths or URLs of the images, in the order shown."""
        return tuple(span.text for span in self.spans if span.kind == "image")


@dataclass(frozen=True, slots=True)
class Grammar:
    r"""A constraint on replies: a regular expression that matches the whole reply, or a JSON schema as JSON text.

    Regular expressions have the syntax of Rust's regex crate, without look-around; `\d`, `\w`, and `\s` are ASCII.
    `judgelm.engines.grammars.check_grammar` checks a grammar.
    """

    kind: Literal["regex", "json_schema"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """A reply token and its alternatives, with natural log-probabilities, most probable first."""

    token: str
    logprob: float
    candidates: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters. Temperature 0 is greedy; otherwise `seed` makes replies reproducible within an engine.

    Attributes:
        top_p: draw from the most probable tokens that together have at least this probability.
        top_k: draw from this many tokens; 0 means all.
        stop: a reply ends before the first of these strings or, with `include_stop`, after it. A blank stop string (a
            line ending) ends a reply only after a non-blank line.
        grammar: constraint on the reply, if the engine supports grammars.
        logprobs: number of alternatives per token in `Completion.logprobs`, from 0 to 20; None means no probabilities.
        reserve: number of tokens to keep free after the prompt; None means `max_tokens`. To continue an earlier reply,
            use the earlier reply's value so that answers are truncated identically.
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    n: int = 1
    seed: int = 0
    grammar: Grammar | None = None
    logprobs: int | None = None
    reserve: int | None = None

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("temperature", self.temperature, 0, MAX_TEMPERATURE),
            ("top_p", self.top_p, 0, 1),
            ("top_k", self.top_k, 0, _MAX_LENGTH),
            ("max_tokens", self.max_tokens, 1, _MAX_LENGTH),
            ("n", self.n, 1, MAX_REPLIES),
            ("seed", self.seed, 0, MAX_SEED),
            ("reserve", self.reserve or 0, 0, _MAX_LENGTH),
            ("logprobs", self.logprobs or 0, 0, MAX_LOGPROBS),
        ):
            if not least <= value <= most:  # also true of NaN
                raise out_of_range(name, value, least, most)
        if "" in self.stop:
            raise ConfigError("stop contains an empty string, which would end all replies immediately; remove it")
        if 0 < self.temperature < MIN_TEMPERATURE:
            object.__setattr__(self, "temperature", MIN_TEMPERATURE)

    @property
    def blank_stops(self) -> tuple[str, ...]:
        """Stop strings that would end a reply at an empty first line if the backend applied them."""
        return tuple(stop for stop in self.stop if stop.isspace())

    def cut_at_stop(self, text: str) -> str | None:
        """Return the text up to the first stop string, or None if there is no stop string."""
        begin = len(text) - len(text.lstrip())
        starts = [start for stop in self.stop if (start := text.find(stop, begin if stop.isspace() else 0)) >= 0]
        if not starts:
            return None
        end = min(starts)
        if self.include_stop:
            end += next(len(stop) for stop in self.stop if text.startswith(stop, end))
        return text[:end]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A prompt for an engine.

    Attributes:
        key: ID of the request within its flow. The runner makes it unique within the engine.
        candidates: replies to compute probabilities for; see `Completion.candidate_logprobs`.
        after: fixed text at the end of the prefill, which candidates follow. Engines for servers that cannot continue a
            reply look for it in a complete reply.
        adapter: folder or hub ID of the LoRA adapter to use; None means the engine's adapter, if any.
        reward: request a reward for the prompt (a complete chat) instead of a reply.
        reward_row: index of the head's weights, if it has weights for several criteria.
        states: numbers of the layers whose state to return; see `Completion.states`.
    """

    key: str
    prompt: Prompt
    sampling: Sampling
    candidates: tuple[str, ...] = ()
    after: str = ""
    adapter: str | None = None
    reward: bool = False
    reward_row: int = 0
    states: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """A truncated answer: its position among the answers shown, and its token counts before and after truncation.

    `steps` lists the steps elided from a trajectory.
    """

    answer: int
    tokens_before: int
    tokens_after: int
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The response of an engine to a request.

    Attributes:
        texts: `n` replies, or none if the request failed. Replies that begin with thinking include the opening tag,
            even if the chat template wrote the tag.
        thinking: the thinking before each reply, without tags.
        finish_reasons: one per reply, or a single `too_long`, `equal_after_cut`, `invalid`, or `error` for the whole
            request.
        candidate_logprobs: for each candidate, the natural log of the probability that a reply at temperature 1 begins
            with it and not with a longer candidate. Candidates are -inf if the engine omitted them because their total
            is at most 0.01, and None if they were not requested or are not available.
        approximation: why the log-probabilities are not exact; empty if they are exact.
        logprobs: tokens of each reply, at temperature 1; None if they were not requested or are not available. The
            transformers engine computes them before the grammar is applied, other engines usually after.
        sanitized: number of sanitized lookalikes of special tokens.
        reward: unbounded reward; the text of the reply is empty.
        states: shape (layers requested, hidden size), float32: the state of the prompt's last token, normalised by the
            model's final norm. Only from the transformers engine.
    """

    key: str
    texts: tuple[str, ...]
    finish_reasons: tuple[FinishReason, ...]
    thinking: tuple[str, ...] = ()
    candidate_logprobs: tuple[float, ...] | None = None
    logprobs: tuple[tuple[TokenLogprobs, ...], ...] | None = None
    reward: float | None = None
    states: "NDArray[np.float32] | None" = field(default=None, compare=False)
    approximation: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    truncations: tuple[Truncation, ...] = ()
    sanitized: int = 0
    error: str = ""

    @classmethod
    def failed(cls, key: str, error: str, reason: FinishReason = "error", **fields: Any) -> "Completion":
        """Create a completion for a failed request."""
        return cls(key=key, texts=(), finish_reasons=(reason,), error=error, **fields)


HeadKind = Literal["pair", "grade", "label"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTerms:
    """How a judge's linear head scores an answer: head + `intercept` + `log_odds` times the log-odds of yes versus no.

    Attributes:
        kind: the labels that it was fitted to. The score is unbounded for pairs, clipped to the scale for grades, and
            the log-odds of the first label for labels.
        row: index of the weights, for a checklist with weights for each criterion.
    """

    kind: HeadKind
    intercept: float = 0.0
    log_odds: float = 0.0
    row: int = 0


FailureCode = Literal[
    "truncated", "off_grammar", "low_coverage", "reason_cut", "out_of_range", "too_long", "equal_after_cut", "engine",
    "undecided",
]  # fmt: skip
"""Why a score is missing, such as an engine error (`engine`), too little probability on the verdict words
(`low_coverage`), or an undecided panel (`undecided`). `reason_cut` is only a `Shown.reason_failure`: the reason reached
its limit, and the verdict was read there.
"""


def failure_name(code: str) -> str:
    """Describe a failure code or other outcome in words."""
    return "unparseable" if code == "off_grammar" else code.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores in the order shown, on the judge's scale."""

    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Unparsed:
    """A failure, which is never converted to a score. `text` is the raw reply or the engine's message."""

    code: FailureCode
    text: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDistribution:
    """The probabilities that a judge assigns to all score lines for one prompt, in the order shown.

    If the score lines have zero probability, `expected`, `first_better`, and `tie` are NaN (null in a run file).

    Attributes:
        expected: mean score of each answer.
        first_better: P(s1 > s2) + P(s1 = s2) / 2, in [0, 1].
        tie: P(s1 = s2), in [0, 1].
        unassigned: probability of replies that do not begin with a score line, in [0, 1].
        likeliest: (s1, s2, probability), most likely first, down to a probability of 0.0001.
        approximation: why the probabilities are not exact; empty if they are exact.
    """

    expected: tuple[float, float]
    first_better: float
    tie: float
    unassigned: float
    likeliest: tuple[tuple[float, float, float], ...]
    approximation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeDistribution:
    """Probabilities of the scores for one answer, as in `PairDistribution`. `likeliest` is (score, probability)."""

    expected: float
    unassigned: float
    likeliest: tuple[tuple[float, float], ...]
    approximation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairVerdict:
    """The better of two answers, or a tie."""

    winner: Winner


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingVerdict:
    """Indices of the sample's answers from best to worst. Answers in the same tuple are tied."""

    order: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeVerdict:
    """A score for one answer or dialogue, on the scale in the manifest."""

    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelVerdict:
    """A lower-case word, which is `correct` or `incorrect` in most modes."""

    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstainVerdict:
    """No verdict, because the judge is not confident enough; it is neither a tie nor a failure."""


Verdict = PairVerdict | RankingVerdict | GradeVerdict | LabelVerdict | AbstainVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfAnswer:
    """The judge's own answer to a question.

    Attributes:
        text: complete reply, with its reasoning.
        answer: final answer, normalised for comparison.
    """

    text: str
    answer: str | None = None
    thinking: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A prompt shown to the judge, and the reply.

    Attributes:
        order: `order[i]` is the index in the sample of the answer shown at position i.
        text: the reply without thinking.
        part: part of the judgment in modes with several prompts, such as a rubric dimension or a turn.
        scores: in the order shown.
        anchor: score of the answer used for comparison.
        label: the word at the end of the reply. For a pair without scores, the position of the better answer (`1` or
            `2`) or `tie`.
        referenced: whether the prompt contains a reference; None if this was not recorded.
        read_anywhere: whether scores were found only by the parser `anywhere`.
        repaired: failure that a constrained retry fixed; `text` and `scores` are from the retry.
        reason: the judge's continuation of its score line.
        reason_failure: the failure if the reason is missing or incomplete; `too_long` if the answers were truncated
            further than for the scores.
        distribution: score probabilities for a pair; `grades` is used for a single answer.
        log_odds: natural log-odds of the first letter against the second, or of yes against no, for readings that use
            token probabilities.
        passage: ID of the part of the context that supports a claim best, if parts were judged separately.
        context_parts: number of parts in which a context was judged because it was too long; `scores` is the maximum.
    """

    order: tuple[int, ...]
    text: str
    thinking: str | None = None
    part: str = ""
    scores: tuple[float, ...] | None = None
    anchor: float | None = None
    label: str | None = None
    referenced: bool | None = None
    failure: Unparsed | None = None
    read_anywhere: bool = False
    repaired: Unparsed | None = None
    reason: str | None = None
    reason_failure: Unparsed | None = None
    distribution: PairDistribution | None = None
    grades: GradeDistribution | None = None
    log_odds: float | None = None
    passage: str = ""
    context_parts: int = 1
    truncations: tuple[Truncation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryMatch:
    """Comparison of the tool calls in a trajectory with a reference.

    Attributes:
        strict: whether the messages have the same speakers and calls.
        ordered: whether the calls are the same, in the same order.
        unordered: whether the calls are the same, in any order.
        subset: whether all calls are in the reference; `superset` is whether all reference calls were made.
        recall: share of the reference calls that were made; None if the reference has no calls.
        precision: share of the calls that are in the reference; None if there are no calls.
    """

    strict: bool
    ordered: bool
    unordered: bool
    subset: bool
    superset: bool
    recall: float | None
    precision: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextHashes:
    """xxh3-64 hashes (16 hex digits) of a sample as it was given (`judgelm.data.judged_texts`).

    Attributes:
        question: hash of the question or, for a dialogue, of all questions.
        answers: hash of each answer or, for a dialogue, of each assistant's answers, in sample order.
        images: hash of the bytes of all images; None if there are no images or an image could not be read.
        context: hash of the reference and everything else shown to the judge.
    """

    question: str
    answers: tuple[str, ...]
    images: str | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """The judgment for a sample.

    Attributes:
        verdict: None if and only if `failure` is set.
        scores: in sample order on the judge's scale, averaged over the orders unless the order rule is `given`.
        consistent: whether all orders have the same winner or ranking; None for a single order, or if an order failed.
        probability: P(first better) or P(correct), in [0, 1]; None if it was not requested or is not available.
        sanitized: number of sanitized lookalikes of delimiters and special tokens.
        provenance: hash of the manifest entry for the model, template, engine, sampling, versions, and machine.
        decided_by: `small` or `large` in a cascade; `exact_match`, `blank_answer`, or `judge` for short answers.
        self_answers: the judge's own answers to the question; `solves` in a run file.
        own_reference: the judge's own answer that was shown as the reference.
        votes: verdicts keyed by judge (for a panel) or by the number of the sampled reply, as a word (`1`, `tie`,
            `correct`, `7.5`, `2>1=3`) or None.
        spread: standard deviation of the grade, P(first better), or P(correct) over sampled replies. Verdicts without a
            probability count as 1, 0.5, or 0. None if there are fewer than two replies.
        hashes: hashes of the judged texts; None for judgments from other programs.
    """

    sample_id: str
    mode: str
    verdict: Verdict | None
    shown: tuple[Shown, ...]
    scores: tuple[float, ...] | None = None
    consistent: bool | None = None
    probability: float | None = None
    failure: Unparsed | None = None
    sanitized: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    provenance: str = ""
    decided_by: str | None = None
    self_answers: tuple[SelfAnswer, ...] = ()
    own_reference: str | None = None
    votes: Mapping[str, str | None] = field(default_factory=dict)
    spread: float | None = None
    matches: tuple[TrajectoryMatch, ...] = ()
    hashes: TextHashes | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the judgment as a row of a run file, which `json.dumps` can write."""
        from judgelm.serialization import judgment_row  # which imports this module

        return judgment_row(self)

    @property
    def winner(self) -> Winner | None:
        """The better answer of a pair, if the judgment has one."""
        return self.verdict.winner if isinstance(self.verdict, PairVerdict) else None

    @property
    def abstained(self) -> bool:
        """Whether the judge was not confident enough for a verdict."""
        return isinstance(self.verdict, AbstainVerdict)

    @property
    def compared(self) -> tuple[Shown, ...]:
        """Prompts that contain several answers."""
        return tuple(shown for shown in self.shown if len(shown.order) > 1)

    @property
    def reads_words(self) -> bool:
        """True if several answers were judged with token probabilities (`judgelm.modes.readings`)."""
        several = self.scores is not None and len(self.scores) > 1
        return several and any(shown.log_odds is not None or len(shown.order) == 1 for shown in self.shown)

    @property
    def repaired(self) -> bool:
        """True if a constrained retry was needed."""
        return any(prompt.repaired is not None for prompt in self.shown)

    @property
    def read_anywhere(self) -> bool:
        """True if only the parser `anywhere` could parse a reply."""
        return any(prompt.read_anywhere for prompt in self.shown)

    @property
    def reason(self) -> str | None:
        """The judge's reason: from the first order that has one, or one per individually judged answer."""
        explained = [(shown.order, shown.reason) for shown in self.shown if shown.reason is not None]
        alone = {order[0] for order, _ in explained if len(order) == 1}
        if len(explained) == len(alone) > 1:
            return "\n\n".join(f"Answer {order[0] + 1}: {reason}" for order, reason in explained)
        return explained[0][1] if explained else None


def tokens_between(tokens: tuple[TokenLogprobs, ...], start: int, end: int) -> tuple[TokenLogprobs, ...]:
    """Return the tokens between two positions in their joined text. Tokens that cross a position are cut."""
    kept, position = [], 0
    for token in tokens:
        begin, position = position, position + len(token.token)
        if begin < end and (begin >= start or position > start):
            kept.append(replace(token, token=token.token[max(0, start - begin) : end - begin]))
    return tuple(kept)


def winner_of(scores: tuple[float, float]) -> Winner:
    """Return the answer with the higher score, or a tie if the scores are equal or a score is NaN."""
    if scores[0] > scores[1]:
        return 1
    return 2 if scores[1] > scores[0] else "tie"
