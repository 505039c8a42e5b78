"""Win rates of models against a baseline: weighted, discrete, and with the length of answers controlled.

Source: AlpacaEval (Li et al. 2023) and Length-Controlled AlpacaEval (Dubois et al. 2024).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from judgelm.data.formats.win_rates import Comparison
from judgelm.errors import InputError
from judgelm.metrics.resampling import Resampling
from judgelm.metrics.win_rate import LengthControlled, WinRate, discrete, length_controlled, weighted
from judgelm.studies.result import Cell, Forest, ForestRow, StudyResult, Table, columns, table
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
class _Standing:
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
    how: Resampling | None = None,
    *,
    difficulties: Mapping[str, float] | None = None,
    notes: Sequence[str] = (),
) -> StudyResult:
    """Win rates of each model against each baseline, by each annotator apart.

    Args:
        comparisons: of any number of models.
        how: seed and number of resamples; the defaults when None.
        difficulties: of each instruction, by its text or index; None leaves the term out of the regression.
        notes: what reading the files has left out, to be shown.

    Raises:
        InputError: no comparison has a preference, or an instruction's difficulty is not given.
    """
    how = how or Resampling()
    groups: dict[tuple[str, str, str], list[Comparison]] = {}
    for one in comparisons:
        groups.setdefault((one.annotator, one.baseline, one.model), []).append(one)
    judged = [group for group in groups.values() if any(one.preference is not None for one in group)]
    if not judged:
        raise InputError(f"win rates: none of {sum(map(len, groups.values()))} comparisons has a preference")
    standings = [_standing(group, how, difficulties) for group in judged]
    standings.sort(key=lambda one: (one.annotator, one.baseline, -one.mean.rate.value))
    return StudyResult(
        study="win-rates",
        title="Win rates against a baseline",
        protocol=_protocol(how, difficulties is not None),
        findings=tuple(_findings(standings)),
        counts={
            "comparisons": sum(map(len, groups.values())),
            "not_judged": sum(one.preference is None for group in groups.values() for one in group),
            "models": len(standings),
        },
        tables=(_table(standings),),
        figures=(_forest(standings),),
        warnings=(*notes, *_warnings(standings)),
    )


def _standing(group: Sequence[Comparison], how: Resampling, difficulties: Mapping[str, float] | None) -> _Standing:
    judged = [(one, one.preference) for one in group if one.preference is not None]
    preferences = np.array([preference for _, preference in judged], dtype=np.float64)
    lengths = np.array([one.lengths for one, _ in judged], dtype=np.float64)
    clusters = [one.instruction for one, _ in judged]
    hard = None if difficulties is None else np.array([_difficulty(one, difficulties) for one, _ in judged])
    return _Standing(
        model=group[0].model,
        baseline=group[0].baseline,
        annotator=group[0].annotator,
        mean=weighted(preferences, clusters, how),
        discrete=discrete(preferences, clusters, how),
        wins=int((preferences > 0.5).sum()),
        ties=int((preferences == 0.5).sum()),
        losses=int((preferences < 0.5).sum()),
        controlled=length_controlled(preferences, lengths, clusters, hard),
        mean_length=float(lengths[:, 1].mean()),
        failed=len(group) - len(judged),
    )


def _difficulty(one: Comparison, difficulties: Mapping[str, float]) -> float:
    for name in (one.instruction, one.index):
        if name is not None and name in difficulties:
            return difficulties[name]
    raise InputError(f"win rates: no difficulty of the instruction {one.instruction[:80]!r} (index {one.index})")


def _table(standings: Sequence[_Standing]) -> Table:
    def cells(one: _Standing) -> tuple[Cell, ...]:
        found = one.controlled
        controlled = (None, None, None) if isinstance(found, str) else (found.rate, found.standard_error, found.length)
        return (
            *(one.model, one.baseline, one.annotator, one.wins + one.ties + one.losses),
            *(one.mean.rate, one.mean.standard_error, one.discrete.rate, one.discrete.standard_error),
            *(one.wins, one.ties, one.losses, *controlled, one.mean_length, one.failed),
        )

    return table(
        [cells(one) for one in standings],
        columns("text", model="Model", baseline="Baseline", annotator="Annotator"),
        columns("count", n="n"),
        columns(
            "share",
            win_rate="Win rate ↑",
            standard_error="SE",
            discrete_win_rate="Discrete ↑",
            discrete_standard_error="SE",
        ),
        columns("count", n_wins="Wins", n_draws="Ties", n_wins_base="Losses"),
        columns("share", length_controlled_winrate="Length-controlled ↑", lc_standard_error="SE"),
        columns("number", length_slope="Length slope", avg_length="Mean length, characters"),
        columns("count", not_judged="Not judged"),
        name="win-rates",
        title="Win rates",
        source="AlpacaEval's leaderboard",
        note=_NOTE,
    )


def _forest(standings: Sequence[_Standing]) -> Forest:
    return Forest(
        name="win-rate",
        title="Win rate against the baseline",
        x_label="Win rate",
        rows=tuple(ForestRow(label=one.model, estimate=one.mean.rate) for one in standings),
        no_effect=0.5,
    )


def _protocol(how: Resampling, with_difficulty: bool) -> str:
    terms = "the standardised difference in length (tanh), a constant"
    terms += " and the instruction's difficulty" if with_difficulty else "; no difficulty of instructions was given"
    return (
        "Preferences are probabilities that the model's answer is better, as the annotator gave them; intervals of win "
        f"rates are 95 % from {how.resamples} resamples of instructions (seed {how.seed}). Length control: logistic "
        f"regression without penalty on {terms}. AlpacaEval's own fit is L1-penalised by cross-validation and drawn to "
        "verbose and concise versions of its baseline, so that its figures differ."
    )


def _findings(standings: Sequence[_Standing]) -> list[str]:
    lines = []
    for one in standings[:_MOST_SENTENCES]:
        controlled = "" if isinstance(one.controlled, str) else f"; at equal length {format_share(one.controlled.rate)}"
        by = f" ({one.annotator})" if one.annotator else ""
        lines.append(f"{one.model} against {one.baseline}{by}: {format_share(one.mean.rate)}{controlled}.")
    if len(standings) > _MOST_SENTENCES:
        lines.append(f"{len(standings) - _MOST_SENTENCES} more models stand in the table.")
    return lines


def _warnings(standings: Sequence[_Standing]) -> list[str]:
    lines = []
    for one in standings:
        if isinstance(one.controlled, str):
            lines.append(f"{one.model} against {one.baseline}: no length-controlled win rate: {one.controlled}.")
        elif abs(one.controlled.rate.value - one.mean.rate.value) > _FAR:
            lines.append(
                f"{one.model} against {one.baseline}: length control moves the win rate by more than {100 * _FAR:g} "
                "points; few of its answers are about as long as the baseline's, so do not rely on it."
            )
    return lines
