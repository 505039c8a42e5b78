"""Judgments: the conclusion of a mode about a sample, and every reply behind it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from judgelm.records.requests import Truncation
from judgelm.records.samples import Winner

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
    truncations: tuple[Truncation, ...] = ()


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
        votes: of a panel, each judge's verdict in a word (`1`, `tie`, `correct`, `7.5`, `2>1=3`), or None.
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
    hashes: TextHashes | None = None

    @property
    def winner(self) -> Winner | None:
        """The better answer of a pair; None where the judgment failed, or is not of a pair."""
        return self.verdict.winner if isinstance(self.verdict, PairVerdict) else None

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
        """The judge's explanation of the first order it explained, where one was asked for."""
        return next((prompt.reason for prompt in self.shown if prompt.reason is not None), None)
