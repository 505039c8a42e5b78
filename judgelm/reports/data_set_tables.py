"""The tables and figures of a data set's report, from the counts of the build."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from statsmodels.stats.proportion import proportion_confint

from judgelm.data.builder.counts import WORDS_STEP, BuildCounts, SetCounts
from judgelm.metrics.resampling import LEVEL, Estimate
from judgelm.reports.plots import STYLE, score_bars, svg
from judgelm.studies.pair_metrics import score_edges

MODELS_SHOWN = 8
WINNERS = ("1", "tie", "2")
_Z = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """Counts of one source's rows by outcome."""

    name: str
    read: int
    accepted: int
    dropped: int
    rejected: int

    @property
    def adds_up(self) -> bool:
        """True if every row read is accepted, dropped or rejected."""
        return self.read == self.accepted + self.dropped + self.rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Rows of a source that were left out, with their share of all its rows; or repairs of judgments, without one."""

    source: str
    outcome: str
    count: int
    share: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One set of pairs under its name.

    Attributes:
        name: as headings call it.
        counts: of its rows.
        units: rows that can count as independent: copies of one pair do not.
    """

    name: str
    counts: SetCounts
    units: int

    def winner(self, winner: str) -> Estimate | None:
        """The share of rows with this winner."""
        return share(self.counts.winners[winner], self.counts.winners.total(), self.units)

    @property
    def decided(self) -> Estimate | None:
        """Among rows that are no tie, the share that the first answer wins."""
        first, second = (self.counts.winners[winner] for winner in ("1", "2"))
        part = (first + second) / max(self.counts.winners.total(), 1)
        return share(first, first + second, part * self.units)

    def mean_score(self, position: int) -> Estimate | None:
        """The mean score of the answers at a place, 1 or 2, in points."""
        scores = {score: count for (at, score), count in self.counts.scores.items() if at == position}
        n = sum(scores.values())
        if not n:
            return None
        mean = sum(score * count for score, count in scores.items()) / n
        variance = sum(count * (score - mean) ** 2 for score, count in scores.items()) / n
        half = _Z * math.sqrt(variance / min(n, self.units))
        return Estimate(value=mean, low=mean - half, high=mean + half, n=n)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRow:
    """Number of texts of one kind, and upper bounds in words of half, nine tenths and all of them."""

    text_kind: str
    n: int
    half: int
    most: int
    all: int


def share(hits: int, n: int, units: float | None = None) -> Estimate | None:
    """A share with Wilson's 95 % interval, None of nothing.

    Args:
        hits: how many.
        n: of how many.
        units: how many of these are independent, where that is fewer than `n`; the interval is as wide as they allow.

    Source: Wilson, Probable inference, the law of succession, and statistical inference (1927).
    """
    if not n:
        return None
    independent = n if units is None else min(n, units)
    low, high = proportion_confint(hits / n * independent, independent, alpha=1 - LEVEL, method="wilson")
    return Estimate(value=hits / n, low=float(low), high=float(high), n=n)


def source_rows(counts: BuildCounts) -> list[SourceRow]:
    """Every source, and last their sum."""
    dropped, rejected = _by_source(counts.dropped), _by_source(counts.rejected)
    names = sorted({*counts.read, *counts.accepted, *dropped, *rejected})
    rows = [
        SourceRow(
            name=name,
            read=counts.read[name],
            accepted=counts.accepted[name],
            dropped=dropped[name],
            rejected=rejected[name],
        )
        for name in names
    ]
    sums = (sum(getattr(row, part) for row in rows) for part in ("read", "accepted", "dropped", "rejected"))
    read, accepted, out, unusable = sums
    return [*rows, SourceRow(name="all sources", read=read, accepted=accepted, dropped=out, rejected=unusable)]


def findings(counts: BuildCounts) -> dict[str, list[Finding]]:
    """Reasons of dropped, rejected and repaired rows, the most frequent first."""
    return {
        "Dropped": list(_findings(counts.dropped, counts.read)),
        "Rejected": list(_findings(counts.rejected, counts.read)),
        "Repaired": list(_findings(counts.repaired, None)),
    }


def _by_source(counts: Counter[tuple[str, str]]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for (source, _), count in counts.items():
        totals[source] += count
    return totals


def _findings(counts: Counter[tuple[str, str]], read: Counter[str] | None) -> Iterator[Finding]:
    for (source, outcome), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        part = None if read is None else share(count, read[source])
        yield Finding(source=source, outcome=outcome, count=count, share=part)


def stages(counts: BuildCounts) -> tuple[Stage, Stage, Stage, Stage]:
    """Training pairs as gathered, training rows as written, validation rows and test rows."""
    gathered = counts.gathered
    return (
        Stage(name="before augmentation", counts=gathered, units=gathered.pairs),
        Stage(name="as written", counts=counts.train, units=gathered.pairs),
        Stage(name="validation", counts=counts.validation, units=counts.validation.pairs),
        Stage(name="test", counts=counts.test, units=counts.test.pairs),
    )


def length_rows(words: Mapping[tuple[str, int], int]) -> list[LengthRow]:
    """A row for each kind of text; a bound is the end of its step."""
    rows = []
    for text_kind in ("question", "answer", "reason"):
        steps = {step: count for (kind, step), count in sorted(words.items()) if kind == text_kind}
        n = sum(steps.values())
        if n:
            half, most, longest = (_bound(steps, part * n) for part in (0.5, 0.9, 1.0))
            rows.append(LengthRow(text_kind=text_kind, n=n, half=half, most=most, all=longest))
    return rows


def _bound(steps: Mapping[int, int], target: float) -> int:
    seen = 0
    for step, count in steps.items():
        seen += count
        if seen >= target:
            return step + WORDS_STEP
    raise ValueError("more texts are wanted than there are")


def appearances(counts: SetCounts, places: Iterable[int] = (0, 1)) -> Counter[str]:
    """Number of appearances of each model at these positions, from 0."""
    totals: Counter[str] = Counter()
    for models, count in counts.models.items():
        for index in places:
            totals[models[index]] += count
    return totals


def first_places(
    before: Stage, after: Stage, shown: int = MODELS_SHOWN
) -> list[tuple[str, Estimate | None, Estimate | None]]:
    """Share of appearances at position 1, in either stage, of the models that appear most.

    A model paired with itself is at both positions, so that pair is counted twice and the interval is too narrow.
    """
    seen = appearances(before.counts)
    models = sorted(seen, key=lambda name: (-seen[name], name))[:shown]

    def at_first(stage: Stage, model: str) -> Estimate | None:
        first = appearances(stage.counts, (0,))[model]
        return share(first, appearances(stage.counts)[model], seen[model])

    return [(model, at_first(before, model), at_first(after, model)) for model in models]


def score_figure(before: Stage, after: Stage) -> str:
    """Scores by the place of the answer, before and after augmentation, as shares of each panel's answers."""
    scores = [score for stage in (before, after) for _, score in stage.counts.scores]
    edges = score_edges(min(scores), max(scores))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 3.3), layout="constrained")
        panels: Sequence[Axes] = figure.subplots(1, 2, sharey=True)
        for axes, stage in zip(panels, (before, after), strict=True):
            shares = {f"answer {place}": 100 * _score_shares(stage.counts, place, edges) for place in (1, 2)}
            score_bars(axes, edges, shares)
            axes.set(title=stage.name, xlabel="Score (points)")
        panels[0].set_ylabel("Share of the place's scores (%)")
        figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside upper left", ncols=2)
        return svg(figure, "Histograms of scores at both places, before augmentation and as written")


def _score_shares(counts: SetCounts, position: int, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    at_position = {score: count for (at, score), count in counts.scores.items() if at == position}
    heights = np.histogram(list(at_position), bins=edges, weights=list(at_position.values()))[0]
    return np.asarray(heights / max(heights.sum(), 1), dtype=np.float64)
