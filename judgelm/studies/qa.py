"""The QA-Judge analyses: agreement with annotators, answer types, prompts, and self-preference.

Source: QA-Judge (*Reassessing Extractive QA Datasets at Scale*), sections 5 and 6.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from judgelm.errors import InputError
from judgelm.metrics.correlation import F1_THRESHOLDS, MeanCorrelation, Rated, correlation, mean_correlation
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.studies import qa_scores
from judgelm.studies.qa_scores import Counting, Labelling, ModelPreference, QaAnswer, QaRun
from judgelm.studies.result import Forest, Layouts, Row, StudyResult, Table, columns
from judgelm.studies.sentences import format_number, format_points, format_share

LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))

FEW = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class QaOptions:
    """Options for the study.

    Attributes:
        failures: exclude unlabelled answers, or count them `as_incorrect` like the original code.
        siblings: answering model -> judge from the same family, for sibling preference.
        own: answering model -> its name as a judge, if the names differ.
        types_judge: judge for the answer types; None selects the judge that correlates best with annotators.
    """

    failures: qa_scores.QaFailureHandling = "excluded"
    siblings: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    types_judge: str | None = None
    resampling: Resampling = field(default_factory=Resampling)


def qa_study(answers: Sequence[QaAnswer], runs: Sequence[QaRun], options: QaOptions | None = None) -> StudyResult:
    """Build all tables and figures for the answers and runs (one run per judge and prompt).

    Only the first run of each judge is used, except in prompt comparisons.

    Raises:
        InputError: answers or runs are missing, two runs have the same judge and prompt, or a judge is unknown.
    """
    options = options or QaOptions()
    _check(answers, runs, options)
    counting = Counting(failures=options.failures, resampling=options.resampling)
    first: dict[str, QaRun] = {}
    for run in runs:
        first.setdefault(run.judge, run)
    main = list(first.values())
    people = any(answer.human is not None for answer in answers)
    types = _types_judge(answers, main, options, counting if people else None)
    tables: list[Table | None] = [qa_scores.score_table(answers, main, counting)]
    tables.append(qa_scores.judged_everywhere_table(answers, runs, counting))
    if people:
        tables.append(_human_table(answers, main, counting))
        tables += [_threshold_table(answers, counting), _prompt_table(answers, runs, counting)]
    by_type, type_forest = _types(answers, types, counting, people=people)
    by_name = {model: options.own.get(model, model) for model in {answer.model for answer in answers}}
    own, siblings = (
        qa_scores.model_preferences(answers, main, judges, counting) for judges in (by_name, options.siblings)
    )
    tables.append(by_type)
    for name, preferred in (("self-preference", own), ("sibling-preference", siblings)):
        if preferred:
            tables.append(qa_scores.preference_table(name, preferred))
    tables += [qa_scores.judge_table(answers, runs), _authors_table(answers, runs, counting, people=people)]
    return StudyResult(
        study="qa",
        title="Short answers: exact match, F1, judges, and annotators",
        protocol=_protocol(options),
        findings=_findings(answers, main, counting, own, people=people),
        counts=_counts(answers, runs),
        tables=tuple(table for table in tables if table is not None),
        figures=(type_forest,),
        warnings=_warnings(answers, runs, own),
    )


def _check(answers: Sequence[QaAnswer], runs: Sequence[QaRun], options: QaOptions) -> None:
    if not answers or not runs:
        raise InputError(f"qa study: expected answers and runs, got {len(answers)} answers and {len(runs)} runs")
    names = [run.name for run in runs]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"qa study: {doubled[0]} has two runs; tell their prompts apart with JUDGE:PROMPT=FILE")
    judges = {run.judge for run in runs}
    wanted = {*options.siblings.values(), *options.own.values()} | ({options.types_judge} - {None})
    if unknown := sorted(str(name) for name in wanted - judges):
        raise InputError(f"qa study: no run by judge {unknown[0]!r}; available: {', '.join(sorted(judges))}")
    if not any(answer.id in run.judgments for run in runs for answer in answers):
        raise InputError("qa study: no judgment id matches an answer; pass the answer file that was judged")


def _types_judge(
    answers: Sequence[QaAnswer], main: Sequence[QaRun], options: QaOptions, counting: Counting | None
) -> QaRun:
    if options.types_judge is not None:
        return next(run for run in main if run.judge == options.types_judge)
    if counting is None:
        return main[0]
    means = [_correlations(answers, run.cascade_label, counting).average.mean for run in main]
    return max(zip(means, main, strict=True), key=lambda pair: -2 if pair[0] is None else pair[0].value)[1]


def _types(answers: Sequence[QaAnswer], run: QaRun, counting: Counting, *, people: bool) -> tuple[Table, Forest]:
    shares = qa_scores.type_shares(answers, run, counting)
    agreed = {name: _type_correlation(answers, name, run, counting) for name in shares} if people else {}
    types = LAYOUTS.table(
        "types",
        [(name, n, false, share, agreed.get(name)) for name, (n, false, share) in shares.items()],
        judge=run.name,
        undefined=UNDEFINED,
    )
    return types, qa_scores.type_figure(run, shares)


def _protocol(options: QaOptions) -> str:
    excluded = options.failures == "excluded"
    treated = "are excluded and reported" if excluded else "count as incorrect, as in the original code"
    return (
        f"Exact matches count as correct even if the judge disagrees. Unlabelled answers {treated}. Intervals are "
        f"95 % percentile intervals from {options.resampling.resamples:,} resamples of questions."
    )


def _findings(
    answers: Sequence[QaAnswer],
    main: Sequence[QaRun],
    counting: Counting,
    own: Sequence[ModelPreference],
    *,
    people: bool,
) -> tuple[str, ...]:
    sentences = _agreement_sentences(answers, main, counting) if people else []
    gaps = qa_scores.gaps_to_em(answers, main, counting)
    for which, gap in zip(("widest", "narrowest"), dict.fromkeys((gaps[0], gaps[-1]) if gaps else ()), strict=False):
        sentences.append(
            f"The {which} gap between a judge and EM is {format_points(gap.points)}: {gap.judge} on answers by "
            f"{gap.model} in {gap.data_set}."
        )
    for row in own:
        strictest = row.shares[0].share
        if strictest is not None:
            sentences.append(
                f"{format_share(strictest)} of {row.model}'s answers with EM 0 are called correct only by {row.judge}."
            )
    false = [answer for answer in answers if not answer.gate.exact]
    for run in main:
        missed = counting.share(false, run.label)
        if missed is not None:
            sentences.append(f"Of all answers with EM 0, {run.name} calls {format_share(missed)} correct.")
    return tuple(sentences)


def _agreement_sentences(answers: Sequence[QaAnswer], main: Sequence[QaRun], counting: Counting) -> list[str]:
    labellings: dict[str, Labelling] = {run.name: run.cascade_label for run in main}
    sentences = []
    for name, labelling in (labellings | {"Exact match": lambda answer: answer.gate.exact}).items():
        average = _correlations(answers, labelling, counting).average
        if average.mean is None:
            sentences.append(f"{name}: the correlation with annotators is undefined for every answering model.")
            continue
        models = f"{average.defined} answering model{'s' * (average.defined != 1)}"
        left_out = f"; it is undefined for {len(average.undefined)} more" if average.undefined else ""
        sentences.append(
            f"{name}: the correlation with annotators is {format_number(average.mean)}, averaged over "
            f"{models}{left_out}."
        )
    return sentences


def _counts(answers: Sequence[QaAnswer], runs: Sequence[QaRun]) -> dict[str, int]:
    return {
        "answers": len(answers),
        "questions": len({answer.question for answer in answers}),
        "answering_models": len({answer.model for answer in answers}),
        "exact_matches": sum(answer.gate.exact for answer in answers),
        "human_labels": sum(answer.human is not None for answer in answers),
        "runs": len(runs),
        "without_label": sum(run.label(answer) is None for run in runs for answer in answers),
    }


def _warnings(answers: Sequence[QaAnswer], runs: Sequence[QaRun], own: Sequence[ModelPreference]) -> tuple[str, ...]:
    warnings = []
    for run in runs:
        reasons = run.reasons(answers)
        unread, missing = reasons["read as incorrect"], reasons["not judged"]
        failed = sum(run.label(answer) is None for answer in answers) - missing
        if failed:
            warnings.append(f"{run.name}: {failed:,} of {len(answers):,} answers have no label because judging failed.")
        if missing:
            warnings.append(f"{run.name}: {missing:,} of {len(answers):,} answers were not judged.")
        other = sum(run.by_exact_match(answer) and not answer.gate.exact for answer in answers)
        if other:
            warnings.append(
                f"{run.name}: {other:,} answers were decided by exact matches under different rules; use the rules "
                "of the run."
            )
        if unread:
            warnings.append(f"{run.name}: {unread:,} replies contain neither verdict and count as incorrect.")
    for row in own:
        if row.shares[0].others != 6:
            warnings.append(
                f"Self-preference of {row.judge} is measured against {row.shares[0].others} other judges. The "
                f"thresholds of 83 % and 67 % were chosen for six; here they correspond to at least "
                f"{row.shares[1].needed} and {row.shares[2].needed} judges."
            )
            break
    few = sum(answer.human is not None for answer in answers)
    if 0 < few < FEW:
        warnings.append(f"Only {few} answers have a human label, so the correlations are uncertain.")
    return tuple(warnings)


UNDEFINED = (
    "A correlation is undefined if one side is constant (all or none correct) or there are fewer than two answers. "
    "Undefined correlations are excluded from the average."
)


class _Correlations(NamedTuple):
    by_model: dict[str, Estimate | None]
    average: MeanCorrelation


def _correlations(answers: Sequence[QaAnswer], labelling: Labelling, counting: Counting) -> _Correlations:
    models = dict.fromkeys(answer.model for answer in answers if answer.human is not None)
    groups = {model: _rated([each for each in answers if each.model == model], labelling, counting) for model in models}
    by_answering_model = {model: correlation(group, counting.resampling) for model, group in groups.items()}
    return _Correlations(by_answering_model, mean_correlation(groups, counting.resampling))


def _rated(answers: Sequence[QaAnswer], labelling: Labelling, counting: Counting) -> Rated:
    counted = counting.counted([answer for answer in answers if answer.human is not None], labelling)
    return Rated(
        human=np.array([answer.human for answer, _ in counted], dtype=bool),
        judged=np.array([label for _, label in counted], dtype=bool),
        questions=[answer.question for answer, _ in counted],
    )


def _f1_at(threshold: float) -> Labelling:
    return lambda answer: answer.gate.f1 >= threshold


def _human_table(answers: Sequence[QaAnswer], runs: Sequence[QaRun], counting: Counting) -> Table:
    labellings: dict[str, Labelling] = {run.name: run.cascade_label for run in runs}
    labellings |= {"EM": lambda answer: answer.gate.exact, "F1 of 0.5 and more": _f1_at(0.5)}
    by_labelling = {name: _correlations(answers, labelling, counting) for name, labelling in labellings.items()}
    return _table("human-correlation", by_labelling)


def _threshold_table(answers: Sequence[QaAnswer], counting: Counting) -> Table:
    by_threshold = {f"F1 ≥ {cut:g}": _correlations(answers, _f1_at(cut), counting) for cut in F1_THRESHOLDS}
    return _table("f1-thresholds", by_threshold)


def _table(name: str, by_labelling: Mapping[str, _Correlations]) -> Table:
    models = list(dict.fromkeys(model for correlation in by_labelling.values() for model in correlation.by_model))
    rows: list[Row] = [(model, *(each.by_model.get(model) for each in by_labelling.values())) for model in models]
    rows.append(("average", *(each.average.mean for each in by_labelling.values())))
    computed = columns("number", ((qa_scores.slug(key.replace("≥", "from")), key) for key in by_labelling))
    return LAYOUTS.table(name, rows, *computed, undefined=UNDEFINED)


def _prompt_table(answers: Sequence[QaAnswer], runs: Sequence[QaRun], counting: Counting) -> Table | None:
    variants = list(dict.fromkeys(run.variant for run in runs))
    judges = list(dict.fromkeys(run.judge for run in runs))
    if len(variants) < 2:
        return None
    averages = {
        (run.judge, run.variant): _correlations(answers, run.cascade_label, counting).average.mean for run in runs
    }
    rows: list[Row] = []
    for judge in judges:
        cells = [averages.get((judge, variant)) for variant in variants]
        values = [cell.value for cell in cells if cell is not None]
        rows.append((judge, *cells, *prompt_spread(values)))
    prompts = columns("number", ((f"prompt_{qa_scores.slug(name)}", name) for name in variants))
    spread = columns("number", maximum="maximum", mean="mean", variance="variance")
    return LAYOUTS.table("prompts", rows, *prompts, *spread, undefined=UNDEFINED)


def prompt_spread(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the maximum, mean, and sample variance (n - 1, as in Table 7); None if undefined."""
    if not values:
        return None, None, None
    return max(values), statistics.fmean(values), statistics.variance(values) if len(values) > 1 else None


def _authors_table(answers: Sequence[QaAnswer], runs: Sequence[QaRun], counting: Counting, *, people: bool) -> Table:
    rules: dict[qa_scores.AuthorsRule, str] = {
        "first": "first tags, or whole reply",
        "last_on_line": "last tags on a line (Mistral)",
    }
    rows: list[Row] = []
    for run in runs:
        unlabelled = sum(run.label(answer) is None for answer in answers if answer.id in run.judgments)
        own = _correlations(answers, run.cascade_label, counting).average.mean if people else None
        score = counting.share(answers, run.cascade_label)
        for rule, words in rules.items():
            labelling = partial(run.authors_label, rule=rule)
            read = Counter(run.authors_reading(answer, rule) for answer in answers)
            theirs = _correlations(answers, labelling, counting).average.mean if people else None
            counts = (read.total() - read[None], read["correct"], read["incorrect"], read["neither"], unlabelled)
            share = counting.share(answers, labelling)
            rows.append((run.judge, run.variant, words, *counts, share, score, theirs, own))
    return LAYOUTS.table("authors-failures", rows, undefined=UNDEFINED)


def _type_correlation(answers: Sequence[QaAnswer], name: str, run: QaRun, counting: Counting) -> Estimate | None:
    members = [answer for answer in answers if answer.answer_type == name]
    return correlation(_rated(members, run.cascade_label, counting), counting.resampling)
