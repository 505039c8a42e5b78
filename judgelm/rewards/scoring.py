"""Answers to rewards in [0, 1] by a judge; None where the judge has no verdict, never 0."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal, NamedTuple

from judgelm.errors import ConfigError, not_found
from judgelm.judge import Judge
from judgelm.modes import BatchMode
from judgelm.records import Judgment, Sample
from judgelm.rewards.judge_queue import DEFAULT_CACHE, JudgeQueue

Method = Literal["reference", "group", "tournament", "score"]
"""What an answer is measured by, see `AnswerRewards`."""

METHODS: tuple[Method, ...] = ("reference", "group", "tournament", "score")

_Match = tuple[int, int]
_Contest = Generator[list[_Match], list[float | None], list[float | None]]
"""Yields pairs of players by number, is sent P(first better) of each, and returns the reward of each player."""


class Answer(NamedTuple):
    """An answer to be rewarded; answers to one question and reference are a group."""

    question: str
    text: str
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodOptions:
    """Options of `AnswerRewards`.

    Attributes:
        both_orders: compare each pair in both orders.
        seed: of the tournaments' draws.
        cache_size: judgments that are remembered.
    """

    both_orders: bool = True
    seed: int = 0
    cache_size: int = DEFAULT_CACHE


class AnswerRewards:
    """Rewards answers by a judge.

    P(better) is the judge's probability, the mean over both orders; of a judge without probabilities its verdict: 1,
    0.5 for a tie, 0.

    Args:
        judge: loaded; in this process, or a server by `engine="openai"`. It stays open.
        method: `reference` takes P(the answer is better than the reference answer); `group` the mean of P(better) over
            the other answers to the same question, where a copy counts 0.5; `tournament` the share of the rounds of a
            knockout that an answer survives, with one comparison less than there are answers; `score` the expected
            score, from 0 for the lowest to 1 for the highest of the judge's scale.
        options: see `MethodOptions`.

    Raises:
        ConfigError: no such method, or one that the judge cannot do.
    """

    def __init__(self, judge: Judge, method: Method = "reference", options: MethodOptions | None = None) -> None:
        if method not in METHODS:
            raise not_found("method", method, METHODS)
        self.method = method
        self._options = options or MethodOptions()
        self._scale = judge.format.scale
        mode = score_mode(judge) if method == "score" else pair_mode(judge, both_orders=self._options.both_orders)
        self.queue = JudgeQueue(mode, judge.engine, cache_size=self._options.cache_size)

    def __call__(self, answers: Sequence[Answer]) -> list[float | None]:
        """Reward answers, in their order; groups must be whole.

        Raises:
            EngineError: the engine as a whole broke.
        """
        if self.method in ("reference", "score"):
            known = {index: self.sample(answer) for index, answer in enumerate(answers)}
            samples = {index: sample for index, sample in known.items() if sample is not None}
            judgments = dict(zip(samples, self.queue.judge(list(samples.values())), strict=True))
            return [self.reward(judgments[index]) if index in judgments else None for index in known]
        return self._contests(answers)

    def sample(self, answer: Answer) -> Sample | None:
        """The sample that the judge is asked about one answer by `reference` or `score`; None without a reference."""
        if self.method == "score":
            return Sample(id="", question=answer.question, answers=(answer.text,), reference=answer.reference)
        if answer.reference is None:
            return None
        return Sample(id="", question=answer.question, answers=(answer.text, answer.reference))

    def reward(self, judgment: Judgment) -> float | None:
        """The reward that a judgment of `sample` gives."""
        if self.method != "score":
            return first_better(judgment)
        score = expected_score(judgment)
        low, high = self._scale
        return None if score is None else min(1.0, max(0.0, (score - low) / (high - low)))

    def close(self) -> None:
        """Stop asking; the judge stays open."""
        self.queue.close()

    def _contests(self, answers: Sequence[Answer]) -> list[float | None]:
        """Rewards within groups; the comparisons of all groups are judged together."""
        groups: dict[tuple[str, str | None], list[int]] = {}
        for index, answer in enumerate(answers):
            groups.setdefault((answer.question, answer.reference), []).append(index)
        contests = {name: self._contest(len(members)) for name, members in groups.items()}
        rewards: list[float | None] = [None] * len(answers)
        sent: dict[Any, list[float | None] | None] = dict.fromkeys(contests)
        while contests:
            matches: list[tuple[Any, _Match]] = []
            for name, contest in list(contests.items()):
                try:
                    # a generator that has not begun takes None alone
                    matches += [(name, match) for match in contest.send(sent[name])]  # type: ignore[arg-type]
                except StopIteration as finished:
                    del contests[name]
                    for index, reward in zip(groups[name], finished.value, strict=True):
                        rewards[index] = reward
            chances = self._compare([(answers[groups[name][a]], answers[groups[name][b]]) for name, (a, b) in matches])
            sent = {name: [] for name in contests}
            for (name, _), chance in zip(matches, chances, strict=True):
                results = sent[name]
                assert results is not None, "it was made above"
                results.append(chance)
        return rewards

    def _contest(self, players: int) -> _Contest:
        if self.method == "group":
            return round_robin(players)
        return knockout(players, Random(self._options.seed))

    def _compare(self, pairs: Sequence[tuple[Answer, Answer]]) -> list[float | None]:
        """P(first better) of each pair; equal texts are not judged."""
        differing = [index for index, (first, second) in enumerate(pairs) if first.text != second.text]
        samples = [
            Sample(id="", question=pairs[index][0].question, answers=(pairs[index][0].text, pairs[index][1].text))
            for index in differing
        ]
        reference = {index: pairs[index][0].reference for index in differing}
        samples = [
            replace(sample, reference=reference[index]) for index, sample in zip(differing, samples, strict=True)
        ]
        chances: list[float | None] = [0.5] * len(pairs)
        for index, judgment in zip(differing, self.queue.judge(samples), strict=True):
            chances[index] = first_better(judgment)
        return chances


def first_better(judgment: Judgment) -> float | None:
    """P(first better), else the verdict as 1, 0.5 or 0; None of a failure."""
    if judgment.failure is not None or judgment.winner is None:
        return None
    if judgment.probability is not None:
        return judgment.probability
    return {1: 1.0, 2: 0.0, "tie": 0.5}[judgment.winner]


def expected_score(judgment: Judgment) -> float | None:
    """The expected score of one answer, else the score that was written; None of a failure."""
    if judgment.failure is not None or not judgment.scores:
        return None
    grades = judgment.shown[0].grades
    if grades is not None and grades.expected == grades.expected:  # not NaN
        return grades.expected
    return judgment.scores[0]


def round_robin(players: int) -> _Contest:
    """Everyone meets everyone; the reward is the mean chance, None where no comparison has a verdict."""
    matches = [(first, second) for first in range(players) for second in range(first + 1, players)]
    chances = yield matches
    known: list[list[float]] = [[] for _ in range(players)]
    for (first, second), chance in zip(matches, chances, strict=True):
        if chance is not None:
            known[first].append(chance)
            known[second].append(1 - chance)
    return [sum(values) / len(values) if values else None for values in known]


def knockout(players: int, rng: Random) -> _Contest:
    """Losers leave; the reward is the share of all rounds that a player survives.

    The bracket is drawn. Of an odd number the last has no opponent and goes on. A match without a verdict ends both
    players' contest, with no reward; of two equally good players the drawn first goes on.
    """
    rounds = max(1, (players - 1).bit_length())
    survived: list[int | None] = [0] * players
    left = rng.sample(range(players), players)
    while len(left) > 1:
        matches = list(zip(left[::2], left[1::2], strict=False))
        chances = yield matches
        following = []
        for (first, second), chance in zip(matches, chances, strict=True):
            if chance is None:
                survived[first] = survived[second] = None
            else:
                following.append(first if chance >= 0.5 else second)
        left = following + left[len(matches) * 2 :]
        for player in left:
            survived[player] = (survived[player] or 0) + 1
    return [None if count is None else count / rounds for count in survived]


def pair_mode(judge: Judge, *, both_orders: bool) -> BatchMode:
    """The judge's way of comparing two answers, with probabilities where it has them."""
    try:
        return judge.mode("pair", both_orders=both_orders, distribution=True)
    except ConfigError:  # other released judges' prompts have none
        return judge.mode("pair", both_orders=both_orders)


def score_mode(judge: Judge) -> BatchMode:
    """The judge's way of scoring one answer, with the distribution where it has one.

    Raises:
        ConfigError: the judge compares pairs alone.
    """
    try:
        return judge.mode("single", distribution=True)
    except ConfigError:
        return judge.mode("single")
