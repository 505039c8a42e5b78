"""The study of one benchmark: scores of its subsets and sections, and its authors' further counts.

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
from judgelm.studies.result import Bars, Row, StudyResult, Table, bars, columns, table
from judgelm.studies.sentences import format_share


def benchmark_study(
    name: str, judgments: Mapping[str, Judgment], labelled: LabelledSet, resampling: Resampling | None = None
) -> StudyResult:
    """Scores of a benchmark's subsets, of its sections, and overall, by its own rules.

    Args:
        name: of the benchmark, as `judgelm data import` calls it.
        judgments: by sample id.
        labelled: the imported rows; a row's category is its subset.
        resampling: seed and number of resamples; the defaults when None.

    Raises:
        ConfigError: no such benchmark, or one that `judgelm eval` measures.
        InputError: no judgment has a label, or judgments are not of the kind that the benchmark asks for.
    """
    resampling = resampling or Resampling()
    benchmark = get_benchmark(name)
    if name == GRADED:
        return grades_study(benchmark, join_judgments(by_id(judgments), labelled), len(labelled.labels), resampling)
    if name not in SCORING_RULES:
        known = ", ".join([*SCORING_RULES, GRADED])
        raise ConfigError(f"{name}: measured by `judgelm eval` ({benchmark.protocol}) This study knows: {known}")
    scheme = SCORING_RULES[name]
    joined = join_judgments(by_id(judgments), labelled)
    ties = [member for member in joined if scheme.ties and member.subset == TIES]
    rest = [member for member in joined if not (scheme.ties and member.subset == TIES)]
    sections = _scores(scheme, rest, resampling) if rest else None
    tied = ties_score([ties_prompt(member) for member in ties], resampling) if ties else None
    overall = _overall(scheme, sections, tied)
    more = None if scheme.counts is None else scheme.counts(joined, resampling)
    failed = sum(member.judgment.failure is not None for member in joined)
    return StudyResult(
        study="benchmark",
        title=f"{name} by its own protocol",
        protocol=f"{benchmark.protocol} {protocol_of_intervals(resampling)}",
        findings=(*_findings(name, overall, sections, tied), *(more.findings if more else ())),
        counts={"judged": len(joined), "failed": failed, "rows_without_judgment": len(labelled.labels) - len(joined)},
        tables=(
            *_tables(scheme, sections, tied, overall, consistency(joined, resampling)),
            *([more.table] if more else []),
        ),
        figures=(_bars(sections, tied),),
        warnings=tuple(_warnings(scheme, joined, len(labelled.labels))),
    )


def _scores(scheme: ScoringRule, joined: Sequence[JoinedJudgment], resampling: Resampling) -> SectionScores:
    scored = [Scored(subset=member.subset, credit=scheme.credit(member), cluster=member.cluster) for member in joined]
    sections: dict[str, Mapping[str, float]] = dict(scheme.sections or {})
    known = {subset for weights in sections.values() for subset in weights}
    others = [part.subset for part in scored if part.subset not in known]
    if scheme.sections is None:
        sections = {"all": {subset: float(others.count(subset)) for subset in dict.fromkeys(others)}}
    elif others:
        raise InputError(f'benchmark: category "{others[0]}" is none of its subsets; give the rows as imported')
    return section_scores(scored, sections, resampling)


def _overall(scheme: ScoringRule, sections: SectionScores | None, tied: Estimate | None) -> Estimate | float | None:
    """The benchmark's one score; with Ties a bare number, since the two parts are of different prompts."""
    if not scheme.averaged or (sections is None and tied is None):
        return None
    if tied is None:
        return sections.overall if sections is not None else None
    parts = [section.value for section in sections.sections.values()] if sections is not None else []
    return float(np.mean([*parts, tied.value]))


def _tables(
    scheme: ScoringRule,
    sections: SectionScores | None,
    tied: Estimate | None,
    overall: Estimate | float | None,
    agreeing: Estimate | None,
) -> list[Table]:
    rows: list[Row] = [] if overall is None else [("overall", overall)]
    rows += list(sections.sections.items()) if sections is not None and scheme.sections is not None else []
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
    if sections is not None:
        weights = {subset: weight for subsets in (scheme.sections or {}).values() for subset, weight in subsets.items()}
        tables.append(
            table(
                [(name, estimate, weights.get(name, float(estimate.n))) for name, estimate in sections.subsets.items()],
                columns("text", subset="subset"),
                columns("share", score="score"),
                columns("number", weight="weight in its section"),
                name="subsets",
                title="Subsets",
            )
        )
    return tables


def _bars(sections: SectionScores | None, tied: Estimate | None) -> Bars:
    named = dict(sections.subsets) if sections is not None else {}
    named |= {} if tied is None else {TIES: tied}
    return bars(
        {"score": named.values()},
        named,
        name="by-subset",
        title="Score of each subset",
        x_label="Subset",
        y_label="Score",
    )


def _findings(
    name: str, overall: Estimate | float | None, sections: SectionScores | None, tied: Estimate | None
) -> list[str]:
    score = f"{100 * overall:.1f} %" if isinstance(overall, float) else "" if overall is None else format_share(overall)
    lines = [f"{name}: {score} overall."] if score else []
    parts = {} if sections is None else dict(sections.sections)
    parts |= {} if tied is None else {TIES: tied}
    if len(parts) > 1:
        lines.append("; ".join(f"{section} {format_share(estimate)}" for section, estimate in parts.items()) + ".")
    return lines


def _warnings(scheme: ScoringRule, joined: Sequence[JoinedJudgment], labels: int) -> list[str]:
    lines = []
    if len(joined) < labels:
        lines.append(f"{labels - len(joined):,} of {labels:,} rows have no judgment: this is not the whole benchmark.")
    once = sum(len(member.judgment.shown) < 2 for member in joined)
    if scheme.both_orders and once:
        lines.append(f"{once:,} pairs were judged in one order; the protocol asks for both (--both-orders).")
    return lines
