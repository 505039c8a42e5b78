"""QA-Judge's analyses: exact match and F1 against judges and people, answer types, prompts, self-preference.

Source: QA-Judge (*Reassessing Extractive QA Datasets at Scale*), sections 5 and 6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from judgelm.errors import InputError
from judgelm.metrics.resampling import Resampling
from judgelm.studies import qa_scores
from judgelm.studies.qa import correlation
from judgelm.studies.qa_scores import (
    Counting,
    FailureHandling,
    Labelling,
    ModelPreference,
    QaAnswer,
    QaRun,
    model_preferences,
    preference_figure,
    preference_table,
)
from judgelm.studies.result import (
    Bars,
    Figure,
    StudyResult,
    Table,
    columns,
    format_number,
    format_points,
    format_share,
    table,
)

FEW = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class QaOptions:
    """Options of the study.

    Attributes:
        failures: `excluded` leaves out answers without a label, `as_incorrect` takes them for incorrect (the original).
        siblings: answering model -> judge of its family, for sibling-preference.
        own: answering model -> its own judge, where that has another name than the model.
        sibling_others: whether a sibling's others include the answering model's own judge; the paper does not say.
        types_judge: the judge of the analysis by answer type; None takes the one that agrees best with people, or the
            first without human labels.
        resampling: seed and number of resamples of every interval.
    """

    failures: FailureHandling = "excluded"
    siblings: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    sibling_others: bool = True
    types_judge: str | None = None
    resampling: Resampling = field(default_factory=Resampling)


def qa_study(answers: Sequence[QaAnswer], runs: Sequence[QaRun], options: QaOptions | None = None) -> StudyResult:
    """All tables and figures that the answers and runs allow.

    A judge's first run represents it wherever prompts are not compared.

    Args:
        answers: of `judgelm.studies.qa_scores.qa_answers`, of any number of models and data sets.
        runs: judgments of them, one run for each judge and prompt.
        options: how to count; the defaults when None.

    Raises:
        InputError: no answers or no runs, two runs of one judge and prompt, or a judge that is not there.
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
    tables = [
        qa_scores.score_table(answers, main, counting),
        qa_scores.judged_everywhere_table(answers, runs, counting),
    ]
    figures: list[Figure] = []
    if people:
        thresholds, line = correlation.threshold_table(answers, counting)
        tables += [
            correlation.human_table(answers, main, counting),
            thresholds,
            correlation.prompt_table(answers, runs, counting),
        ]
        figures.append(line)
    by_type, type_bars = _types(answers, types, counting, people=people)
    own, siblings = _preferences(answers, main, options, counting)
    tables += [by_type, *_preference_tables(own, siblings, options), qa_scores.judge_table(answers, runs)]
    tables.append(correlation.authors_table(answers, runs, counting, people=people))
    figures.append(type_bars)
    figures += [preference_figure(rows, kind=kind) for kind, rows in (("self", own), ("sibling", siblings)) if rows]
    return StudyResult(
        study="qa",
        title="Short answers: exact match, F1, judges and people",
        protocol=_protocol(options),
        findings=_findings(answers, main, counting, own, people=people),
        counts=_counts(answers, runs),
        tables=tuple(table for table in tables if table is not None),
        figures=tuple(figures),
        warnings=_warnings(answers, runs, own),
    )


def _check(answers: Sequence[QaAnswer], runs: Sequence[QaRun], options: QaOptions) -> None:
    if not answers or not runs:
        raise InputError(f"qa study: {len(answers)} answers and {len(runs)} runs; it needs both")
    names = [run.name for run in runs]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"qa study: two runs of {doubled[0]}; name the prompt too, as JUDGE:PROMPT=FILE")
    judges = {run.judge for run in runs}
    wanted = {*options.siblings.values(), *options.own.values()} | ({options.types_judge} - {None})
    if unknown := sorted(str(name) for name in wanted - judges):
        raise InputError(f"qa study: no run of judge {unknown[0]!r}; available: {', '.join(sorted(judges))}")
    if not any(answer.id in run.judgments for run in runs for answer in answers):
        raise InputError("qa study: no judgment has an answer (by id); give the file of answers that was judged")


def _types_judge(
    answers: Sequence[QaAnswer], main: Sequence[QaRun], options: QaOptions, counting: Counting | None
) -> QaRun:
    """The judge of the analysis by type; `counting` is None without human labels to choose by."""
    if options.types_judge is not None:
        return next(run for run in main if run.judge == options.types_judge)
    if counting is None:
        return main[0]
    means = [correlation.correlations(answers, run.cascade_label, counting).average.mean for run in main]
    return max(zip(means, main, strict=True), key=lambda pair: -2 if pair[0] is None else pair[0].value)[1]


def _types(answers: Sequence[QaAnswer], run: QaRun, counting: Counting, *, people: bool) -> tuple[Table, Bars]:
    shares = qa_scores.type_shares(answers, run, counting)
    agreed = correlation.type_correlations(answers, run, counting) if people else {}
    types = table(
        [(name, n, false, share, agreed.get(name)) for name, (n, false, share) in shares.items()],
        columns("text", type="answer type"),
        columns("count", answers="answers", em_false="with EM 0"),
        columns("share", called_correct="of these called correct"),
        columns("number", correlation="correlation with people"),
        name="types",
        title=f"By answer type, judged by {run.name}",
        source="QA-Judge, Table 4 and Figure 2",
        note=f"Types follow from rules over the question. All answering models together. {correlation.UNDEFINED} "
        "It is also empty without human labels.",
    )
    return types, qa_scores.type_figure(run, shares)


def _preferences(
    answers: Sequence[QaAnswer], main: Sequence[QaRun], options: QaOptions, counting: Counting
) -> tuple[list[ModelPreference], list[ModelPreference]]:
    own = {model: options.own.get(model, model) for model in {answer.model for answer in answers}}
    without = None if options.sibling_others else own
    return (
        model_preferences(answers, main, own, counting),
        model_preferences(answers, main, options.siblings, counting, without=without),
    )


def _preference_tables(
    own: Sequence[ModelPreference], siblings: Sequence[ModelPreference], options: QaOptions
) -> list[Table]:
    tables = []
    if own:
        tables.append(preference_table(own, kind="self", source="QA-Judge, Table 6"))
    if siblings:
        included = "includes" if options.sibling_others else "leaves out"
        note = f"Of a sibling the others are all judges but itself, which {included} the answering model's own."
        tables.append(preference_table(siblings, kind="sibling", source="QA-Judge, Table 13", note=note))
    return tables


def _protocol(options: QaOptions) -> str:
    treated = {
        "excluded": "answers without a label are left out and counted",
        "as_incorrect": "answers without a label count as incorrect, as in the original code",
    }
    return (
        f"Exact matches count as correct without asking; {treated[options.failures]}; intervals are "
        f"95 % percentile intervals over {options.resampling.resamples:,} resamples of questions."
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
            f"The {which} gap between a judge and EM is {format_points(gap.points)}: {gap.judge} on {gap.model}'s "
            f"answers, data set {gap.data_set}."
        )
    for row in own:
        strictest = row.shares[0].share
        if strictest is not None:
            sentences.append(
                f"{row.judge} alone calls {format_share(strictest)} of {row.model}'s answers with EM 0 correct."
            )
    false = [answer for answer in answers if not answer.gate.exact]
    for run in main:
        missed = counting.share(false, run.label)
        if missed is not None:
            sentences.append(f"Of all answers with EM 0, {run.name} calls {format_share(missed)} correct.")
    return tuple(sentences)


def _agreement_sentences(answers: Sequence[QaAnswer], main: Sequence[QaRun], counting: Counting) -> list[str]:
    """Correlations of the judges and of exact match with people, averaged over answering models."""
    labellings: dict[str, Labelling] = {run.name: run.cascade_label for run in main}
    sentences = []
    for name, labelling in (labellings | {"Exact match": lambda answer: answer.gate.exact}).items():
        average = correlation.correlations(answers, labelling, counting).average
        if average.mean is None:
            sentences.append(f"{name} has no correlation with people: it is undefined for every answering model.")
            continue
        models = f"{average.defined} answering model{'s' * (average.defined != 1)}"
        left_out = f"; {len(average.undefined)} undefined" if average.undefined else ""
        sentences.append(
            f"{name} correlates {format_number(average.mean)} with people, averaged over {models}{left_out}."
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
            warnings.append(f"{run.name}: {failed:,} of {len(answers):,} answers failed and have no label.")
        if missing:
            warnings.append(f"{run.name}: {missing:,} of {len(answers):,} answers were not judged.")
        other = sum(run.by_exact_match(answer) and not answer.gate.exact for answer in answers)
        if other:
            warnings.append(
                f"{run.name}: {other:,} answers were decided by an exact match that the rules given here do not see; "
                "give the rules that the run had."
            )
        if unread:
            warnings.append(
                f"{run.name}: {unread:,} replies were neither word and count as incorrect, as its rule says."
            )
    for row in own:
        if row.shares[0].others != 6:
            warnings.append(
                f"Self-preference of {row.judge} is against {row.shares[0].others} other judges; the thresholds 83 % "
                "and 67 % are made for six, and mean here at least "
                f"{row.shares[1].needed} and {row.shares[2].needed} of them."
            )
            break
    few = sum(answer.human is not None for answer in answers)
    if 0 < few < FEW:
        warnings.append(f"Only {few} answers have a human label; correlations over so few say little.")
    return tuple(warnings)
