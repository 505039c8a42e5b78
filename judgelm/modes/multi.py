"""Any number of answers, scored on one line and ranked, in one order or several.

Source: JudgeLM, section 6.4 (judging multiple answers), Figures 6 and 18.
"""

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations as all_orders
from typing import ClassVar, Literal, get_args

from judgelm.errors import ConfigError
from judgelm.modes.flow import Flow
from judgelm.modes.reasons import explain
from judgelm.modes.sampling import sampling_for
from judgelm.modes.score_replies import read_scores
from judgelm.modes.single import Explained
from judgelm.prompts.catalog import get_template
from judgelm.prompts.truncation import MIN_ANSWER_TOKENS
from judgelm.records import Judgment, RankingVerdict, Request, Sample, Sampling, Shown, Unparsed

Drawing = Literal["cyclic", "seeded"]

_TOKENS_PER_SCORE = 12
_SAME_SCORE = 9
"""Means that agree to so many decimals are the same score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Multi:
    """Rank two answers or more.

    The verdict is a `RankingVerdict` of the mean scores; answers with the same mean are tied. `consistent` is whether
    every order shown gives the same ranking, ties included.

    Where the answers do not fit the judge's window together, the length policy cuts them, before anything is judged:
    evenly, the long ones first, each at its end, and marked in `Shown.truncations`. An answer is never judged with
    fewer than `min_answer_tokens` left of what it had: then that order is a `too_long` failure.

    Attributes:
        template: id of the judge's pair template; the words for more answers are the same family's.
        permutations: how many orders to show. The first is the sample's. A sample of k answers has k orders of kind
            `cyclic` and k! of kind `seeded`; no order is shown twice.
        drawing: `cyclic` moves all answers by a place for each further order, so that k orders show each answer once
            at each place; `seeded` draws orders with `seed` and the sample's id.
        accept_missing: when some orders failed, take the mean of the others instead of failing.
        reference: `auto` shows a reference where the sample has one, `use` expects one, `ignore` never shows it.
        scale: lowest and highest score of the judge.
        min_answer_tokens: of an answer that must be cut; the length policy itself keeps 16.
        reasons: `all` lets the judge go on from its score line and explain, for the first order that could be read.
        reason_tokens: most tokens of a reason; it gets what room the answers, cut as for the scores, leave.
        temperature: 0 is greedy; otherwise each sample draws with its own seed, made of `seed` and its id.
        max_tokens: room for the score line; None is 12 for each answer.

    Raises:
        ConfigError: options that do not exist or are out of range.
    """

    name: ClassVar[str] = "multi"
    answers: ClassVar[tuple[int, None]] = (2, None)

    template: str = "judgelm-v1"
    permutations: int = 1
    drawing: Drawing = "cyclic"
    accept_missing: bool = False
    reference: Literal["auto", "use", "ignore"] = "auto"
    scale: tuple[float, float] = (1, 10)
    min_answer_tokens: int = MIN_ANSWER_TOKENS
    reasons: Explained = "none"
    reason_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, kinds in (("drawing", Drawing), ("reasons", Explained)):
            if getattr(self, name) not in get_args(kinds):
                known = ", ".join(get_args(kinds))
                raise ConfigError(f"{name} {getattr(self, name)!r} does not exist; there are: {known}")
        for name in ("permutations", "reason_tokens", "max_tokens"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be 1 or more")
        if self.min_answer_tokens < MIN_ANSWER_TOKENS:
            raise ConfigError(
                f"min_answer_tokens is {self.min_answer_tokens}; the length policy keeps {MIN_ANSWER_TOKENS} anyway"
            )

    @property
    def template_sha(self) -> str:
        """Hash of the pair's bytes, which stand for the family: those for more answers are made of the same words."""
        return get_template(self.template).sha

    def __call__(self, sample: Sample) -> Flow:
        """Ask for the score line of each order, conclude, then ask for the reason where one is wanted."""
        count = len(sample.answers)
        room = self.max_tokens or _TOKENS_PER_SCORE * count
        orders = self.orders(sample.id, count)
        reference = None if self.reference == "ignore" else sample.reference
        prompts = [get_template(self.template).render(sample, order, reference) for order in orders]
        sampling = self._sampling(sample, room, stop=("\n",))
        completions = yield [
            Request(key=str(place), prompt=prompt, sampling=sampling) for place, prompt in enumerate(prompts)
        ]
        shown = tuple(
            self._kept_enough(read_scores(order, one, count=count, scale=self.scale, max_tokens=room))
            for order, one in zip(orders, completions, strict=True)
        )
        judgment = replace(
            self._conclude(sample, tuple(replace(one, referenced=reference is not None) for one in shown)),
            sanitized=sum(one.sanitized for one in prompts) + sum(one.sanitized for one in completions),
            prompt_tokens=sum(one.prompt_tokens for one in completions),
            completion_tokens=sum(one.completion_tokens for one in completions),
        )
        if self.reasons == "none" or judgment.verdict is None:
            return judgment
        first = [place for place, one in enumerate(shown) if one.failure is None][:1]
        going_on = replace(self._sampling(sample, self.reason_tokens, stop=()), reserve=room)
        return (yield from explain(judgment, first, prompts, going_on))

    def orders(self, sample_id: str, count: int) -> list[tuple[int, ...]]:
        """The orders in which a sample of so many answers is shown, the given one first."""
        given = tuple(range(count))
        if self.drawing == "cyclic":
            return [given[start:] + given[:start] for start in range(min(self.permutations, count))]
        if self.permutations >= math.factorial(count):
            return list(all_orders(given))
        digest = hashlib.blake2b(f"{self.seed}:{sample_id}".encode(errors="surrogatepass"), digest_size=8).digest()
        draw = random.Random(int.from_bytes(digest, "big"))
        found = {given: None}
        while len(found) < self.permutations:
            found[tuple(draw.sample(given, count))] = None
        return list(found)

    def _kept_enough(self, shown: Shown) -> Shown:
        """A failure where too little was left of an answer: what was judged is not the answer any more."""
        short = [one for one in shown.truncations if one.tokens_after < min(one.tokens_before, self.min_answer_tokens)]
        if not short or (shown.failure is not None and shown.failure.code == "engine"):
            return shown
        least = min(short, key=lambda one: one.tokens_after)
        why = (
            f"the answer shown at place {least.answer + 1} would keep {least.tokens_after} of {least.tokens_before} "
            f"tokens, fewer than {self.min_answer_tokens}"
        )
        return replace(shown, scores=None, failure=Unparsed("too_long", shown.text, why))

    def _sampling(self, sample: Sample, max_tokens: int, stop: tuple[str, ...]) -> Sampling:
        return sampling_for(sample.id, temperature=self.temperature, seed=self.seed, max_tokens=max_tokens, stop=stop)

    def _conclude(self, sample: Sample, shown: tuple[Shown, ...]) -> Judgment:
        """Verdict, mean scores and consistency; the counts are the caller's."""
        read = [_in_sample_order(one.order, one.scores) for one in shown if one.scores is not None]
        failure = next((one.failure for one in shown if one.failure is not None), None)
        if read and self.accept_missing:
            failure = None
        means = None if failure else tuple(math.fsum(column) / len(read) for column in zip(*read, strict=True))
        rankings = {ranking(scores) for scores in read}
        return Judgment(
            sample_id=sample.id,
            mode=self.name,
            verdict=None if means is None else RankingVerdict(order=ranking(means)),
            shown=shown,
            scores=means,
            consistent=len(rankings) == 1 if len(read) == len(shown) > 1 else None,
            failure=failure,
        )


def ranking(scores: Sequence[float]) -> tuple[tuple[int, ...], ...]:
    """Indices from the highest score to the lowest; those of one tuple have the same."""
    tied: dict[float, list[int]] = {}
    for index, score in enumerate(scores):
        tied.setdefault(round(score, _SAME_SCORE), []).append(index)
    return tuple(tuple(tied[score]) for score in sorted(tied, reverse=True))


def _in_sample_order(order: tuple[int, ...], scores: tuple[float, ...]) -> tuple[float, ...]:
    by_answer = dict(zip(order, scores, strict=True))
    return tuple(by_answer[index] for index in range(len(order)))
