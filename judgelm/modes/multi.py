"""Ranking of two or more answers by scores on one line, in one or more orders.

Source: JudgeLM, section 6.4 and Figures 6 and 18.
"""

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations as all_orders
from typing import ClassVar, Literal

from judgelm.errors import ConfigError
from judgelm.modes.completions import first_failure, judged, read_reply, with_usage
from judgelm.modes.flow import Flow, requests_of
from judgelm.modes.mode import check_above_zero, sampling_for
from judgelm.modes.readings import PromptedMode, answer_scores, check_reading, explain_word, read_words, reading_of
from judgelm.modes.reasons import Explained, explain, to_explain
from judgelm.parsing.scores import parse_scores
from judgelm.prompts.catalog import get_template
from judgelm.prompts.truncation import MIN_ANSWER_TOKENS
from judgelm.records import Judgment, PairVerdict, RankingVerdict, Sample, Shown, Unparsed, winner_of

Drawing = Literal["cyclic", "seeded"]

_TOKENS_PER_SCORE = 12
DECIMALS = 9
"""Number of decimal places when comparing means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Multi(PromptedMode):
    """Rank two or more answers by mean score; answers with equal means are tied.

    `consistent` is true if all orders give the same ranking. With a word reading (`judgelm.modes.readings`), answers
    are ranked by strength. `letters` shows each answer once at each position, unless `permutations` is above 1.

    Attributes:
        permutations: number of orders to show, starting with the sample's order.
        drawing: `cyclic` rotates the answers by one position per order. `seeded` draws random orders that depend on
            `seed` and the sample's ID.
        accept_missing: if some orders fail, use the mean of the remaining ones instead of failing.
        min_answer_tokens: an order fails as `too_long` if truncation would leave an answer with fewer tokens; at least
            16.
        reasons: `all` requests a reason for the first order with a parseable reply.
        max_tokens: token limit for the score line; None means 12 per answer.
    """

    name: ClassVar[str] = "multi"
    answers: ClassVar[tuple[int, None]] = (2, None)
    takes_rewards: ClassVar[bool] = True

    template: str = "judgelm-v1"
    permutations: int = 1
    drawing: Drawing = "cyclic"
    accept_missing: bool = False
    reference: Literal["auto", "use", "ignore"] = "auto"
    min_answer_tokens: int = MIN_ANSWER_TOKENS
    reasons: Explained = "none"
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        check_above_zero(self, "permutations", "reason_tokens", "max_tokens")
        object.__setattr__(self, "template", check_reading(self))
        if self.min_answer_tokens < MIN_ANSWER_TOKENS:
            raise ConfigError(f"min_answer_tokens is {self.min_answer_tokens}; the minimum is {MIN_ANSWER_TOKENS}")

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        if reading_of(self).reads_words:
            return (yield from self._read_words(sample))
        count = len(sample.answers)
        room = self.max_tokens or _TOKENS_PER_SCORE * count
        orders = self.orders(sample.id, count)
        reference = None if self.reference == "ignore" else sample.reference
        prompts = [get_template(self.template).render(sample, order, reference) for order in orders]
        sampling = sampling_for(self, sample.id, room, stop=("\n",))
        completions = yield requests_of(prompts, sampling)
        parse = partial(parse_scores, count=count, scale=self.scale)
        shown = [
            read_reply(completion, parse, max_tokens=room, order=order, referenced=reference is not None)
            for order, completion in zip(orders, completions, strict=True)
        ]
        judgment = self._conclude(sample, [self._kept_enough(reply) for reply in shown])
        sampling = sampling_for(self, sample.id, self.reason_tokens, reserve=room)
        return (yield from explain(judgment, to_explain(judgment, self.reasons), prompts, sampling))

    def orders(self, sample_id: str, count: int) -> list[tuple[int, ...]]:
        """Return the orders to show, starting with the sample's order."""
        given = tuple(range(count))
        if self.drawing == "cyclic":
            return [given[start:] + given[:start] for start in range(min(self.permutations, count))]
        if self.permutations >= math.factorial(count):
            return list(all_orders(given))
        digest = hashlib.blake2b(f"{self.seed}:{sample_id}".encode(errors="surrogatepass"), digest_size=8).digest()
        draw = random.Random(int.from_bytes(digest, "big"))
        orders = {given: None}
        while len(orders) < self.permutations:
            orders[tuple(draw.sample(given, count))] = None
        return list(orders)

    def _read_words(self, sample: Sample) -> Flow:
        count = len(sample.answers)
        orders = replace(self, permutations=count, drawing="cyclic") if self.permutations == 1 else self
        readout = yield from read_words(self, sample, orders.orders(sample.id, count))
        shown = tuple(map(self._kept_enough, readout.shown))
        failure = first_failure(shown)
        strengths = None if failure else readout.strengths
        read = [(reply.order, reply.scores) for reply in shown if reply.scores is not None and len(reply.order) > 1]
        rankings = {ranking(_in_sample_order(order, scores)) for order, scores in read}
        verdict = None if strengths is None else RankingVerdict(order=ranking(strengths))
        scores = None if failure else answer_scores(self, readout)
        consistent = len(rankings) == 1 if read and not failure else None
        judgment = judged(self, sample, shown, verdict, scores=scores, consistent=consistent, failure=failure)
        return (yield from explain_word(self, judgment, readout.prompts))

    def _kept_enough(self, shown: Shown) -> Shown:
        minimum = self.min_answer_tokens
        short = [cut for cut in shown.truncations if cut.tokens_after < min(cut.tokens_before, minimum)]
        if not short or (shown.failure is not None and shown.failure.code == "engine"):
            return shown
        cut = min(short, key=lambda cut: cut.tokens_after)
        kept = f"{cut.tokens_after} of {cut.tokens_before} tokens"
        why = f"the answer shown at position {cut.answer + 1} would keep only {kept}; the minimum is {minimum}"
        return replace(shown, scores=None, failure=Unparsed("too_long", shown.text, why))

    def _conclude(self, sample: Sample, shown: list[Shown]) -> Judgment:
        read = [_in_sample_order(reply.order, reply.scores) for reply in shown if reply.scores is not None]
        failure = None if read and self.accept_missing else first_failure(shown)
        means = None if failure else tuple(math.fsum(column) / len(read) for column in zip(*read, strict=True))
        rankings = {ranking(scores) for scores in read}
        verdict = None if means is None else RankingVerdict(order=ranking(means))
        consistent = len(rankings) == 1 if len(read) == len(shown) > 1 else None
        return judged(self, sample, shown, verdict, scores=means, consistent=consistent, failure=failure)


def compared(scores: Sequence[float], tie_margin: float) -> PairVerdict | RankingVerdict:
    """Compare the scores of two answers, or rank those of several."""
    if len(scores) > 2:
        return RankingVerdict(order=ranking(scores))
    close = abs(scores[0] - scores[1]) <= tie_margin + 1e-9
    return PairVerdict(winner="tie" if close else winner_of((scores[0], scores[1])))


def ranking(scores: Sequence[float]) -> tuple[tuple[int, ...], ...]:
    """Return indices by descending score; tied indices are in the same tuple."""
    tied: dict[float, list[int]] = {}
    for index, score in enumerate(scores):
        tied.setdefault(round(score, DECIMALS), []).append(index)
    return tuple(tuple(tied[score]) for score in sorted(tied, reverse=True))


def _in_sample_order(order: tuple[int, ...], scores: tuple[float, ...]) -> tuple[float, ...]:
    by_answer = dict(zip(order, scores, strict=True))
    return tuple(by_answer[index] for index in range(len(order)))
