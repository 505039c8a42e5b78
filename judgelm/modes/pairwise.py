"""Modes for pairs: scores on one line, word probabilities, or a verdict after reasoning.

Source: JudgeLM, sections 3.2 and 6.1, Figures 3 and 4; J1 (Whitehouse et al. 2025) and RM-R1 (Chen et al. 2025).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from judgelm.errors import ConfigError
from judgelm.modes.completions import (
    agree,
    failure_of,
    first_failure,
    in_sample_order,
    judged,
    pair_in_sample_order,
    read_reply,
    with_usage,
)
from judgelm.modes.flow import Flow, RequestFlow, requests_of
from judgelm.modes.labels import PLACES, LabelPairMode, compare_by_label
from judgelm.modes.mode import check_above_zero, check_threshold, pair_orders, sampling_for
from judgelm.modes.readings import PromptedMode, check_reading, conclude_pair, explain_word, read_words, reading_of
from judgelm.modes.reasons import Reasons, explain, to_explain
from judgelm.parsing.scores import (
    OrderRule,
    ScoreLines,
    antisymmetrised,
    is_assigned,
    pair_distribution,
    parse_pair,
    score_grammar,
    score_lines,
    winner_by,
)
from judgelm.parsing.verdicts import read_verdict
from judgelm.prompts.catalog import Template, get_template
from judgelm.records import (
    Completion,
    FailureCode,
    Grammar,
    Judgment,
    PairVerdict,
    Prompt,
    Request,
    Sample,
    Sampling,
    Shown,
    Unparsed,
    Winner,
    winner_of,
)

_RETRIED: tuple[FailureCode, ...] = ("off_grammar", "out_of_range", "truncated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairwise(PromptedMode):
    """Judge a pair of answers.

    With a word reading (`judgelm.modes.readings`) or a prompt file, the verdict is based on P(first better).
    `both_orders` then has no effect: `letters` always shows both orders, while `yes-no` and `grade` show each answer by
    itself. A prompt file for pairs shows one order if `order_rule` is `given` and `both_orders` is not set.

    Attributes:
        order_rule: how to combine the verdicts from the two orders. `mean` compares the mean scores. `given` uses only
            the given order, as JudgeLM does. `tie` counts conflicting verdicts as a tie, as PandaLM does. `probability`
            compares the mean P(first better) with 0.5, even if replies are unparseable.
        tie_threshold: maximum distance of P(first better) from 0.5 that counts as a tie, for order rule `probability`
            and word readings.
        distribution: request the probability of every score line; implied by order rule `probability` and reasons
            `close`.
        retry_unparseable: retry failed requests once, constrained to the score-line grammar.
        reasons: which judgments to explain: `none`, `all`, `close` (if P(first better) is near 0.5), or `flips` (if the
            orders disagree).
        close_threshold: for reasons `close`, the maximum distance of P(first better) from 0.5.
        max_tokens: token limit for the score line.
    """

    name: ClassVar[str] = "pair"
    answers: ClassVar[tuple[int, int]] = (2, 2)
    takes_rewards: ClassVar[bool] = True
    ignores_id: ClassVar[bool] = True

    template: str = "judgelm-v1"
    both_orders: bool = False
    order_rule: OrderRule = "mean"
    tie_threshold: float = 0.05
    accept_one_order: bool = False
    reference: Literal["auto", "use", "ignore"] = "auto"
    distribution: bool = False
    retry_unparseable: bool = False
    reasons: Reasons = "none"
    close_threshold: float = 0.1
    max_tokens: int = 24
    abstain_below: float | None = None

    def __post_init__(self) -> None:
        check_above_zero(self, "step", "max_tokens", "reason_tokens")
        object.__setattr__(self, "template", check_reading(self))
        if self.order_rule == "given" and self.accept_one_order:
            raise ConfigError("order_rule given uses only the given order; remove accept_one_order")
        if self.reasons == "flips" and not self.both_orders and reading_of(self).reading != "letters":
            raise ConfigError("reasons flips requires both orders; add --both-orders")
        check_threshold(self, "tie_threshold", "close_threshold")
        if self.abstain_below is not None:
            self._check_abstention()
        if self.order_rule == "probability" or self.reasons == "close":
            object.__setattr__(self, "distribution", True)
        if self.distribution or self.retry_unparseable:
            score_lines(self.scale, self.step)  # raises an error if the scale has too many scores

    def _check_abstention(self) -> None:
        """The card's promise holds for the options that the judge was calibrated with."""
        changed = {"order_rule": self.order_rule != "mean", "tie_threshold": self.tie_threshold != 0}
        for name in (name for name, differs in changed.items() if differs):
            raise ConfigError(
                f"{name} cannot be set, because this judge abstains at a confidence calibrated without it; remove "
                f"{name}, or tune the judge without --risk"
            )

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        if reading_of(self).reads_words:
            return self.read(sample)
        return self.ask(sample, [self.prompt_of(sample, order) for order in self.orders])

    def read(self, sample: Sample) -> Flow:
        """Judge by word probabilities."""
        once = self.prompt is not None and self.order_rule == "given" and not self.both_orders
        readout = yield from read_words(self, sample, pair_orders(not once))
        judgment = conclude_pair(self, sample, readout)
        return (yield from explain_word(self, judgment, readout.prompts, self.close_threshold))

    @property
    def orders(self) -> tuple[tuple[int, int], ...]:
        """Orders in which the answers are shown."""
        return pair_orders(self.both_orders)

    def prompt_of(self, sample: Sample, order: tuple[int, ...], part: str = "") -> Prompt:
        """Return the prompt for one order. Only modes with several parts use `part`."""
        return self.reading_prompt(sample, order)

    def reading_prompt(self, sample: Sample, order: tuple[int, ...]) -> Prompt:
        """Return the template's prompt for one order."""
        reference = None if self.reference == "ignore" else sample.reference
        return reading_of(self).render(sample, order, reference, scale=self.scale, criterion=self.criterion)

    def ask(self, sample: Sample, prompts: Sequence[Prompt]) -> Flow:
        """Send one prompt per order, each asking for two scores on one line."""
        sampling = sampling_for(self, sample.id, self.max_tokens, stop=("\n",))
        lines = score_lines(self.scale, self.step) if self.distribution or self.retry_unparseable else None
        candidates = lines.texts if lines is not None and self.distribution else ()
        completions = yield requests_of(prompts, sampling, candidates)
        shown = [self._read(order, reply, lines) for order, reply in zip(self.orders, completions, strict=True)]
        if lines is not None and self.retry_unparseable:
            shown = yield from self._retry(shown, prompts, score_grammar(lines))
        judgment = self._conclude(sample, shown)
        sampling = sampling_for(self, sample.id, self.reason_tokens, reserve=self.max_tokens)
        indices = to_explain(judgment, self.reasons, self.close_threshold)
        return (yield from explain(judgment, indices, prompts, sampling))

    def _read(self, order: tuple[int, ...], completion: Completion, lines: ScoreLines | None) -> Shown:
        shown = read_reply(completion, partial(parse_pair, scale=self.scale), max_tokens=self.max_tokens, order=order)
        if lines is None or completion.candidate_logprobs is None or failure_of(completion) is not None:
            return shown
        distribution = pair_distribution(lines, completion.candidate_logprobs, completion.approximation)
        return replace(shown, distribution=distribution)

    def _retry(self, shown: list[Shown], prompts: Sequence[Prompt], grammar: Grammar) -> RequestFlow[list[Shown]]:
        """The grammar forces even an undecided judge to write scores, so the original failure is kept in `repaired`."""
        failed = [index for index, reply in enumerate(shown) if reply.failure and reply.failure.code in _RETRIED]
        if not failed:
            return shown
        sampling = Sampling(max_tokens=self.max_tokens, stop=("\n",), grammar=grammar)
        retries = yield [Request(key=str(index), prompt=prompts[index], sampling=sampling) for index in failed]
        for index, retry in zip(failed, retries, strict=True):
            shown[index] = _repaired(shown[index], self._read(shown[index].order, retry, None))
        return shown

    def _conclude(self, sample: Sample, shown: Sequence[Shown]) -> Judgment:
        deciding = shown[:1] if self.order_rule == "given" else shown
        read = [scores for reply in deciding if (scores := in_sample_order(reply)) is not None]
        failure = None if read and self.accept_one_order else first_failure(deciding)
        probability = self._probability(deciding)
        if self.order_rule == "probability":  # use the score-line probabilities, even if the reply is unparseable
            failure = None if probability is not None else failure or _no_probability(shown)
            read = read or [
                pair_in_sample_order(reply.order, distribution.expected)
                for reply in deciding
                if (distribution := reply.distribution) and is_assigned(distribution)
            ]
        scores = None if failure else mean_scores(read)
        winners = [winner_of(pair) for reply in shown if (pair := in_sample_order(reply)) is not None]
        verdict = None if scores is None else PairVerdict(winner=self._winner(scores, winners, probability))
        likely, same = None if failure else probability, agree(winners)
        return judged(self, sample, shown, verdict, scores=scores, consistent=same, probability=likely, failure=failure)

    def _probability(self, shown: Sequence[Shown]) -> float | None:
        known = [
            (reply.order, reply.distribution)
            for reply in shown
            if reply.distribution is not None and (reply.failure is None or self.order_rule == "probability")
        ]
        if self.accept_one_order:
            return antisymmetrised([entry for entry in known if is_assigned(entry[1])])
        return antisymmetrised(known) if len(known) == len(shown) else None

    def _winner(self, scores: tuple[float, float], winners: list[Winner], probability: float | None) -> Winner:
        if self.order_rule == "probability" and probability is not None:
            return winner_by(probability, self.tie_threshold)
        conflict = self.order_rule == "tie" and len(set(winners)) > 1
        return "tie" if conflict else winner_of(scores)


def _repaired(first: Shown, retry: Shown) -> Shown:
    assert first.failure is not None, "only failures are repaired"
    if retry.failure is None:
        return replace(first, text=retry.text, scores=retry.scores, failure=None, repaired=first.failure)
    again = f"the constrained retry also failed: {retry.failure.code}, {retry.failure.why or retry.failure.text}"
    why = "; ".join(part for part in (first.failure.why, again) if part)
    return replace(first, failure=Unparsed(first.failure.code, first.failure.text, why))


def _no_probability(shown: Sequence[Shown]) -> Unparsed:
    read = [reply for reply in shown if reply.failure is None]
    unassigned = [(reply.distribution.unassigned, reply.text) for reply in read if reply.distribution is not None]
    if len(unassigned) < len(read):
        return Unparsed("engine", "", "the engine returns no probabilities, which order rule probability requires")
    share, text = max(unassigned)
    return Unparsed(
        "off_grammar", text, f"the total probability of all score lines is only {1 - share:.3g}; the minimum is 0.5"
    )


def mean_scores(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return each answer's mean score across orders."""
    return sum(first for first, _ in pairs) / len(pairs), sum(second for _, second in pairs) / len(pairs)


read_pair_verdict = partial(read_verdict, labels=PLACES, brackets_only=True)
"""Parser for `[[1]]` or `[[2]]` at the end of a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoned(LabelPairMode):
    """Judge a pair with a judge that reasons first, such as one trained with `train/grpo.py`.

    Replies end with `[[1]]` or `[[2]]`. If the two orders disagree, the verdict is a tie.

    Attributes:
        distribution: request P(first better) at the verdict's position, averaged over both orders.
    """

    name: ClassVar[str] = "reasoned"
    answers: ClassVar[tuple[int, int]] = (2, 2)
    reasons_first: ClassVar[bool] = True
    retry_needs_grammar: ClassVar[bool] = False

    template: str = "reasoned-chat"
    reference: Literal["auto", "use", "ignore"] = "auto"

    def __post_init__(self) -> None:
        check_above_zero(self, "max_tokens")
        reasoned_template(self.template)

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Judge a sample."""
        self.check(sample)
        reference = None if self.reference == "ignore" else sample.reference
        template = get_template(self.template)
        prompts = [template.render(sample, order, reference) for order in pair_orders(self.both_orders)]
        return compare_by_label(self, sample, prompts, read_pair_verdict, referenced=reference is not None)


def reasoned_template(template_id: str) -> Template:
    """Check that the template asks for reasoning first."""
    template = get_template(template_id)
    if not template.reasons_first:
        raise ConfigError(f"template {template_id} does not ask for reasoning first; use, for example, reasoned-chat")
    return template
