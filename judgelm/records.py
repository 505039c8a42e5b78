"""The records that all packages share: frozen, slotted, and free of behaviour.

A mode sends a `Request` about a `Sample` to an engine, gets a `Completion`, and concludes a `Judgment`. A `Label` is
the conclusion of somebody else (a human, a teacher). Their forms in files: `judgelm.runs.run_files` (judgments) and
`judgelm.data.sources.registry` (samples and labels).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from judgelm.errors import ConfigError, out_of_range

Winner = Literal[1, 2, "tie"]
"""The better answer of a pair, in the order of the *sample*, not in the order shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One question, the images that it is about (paths or URLs, which engines read), and the answers to be judged."""

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
    """The verdict of a person or teacher on a pair, one answer, or three and more; in sample order.

    `winner` is the label of a pair that metrics compare with, and None where there are not two answers: what is known
    of those is their `scores`, one each. Of a pair `scores` and `reason` are there where the source has them (a GPT-4
    review), `votes` where several annotators voted (PandaLM), `preference` where the source has one: P(first is
    better), 0 and 1 for hard labels, 0.5 for a tie, anything between from a judge that gave probabilities (AlpacaEval's
    weighted annotators). Without scores the winner is the first above 0.5, the second below, a tie at 0.5.
    """

    sample_id: str
    winner: Winner | None
    scores: tuple[float, ...] | None = None
    reason: str | None = None
    votes: tuple[Winner, ...] = ()
    preference: float | None = None


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

FinishReason = Literal["stop", "length", "thinking", "too_long", "equal_after_cut", "error"]
"""Why a reply ended; `thinking`: within its thinking, so that there is no reply."""

ThinkingMode = Literal["on", "off", "absent"]
"""Thinking before the reply: requested, suppressed, or left to the chat template (`absent`)."""

SpanKind = Literal["template", "question", "reference", "answer", "image"]

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlace:
    """The place of a span in a trajectory.

    Attributes:
        answer: the trajectory's place among the answers shown.
        step: number of the step, from 1.
        rank: the order in which texts are left out where the window ends, the lowest first; None for one that stays.
    """

    answer: int
    step: int
    rank: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a prompt; `answer` may be cut, all but `template` is untrusted, an `image`'s text is where it lies."""

    text: str
    kind: SpanKind = "template"
    role: Role | None = None
    step: StepPlace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The judge's input: plain text, or chat messages if `chat` is set.

    Plain text is the spans' texts, joined. For a chat, neighbouring spans of one role make one message and the
    tokenizer's own chat template wraps them. `prefill` is the forced start of the reply. `sanitized` counts
    the confusables of the template's delimiters that rendering sanitized in the untrusted spans. `compares` is the
    number of answers, or of dialogues, that the judge is to compare: `answer` spans, as many of each in a row.
    """

    spans: tuple[Span, ...]
    chat: bool = False
    prefill: str = ""
    sanitized: int = 0
    compares: int = 1

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
        stop: a reply ends before the first of these strings, which is not part of it unless `include_stop`. A blank one
            (a line's end) acts behind a line that is not blank: a reply may begin with empty lines.
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

    @property
    def blank_stops(self) -> tuple[str, ...]:
        """The stop strings that would end a reply at an empty first line where a back end applies them itself."""
        return tuple(stop for stop in self.stop if stop.isspace())

    def cut_at_stop(self, text: str) -> str | None:
        """The text up to its first stop string; None where it has none."""
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
    """One prompt for an engine.

    Attributes:
        key: names the request within its flow; the runner makes it unique in the engine.
        candidates: replies whose probabilities are asked for, see `Completion.candidate_logprobs`.
        adapter: folder or hub id of the LoRA adapter that answers; None takes what the engine was loaded with.
        reward: asks a reward model for its number on the prompt, a finished chat, instead of a reply.
    """

    key: str
    prompt: Prompt
    sampling: Sampling
    candidates: tuple[str, ...] = ()
    adapter: str | None = None
    reward: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """One answer that the length policy shortened: its place among the answers shown, and tokens before and after.

    `steps` are the numbers of a trajectory's steps whose text was left out.
    """

    answer: int
    tokens_before: int
    tokens_after: int
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """An engine's answer to one request.

    Attributes:
        texts: `n` replies; empty when `finish_reasons` tells of a failure. A reply that begins with thinking has the
            thinking's opening, also where the chat template wrote that into the prompt.
        thinking: of each reply, what the judge thought before it, without tags; empty where none of them has any.
        finish_reasons: one per reply, or a single `too_long`, `equal_after_cut` or `error` for the whole
            request.
        candidate_logprobs: for each candidate the natural log of the probability that a reply drawn at temperature 1
            begins with it and with no longer candidate; -inf where there is none, or where the engine left it out
            because all that it left out has at most 0.01 together. None where not asked for or not to be had.
        approximation: in what the log-probabilities are not exact, in words; empty where they are.
        prompt_tokens: tokens of the prompt as the model read it.
        completion_tokens: tokens of all replies together.
        truncations: what the length policy shortened.
        sanitized: confusables of the tokenizer's special tokens that were sanitized.
        error: the engine's message when the request failed.
        reward: of a reward model, its number on the prompt, unbounded; its text is empty.
    """

    key: str
    texts: tuple[str, ...]
    finish_reasons: tuple[FinishReason, ...]
    thinking: tuple[str, ...] = ()
    candidate_logprobs: tuple[float, ...] | None = None
    reward: float | None = None
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


FailureCode = Literal["truncated", "off_grammar", "out_of_range", "too_long", "equal_after_cut", "engine", "undecided"]
"""The cause of a missing score: the engine (`engine`), a panel (`undecided`), else the judge or the input."""


def failure_name(code: str) -> str:
    """A failure's code, or another outcome's, in words."""
    return "unparseable" if code == "off_grammar" else code.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores in the order the answers were shown, on the judge's own scale."""

    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Unparsed:
    """A failure with its reason; never turned into a number.

    `text` is the raw reply (or the engine's message), `why` the finding in words.
    """

    code: FailureCode
    text: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDistribution:
    """The judge's probabilities of all score lines for one prompt, in the order shown.

    Attributes:
        expected: mean of each answer's score over the mass that is assigned; NaN (null in a run file), as the next
            two, where none is.
        first_better: P(s1 > s2) + P(s1 = s2) / 2 over the mass that is assigned, in [0, 1].
        tie: P(s1 = s2) over the mass that is assigned, in [0, 1].
        unassigned: probability of replies that begin with no score line of the judge's scale, in [0, 1].
        likeliest: (s1, s2, probability), likeliest first; those of 0.0001 or more.
        approximation: the way in which this is not exact; empty where it is exact.
    """

    expected: tuple[float, float]
    first_better: float
    tie: float
    unassigned: float
    likeliest: tuple[tuple[float, float, float], ...]
    approximation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeDistribution:
    """The judge's probabilities of all scores of one answer; `unassigned` and `approximation` as for a pair.

    Attributes:
        expected: mean score over the mass that is assigned; NaN (null in a run file) where none is.
        likeliest: (score, probability), likeliest first; those of 0.0001 or more.
    """

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
    """Answers from best to worst, as indices into the sample's answers; those of one tuple are tied."""

    order: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeVerdict:
    """One number for the one answer, or for all of a dialogue, on the scale in the manifest."""

    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelVerdict:
    """One of a few words, in lower case: `correct` or `incorrect`, where a mode says nothing else."""

    label: str


Verdict = PairVerdict | RankingVerdict | GradeVerdict | LabelVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfAnswer:
    """The judge's own answer to the question it is to judge.

    Attributes:
        text: the whole reply, its reasoning included.
        answer: the final answer, normalised for comparison; None where none can be extracted.
        thinking: a reasoning model's thinking before the text; None without any.
    """

    text: str
    answer: str | None = None
    thinking: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One prompt that the judge saw, and its reply.

    Attributes:
        order: `order[i]` is the index in the sample of the answer shown at position i.
        text: the reply, without the thinking before it.
        thinking: a reasoning model's thinking before the reply; None without any.
        part: the subject of this prompt, in modes with several: a dimension of a rubric, a turn.
        scores: in the order shown.
        anchor: the score of an answer that stood beside the sample's own, to compare it with.
        label: the word that the reply ends in, in the modes that conclude in one; of a pair without scores the place of
            the better answer, `1` or `2`, or `tie`.
        referenced: True with a reference in the prompt; None where the mode does not record it.
        read_anywhere: True where only the parser `anywhere` found the scores: they do not open the reply.
        repaired: the failure that a grammar-constrained retry mended; `text` and `scores` are the retry's.
        reason: the judge's continuation of its score line, where one was requested.
        reason_failure: the cause of a missing or incomplete reason: `truncated` without an end, `too_long` where the
            answers were cut further than for the scores.
        distribution: where it was requested and is available; `grades` instead where one answer is graded.
        log_odds: of the first letter against the second, or of yes against no, natural log, where the judge is read off
            such a word.
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
    truncations: tuple[Truncation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryMatch:
    """The tool calls of a trajectory compared with those of its reference, without a model.

    Attributes:
        strict: the same messages by speaker and calls, whatever their texts.
        ordered: the same calls in the same order.
        unordered: the same calls, in any order.
        subset: every call is one of the reference's; `superset`: every call of the reference was made.
        recall: share of the reference's calls that were made; None where it has none.
        precision: share of the calls that are the reference's; None where there are none.
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
    """xxh3-64 hashes, 16 hex digits each, of a sample as it was read, see `judgelm.data.judged_texts`.

    Attributes:
        question: of the question; of a dialogue, the questions of all turns.
        answers: of each answer in sample order; of a dialogue, each assistant's answers of all turns.
        images: of the bytes of all images; None without any, or where one cannot be read.
        context: of the reference and all else that is shown beside question and answers; None without any.
    """

    question: str
    answers: tuple[str, ...]
    images: str | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """The conclusion of a mode about one sample.

    Attributes:
        verdict: None exactly when `failure` is set.
        scores: in sample order, on the judge's scale; the mean over the orders, under order rule `given` those of the
            given order.
        consistent: whether all orders give the same winner or ranking; None with one order, or when an order failed.
        probability: P(first better), in [0, 1], over all orders shown, antisymmetrised, or under order rule `given` in
            the given order; of modes that end in `correct` or `incorrect` P(correct). None where it was not
            requested or is not available.
        sanitized: confusables of delimiters and special tokens sanitized in question, reference and answers.
        provenance: hash of model, template, engine, sampling, versions and machine; they stand in the manifest.
        decided_by: which step of a cascade decided: the `small` or the `large` judge; of answers to questions
            `exact_match`, `blank_answer` or the `judge`. None outside of one.
        self_answers: the judge's own answers to the question, in the modes that ask for them; `solves` in a run file.
        own_reference: the own answer shown as the reference; None without one.
        votes: of a panel, each judge's verdict in a word (`1`, `tie`, `correct`, `7.5`, `2>1=3`), or None; of a judge
            that is sampled several times, that of each sample drawn, by its number.
        spread: standard deviation, over such samples, of P(first better) or P(correct), where one without it counts as
            1, 0.5 or 0, or of the grade; None without at least two.
        matches: of each trajectory with the reference, where that is a trajectory too.
        hashes: of the texts judged; None where they are not known, as of other programs' judgments.
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

    @property
    def winner(self) -> Winner | None:
        """The better answer of a pair; None where the judgment failed, or is not of a pair."""
        return self.verdict.winner if isinstance(self.verdict, PairVerdict) else None

    @property
    def compared(self) -> tuple[Shown, ...]:
        """The prompts that show several answers; none where each answer was read by itself."""
        return tuple(shown for shown in self.shown if len(shown.order) > 1)

    @property
    def reads_words(self) -> bool:
        """True where several answers were judged by the probabilities of one word (`judgelm.modes.readings`)."""
        several = self.scores is not None and len(self.scores) > 1
        return several and any(shown.log_odds is not None or len(shown.order) == 1 for shown in self.shown)

    @property
    def repaired(self) -> bool:
        """True where only a grammar-constrained retry made a reply readable."""
        return any(prompt.repaired is not None for prompt in self.shown)

    @property
    def read_anywhere(self) -> bool:
        """True where only the parser `anywhere` could read a reply."""
        return any(prompt.read_anywhere for prompt in self.shown)

    @property
    def reason(self) -> str | None:
        """The judge's explanation of the first order it explained, or of each answer that it read by itself."""
        explained = [(shown.order, shown.reason) for shown in self.shown if shown.reason is not None]
        alone = {order[0] for order, _ in explained if len(order) == 1}
        if len(explained) == len(alone) > 1:
            return "\n\n".join(f"Answer {order[0] + 1}: {reason}" for order, reason in explained)
        return explained[0][1] if explained else None


def winner_of(scores: tuple[float, float]) -> Winner:
    """The answer with the higher of two scores; a tie where neither is, as with NaN."""
    if scores[0] > scores[1]:
        return 1
    return 2 if scores[1] > scores[0] else "tie"
