"""Statistics that are saved in a run's manifest."""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from judgelm.modes.generation import GeneratedAnswer
from judgelm.parsing.scores import is_assigned, kind_of_approximation
from judgelm.records import (
    AbstainVerdict,
    GradeVerdict,
    Judgment,
    LabelVerdict,
    PairVerdict,
    RankingVerdict,
    Shown,
    Verdict,
    failure_name,
)


@dataclass(slots=True, kw_only=True)
class SessionStats:
    """Statistics of one session.

    Attributes:
        skipped: items that were finished in earlier sessions.
        earlier_failures: failures from earlier sessions that were not retried, by code.
        first_failure: sample and message of the session's first failure; empty if there is none.
    """

    skipped: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    earlier_failures: Counter[str] = field(default_factory=Counter)
    first_failure: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    load_s: float = 0.0
    judge_s: float = 0.0

    def row(self) -> dict[str, Any]:
        """Return the statistics for the manifest."""
        return {count.name: getattr(self, count.name) for count in fields(self)}


@dataclass(slots=True, kw_only=True)
class RunStats(SessionStats):
    """Statistics on judgments.

    Attributes:
        repaired: replies that could be parsed after a grammar-constrained retry.
        reasons_incomplete: truncated reasons, and reasons about answers that were truncated further.
        reason_cut: reasons before the verdict that reached their limit, so that the verdict was read there.
        parts_failed: unparseable replies in judgments that have a verdict.
        mostly_unassigned: judgments without a probability, because score lines make up less than half of the total.
        unassigned: total probability of replies without a verdict.
    """

    judged: int = 0
    rejected: int = 0
    winners: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    rankings: int = 0
    abstained: int = 0
    grades: int = 0
    grade_sum: float = 0.0
    both_orders: int = 0
    consistent: int = 0
    coerced: int = 0
    empty_slots: int = 0
    repeated: int = 0
    cut: int = 0
    split_contexts: int = 0
    neutralised: int = 0
    shown: int = 0
    thinking: int = 0
    thinking_characters: int = 0
    repaired: int = 0
    reasons: int = 0
    reasons_incomplete: int = 0
    reason_cut: int = 0
    reasons_failed: int = 0
    parts_failed: int = 0
    probabilities: int = 0
    mostly_unassigned: int = 0
    grade_distributions: int = 0
    distributions: int = 0
    unassigned: float = 0.0
    approximations: Counter[str] = field(default_factory=Counter)
    votes: int = 0
    unanimous: int = 0

    def add(self, judgment: Judgment) -> None:
        """Add a judgment."""
        self.judged += 1
        if judgment.votes:
            self.votes += len(judgment.votes)
            self.unanimous += len(set(judgment.votes.values())) == 1 and judgment.verdict is not None
        if judgment.failure is not None:
            self.failures[judgment.failure.code] += 1
            why = judgment.failure.why or failure_name(judgment.failure.code)
            self.first_failure = self.first_failure or f"{judgment.sample_id}: {why}"
        else:
            self.parts_failed += len([shown for shown in judgment.shown if shown.failure is not None])
        self._add_verdict(judgment.verdict)
        if judgment.consistent is not None:
            self.both_orders += 1
            self.consistent += judgment.consistent
        self.cut += any([shown.truncations for shown in judgment.shown])
        self.split_contexts += any([shown.context_parts > 1 for shown in judgment.shown])
        self.neutralised += judgment.sanitized > 0
        self.prompt_tokens += judgment.prompt_tokens
        self.completion_tokens += judgment.completion_tokens
        for shown in judgment.shown:
            self._add_shown(shown)
        if judgment.probability is not None:
            self.probabilities += 1
            return
        distributions = [shown.distribution for shown in judgment.shown if shown.distribution is not None]
        self.mostly_unassigned += not all(map(is_assigned, distributions))

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
            case AbstainVerdict():
                self.abstained += 1

    def _add_shown(self, shown: Shown) -> None:
        self.shown += 1
        self.thinking += shown.thinking is not None
        self.thinking_characters += len(shown.thinking or "")
        self.grade_distributions += shown.grades is not None
        self.repaired += shown.repaired is not None
        self.reasons += shown.reason is not None
        is_cut = shown.reason_failure is not None and shown.reason_failure.code == "reason_cut"
        self.reason_cut += is_cut
        self.reasons_incomplete += shown.reason is not None and shown.reason_failure is not None and not is_cut
        self.reasons_failed += shown.reason is None and shown.reason_failure is not None and not is_cut
        if (distribution := shown.distribution or shown.grades) is not None:
            self.distributions += 1
            self.unassigned += distribution.unassigned
            if distribution.approximation:
                self.approximations[kind_of_approximation(distribution.approximation)] += 1

    @property
    def mean_unassigned(self) -> float | None:
        """Mean probability of replies without a verdict, or None if there are no distributions."""
        return self.unassigned / self.distributions if self.distributions else None

    @property
    def failure_rate(self) -> float:
        """Share of inputs without a verdict in all sessions, including rejected lines, or 0 for an empty input."""
        total = self.judged + self.skipped + self.rejected
        failed = sum(self.failures.values()) + sum(self.earlier_failures.values())
        return (failed + self.rejected) / total if total else 0.0

    def row(self) -> dict[str, Any]:
        """Return counts and rates. `mostly_unassigned` is stored as `little_mass`."""
        per_s = 1 / self.judge_s if self.judge_s else 0.0
        counts = SessionStats.row(self)
        counts["little_mass"] = counts.pop("mostly_unassigned")
        del counts["unassigned"]
        return counts | {
            "mean_unassigned": self.mean_unassigned,
            "samples_per_s": round(self.judged * per_s, 3),
            "prompt_tokens_per_s": round(self.prompt_tokens * per_s, 1),
        }


@dataclass(slots=True, kw_only=True)
class AnswerStats(SessionStats):
    """Statistics on one model's answers.

    Attributes:
        no_final_answer: replies without a final answer, for tasks that require one.
    """

    answered: int = 0
    truncated: int = 0
    no_final_answer: int = 0
    engine_stats: dict[str, Any] = field(default_factory=dict)

    def add(self, answer: GeneratedAnswer, *, has_final: bool = False) -> None:
        """Add an answer. Set `has_final` for tasks whose replies end in a final answer."""
        if answer.failure is not None:
            self.failures[answer.failure.code] += 1
            self.first_failure = self.first_failure or answer.failure.why
            return
        self.answered += 1
        self.truncated += answer.finish_reason == "length"
        self.no_final_answer += has_final and answer.final is None
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens

    def row(self) -> dict[str, Any]:
        """Return the statistics for the manifest."""
        own = {"engine_stats", "load_s", "judge_s"}
        counts = {name: count for name, count in SessionStats.row(self).items() if name not in own}
        return counts | {"collect_s": round(self.judge_s, 3)}


@dataclass(slots=True, kw_only=True)
class CascadeStats:
    """Statistics of a cascade.

    Attributes:
        passed_on: pairs passed to the large judge; the small judge failed on `passed_on_failed` of these pairs, and
            abstained on `passed_on_abstained`.
        compared: pairs with verdicts from both judges; `changed` counts pairs with different winners.
        mended: pairs that only the large judge could decide.
    """

    pairs: int = 0
    passed_on: int = 0
    passed_on_failed: int = 0
    passed_on_abstained: int = 0
    waiting: int = 0
    small_tokens: int = 0
    large_tokens: int = 0
    compared: int = 0
    changed: int = 0
    mended: int = 0


@dataclass(slots=True, kw_only=True)
class PanelJudgeStats:
    """Statistics of one judge on a panel.

    Attributes:
        missing: samples that are not in the judge's run.
        abstained: samples on which the judge abstained; they do not count as verdicts.
        same: verdicts equal to the panel's verdict.
    """

    family: str
    verdicts: int = 0
    failed: int = 0
    missing: int = 0
    abstained: int = 0
    same: int = 0


@dataclass(slots=True, kw_only=True)
class PanelStats:
    """Statistics of a panel."""

    judges: dict[str, PanelJudgeStats]
    unanimous: int = 0
    same_input: bool = True
