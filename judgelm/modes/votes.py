"""Combines several verdicts on a sample, from different judges or from one judge that is sampled repeatedly.

Source: Wang et al. 2023 (self-consistency); J1 (Whitehouse et al. 2025).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Any, Literal, TypeVar, get_args

from judgelm.errors import ConfigError, not_found, out_of_range
from judgelm.modes.conversation import VOTE
from judgelm.modes.flow import Flow, Round, interleave, map_rounds
from judgelm.modes.mode import BatchMode
from judgelm.modes.multi import DECIMALS, ranking
from judgelm.prompts.judge_prompt import JudgePrompt
from judgelm.records import (
    MAX_REPLIES,
    AbstainVerdict,
    Completion,
    GradeVerdict,
    Judgment,
    LabelVerdict,
    PairVerdict,
    RankingVerdict,
    Request,
    Sample,
    Shown,
    Unparsed,
    Verdict,
    Winner,
    winner_of,
)

Vote = TypeVar("Vote", str, Winner)
VoteRule = Literal["majority", "mean"]

TEMPERATURE = 0.7
"""Default temperature for votes, as in the self-consistency paper."""
_CORRECT = ("incorrect", "correct")


@dataclass(frozen=True, slots=True, kw_only=True)
class Voted(BatchMode):
    """Judge each sample several times with a judge that reasons first.

    With `majority`, the most frequent verdict wins, and sampling stops once further votes cannot change it. If the
    counts are equal, a pair is a tie and a label is `undecided`. With `mean`, the verdict is based on the mean P(first
    better) or P(correct); a vote without a probability counts as 1, 0.5, or 0. Both rules average grades and combine
    rankings by Borda count. The judgment fails unless more than half of the replies are parseable.

    Attributes:
        mode: the judge's mode, with a temperature above 0.
        votes: maximum number of samples, at least 2.
    """

    mode: BatchMode
    votes: int
    vote_rule: VoteRule = "majority"

    def __post_init__(self) -> None:
        if not isinstance(self.votes, int) or not 2 <= self.votes <= MAX_REPLIES:
            raise out_of_range("votes", self.votes, 2, MAX_REPLIES)
        if self.vote_rule not in get_args(VoteRule):
            raise not_found("vote_rule", self.vote_rule, get_args(VoteRule))
        if getattr(self.mode, "abstain_below", None) is not None:
            raise ConfigError(
                "votes: this judge abstains, at a confidence that was calibrated for single verdicts; "
                "judge without votes, or tune it without --risk"
            )
        if not getattr(self.mode, "temperature", 0) > 0:
            raise ConfigError(f"{self.votes} votes at temperature 0 would be identical; set a temperature above 0")

    @property
    def name(self) -> str:
        """The mode's name."""
        return self.mode.name

    @property
    def template(self) -> str:
        """The mode's template."""
        return self.mode.template

    @property
    def template_sha(self) -> str:
        """Hash of the mode's template."""
        return self.mode.template_sha

    @property
    def answers(self) -> tuple[int, int | None]:
        """The number of answers that the mode accepts."""
        return self.mode.answers

    @property
    def reference(self) -> Literal["auto", "use", "ignore"]:
        """Whether the mode shows references."""
        return self.mode.reference

    @property
    def prompt(self) -> JudgePrompt | None:
        """The mode's prompt file, if any."""
        return getattr(self.mode, "prompt", None)

    @property
    def _labels(self) -> tuple[str, str]:
        labels: tuple[str, str] = getattr(self.mode, "labels", _CORRECT)
        return labels

    def check(self, sample: Sample) -> None:
        """Check that the mode can judge a sample."""
        self.mode.check(sample)

    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        drawn: list[Judgment] = []
        while count := self._next_round(drawn):
            mode: Any = self.mode
            # the engine uses a different seed for each reply to a request
            round_mode = replace(mode, seed=mode.seed + len(drawn))
            drawn += yield from map_rounds(interleave([round_mode(sample) for _ in range(count)]), _ask_once)
        return self._conclude(drawn)

    def _next_round(self, drawn: Sequence[Judgment]) -> int:
        """Return the minimum number of further votes that could settle the verdict, or 0 if it can no longer change."""
        rest, quorum = self.votes - len(drawn), self.votes // 2 + 1
        verdicts = [judgment.verdict for judgment in drawn if judgment.verdict is not None]
        if self.vote_rule == "mean" or any(isinstance(verdict, GradeVerdict | RankingVerdict) for verdict in verdicts):
            return rest
        if len(verdicts) + rest < quorum:
            return 0
        first, second = (*(count for _, count in Counter(map(verdict_text, verdicts)).most_common(2)), 0, 0)[:2]
        missing = max((second + rest - first) // 2 + 1, quorum - len(verdicts))
        return max(0, min(missing, rest))

    def _conclude(self, drawn: Sequence[Judgment]) -> Judgment:
        read = [judgment for judgment in drawn if judgment.verdict is not None]
        values = [value for judgment in read if (value := _value(judgment, self._labels)) is not None]
        opinion = self._opinion(read, values) if len(read) > self.votes // 2 else _unread(drawn, self.votes)
        if isinstance(opinion, Unparsed):
            verdict, scores, probability, failure = None, None, None, opinion
        else:
            verdict, scores, probability, failure = opinion.verdict, opinion.scores, opinion.probability, None
        orders = [judgment.consistent for judgment in read]
        return replace(
            drawn[0],
            verdict=verdict,
            scores=scores,
            probability=probability,
            failure=failure,
            consistent=all(orders) if failure is None and orders and None not in orders else None,
            shown=tuple(_of_vote(shown, vote) for vote, judgment in enumerate(drawn, 1) for shown in judgment.shown),
            self_answers=tuple(answer for judgment in drawn for answer in judgment.self_answers),
            votes={
                str(vote): None if judgment.verdict is None else verdict_text(judgment.verdict)
                for vote, judgment in enumerate(drawn, 1)
            },
            spread=pstdev(values) if failure is None and len(values) > 1 else None,
            prompt_tokens=sum(judgment.prompt_tokens for judgment in drawn),
            completion_tokens=sum(judgment.completion_tokens for judgment in drawn),
        )

    def _opinion(self, read: Sequence[Judgment], values: Sequence[float]) -> "Opinion | Unparsed":
        opinions = [
            Opinion(verdict=judgment.verdict, scores=judgment.scores, probability=judgment.probability)
            for judgment in read
            if judgment.verdict is not None
        ]
        graded = isinstance(opinions[0].verdict, GradeVerdict)
        if graded or self.vote_rule == "majority" or len(values) < len(read):
            return combine(opinions, "mean" if graded else "vote", comparable=True)
        mean = round(fmean(values), DECIMALS)
        if isinstance(opinions[0].verdict, PairVerdict):
            verdict: Verdict = PairVerdict(winner=winner_of((mean, 1 - mean)))
        elif mean == (threshold := getattr(self.mode, "threshold", 0.5)):
            return Unparsed("undecided", "", f"the mean P({self._labels[1]}) is {threshold:g}")
        else:
            verdict = LabelVerdict(label=self._labels[mean > threshold])
        return Opinion(verdict=verdict, scores=_mean_scores(opinions), probability=mean)


def _ask_once(requests: list[Request]) -> Round:
    equal: dict[Request, list[int]] = {}
    for index, request in enumerate(requests):
        equal.setdefault(replace(request, key=""), []).append(index)
    completions = yield [
        replace(request, key=str(number), sampling=replace(request.sampling, n=request.sampling.n * len(indices)))
        for number, (request, indices) in enumerate(equal.items())
    ]
    parts: dict[int, Completion] = {}
    for indices, completion in zip(equal.values(), completions, strict=True):
        parts |= zip(indices, _parts(completion, len(indices)), strict=True)
    return [parts[index] for index in range(len(requests))]


def _parts(completion: Completion, count: int) -> list[Completion]:
    per_part = len(completion.texts) // count
    parts = [completion] * count
    if per_part:
        cuts = [slice(part * per_part, (part + 1) * per_part) for part in range(count)]
        parts = [
            replace(
                completion,
                texts=completion.texts[cut],
                finish_reasons=completion.finish_reasons[cut],
                thinking=completion.thinking[cut],
            )
            for cut in cuts
        ]
    return [parts[0], *(replace(part, prompt_tokens=0, completion_tokens=0) for part in parts[1:])]


def _value(judgment: Judgment, labels: Sequence[str]) -> float | None:
    match judgment.verdict:
        case GradeVerdict(score=score):
            return score
        case PairVerdict(winner=winner) if judgment.probability is None:
            return {1: 1.0, 2: 0.0, "tie": 0.5}[winner]
        case LabelVerdict(label=label) if judgment.probability is None:
            return float(labels.index(label)) if label in labels else None
        case PairVerdict() | LabelVerdict():
            return judgment.probability
    return None


def _unread(drawn: Sequence[Judgment], votes: int) -> Unparsed:
    failures = [judgment.failure for judgment in drawn if judgment.failure is not None]
    why = f"{len(failures)} of {len(drawn)} votes failed ({votes} requested); first failure: {failures[0].why}"
    return replace(failures[0], why=why.removesuffix("; first failure: "))


def _of_vote(shown: Shown, vote: int) -> Shown:
    return replace(shown, part=f"{VOTE} {vote}: {shown.part}" if shown.part else f"{VOTE} {vote}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """The verdict of a judge, a judge family, or the panel."""

    verdict: Verdict
    scores: tuple[float, ...] | None = None
    probability: float | None = None


def combine(opinions: Sequence[Opinion], rule: Literal["vote", "mean"], *, comparable: bool) -> Opinion | Unparsed:
    """Combine opinions with the same kind of verdict. Labels with a split vote are `undecided`.

    `comparable` means that all scores are on the same scale and can be averaged, which rule `mean` requires.
    """
    verdicts = [opinion.verdict for opinion in opinions]
    if len({type(opinion) for opinion in verdicts}) != 1:
        raise ValueError("expected one or more verdicts of the same kind")
    if len({_answers(opinion) for opinion in opinions} - {0}) > 1:
        raise ValueError("the judges saw different numbers of answers")
    scores = _mean_scores(opinions) if comparable else None
    verdict = _voted(verdicts) if rule == "vote" else _by_scores(verdicts[0], scores)
    if isinstance(verdict, Unparsed):
        return verdict
    known = [opinion.probability for opinion in opinions if opinion.probability is not None]
    probability = math.fsum(known) / len(known) if len(known) == len(opinions) else None
    return Opinion(verdict=verdict, scores=scores, probability=probability)


def verdict_text(verdict: Verdict) -> str:
    """Return a verdict as text: `1`, `tie`, `correct`, `7.5`, `abstain`, or `2>1=3` (answers count from 1)."""
    match verdict:
        case PairVerdict():
            return str(verdict.winner)
        case LabelVerdict():
            return verdict.label
        case GradeVerdict():
            return f"{verdict.score:g}"
        case RankingVerdict():
            return ">".join("=".join(str(index + 1) for index in tied) for tied in verdict.order)
        case AbstainVerdict():
            return "abstain"


def _answers(opinion: Opinion) -> int:
    if isinstance(opinion.verdict, RankingVerdict):
        return sum(len(tied) for tied in opinion.verdict.order)
    return 0 if opinion.scores is None else len(opinion.scores)


def _mean_scores(opinions: Sequence[Opinion]) -> tuple[float, ...] | None:
    scores = [opinion.scores for opinion in opinions if opinion.scores is not None]
    if len(scores) < len(opinions):
        return None
    return tuple(round(math.fsum(column) / len(scores), DECIMALS) for column in zip(*scores, strict=True))


def _by_scores(kind: Verdict, scores: tuple[float, ...] | None) -> Verdict:
    if scores is None:
        raise ValueError("only comparable scores can be averaged")
    match kind:
        case PairVerdict():
            first, second = scores
            return PairVerdict(winner=winner_of((first, second)))
        case RankingVerdict():
            return RankingVerdict(order=ranking(scores))
        case GradeVerdict():
            return GradeVerdict(score=scores[0])
        case LabelVerdict() | AbstainVerdict():
            raise ValueError("labels and abstentions cannot be averaged")


def _voted(verdicts: Sequence[Verdict]) -> Verdict | Unparsed:
    winners = [verdict.winner for verdict in verdicts if isinstance(verdict, PairVerdict)]
    labels = [verdict.label for verdict in verdicts if isinstance(verdict, LabelVerdict)]
    orders = [verdict.order for verdict in verdicts if isinstance(verdict, RankingVerdict)]
    if winners:
        chosen: Winner | None = _most(winners)
        return PairVerdict(winner="tie" if chosen is None else chosen)
    if labels:
        label = _most(labels)
        votes = ", ".join(f"{name} {count}" for name, count in Counter(labels).most_common())
        return Unparsed("undecided", "", f"the vote was split: {votes}") if label is None else LabelVerdict(label=label)
    if orders:
        return RankingVerdict(order=ranking(_points(orders)))
    raise ValueError("grades cannot be combined by vote")


def _most(votes: Sequence[Vote]) -> Vote | None:
    (first, count), *rest = Counter(votes).most_common(2)
    return None if rest and rest[0][1] == count else first


def _points(orders: Sequence[tuple[tuple[int, ...], ...]]) -> list[float]:
    answers = sum(len(tied) for tied in orders[0])
    points = [0.0] * answers
    for order in orders:
        below = answers
        for tied in order:
            below -= len(tied)
            for index in tied:
                points[index] += below + (len(tied) - 1) / 2
    return points
