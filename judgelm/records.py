"""The records that every room passes on: frozen, slotted, and free of behaviour.

A `Sample` is what is to be judged, a `Request` is what an engine is asked, a `Completion` is what it answers, a
`Judgment` is what a mode concludes and a `Label` is what somebody else (a human, a teacher) concluded. How each
looks in a file is said in `judgelm.runs.run_files` (judgments) and `judgelm.data.formats.catalog` (samples and labels).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from judgelm.score_distributions import GradeDistribution, PairDistribution

Winner = Literal[1, 2, "tie"]
"""Which answer of a pair is better, in *sample* order (never in the order shown)."""

FailureCode = Literal["truncated", "off_grammar", "out_of_range", "too_long", "engine", "undecided"]
"""Why there is no score: the engine's fault (`engine`), a panel's (`undecided`), else the judge's or the input's."""

FinishReason = Literal["stop", "length", "thinking", "too_long", "error"]
"""Why a reply ended; `thinking`: within its thinking, so that there is no reply."""

ThinkingMode = Literal["on", "off", "absent"]
"""Whether a judge is asked to think before it replies; `absent` tells its chat template nothing."""

SpanKind = Literal["template", "question", "reference", "answer", "image"]

Role = Literal["system", "user", "assistant"]


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
    """What somebody else concluded about a pair, about one answer, or about three and more; in sample order.

    `winner` is the label of a pair that metrics compare with, and None where there are not two answers: what is known
    of those is their `scores`, one each. Of a pair `scores` and `reason` are there where the source has them (a GPT-4
    review), `votes` where several annotators voted (PandaLM), `probability` (that the first is better) where the judge
    gave one (AlpacaEval's weighted annotators).
    """

    sample_id: str
    winner: Winner | None
    scores: tuple[float, ...] | None = None
    reason: str | None = None
    votes: tuple[Winner, ...] = ()
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a prompt; `answer` may be cut, all but `template` is untrusted, an `image`'s text is where it lies."""

    text: str
    kind: SpanKind = "template"
    role: Role | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the judge reads: plain text, or chat messages when `chat` is set.

    Plain text is the spans' texts, joined. For a chat, neighbouring spans of one role make one message and the
    tokenizer's own chat template wraps them. `continuation` is the forced start of the reply. `neutralised` counts
    the look-alikes of the template's delimiters that rendering defused in the untrusted spans.
    """

    spans: tuple[Span, ...]
    chat: bool = False
    continuation: str = ""
    neutralised: int = 0

    @property
    def images(self) -> tuple[str, ...]:
        """Where its images lie, in the order shown."""
        return tuple(span.text for span in self.spans if span.kind == "image")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a reply is drawn. Greedy at temperature 0; otherwise `seed` makes it repeat within an engine.

    Attributes:
        max_tokens: a reply ends here at the latest, or at the end of the model's window.
        stop: a reply ends before the first of these strings, which is not part of it unless `include_stop`.
        n: how many replies.
        grammar: regular expression that the reply must match, for the engines that can.
        reserve: tokens that the length policy keeps free behind the prompt; None keeps `max_tokens`. A reply that goes
            on from an earlier one has the earlier one's, so that the same answers are cut in the same way.
    """

    max_tokens: int
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    n: int = 1
    seed: int = 0
    grammar: str | None = None
    reserve: int | None = None


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
class Cut:
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
        cut: what the length policy shortened.
        neutralised: look-alikes of the tokenizer's special tokens that were defused.
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
    cut: tuple[Cut, ...] = ()
    neutralised: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairVerdict:
    """Which of two answers is better."""

    winner: Winner


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingVerdict:
    """Answers from best to worst, as indices into the sample's answers; those of one tuple are tied."""

    order: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeVerdict:
    """One number for the one answer, or for all of a dialogue, on the scale that the mode's manifest states."""

    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelVerdict:
    """One of a few words, in lower case: `correct` or `incorrect`, where a mode says nothing else."""

    label: str


Verdict = PairVerdict | RankingVerdict | GradeVerdict | LabelVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Solve:
    """The judge's own answer to the question it is to judge.

    Attributes:
        text: all that it wrote, its reasoning included.
        answer: what the text ends in, made comparable; None where none can be extracted.
        thinking: what a reasoning model thought before it wrote that; None where it did not.
    """

    text: str
    answer: str | None = None
    thinking: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One prompt that the judge saw and what it wrote.

    Attributes:
        order: `order[i]` is the index in the sample of the answer shown at place i.
        text: the reply, without the thinking before it.
        thinking: what a reasoning model thought before the reply; None where it did not.
        part: what this prompt asked for, where a mode asks for several things: a dimension of a rubric, a turn.
        scores: in the order shown.
        anchor: the score of an answer that stood beside the sample's own, to compare it with.
        label: the word that the reply ends in, in the modes that conclude in one; of a pair without scores the place of
            the better answer, `1` or `2`, or `tie`.
        referenced: whether a reference stood in the prompt; None where the mode does not say.
        read_anywhere: whether only the parser `anywhere` found the scores: they do not open the reply.
        repaired: the failure that a grammar-constrained retry mended; `text` and `scores` are the retry's.
        reason: what the judge wrote when it went on from its score line, where that was asked for.
        reason_failure: why there is no reason though it was asked for, or what it lacks: `truncated` where it has no
            end, `too_long` where the answers had to be cut further than for the scores.
        distribution: where it was asked for and can be had; `grades` instead where one answer is graded.
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
    cut: tuple[Cut, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """What a mode concluded about one sample.

    Attributes:
        verdict: None exactly when `failure` is set.
        scores: in sample order, on the judge's scale; the mean over the orders, under order rule `given` those of the
            given order.
        consistent: whether all orders give the same winner or ranking; None with one order, or when an order failed.
        probability: P(first better), in [0, 1], over all orders shown, antisymmetrised, or under order rule `given` in
            the given order; of modes that end in `correct` or `incorrect` P(correct). None where it was not asked for
            or cannot be had.
        neutralised: look-alikes of delimiters and special tokens defused in question, reference and answers.
        provenance: hash of model, template, engine, sampling, versions and machine; they stand in the manifest.
        decided_by: which step of a cascade decided: the `small` or the `large` judge; of answers to questions
            `exact_match`, `blank_answer` or the `judge`. None outside of one.
        solves: the judge's own answers to the question, in the modes that ask for them; kept for other runs to use.
        own_reference: what of them was shown as the reference; None where none was.
        votes: of a panel, each judge's verdict in a word (`1`, `tie`, `correct`, `7.5`, `2>1=3`), or None.
    """

    sample_id: str
    mode: str
    verdict: Verdict | None
    shown: tuple[Shown, ...]
    scores: tuple[float, ...] | None = None
    consistent: bool | None = None
    probability: float | None = None
    failure: Unparsed | None = None
    neutralised: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    provenance: str = ""
    decided_by: str | None = None
    solves: tuple[Solve, ...] = ()
    own_reference: str | None = None
    votes: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def winner(self) -> Winner | None:
        """The better answer of a pair; None where the judgment failed, or is not of a pair."""
        return self.verdict.winner if isinstance(self.verdict, PairVerdict) else None

    @property
    def repaired(self) -> bool:
        """Whether only a grammar-constrained retry made a reply readable."""
        return any(one.repaired is not None for one in self.shown)

    @property
    def read_anywhere(self) -> bool:
        """Whether only the parser `anywhere` could read a reply."""
        return any(one.read_anywhere for one in self.shown)

    @property
    def reason(self) -> str | None:
        """The judge's explanation of the first order it explained, where one was asked for."""
        return next((one.reason for one in self.shown if one.reason is not None), None)
