"""A run of judgments by the metric of the benchmark that it judged, as the benchmark's makers take it.

`judgelm.data.benchmarks` states each protocol in words; here are those that `judgelm eval` does not take: RewardBench's
sections, RewardBench 2's best of four and ties, JudgeBench's vote, LLMBar's and Auto-J's two orders.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from judgelm.data.benchmarks.catalog import get_benchmark
from judgelm.data.benchmarks.preferences import SECOND_SUBSETS, SECTIONS
from judgelm.data.labels import LabelledSet
from judgelm.errors import ConfigError, InputError
from judgelm.metrics.benchmark_scores import (
    Scored,
    SectionScores,
    TiesPrompt,
    first_place_share,
    right_by_vote,
    section_scores,
    ties_score,
)
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.records import Judgment, Label
from judgelm.studies.pairing import by_id, label_of, orders_of, pair_winner
from judgelm.studies.result import Bars, Cell, Column, Group, StudyResult, Table
from judgelm.studies.sentences import said_share

_TIES = "Ties"
_ADVERSARIAL = ("Neighbor", "GPTInst", "GPTOut", "Manual")


def benchmark_study(
    name: str, judgments: Mapping[str, Judgment], labelled: LabelledSet, how: Resampling | None = None
) -> StudyResult:
    """Scores of a benchmark's subsets, of its sections, and overall, by its own rules.

    Args:
        name: of the benchmark, as `judgelm data import` calls it.
        judgments: by sample id.
        labelled: the imported rows; a row's category is its subset.
        how: seed and number of resamples; the defaults when None.

    Raises:
        ConfigError: no such benchmark, or one that `judgelm eval` measures.
        InputError: no judgment has a label, or judgments are not of the kind that the benchmark asks for.
    """
    how = how or Resampling()
    benchmark = get_benchmark(name)
    if name not in SCHEMES:
        known = ", ".join(SCHEMES)
        raise ConfigError(f"{name}: measured by `judgelm eval` ({benchmark.protocol}) This study knows: {known}")
    scheme = SCHEMES[name]
    joined = _joined(by_id(judgments), labelled)
    ties = [one for one in joined if scheme.ties and one.subset == _TIES]
    rest = [one for one in joined if not (scheme.ties and one.subset == _TIES)]
    found = _scores(scheme, rest, how) if rest else None
    tied = ties_score([_ties_prompt(one) for one in ties], how) if ties else None
    overall = _overall(scheme, found, tied)
    agreeing = _consistency(joined, how)
    failed = sum(one.judgment.failure is not None for one in joined)
    return StudyResult(
        study="benchmark",
        title=f"{name} by its own protocol",
        protocol=f"{benchmark.protocol} Intervals: 95 %, {how.resamples} resamples of questions (seed {how.seed}).",
        findings=tuple(_findings(name, overall, found, tied)),
        counts={"judged": len(joined), "failed": failed, "rows_without_judgment": len(labelled.labels) - len(joined)},
        tables=tuple(_tables(scheme, found, tied, overall, agreeing)),
        figures=(_bars(found, tied),),
        warnings=tuple(_warnings(scheme, joined, len(labelled.labels))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joined:
    """A judgment with its label and subset."""

    judgment: Judgment
    label: Label
    subset: str
    cluster: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How a benchmark counts.

    Attributes:
        credit: of one judgment, in [0, 1].
        sections: name -> subset -> weight; None: all subsets are one section, weighted by their numbers of prompts.
        both_orders: whether each pair is to be judged in both.
        ties: whether the subset Ties is scored by margins, and is a section of its own.
        averaged: whether the sections' mean is the benchmark's score.
    """

    credit: Callable[[_Joined], float]
    sections: Mapping[str, Mapping[str, float]] | None = None
    both_orders: bool = True
    ties: bool = False
    averaged: bool = True


def _joined(judgments: Mapping[str, Judgment], labelled: LabelledSet) -> list[_Joined]:
    subsets = labelled.groups.get("category", {})
    found = [
        _Joined(
            judgment=judgment,
            label=labelled.labels[key],
            subset=subsets.get(key, "not given"),
            cluster=labelled.samples[key].question if key in labelled.samples else key,
        )
        for key, judgment in judgments.items()
        if key in labelled.labels
    ]
    if not found:
        raise InputError("benchmark: no judgment has a label; give the rows that were judged, as imported")
    return found


def _scores(scheme: Scheme, joined: Sequence[_Joined], how: Resampling) -> SectionScores:
    scored = [Scored(subset=one.subset, credit=scheme.credit(one), cluster=one.cluster) for one in joined]
    sections: dict[str, Mapping[str, float]] = dict(scheme.sections or {})
    known = {subset for weights in sections.values() for subset in weights}
    others = [one.subset for one in scored if one.subset not in known]
    if scheme.sections is None:
        sections = {"all": {subset: float(others.count(subset)) for subset in dict.fromkeys(others)}}
    elif others:
        raise InputError(f'benchmark: category "{others[0]}" is none of its subsets; give the rows as imported')
    return section_scores(scored, sections, how)


def _orders(joined: _Joined) -> list[int | None]:
    """What each order said, put back in sample order; a judgment that failed before its second order has one."""
    orders = orders_of(joined.judgment)
    if orders is None:
        raise InputError(f"judgment {joined.judgment.sample_id}: two orders without what each of them said")
    return [orders.given.label] + ([] if orders.swapped is None else [orders.swapped.label])


def _truth(joined: _Joined) -> int:
    return label_of(pair_winner(joined.label))


def _half_for_ties(joined: _Joined) -> float:
    winner = joined.judgment.winner
    if winner is None and joined.judgment.verdict is not None:
        raise InputError(f"judgment {joined.judgment.sample_id} is not of a pair; judge this benchmark with mode pair")
    return 0.5 if winner in (None, "tie") else float(label_of(winner) == _truth(joined))


def _vote(joined: _Joined) -> float:
    return float(right_by_vote(_orders(joined), _truth(joined)))


def _each_order(joined: _Joined) -> float:
    return float(np.mean([said == _truth(joined) for said in _orders(joined)]))


def _every_order(joined: _Joined) -> float:
    return float(all(said == _truth(joined) for said in _orders(joined)))


def _best_of_four(joined: _Joined) -> float:
    right, scores = _right_places(joined), joined.judgment.scores
    if joined.judgment.failure is not None or scores is None:
        return 1 / len(joined.label.scores or ())
    return first_place_share(scores, right[0])


def _right_places(joined: _Joined) -> list[int]:
    """Indices of the right answers, which have the score 1 among the labels."""
    label, scores = joined.label.scores, joined.judgment.scores
    if label is None or (scores is not None and len(scores) != len(label)):
        raise InputError(
            f"judgment {joined.judgment.sample_id}: not the scores of {len(label or ())} answers; judge this benchmark "
            "with --mode multi"
        )
    return [place for place, score in enumerate(label) if score == 1]


def _ties_prompt(joined: _Joined) -> TiesPrompt:
    """The rows' ids are `tied:N` and `ref:N`."""
    kind, colon, key = joined.label.sample_id.partition(":")
    if not colon or kind not in ("tied", "ref"):
        raise InputError(f'row {joined.label.sample_id}: expected an id "tied:N" or "ref:N" in {_TIES}; import it anew')
    right, scores = _right_places(joined), joined.judgment.scores
    if scores is None:
        return TiesPrompt(key=key, tied=kind == "tied", right=None, wrong=None)
    return TiesPrompt(
        key=key,
        tied=kind == "tied",
        right=tuple(scores[place] for place in right),
        wrong=tuple(score for place, score in enumerate(scores) if place not in right),
    )


SCHEMES: Mapping[str, Scheme] = {
    "rewardbench": Scheme(credit=_half_for_ties, sections=SECTIONS, both_orders=False),
    "rewardbench-2": Scheme(
        credit=_best_of_four,
        sections={subset: {subset: 1.0} for subset in SECOND_SUBSETS if subset != _TIES},
        both_orders=False,
        ties=True,
    ),
    "judgebench": Scheme(credit=_vote),
    "llmbar": Scheme(
        credit=_each_order,
        sections={"Natural": {"Natural": 1.0}, "Adversarial": dict.fromkeys(_ADVERSARIAL, 1.0)},
        averaged=False,
    ),
    "auto-j": Scheme(credit=_every_order),
}
"""The benchmarks that this study measures."""


def _overall(scheme: Scheme, found: SectionScores | None, tied: Estimate | None) -> Estimate | float | None:
    """The benchmark's one score; with Ties a bare number, since the two parts are of different prompts."""
    if not scheme.averaged or (found is None and tied is None):
        return None
    if tied is None:
        return found.overall if found is not None else None
    parts = [one.value for one in found.sections.values()] if found is not None else []
    return float(np.mean([*parts, tied.value]))


def _consistency(joined: Sequence[_Joined], how: Resampling) -> Estimate | None:
    """Share of pairs on which two readable orders say the same; None where there are none."""
    twice = [(one, _orders(one)) for one in joined if len(one.judgment.shown) == 2 and one.label.winner is not None]
    read = [(one, said) for one, said in twice if len(said) == 2 and None not in said]
    if not read:
        return None
    return share(np.array([said[0] == said[1] for _, said in read]), [one.cluster for one, _ in read], how)


def _tables(
    scheme: Scheme,
    found: SectionScores | None,
    tied: Estimate | None,
    overall: Estimate | float | None,
    agreeing: Estimate | None,
) -> list[Table]:
    rows: list[tuple[Cell, ...]] = [] if overall is None else [("overall", overall)]
    rows += list(found.sections.items()) if found is not None and scheme.sections is not None else []
    rows += [(_TIES, tied)] if tied is not None else []
    rows += [("both orders agree", agreeing)] if agreeing is not None else []
    tables = [
        Table(
            name="scores",
            title="Scores",
            columns=(Column(key="name", heading=""), Column(key="score", heading="score", kind="share")),
            rows=tuple(rows),
            note="Failures count as the protocol says. An overall score that Ties is part of has no interval.",
        )
    ]
    if found is not None:
        weights = {subset: weight for kept in (scheme.sections or {}).values() for subset, weight in kept.items()}
        tables.append(
            Table(
                name="subsets",
                title="Subsets",
                columns=(
                    Column(key="subset", heading="subset"),
                    Column(key="score", heading="score", kind="share"),
                    Column(key="weight", heading="weight in its section", kind="number"),
                ),
                rows=tuple((name, one, weights.get(name, float(one.n))) for name, one in found.subsets.items()),
            )
        )
    return tables


def _bars(found: SectionScores | None, tied: Estimate | None) -> Bars:
    named = dict(found.subsets) if found is not None else {}
    named |= {} if tied is None else {_TIES: tied}
    return Bars(
        name="by-subset",
        title="Score of each subset",
        x_label="Subset",
        y_label="Score",
        categories=tuple(named),
        groups=(Group(name="score", values=tuple(named.values())),),
    )


def _findings(
    name: str, overall: Estimate | float | None, found: SectionScores | None, tied: Estimate | None
) -> list[str]:
    said = f"{100 * overall:.1f} %" if isinstance(overall, float) else "" if overall is None else said_share(overall)
    lines = [f"{name}: {said} overall."] if said else []
    parts = {} if found is None else dict(found.sections)
    parts |= {} if tied is None else {_TIES: tied}
    if len(parts) > 1:
        lines.append("; ".join(f"{section} {said_share(one)}" for section, one in parts.items()) + ".")
    return lines


def _warnings(scheme: Scheme, joined: Sequence[_Joined], labels: int) -> list[str]:
    lines = []
    if len(joined) < labels:
        lines.append(f"{labels - len(joined):,} of {labels:,} rows have no judgment: this is not the whole benchmark.")
    once = sum(len(one.judgment.shown) < 2 for one in joined)
    if scheme.both_orders and once:
        lines.append(f"{once:,} pairs were judged in one order; the protocol asks for both (--both-orders).")
    return lines
