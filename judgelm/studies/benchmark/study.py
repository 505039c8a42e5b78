"""The study of one benchmark: scores of its subsets and sections, and what else its makers report.

`judgelm.data.benchmarks` states each protocol in words; here are those that `judgelm eval` does not take: RewardBench's
sections, RewardBench 2's best of four and ties, JudgeBench's vote, LLMBar's and Auto-J's two orders, FairEval's means,
and Prometheus' correlations of grades.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from judgelm.data.benchmarks.catalog import get_benchmark
from judgelm.data.labelled_set import LabelledSet
from judgelm.errors import ConfigError, InputError
from judgelm.metrics.benchmark_scores import Scored, SectionScores, section_scores, ties_score
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.records import Judgment
from judgelm.studies.benchmark.grades import GRADED, grades_study
from judgelm.studies.benchmark.joined import JoinedJudgment, join_judgments, protocol_of_intervals
from judgelm.studies.benchmark.orders import consistency
from judgelm.studies.benchmark.scoring_rules import SCORING_RULES, TIES, ScoringRule, ties_prompt
from judgelm.studies.pair_labels import by_id
from judgelm.studies.result import Bars, Group, Row, StudyResult, Table, columns, table
from judgelm.studies.sentences import format_share


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
    if name == GRADED:
        return grades_study(benchmark, join_judgments(by_id(judgments), labelled), len(labelled.labels), how)
    if name not in SCORING_RULES:
        known = ", ".join([*SCORING_RULES, GRADED])
        raise ConfigError(f"{name}: measured by `judgelm eval` ({benchmark.protocol}) This study knows: {known}")
    scheme = SCORING_RULES[name]
    joined = join_judgments(by_id(judgments), labelled)
    ties = [one for one in joined if scheme.ties and one.subset == TIES]
    rest = [one for one in joined if not (scheme.ties and one.subset == TIES)]
    found = _scores(scheme, rest, how) if rest else None
    tied = ties_score([ties_prompt(one) for one in ties], how) if ties else None
    overall = _overall(scheme, found, tied)
    more = None if scheme.counts is None else scheme.counts(joined, how)
    failed = sum(one.judgment.failure is not None for one in joined)
    return StudyResult(
        study="benchmark",
        title=f"{name} by its own protocol",
        protocol=f"{benchmark.protocol} {protocol_of_intervals(how)}",
        findings=(*_findings(name, overall, found, tied), *(more.findings if more else ())),
        counts={"judged": len(joined), "failed": failed, "rows_without_judgment": len(labelled.labels) - len(joined)},
        tables=(*_tables(scheme, found, tied, overall, consistency(joined, how)), *([more.table] if more else [])),
        figures=(_bars(found, tied),),
        warnings=tuple(_warnings(scheme, joined, len(labelled.labels))),
    )


def _scores(scheme: ScoringRule, joined: Sequence[JoinedJudgment], how: Resampling) -> SectionScores:
    scored = [Scored(subset=one.subset, credit=scheme.credit(one), cluster=one.cluster) for one in joined]
    sections: dict[str, Mapping[str, float]] = dict(scheme.sections or {})
    known = {subset for weights in sections.values() for subset in weights}
    others = [one.subset for one in scored if one.subset not in known]
    if scheme.sections is None:
        sections = {"all": {subset: float(others.count(subset)) for subset in dict.fromkeys(others)}}
    elif others:
        raise InputError(f'benchmark: category "{others[0]}" is none of its subsets; give the rows as imported')
    return section_scores(scored, sections, how)


def _overall(scheme: ScoringRule, found: SectionScores | None, tied: Estimate | None) -> Estimate | float | None:
    """The benchmark's one score; with Ties a bare number, since the two parts are of different prompts."""
    if not scheme.averaged or (found is None and tied is None):
        return None
    if tied is None:
        return found.overall if found is not None else None
    parts = [one.value for one in found.sections.values()] if found is not None else []
    return float(np.mean([*parts, tied.value]))


def _tables(
    scheme: ScoringRule,
    found: SectionScores | None,
    tied: Estimate | None,
    overall: Estimate | float | None,
    agreeing: Estimate | None,
) -> list[Table]:
    rows: list[Row] = [] if overall is None else [("overall", overall)]
    rows += list(found.sections.items()) if found is not None and scheme.sections is not None else []
    rows += [(TIES, tied)] if tied is not None else []
    rows += [("both orders agree", agreeing)] if agreeing is not None else []
    tables = [
        table(
            rows,
            columns("text", name=""),
            columns("share", score="score"),
            name="scores",
            title="Scores",
            note="Failures count as the protocol says. An overall score that Ties is part of has no interval.",
        )
    ]
    if found is not None:
        weights = {subset: weight for kept in (scheme.sections or {}).values() for subset, weight in kept.items()}
        tables.append(
            table(
                [(name, one, weights.get(name, float(one.n))) for name, one in found.subsets.items()],
                columns("text", subset="subset"),
                columns("share", score="score"),
                columns("number", weight="weight in its section"),
                name="subsets",
                title="Subsets",
            )
        )
    return tables


def _bars(found: SectionScores | None, tied: Estimate | None) -> Bars:
    named = dict(found.subsets) if found is not None else {}
    named |= {} if tied is None else {TIES: tied}
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
    said = f"{100 * overall:.1f} %" if isinstance(overall, float) else "" if overall is None else format_share(overall)
    lines = [f"{name}: {said} overall."] if said else []
    parts = {} if found is None else dict(found.sections)
    parts |= {} if tied is None else {TIES: tied}
    if len(parts) > 1:
        lines.append("; ".join(f"{section} {format_share(one)}" for section, one in parts.items()) + ".")
    return lines


def _warnings(scheme: ScoringRule, joined: Sequence[JoinedJudgment], labels: int) -> list[str]:
    lines = []
    if len(joined) < labels:
        lines.append(f"{labels - len(joined):,} of {labels:,} rows have no judgment: this is not the whole benchmark.")
    once = sum(len(one.judgment.shown) < 2 for one in joined)
    if scheme.both_orders and once:
        lines.append(f"{once:,} pairs were judged in one order; the protocol asks for both (--both-orders).")
    return lines
