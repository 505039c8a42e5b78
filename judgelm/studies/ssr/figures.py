"""SSR-Judge's figures: calibration of agreement, precision, coverage and accuracy over tau, the four slices."""

from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.studies.result import Bars, Cell, Figure, Forest, ForestRow, Lines, Series, Table, Value, bars
from judgelm.studies.ssr.items import SplitRule, SsrItems
from judgelm.studies.ssr.tables import (
    CONDITIONS,
    SLICES,
    calibration_table,
    category_table,
    slice_table,
    tau_table,
)


def figures(items: SsrItems, tau: float, rule: SplitRule, resampling: Resampling) -> tuple[Figure, ...]:
    """All figures of a run, from its tables."""
    by_tau = tau_table(items, rule, resampling)
    drawn: list[Figure] = [_calibration(calibration_table(items, resampling)), *_over_tau(by_tau, items, rule)]
    drawn.append(_slices(slice_table(items, (tau,), rule, resampling), tau))
    forest = _categories(category_table(items, tau, rule, resampling))
    return (*drawn, forest) if forest.rows else tuple(drawn)


def _calibration(table: Table) -> Lines:
    """Figure 3."""
    return Lines(
        name="agreement-calibration",
        title="How often the majority answer is right",
        x_label="agreement: share of self-solves with the commonest answer",
        y_label="share of right majority answers",
        series=(Series(name="majority answer", x=_numbers(table, "agreement"), y=_values(table, "right")),),
        diagonal=True,
    )


def _over_tau(table: Table, items: SsrItems, rule: SplitRule) -> tuple[Lines, Lines]:
    """Coverage against precision, and PreferenceAcc over tau beside the two conditions that know no tau."""
    taus = _numbers(table, "tau")
    labels = tuple(f"tau = {tau:g}" for tau in taus)
    coverage = [_value(cell) for cell in table.column("gate_on_rate")]
    trade = Lines(
        name="precision-and-coverage",
        title="Gate precision and gate-on rate over tau",
        x_label="gate-on rate: share of items with a reference",
        y_label="gate precision: share of right references",
        series=(Series(name="gate", x=tuple(coverage), y=_values(table, "gate_precision"), labels=labels),),
    )
    never, always = (_mean(items, rule, index) for index in (0, 1))
    accuracy = Lines(
        name="accuracy-over-tau",
        title="PreferenceAcc over tau",
        x_label="tau: least agreement for a reference",
        y_label="PreferenceAcc",
        series=(
            Series(name=CONDITIONS[2], x=taus, y=_values(table, "accuracy")),
            Series(name=CONDITIONS[0], x=taus, y=(never,) * len(taus)),
            Series(name=CONDITIONS[1], x=taus, y=(always,) * len(taus)),
        ),
    )
    return trade, accuracy


def _slices(table: Table, tau: float) -> Bars:
    """Figure 2."""
    return bars(
        {name: _values(table, key) for name, key in zip(CONDITIONS, ("never", "always", "selective"), strict=True)},
        [f"{name} (n = {n})" for name, n in zip(SLICES, table.column("n"), strict=True)],
        name="four-slices-accuracy",
        title=f"Accuracy by gate and majority answer, tau = {tau:g}",
        x_label="gate and majority answer",
        y_label="PreferenceAcc",
    )


def _categories(table: Table) -> Forest:
    """Section 4.5 as a forest."""
    gains = zip(table.column("category"), table.column("gain"), strict=True)
    return Forest(
        name="category-gains",
        title="Gain of selective self-reference over no reference",
        x_label="difference of PreferenceAcc",
        rows=tuple(ForestRow(label=str(name), estimate=gain) for name, gain in gains if isinstance(gain, Estimate)),
    )


def _mean(items: SsrItems, rule: SplitRule, condition: int) -> float | None:
    column = items.credits(rule, 1.0)[:, condition]
    counted = column[column == column]  # without NaN
    return float(counted.mean()) if counted.size else None


def _numbers(table: Table, key: str) -> tuple[float, ...]:
    return tuple(_value(cell) for cell in table.column(key))


def _values(table: Table, key: str) -> tuple[Value, ...]:
    return tuple(cell if isinstance(cell, float | Estimate) else None for cell in table.column(key))


def _value(cell: Cell) -> float:
    """A cell that always holds a number."""
    if isinstance(cell, Estimate):
        return cell.value
    assert isinstance(cell, int | float)
    return float(cell)
