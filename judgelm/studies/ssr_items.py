"""Verdicts with and without the judge's own answer as the reference, and tables built from these verdicts.

Selective self-reference is computed from two runs on the same self-solves. If the gate is on, the verdict is from the
run with the majority answer, otherwise from the run without it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from judgelm.errors import InputError
from judgelm.metrics.correctness import GateScores, accuracies, calibration_curve, gate_scores, thresholds
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.parsing.short_answers import Majority, majority
from judgelm.records import Judgment, PairVerdict, Shown
from judgelm.studies.pair_labels import NOT_GIVEN, grouped
from judgelm.studies.result import Layouts, Row, Table
from judgelm.studies.truth_file import PairTruth, same_answer

LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))

Outcome = Literal["right", "wrong", "split"]
"""`split` means that the two orders prefer different answers, or that neither prefers one."""

SplitRule = Literal["wrong", "half", "tie"]
SPLIT_RULES: tuple[SplitRule, ...] = ("wrong", "half", "tie")
"""Ways to count a split: as wrong, as half right, or as a tie, which is excluded."""

_PLACES: Mapping[str, int] = {"1": 0, "a": 0, "2": 1, "b": 1}
_CREDIT: Mapping[SplitRule, float] = {"wrong": 0.0, "half": 0.5, "tie": float("nan")}


@dataclass(frozen=True, slots=True, kw_only=True)
class SsrItem:
    """A pair judged with and without the majority answer.

    `majority_right` is None if the right answer is unknown. `never` and `always` are the outcomes in conditions A and
    B.
    """

    id: str
    category: str
    question: str
    majority: Majority
    majority_right: bool | None
    never: Outcome
    always: Outcome

    def selective(self, tau: float) -> Outcome:
        """Return the outcome of SSR-Judge (condition C) at this threshold."""
        return self.always if self.majority.passes(tau) else self.never


@dataclass(frozen=True, slots=True, kw_only=True)
class SsrItems:
    """Items judged in both runs, and the number of pairs for each outcome."""

    items: tuple[SsrItem, ...]
    counts: Mapping[str, int]

    @property
    def questions(self) -> list[str]:
        """Cluster key of each item."""
        return [item.question for item in self.items]

    def credits(self, rule: SplitRule, tau: float) -> NDArray[np.float64]:
        """Return the credits of never, always, and selective at `tau`, shape (n, 3); NaN excludes the item."""
        rows = [(item.never, item.always, item.selective(tau)) for item in self.items]
        return np.array([[credit(outcome, rule) for outcome in row] for row in rows]).reshape(-1, 3)

    def on(self, tau: float) -> NDArray[np.bool_]:
        """Return whether the gate is on for each item."""
        return np.array([item.majority.passes(tau) for item in self.items], dtype=np.bool_)

    def right(self) -> NDArray[np.bool_]:
        """Return whether each majority answer is known to be right."""
        return np.array([item.majority_right is True for item in self.items], dtype=np.bool_)

    def known(self) -> NDArray[np.bool_]:
        """Return whether each majority answer is known to be right or wrong."""
        return np.array([item.majority_right is not None for item in self.items], dtype=np.bool_)

    def where(self, mask: Iterable[bool]) -> "SsrItems":
        """Select items; the counts do not change."""
        chosen = tuple(item for item, inside in zip(self.items, mask, strict=True) if inside)
        return SsrItems(items=chosen, counts=self.counts)

    def gate(self, tau: float, resampling: Resampling) -> GateScores:
        """Return the gate's rate and precision."""
        return gate_scores(self.on(tau), self.right(), self.known(), self.questions, resampling)

    def accuracies(
        self, rule: SplitRule, tau: float, differences: Sequence[tuple[int, int]], resampling: Resampling
    ) -> tuple[list[Estimate | None], list[Estimate | None]]:
        """Return PreferenceAcc for never, always, and selective, and the `differences` between them."""
        return accuracies(self.credits(rule, tau), differences, self.questions, resampling)


def credit(outcome: Outcome, rule: SplitRule) -> float:
    """Return 1 for right, 0 for wrong, and the credit under the rule for a split (NaN if excluded)."""
    return {"right": 1.0, "wrong": 0.0, "split": _CREDIT[rule]}[outcome]


def join_items(
    never: Mapping[str, Judgment], always: Mapping[str, Judgment], truths: Mapping[str, PairTruth]
) -> SsrItems:
    """Join the pairs judged in both runs.

    Raises:
        InputError: no pair is in both runs and the truth, no pair has self-solves, or a verdict is not on a pair.
    """
    ids = [key for key in truths if key in never and key in always]
    if not ids:
        examples = f"{next(iter(never), None)!r}, {next(iter(always), None)!r} and {next(iter(truths), None)!r}"
        raise InputError(f"ssr: no pair is in both runs and the truth file (ids: {examples}); use matching ids")
    failed = {key for key in ids if never[key].verdict is None or always[key].verdict is None}
    solved = [key for key in ids if key not in failed and (always[key].self_answers or never[key].self_answers)]
    items = tuple(_item(truths[key], never[key], always[key]) for key in solved)
    if not items and len(failed) < len(ids):
        raise InputError(
            f"ssr: of {len(ids)} pairs, {len(failed)} failed in at least one run, and the others have no self-solves; "
            "use runs in mode ssr"
        )
    differing = sum(
        bool(never[key].self_answers)
        and bool(always[key].self_answers)
        and _answers(never[key]) != _answers(always[key])
        for key in solved
    )
    counts = {
        "compared": len(items),
        "failed in a run": len(failed),
        "failed without reference": sum(never[key].verdict is None for key in ids),
        "failed with reference": sum(always[key].verdict is None for key in ids),
        "without solves": len(ids) - len(failed) - len(solved),
        "not in both runs": len(truths) - len(ids),
        "judgments without truth": len((never.keys() | always.keys()) - truths.keys()),
        "tied majorities": sum(item.majority.tied for item in items),
        "without any extractable answer": sum(item.majority.answer is None for item in items),
        "majority not known to be right or wrong": sum(item.majority_right is None for item in items),
        "different solves in the two runs": differing,
        "reference is not the majority": sum(
            always[item.id].own_reference not in (None, item.majority.answer) for item in items
        ),
    }
    return SsrItems(items=items, counts=counts)


def pair_outcome(judgment: Judgment, winner: int) -> Outcome | None:
    """Return the outcome of a judgment in one or both orders; None for a failure.

    The outcome is the majority vote over the orders (section 3.4). If the orders have no labels or scores, the outcome
    is the verdict.

    Raises:
        InputError: the verdict is not on a pair.
    """
    if judgment.verdict is None:
        return None
    if not isinstance(judgment.verdict, PairVerdict):
        raise InputError(
            f"judgment {judgment.sample_id}: expected a verdict on a pair, got {judgment.verdict} from mode "
            f"{judgment.mode!r}; use runs in mode ssr"
        )
    votes = [_vote(shown) for shown in judgment.shown if shown.failure is None and len(shown.order) == 2]
    if not votes or any(vote is None for vote in votes):
        named = judgment.verdict.winner
        return "split" if named == "tie" else ("right" if named == winner else "wrong")
    lead = votes.count(winner) - votes.count(3 - winner)
    return "split" if lead == 0 else ("right" if lead > 0 else "wrong")


def _item(truth: PairTruth, never: Judgment, always: Judgment) -> SsrItem:
    solved = majority(_answers(always) or _answers(never))
    without, guided = pair_outcome(never, truth.winner), pair_outcome(always, truth.winner)
    assert without is not None  # the caller excludes failures
    assert guided is not None
    return SsrItem(
        id=truth.id,
        category=truth.category or NOT_GIVEN,
        question=truth.question or truth.id,
        majority=solved,
        majority_right=_majority_right(solved, truth),
        never=without,
        always=guided,
    )


def _majority_right(solved: Majority, truth: PairTruth) -> bool | None:
    if truth.judge_correct is not None:
        return truth.judge_correct
    if truth.answer is None:
        return None
    return solved.answer is not None and same_answer(solved.answer, truth.answer)


def _answers(judgment: Judgment) -> list[str | None]:
    return [solve.answer for solve in judgment.self_answers]


def _vote(shown: Shown) -> int | None:
    if shown.label is not None:
        position = _PLACES.get(shown.label.strip("[]").lower())
        return 0 if position is None else shown.order[position] + 1
    if shown.scores is None:
        return None
    first, second = shown.scores
    return 0 if first == second else shown.order[0 if first > second else 1] + 1


CONDITIONS = ("no reference (A)", "always (B)", "selective (C)")
SLICES = ("on, majority right", "on, majority wrong", "off, majority right", "off, majority wrong")


def all_taus(items: SsrItems) -> tuple[float, ...]:
    """Return all thresholds at which an item's gate changes, in ascending order."""
    return thresholds([item.majority.k for item in items.items])


def comparison_table(items: SsrItems, tau: float, resampling: Resampling) -> Table:
    """Build Table 1 for one tau, with a row for each condition and split rule."""
    on, gate = items.on(tau), items.gate(tau, resampling)
    undecided = np.isnan(items.credits("tie", tau)).sum(axis=0).tolist()
    rows: list[Row] = []
    for rule in SPLIT_RULES:
        whole, gains = items.accuracies(rule, tau, ((0, 0), (1, 0), (2, 0), (2, 1)), resampling)
        parts = [items.where(mask).accuracies(rule, tau, (), resampling)[0] for mask in (on, ~on)]
        for index, name in enumerate(CONDITIONS):
            gain = None if index == 0 else gains[index]
            over_always = gains[3] if index == 2 else None
            shares = (whole[index], parts[0][index], parts[1][index], gain, over_always)
            rows.append((name, rule, *shares, undecided[index], gate.rate, gate.precision))
    return LAYOUTS.table("comparison", rows, tau=tau)


def tau_table(items: SsrItems, rule: SplitRule, resampling: Resampling) -> Table:
    """Build the table of precision, coverage, and PreferenceAcc for every tau."""
    rows: list[Row] = []
    for tau in all_taus(items):
        on, gate = items.on(tau), items.gate(tau, resampling)
        whole, gains = items.accuracies(rule, tau, ((2, 0), (2, 1)), resampling)
        on_part, off_part = (items.where(mask).accuracies(rule, tau, (), resampling)[0] for mask in (on, ~on))
        slices = (on_part[0], on_part[1], off_part[0], off_part[1])
        rows.append((tau, int(on.sum()), gate.rate, gate.precision, whole[2], *gains, *slices))
    return LAYOUTS.table("every-tau", rows, rule=rule)


def slice_table(items: SsrItems, taus: Sequence[float], rule: SplitRule, resampling: Resampling) -> Table:
    """Build Table 2, with the gate on or off and the majority answer right or wrong (if known)."""
    right, known = items.right(), items.known()
    rows: list[Row] = []
    for tau in taus:
        on = items.on(tau)
        masks = [gate & (right == correct) & known for gate in (on, ~on) for correct in (True, False)]
        for name, mask in zip(SLICES, masks, strict=True):
            accuracy, differences = items.where(mask).accuracies(rule, tau, ((1, 0),), resampling)
            matches = "B" if name.startswith("on") else "A"
            rows.append((tau, name, int(mask.sum()), float(mask.mean()), *accuracy, differences[0], matches))
    return LAYOUTS.table("four-slices", rows, rule=rule)


def calibration_table(items: SsrItems, resampling: Resampling) -> Table:
    """Build a table with the values of Figure 3."""
    known = items.where(items.known())
    agreement = np.array([item.majority.agreement for item in known.items])
    return LAYOUTS.table("calibration", calibration_curve(agreement, known.right(), known.questions, resampling))


def category_table(items: SsrItems, tau: float, rule: SplitRule, resampling: Resampling) -> Table:
    """Build the table of gains and gate precision by category (section 4.5), largest gain first."""
    rows = []
    for name, part in by_category(items).items():
        accuracy, gains = part.accuracies(rule, tau, ((2, 0), (2, 1)), resampling)
        gate = part.gate(tau, resampling)
        rows.append((name, len(part.items), *accuracy, *gains, gate.rate, gate.precision))
    rows.sort(key=lambda row: -row[5].value if isinstance(row[5], Estimate) else 1.0)
    return LAYOUTS.table("categories", rows, tau=tau, rule=rule)


def cost_table(items: SsrItems, never: Mapping[str, Judgment], always: Mapping[str, Judgment], tau: float) -> Table:
    """Build the table of calls and tokens for each condition."""
    on = [item.majority.passes(tau) for item in items.items]
    used = {
        CONDITIONS[0]: [never[item.id] for item in items.items],
        CONDITIONS[1]: [always[item.id] for item in items.items],
        CONDITIONS[2]: [(always if gate else never)[item.id] for item, gate in zip(items.items, on, strict=True)],
    }
    solves = sum(item.majority.k for item in items.items)
    rows: list[Row] = []
    for name, judgments in used.items():
        calls = sum(sum(len(shown.order) == 2 for shown in judgment.shown) for judgment in judgments)
        prompted = sum(judgment.prompt_tokens for judgment in judgments)
        written = sum(judgment.completion_tokens for judgment in judgments)
        needed = 0 if name == CONDITIONS[0] else solves
        rows.append((name, len(judgments), solves, needed, calls, calls / len(judgments), prompted, written))
    return LAYOUTS.table("cost", rows, tau=tau)


def by_category(items: SsrItems) -> dict[str, SsrItems]:
    """Group items by category."""
    groups = grouped(items.items, lambda item: item.category)
    return {name: SsrItems(items=tuple(part), counts=items.counts) for name, part in groups.items()}
