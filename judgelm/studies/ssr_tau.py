"""Choose tau for each category, using part of the questions for calibration.

Source: suggested, but not tested, in sections 4.5 and 5 of SSR-Judge.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from judgelm.metrics.correctness import accuracies
from judgelm.metrics.resampling import Resampling
from judgelm.studies.result import Layouts, Row, Table
from judgelm.studies.ssr_items import SplitRule, SsrItems, all_taus, by_category, credit

LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))
NEVER = 2.0
"""Above any possible agreement, so the reference is never shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TauChoice:
    tau: float
    accuracy: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChosenTaus:
    common: _TauChoice
    by_category: Mapping[str, _TauChoice]
    held_out: SsrItems

    def tau_of(self, category: str) -> float:
        return self.by_category.get(category, self.common).tau


def split_items(items: SsrItems, seed: int, share: float = 0.5) -> tuple[SsrItems, SsrItems]:
    """Split each category by question into a calibration part and a held-out part.

    `share` is the share of questions for calibration, rounded down.
    """
    rng = np.random.default_rng(seed)
    chosen: set[str] = set()
    taken: set[str] = set()
    for category in sorted({item.category for item in items.items}):
        questions = sorted({item.question for item in items.items if item.category == category} - taken)
        taken.update(questions)
        drawn = rng.permutation(len(questions))[: int(share * len(questions))]
        chosen.update(questions[index] for index in drawn)
    inside = np.array([key in chosen for key in items.questions], dtype=np.bool_)
    return items.where(inside), items.where(~inside)


def choose_tau(items: SsrItems, taus: tuple[float, ...], rule: SplitRule) -> _TauChoice | None:
    """Return the best tau, which can be `NEVER`; None if there are no eligible items."""
    best: _TauChoice | None = None
    for tau in (NEVER, *sorted(taus, reverse=True)):
        column = items.credits(rule, tau)[:, 2]
        counted = column[~np.isnan(column)]
        if counted.size and (best is None or counted.mean() > best.accuracy + 1e-12):
            best = _TauChoice(tau=tau, accuracy=float(counted.mean()), n=counted.size)
    return best


def choose_taus(items: SsrItems, rule: SplitRule, seed: int, share: float = 0.5) -> _ChosenTaus | None:
    """Choose tau on the calibration part; None if either part is empty."""
    calibration, held_out = split_items(items, seed, share)
    taus = all_taus(items)
    common = choose_tau(calibration, taus, rule)
    if common is None or not held_out.items:
        return None
    choices = {}
    for category, part in by_category(calibration).items():
        if (choice := choose_tau(part, taus, rule)) is not None:
            choices[category] = choice
    return _ChosenTaus(common=common, by_category=choices, held_out=held_out)


def chosen_table(chosen: _ChosenTaus) -> Table:
    """Build the table of the chosen tau and the number of items for each category."""
    rows: list[Row] = [("all", chosen.common.n, _shown(chosen.common.tau), chosen.common.accuracy)]
    rows += [(name, choice.n, _shown(choice.tau), choice.accuracy) for name, choice in chosen.by_category.items()]
    return LAYOUTS.table("chosen-tau", rows)


def held_out_table(chosen: _ChosenTaus, fixed: float, rule: SplitRule, resampling: Resampling) -> Table:
    """Build the table of the held-out accuracy for each choice of tau, and its gain over the fixed tau."""
    items = chosen.held_out
    names = ("no reference", "always", f"tau = {fixed:g}", "one tau, chosen", "a tau per category, chosen")
    common = [credit(item.selective(chosen.common.tau), rule) for item in items.items]
    own = [credit(item.selective(chosen.tau_of(item.category)), rule) for item in items.items]
    credits = np.column_stack([items.credits(rule, fixed), common, own])
    pairs = [(index, 2) for index in range(len(names))]
    shares, gains = accuracies(credits, pairs, items.questions, resampling)
    gains[2] = None
    return LAYOUTS.table("held-out-tau", zip(names, shares, gains, strict=True), rule=rule)


def _shown(tau: float) -> str:
    return "never" if tau == NEVER else f"{tau:g}"
