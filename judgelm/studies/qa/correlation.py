"""Agreement with people: judges, EM and F1 against human labels, over prompts, thresholds and answer types.

Source: QA-Judge, sections 5.1, 6.1 and 6.3, Tables 2, 4, 7 and 10.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from judgelm.metrics.correlation import F1_THRESHOLDS, MeanCorrelation, Rated, correlation, mean_correlation
from judgelm.metrics.resampling import Estimate
from judgelm.studies.qa.answers import AuthorsRule, QaAnswer, QaRun
from judgelm.studies.qa.scores import Counting, Labelling, slug
from judgelm.studies.result import Lines, Row, Series, Table, columns, table

UNDEFINED = (
    "A correlation is undefined where a side is constant (all correct, or none) or has fewer than two answers; it is "
    "then left out of the average."
)


class Correlations(NamedTuple):
    """Of one labelling: by answering model, and their average."""

    by_model: dict[str, Estimate | None]
    average: MeanCorrelation


def correlations(answers: Sequence[QaAnswer], labelling: Labelling, counting: Counting) -> Correlations:
    """Pearson's correlation of a labelling with people's labels, for each answering model, and the average.

    Args:
        answers: those without human label are passed over.
        labelling: an answer's label; None is treated as `counting` says.
        counting: treatment of failures, and resampling.
    """
    models = dict.fromkeys(answer.model for answer in answers if answer.human is not None)
    groups = {
        model: rated([answer for answer in answers if answer.model == model], labelling, counting) for model in models
    }
    by_answering_model = {model: correlation(group, counting.resampling) for model, group in groups.items()}
    return Correlations(by_answering_model, mean_correlation(groups, counting.resampling))


def rated(answers: Sequence[QaAnswer], labelling: Labelling, counting: Counting) -> Rated:
    """The answers that have a human label and one that counts."""
    counted = counting.counted([answer for answer in answers if answer.human is not None], labelling)
    return Rated(
        human=np.array([answer.human for answer, _ in counted], dtype=bool),
        judged=np.array([label for _, label in counted], dtype=bool),
        questions=[answer.question for answer, _ in counted],
    )


def f1_at(threshold: float) -> Labelling:
    """F1 of at least the threshold counts as correct; by the gate's rules, as in the original code."""
    return lambda answer: answer.gate.f1 >= threshold


def human_table(answers: Sequence[QaAnswer], runs: Sequence[QaRun], counting: Counting) -> Table:
    """Judges, EM and F1 at 0.5 against people, by answering model (Table 2)."""
    labellings: dict[str, Labelling] = {run.name: run.cascade_label for run in runs}
    labellings |= {"EM": lambda answer: answer.gate.exact, "F1 of 0.5 and more": f1_at(0.5)}
    return _table(
        {name: correlations(answers, labelling, counting) for name, labelling in labellings.items()},
        name="human-correlation",
        title="Correlation with people's labels",
        source="QA-Judge, Table 2",
    )


def threshold_table(answers: Sequence[QaAnswer], counting: Counting) -> tuple[Table, Lines]:
    """F1 binarised at six thresholds against people (Table 10)."""
    by_threshold = {
        f"F1 ≥ {threshold:g}": correlations(answers, f1_at(threshold), counting) for threshold in F1_THRESHOLDS
    }
    thresholds = _table(
        by_threshold, name="f1-thresholds", title="Correlation of F1 with people's labels", source="QA-Judge, Table 10"
    )
    line = Lines(
        name="f1-thresholds-average",
        title="Correlation of F1 with people's labels, averaged over answering models",
        x_label="F1 that counts as correct from",
        y_label="Pearson correlation",
        series=(Series(name="average", x=F1_THRESHOLDS, y=tuple(each.average.mean for each in by_threshold.values())),),
    )
    return thresholds, line


def _table(by_labelling: Mapping[str, Correlations], *, name: str, title: str, source: str) -> Table:
    models = list(dict.fromkeys(model for correlation in by_labelling.values() for model in correlation.by_model))
    rows: list[Row] = [(model, *(each.by_model.get(model) for each in by_labelling.values())) for model in models]
    rows.append(("average", *(each.average.mean for each in by_labelling.values())))
    return table(
        rows,
        columns("text", model="answering model"),
        columns("number", ((slug(key.replace("≥", "from")), key) for key in by_labelling)),
        name=name,
        title=title,
        source=source,
        note=f"Pearson's correlation of labels that are 0 or 1. EM and F1 are those that decide whether the judge is "
        f"asked, for all data sets alike. {UNDEFINED} An interval without width belongs to perfect agreement.",
    )


def prompt_table(answers: Sequence[QaAnswer], runs: Sequence[QaRun], counting: Counting) -> Table | None:
    """The average correlation under each prompt, with maximum, mean and variance (Table 7).

    None where there is but one prompt.
    """
    variants = list(dict.fromkeys(run.variant for run in runs))
    judges = list(dict.fromkeys(run.judge for run in runs))
    if len(variants) < 2:
        return None
    averages = {
        (run.judge, run.variant): correlations(answers, run.cascade_label, counting).average.mean for run in runs
    }
    rows: list[Row] = []
    for judge in judges:
        cells = [averages.get((judge, variant)) for variant in variants]
        values = [cell.value for cell in cells if cell is not None]
        rows.append((judge, *cells, *prompt_spread(values)))
    return table(
        rows,
        columns("text", judge="judge"),
        columns("number", ((f"prompt_{slug(name)}", name) for name in variants)),
        columns("number", maximum="maximum", mean="mean", variance="variance"),
        name="prompts",
        title="Correlation with people's labels under each prompt",
        source="QA-Judge, Table 7",
        note=f"Averaged over answering models. Maximum, mean and variance (n - 1) are over the prompts that have a "
        f"figure; a prompt that a judge was not run with has none. {UNDEFINED}",
    )


def prompt_spread(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Maximum, mean and sample variance of a judge's correlations over prompts; None where undefined.

    The variance needs two of them and divides by n - 1, which is what the paper's Table 7 has.
    """
    if not values:
        return None, None, None
    return max(values), statistics.fmean(values), statistics.variance(values) if len(values) > 1 else None


def authors_table(answers: Sequence[QaAnswer], runs: Sequence[QaRun], counting: Counting, *, people: bool) -> Table:
    """Failures as the authors' code counts them, by both of its rules, beside judgelm's own count."""
    rules: dict[AuthorsRule, str] = {"first": "first tags, or all", "last_on_line": "last tags on a line (Mistral)"}
    rows: list[Row] = []
    for run in runs:
        unlabelled = sum(run.label(answer) is None for answer in answers if answer.id in run.judgments)
        own = correlations(answers, run.cascade_label, counting).average.mean if people else None
        score = counting.share(answers, run.cascade_label)
        for rule, words in rules.items():
            labelling = partial(run.authors_label, rule=rule)
            read = Counter(run.authors_reading(answer, rule) for answer in answers)
            theirs = correlations(answers, labelling, counting).average.mean if people else None
            counts = (read.total() - read[None], read["correct"], read["incorrect"], read["neither"], unlabelled)
            share = counting.share(answers, labelling)
            rows.append((run.judge, run.variant, words, *counts, share, score, theirs, own))
    return table(
        rows,
        columns("text", judge="judge", prompt="prompt", rule="label is in"),
        columns("count", asked="asked", correct="CORRECT", incorrect="INCORRECT", neither="neither: incorrect"),
        columns("count", unlabelled="without a label to judgelm"),
        columns("share", score="score, theirs", own_score="score, judgelm's"),
        columns("number", correlation="correlation with people, theirs", own_correlation="judgelm's"),
        name="authors-failures",
        title="Failures as the authors' code counts them",
        source="Alab-NII/llm-judge-extract-qa, run_judge.py and run_eval.py",
        note="Their code takes every reply that is not exactly CORRECT where the rule looks for incorrect, and does "
        "not count such replies; the paper reports no number of them. The second rule is theirs for Mistral 7B v0.3. A "
        "score is the share of answers that match exactly or are called correct. judgelm's columns read replies by the "
        "run's own rule and treat those without a label as the whole study does. "
        f"{UNDEFINED} Empty without human labels.",
    )


def type_correlations(answers: Sequence[QaAnswer], run: QaRun, counting: Counting) -> dict[str, Estimate | None]:
    """Correlation with people by answer type, all answering models together (Table 4)."""
    types = dict.fromkeys(answer.answer_type for answer in answers)
    return {
        name: correlation(
            rated([answer for answer in answers if answer.answer_type == name], run.cascade_label, counting),
            counting.resampling,
        )
        for name in types
    }
