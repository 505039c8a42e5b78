"""What a session of a batch run has done so far, in counts."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from judgelm.parsing.distribution import is_assigned
from judgelm.records import GradeVerdict, Judgment, LabelVerdict, PairVerdict, RankingVerdict, Shown, Verdict


@dataclass(slots=True, kw_only=True)
class RunStats:
    """What a session has done so far; it grows while the run goes on.

    Attributes:
        winners: of pairs; `labels` of modes that end in a word; `grades` are verdicts of one number, and their sum.
        earlier_failures: stand from sessions before, by code.
        shown: prompts that the judge was shown; `thinking` of them got a reply with thinking before it, of so many
            characters together.
        repaired: replies that only a retry held to the grammar made readable.
        reasons: written; `reasons_incomplete` of them have no end, or were written about answers cut further.
        reasons_failed: asked for in vain.
        parts_failed: prompts without a readable reply, of judgments that have a verdict all the same.
        probabilities: judgments with a P(first better).
        little_mass: judgments without one since the score lines of an order have less than half of the probability.
        grade_distributions: prompts for one answer with the probability of every grade.
        distributions: orders with a score distribution; `unassigned` is what they leave to other replies, added up.
        approximations: in what distributions are not exact, by wording.
    """

    judged: int = 0
    skipped: int = 0
    rejected: int = 0
    winners: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    rankings: int = 0
    grades: int = 0
    grade_sum: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)
    earlier_failures: Counter[str] = field(default_factory=Counter)
    both_orders: int = 0
    consistent: int = 0
    coerced: int = 0
    cut: int = 0
    neutralised: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    shown: int = 0
    thinking: int = 0
    thinking_characters: int = 0
    repaired: int = 0
    reasons: int = 0
    reasons_incomplete: int = 0
    reasons_failed: int = 0
    parts_failed: int = 0
    probabilities: int = 0
    little_mass: int = 0
    grade_distributions: int = 0
    distributions: int = 0
    unassigned: float = 0.0
    approximations: Counter[str] = field(default_factory=Counter)
    load_s: float = 0.0
    judge_s: float = 0.0

    def add(self, judgment: Judgment) -> None:
        """Count a judgment."""
        self.judged += 1
        if judgment.failure is not None:
            self.failures[judgment.failure.code] += 1
        self._add_verdict(judgment.verdict)
        if judgment.consistent is not None:
            self.both_orders += 1
            self.consistent += judgment.consistent
        self.cut += any(one.truncations for one in judgment.shown)
        self.neutralised += judgment.sanitized > 0
        self.prompt_tokens += judgment.prompt_tokens
        self.completion_tokens += judgment.completion_tokens
        self.probabilities += judgment.probability is not None
        for one in judgment.shown:
            self._add_shown(one)
        if judgment.failure is None:
            self.parts_failed += sum(one.failure is not None for one in judgment.shown)
        found = [one.distribution for one in judgment.shown if one.distribution is not None]
        self.little_mass += judgment.probability is None and not all(is_assigned(one) for one in found)

    def _add_verdict(self, verdict: Verdict | None) -> None:
        match verdict:
            case PairVerdict():
                self.winners[str(verdict.winner)] += 1
            case LabelVerdict():
                self.labels[verdict.label] += 1
            case GradeVerdict():
                self.grades += 1
                self.grade_sum += verdict.score
            case RankingVerdict():
                self.rankings += 1

    def _add_shown(self, shown: Shown) -> None:
        self.shown += 1
        self.thinking += shown.thinking is not None
        self.thinking_characters += len(shown.thinking or "")
        self.grade_distributions += shown.grades is not None
        self.repaired += shown.repaired is not None
        self.reasons += shown.reason is not None
        self.reasons_incomplete += shown.reason is not None and shown.reason_failure is not None
        self.reasons_failed += shown.reason is None and shown.reason_failure is not None
        if shown.distribution is not None:
            self.distributions += 1
            self.unassigned += shown.distribution.unassigned
            if shown.distribution.approximation:
                self.approximations[shown.distribution.approximation] += 1

    @property
    def mean_unassigned(self) -> float | None:
        """Mean over `distributions` of the probability that is on no score line; None where there is none."""
        return self.unassigned / self.distributions if self.distributions else None

    @property
    def failure_rate(self) -> float:
        """Share of the input without a verdict, over all sessions; rejected lines count too. 0 when it was empty."""
        total = self.judged + self.skipped + self.rejected
        failed = sum(self.failures.values()) + sum(self.earlier_failures.values())
        return (failed + self.rejected) / total if total else 0.0

    def row(self) -> dict[str, Any]:
        """For the manifest, with rates."""
        per_s = 1 / self.judge_s if self.judge_s else 0.0
        counts = {name: getattr(self, name) for name in self.__slots__ if name != "unassigned"}
        return counts | {
            "mean_unassigned": self.mean_unassigned,
            "samples_per_s": round(self.judged * per_s, 3),
            "prompt_tokens_per_s": round(self.prompt_tokens * per_s, 1),
        }
