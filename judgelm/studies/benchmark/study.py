"""Score judgments by a benchmark's own rules: subsets, sections, additional tables, and published scores."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from judgelm.data.labelled_set import LabelledSet, match_labels
from judgelm.data.sources.registry import get_benchmark
from judgelm.data.sources.source import Source, protocol_of
from judgelm.errors import ConfigError, InputError
from judgelm.metrics.benchmark_scores import Scored, SectionScores, section_scores, ties_score
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.records import Judgment
from judgelm.studies.benchmark import scoring_rules
from judgelm.studies.benchmark.published import published_findings, published_table
from judgelm.studies.benchmark.ratings import grades_report, open_qa_report
from judgelm.studies.benchmark.scoring_rules import LAYOUTS, SCORING_RULES, TIES, JoinedJudgment, Report, ScoringRule
from judgelm.studies.pair_labels import by_id
from judgelm.studies.result import DEFAULT_RESAMPLING, StudyResult, Table, forest
from judgelm.studies.sentences import format_share

_REPORTS: Mapping[str, Callable[[Source, Sequence[JoinedJudgment], Resampling], Report]] = {
    "prometheus": grades_report,
    "evouna": open_qa_report,
}


def benchmark_study(
    name: str, judgments: Mapping[str, Judgment], labelled: LabelledSet, resampling: Resampling = DEFAULT_RESAMPLING
) -> StudyResult:
    """Score judgments by the benchmark's rules: overall, by subset, and by section; a row's category is its subset.

    Raises:
        ConfigError: the benchmark is unknown, or is scored by `judgelm eval` instead.
        InputError: no judgment has a label, the same id has different texts, or judgments have the wrong kind of
            verdict.
    """
    benchmark = get_benchmark(name)
    protocol = protocol_of(benchmark)
    if name not in SCORING_RULES and name not in _REPORTS:
        known = ", ".join([*SCORING_RULES, *_REPORTS])
        raise ConfigError(f"{name}: use `judgelm eval` ({protocol.metric}) Available in this study: {known}")
    labelled, texts = match_labels(judgments, labelled, name="the rows")
    joined, labels = scoring_rules.join_judgments(by_id(judgments), labelled), len(labelled.labels)
    report = _REPORTS.get(name, _scored_report)(benchmark, joined, resampling)
    published = published_table(name)
    failed = sum(member.judgment.failure is not None for member in joined)
    intervals = f"Intervals are 95 % from {resampling.resamples} resamples of questions (seed {resampling.seed})."
    return StudyResult(
        study="benchmark",
        title=f"{benchmark.name} by its own protocol",
        protocol=f"{protocol.metric} {intervals}",
        findings=(*report.findings, *published_findings(name)),
        counts={"judged": len(joined), "failed": failed, "rows_without_judgment": labels - len(joined)},
        tables=(*report.tables, *([] if published is None else [published])),
        figures=tuple(report.figures),
        warnings=(
            *report.warnings,
            *_warnings(name, joined, labels),
            *([f"Unverified: {protocol.unverified}."] if protocol.unverified else []),
            *labelled.notes(),
            *texts.notes(),
        ),
    )


def _scored_report(benchmark: Source, joined: Sequence[JoinedJudgment], resampling: Resampling) -> Report:
    rule = SCORING_RULES[benchmark.name]
    ties = [member for member in joined if rule.ties and member.subset == TIES]
    rest = [member for member in joined if not (rule.ties and member.subset == TIES)]
    scores = _scores(rule, rest, resampling) if rest else None
    tied = {TIES: ties_score([scoring_rules.ties_prompt(member) for member in ties], resampling)} if ties else {}
    sections = {**(scores.sections if scores else {}), **tied}
    overall = _overall(rule, scores, sections, with_ties=bool(tied))
    more = (None if rule.counts is None else rule.counts(joined, resampling)) or Report([], [])
    tables = [_score_table(overall, sections if rule.sections else tied, scoring_rules.consistency(joined, resampling))]
    tables += [] if scores is None else [_subset_table(rule, scores)]
    subsets = {**(scores.subsets if scores else {}), **tied}
    figure = forest(subsets.items(), **LAYOUTS.figure("by-subset"))
    findings = [*_findings(benchmark.name, overall, sections), *more.findings]
    return Report(findings, [*tables, *more.tables], [figure])


def _scores(rule: ScoringRule, joined: Sequence[JoinedJudgment], resampling: Resampling) -> SectionScores:
    scored = [Scored(subset=member.subset, credit=rule.credit(member), cluster=member.cluster) for member in joined]
    sections: dict[str, Mapping[str, float]] = dict(rule.sections or {})
    known = {subset for weights in sections.values() for subset in weights}
    others = [part.subset for part in scored if part.subset not in known]
    if rule.sections is None:
        sections = {"all": {subset: float(others.count(subset)) for subset in dict.fromkeys(others)}}
    elif others:
        raise InputError(f'benchmark: category "{others[0]}" is not one of its subsets; pass the imported rows')
    return section_scores(scored, sections, resampling)


def _overall(
    rule: ScoringRule, scores: SectionScores | None, sections: Mapping[str, Estimate], *, with_ties: bool
) -> Estimate | float | None:
    if not rule.averaged:
        return None
    if with_ties or scores is None:
        return float(np.mean([section.value for section in sections.values()]))
    return scores.overall


def _score_table(
    overall: Estimate | float | None, sections: Mapping[str, Estimate], agreeing: Estimate | None
) -> Table:
    rows = (("overall", overall), *sections.items(), ("both orders agree", agreeing))
    return LAYOUTS.table("scores", [row for row in rows if row[1] is not None])


def _subset_table(rule: ScoringRule, scores: SectionScores) -> Table:
    weights = {subset: weight for subsets in (rule.sections or {}).values() for subset, weight in subsets.items()}
    return LAYOUTS.table(
        "subsets", [(name, score, weights.get(name, float(score.n))) for name, score in scores.subsets.items()]
    )


def _findings(name: str, overall: Estimate | float | None, sections: Mapping[str, Estimate]) -> list[str]:
    score = f"{100 * overall:.1f} %" if isinstance(overall, float) else "" if overall is None else format_share(overall)
    lines = [f"{name}: {score} overall."] if score else []
    if len(sections) > 1:
        lines.append("; ".join(f"{section} {format_share(part)}" for section, part in sections.items()) + ".")
    return lines


def _warnings(name: str, joined: Sequence[JoinedJudgment], labels: int) -> list[str]:
    lines = []
    if len(joined) < labels:
        lines.append(
            f"{labels - len(joined):,} of {labels:,} rows have no judgment, so the scores cover only part of the "
            "benchmark."
        )
    once = sum(len(member.judgment.shown) < 2 for member in joined)
    if name in SCORING_RULES and SCORING_RULES[name].both_orders and once:
        lines.append(f"{once:,} pairs were judged in one order only; the protocol requires both (--both-orders).")
    return lines
