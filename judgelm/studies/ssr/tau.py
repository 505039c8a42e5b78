"""Choosing tau, for all categories together or for each, on one part of the items and looking at the other.

The paper suggests a threshold for each category (sections 4.5 and 5) and did not try it. A tau chosen and judged on the
same items looks better than it is, hence the two parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from judgelm.metrics.correctness import accuracies
from judgelm.metrics.resampling import Resampling
from judgelm.studies.result import Row, Table, columns, table
from judgelm.studies.ssr.items import SplitRule, SsrItems, credit
from judgelm.studies.ssr.tables import all_taus, by_category

NEVER = 2.0
"""A tau that no agreement reaches: no reference at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TauChoice:
    """The tau with the highest accuracy on the calibration part; of equal ones the highest, which shows less."""

    tau: float
    accuracy: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenTaus:
    """Taus chosen on one part, for all and for each category, and the other part.

    Attributes:
        held_out: the items that no choice looked at.
        by_category: those with items in the calibration part; a category without takes the common choice.
    """

    common: TauChoice
    by_category: Mapping[str, TauChoice]
    held_out: SsrItems

    def tau_of(self, category: str) -> float:
        """The tau of a category."""
        return self.by_category.get(category, self.common).tau


def split_items(items: SsrItems, seed: int, share: float = 0.5) -> tuple[SsrItems, SsrItems]:
    """A calibration part and a held-out part; questions stay together, and each category is split by itself.

    Args:
        items: all of them.
        seed: of the drawing.
        share: of each category's questions that go into the calibration part, rounded down.
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


def choose_tau(items: SsrItems, taus: tuple[float, ...], rule: SplitRule) -> TauChoice | None:
    """The best tau of these and of never showing a reference; None where no item counts."""
    best: TauChoice | None = None
    for tau in (NEVER, *sorted(taus, reverse=True)):
        column = items.credits(rule, tau)[:, 2]
        counted = column[~np.isnan(column)]
        if counted.size and (best is None or counted.mean() > best.accuracy + 1e-12):
            best = TauChoice(tau=tau, accuracy=float(counted.mean()), n=counted.size)
    return best


def choose_taus(items: SsrItems, rule: SplitRule, seed: int, share: float = 0.5) -> ChosenTaus | None:
    """Choose on a part, keep the rest; None where one of the two parts is empty."""
    calibration, held_out = split_items(items, seed, share)
    taus = all_taus(items)
    common = choose_tau(calibration, taus, rule)
    if common is None or not held_out.items:
        return None
    choices = {}
    for category, part in by_category(calibration).items():
        if (choice := choose_tau(part, taus, rule)) is not None:
            choices[category] = choice
    return ChosenTaus(common=common, by_category=choices, held_out=held_out)


def chosen_table(chosen: ChosenTaus) -> Table:
    """The chosen tau of each category and the number of items it was chosen on."""
    rows: list[Row] = [("all", chosen.common.n, _shown(chosen.common.tau), chosen.common.accuracy)]
    rows += [(name, choice.n, _shown(choice.tau), choice.accuracy) for name, choice in chosen.by_category.items()]
    return table(
        rows,
        columns("text", category="category"),
        columns("count", n="n, calibration"),
        columns("text", tau="tau"),
        columns("share", accuracy="accuracy there, too good by the choice"),
        name="chosen-tau",
        title="Tau chosen on the calibration part",
        note="The tau with the highest accuracy; of equal ones the highest, which shows fewer references. `never`: no "
        "reference is best. These accuracies are those of the items chosen on; see the held-out part.",
    )


def held_out_table(chosen: ChosenTaus, fixed: float, rule: SplitRule, resampling: Resampling) -> Table:
    """Accuracy on the held-out part of every way to set tau, and its gain over the fixed tau."""
    items = chosen.held_out
    names = ("no reference", "always", f"tau = {fixed:g}", "one tau, chosen", "a tau for each category, chosen")
    common = [credit(item.selective(chosen.common.tau), rule) for item in items.items]
    own = [credit(item.selective(chosen.tau_of(item.category)), rule) for item in items.items]
    credits = np.column_stack([items.credits(rule, fixed), common, own])
    pairs = [(index, 2) for index in range(len(names))]
    shares, gains = accuracies(credits, pairs, items.questions, resampling)
    gains[2] = None
    return table(
        zip(names, shares, gains, strict=True),
        columns("text", way="way"),
        columns("share", accuracy="PreferenceAcc", gain="gain over the fixed tau"),
        name="held-out-tau",
        title=f"Ways to set tau, on the held-out part, a split counts as {rule}",
        source="SSR-Judge, sections 4.5 and 5 (suggested there, not tried)",
    )


def _shown(tau: float) -> str:
    return "never" if tau == NEVER else f"{tau:g}"
