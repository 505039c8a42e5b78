"""Win rates of models against a baseline: weighted, discrete, and with the length of answers controlled.

Source: AlpacaEval (Li et al. 2023) and Length-Controlled AlpacaEval (Dubois et al. 2024).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from judgelm.data.sources.alpaca_eval import Comparison
from judgelm.errors import InputError
from judgelm.metrics.resampling import Resampling
from judgelm.metrics.win_rate import LengthControlled, WinRate, discrete, length_controlled, weighted
from judgelm.studies.pair_labels import grouped
from judgelm.studies.result import DEFAULT_RESAMPLING, Forest, Row, StudyResult, Table, columns, forest, table
from judgelm.studies.sentences import format_share

_MOST_SENTENCES = 6
_FAR = 0.1
"""AlpacaEval warns of the same difference."""
_NOTE = (
    "Win rate: mean probability that the model's answer is preferred to the baseline's; discrete: share of wins with "
    "half of the ties. SE: standard error of the mean. Intervals are 95 %, from resamples of instructions. "
    "Length-controlled: what a logistic regression predicts for answers of equal length, its interval by the delta "
    "method; empty where it has no solution. Length slope: negative where longer answers are preferred. Not judged: no "
    "preference, left out."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModelResult:
    """One model against one baseline by one annotator; `controlled` is a reason where there is no estimate."""

    model: str
    baseline: str
    annotator: str
    mean: WinRate
    discrete: WinRate
    wins: int
    ties: int
    losses: int
    controlled: LengthControlled | str
    mean_length: float
    failed: int


def win_rate_study(
    comparisons: Iterable[Comparison],
    resampling: Resampling = DEFAULT_RESAMPLING,
    *,
    difficulties: Mapping[str, float] | None = None,
    notes: Sequence[str] = (),
) -> StudyResult:
    """Win rates of each model against each baseline, by each annotator apart.

    Args:
        comparisons: of any number of models.
        resampling: seed and number of resamples.
        difficulties: of each instruction, by its text or index; None leaves the term out of the regression.
        notes: what reading the files has left out, to be shown.

    Raises:
        InputError: no comparison has a preference, or an instruction's difficulty is not given.
    """
    every = list(comparisons)
    groups = grouped(every, lambda comparison: (comparison.annotator, comparison.baseline, comparison.model))
    judged = [group for group in groups.values() if any(comparison.preference is not None for comparison in group)]
    if not judged:
        raise InputError(f"win rates: none of {len(every)} comparisons has a preference")
    results = [_model_result(group, resampling, difficulties) for group in judged]
    results.sort(key=lambda result: (result.annotator, result.baseline, -result.mean.rate.value))
    return StudyResult(
        study="win-rates",
        title="Win rates against a baseline",
        protocol=_protocol(resampling, difficulties is not None),
        findings=tuple(_findings(results)),
        counts={
            "comparisons": len(every),
            "not_judged": sum(comparison.preference is None for comparison in every),
            "models": len(results),
        },
        tables=(_table(results),),
        figures=(_forest(results),),
        warnings=(*notes, *_warnings(results)),
    )


def _model_result(
    group: Sequence[Comparison], resampling: Resampling, difficulties: Mapping[str, float] | None
) -> _ModelResult:
    judged = [(comparison, comparison.preference) for comparison in group if comparison.preference is not None]
    preferences = np.array([preference for _, preference in judged], dtype=np.float64)
    lengths = np.array([comparison.lengths for comparison, _ in judged], dtype=np.float64)
    clusters = [comparison.instruction for comparison, _ in judged]
    hard = None
    if difficulties is not None:
        hard = np.array([_difficulty(comparison, difficulties) for comparison, _ in judged])
    return _ModelResult(
        model=group[0].model,
        baseline=group[0].baseline,
        annotator=group[0].annotator,
        mean=weighted(preferences, clusters, resampling),
        discrete=discrete(preferences, clusters, resampling),
        wins=int((preferences > 0.5).sum()),
        ties=int((preferences == 0.5).sum()),
        losses=int((preferences < 0.5).sum()),
        controlled=length_controlled(preferences, lengths, clusters, hard),
        mean_length=float(lengths[:, 1].mean()),
        failed=len(group) - len(judged),
    )


def _difficulty(comparison: Comparison, difficulties: Mapping[str, float]) -> float:
    for name in (comparison.instruction, comparison.index):
        if name is not None and name in difficulties:
            return difficulties[name]
    raise InputError(
        f"win rates: no difficulty of the instruction {comparison.instruction[:80]!r} (index {comparison.index})"
    )


def _table(results: Sequence[_ModelResult]) -> Table:
    def cells(result: _ModelResult) -> Row:
        length = result.controlled
        controlled = [None] * 3 if isinstance(length, str) else [length.rate, length.standard_error, length.length]
        return (
            *(result.model, result.baseline, result.annotator, result.wins + result.ties + result.losses),
            *(result.mean.rate, result.mean.standard_error, result.discrete.rate, result.discrete.standard_error),
            *(result.wins, result.ties, result.losses, *controlled, result.mean_length, result.failed),
        )

    return table(
        [cells(model_result) for model_result in results],
        columns("text", model="Model", baseline="Baseline", annotator="Annotator"),
        columns("count", n="n"),
        columns("share", win_rate="Win rate ↑", standard_error="SE", discrete_win_rate="Discrete ↑"),
        columns("share", discrete_standard_error="SE"),
        columns("count", n_wins="Wins", n_draws="Ties", n_wins_base="Losses"),
        columns("share", length_controlled_winrate="Length-controlled ↑", lc_standard_error="SE"),
        columns("number", length_slope="Length slope", avg_length="Mean length, characters"),
        columns("count", not_judged="Not judged"),
        name="win-rates",
        title="Win rates",
        source="AlpacaEval's leaderboard",
        note=_NOTE,
    )


def _forest(results: Sequence[_ModelResult]) -> Forest:
    return forest(
        [(result.model, result.mean.rate) for result in results],
        name="win-rate",
        title="Win rate against the baseline",
        x_label="Win rate",
        no_effect=0.5,
    )


def _protocol(resampling: Resampling, with_difficulty: bool) -> str:
    terms = "the standardised difference in length (tanh), a constant"
    terms += " and the instruction's difficulty" if with_difficulty else "; no difficulty of instructions was given"
    return (
        "Preferences are probabilities that the model's answer is better, as the annotator gave them; intervals of win "
        f"rates are 95 % from {resampling.resamples} resamples of instructions (seed {resampling.seed}). Length "
        f"control: logistic regression without penalty on {terms}. AlpacaEval's own fit is L1-penalised by "
        "cross-validation and drawn to verbose and concise versions of its baseline, so that its figures differ."
    )


def _findings(results: Sequence[_ModelResult]) -> list[str]:
    lines = []
    for result in results[:_MOST_SENTENCES]:
        by, length = f" ({result.annotator})" if result.annotator else "", result.controlled
        controlled = "" if isinstance(length, str) else f"; at equal length {format_share(length.rate)}"
        lines.append(f"{result.model} against {result.baseline}{by}: {format_share(result.mean.rate)}{controlled}.")
    if len(results) > _MOST_SENTENCES:
        lines.append(f"{len(results) - _MOST_SENTENCES} more models are in the table.")
    return lines


def _warnings(results: Sequence[_ModelResult]) -> list[str]:
    lines = []
    for result in results:
        pair, length = f"{result.model} against {result.baseline}", result.controlled
        if isinstance(length, str):
            lines.append(f"{pair}: no length-controlled win rate: {length}.")
        elif abs(length.rate.value - result.mean.rate.value) > _FAR:
            lines.append(
                f"{pair}: length control moves the win rate by more than {100 * _FAR:g} points; few of its answers are "
                "about as long as the baseline's, so do not rely on it."
            )
    return lines
