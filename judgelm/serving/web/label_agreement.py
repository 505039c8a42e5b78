"""Agreement between a run, the user's labels, and another judge."""

import math
from collections.abc import Mapping

import numpy as np

from judgelm.metrics.agreement import cohens_kappa
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.records import Label
from judgelm.reports.wording import headline, percent
from judgelm.serving.web.browse_state import BrowseState
from judgelm.serving.web.charts import agreement_curve
from judgelm.serving.web.markup import panel, sentences
from judgelm.serving.web.runs import OpenRun
from judgelm.studies.evaluation import Evaluation, evaluate
from judgelm.studies.pair_labels import label_of
from judgelm.studies.sentences import format_percents


def agreement_html(browsing: BrowseState, *, blind: bool) -> str:
    """Render the agreement with the labels and the other judge, and the path to the label file."""
    labelled = sum(key in browsing.run.judgments for key in browsing.labels)
    evaluation = evaluate_labels(browsing, browsing.run)
    caveat = "" if blind else " Agreement is overestimated if you see the verdict before you label."
    curve = "" if evaluation is None else growth_html(browsing, evaluation)
    words = ["No labels yet."] if evaluation is None else headline(evaluation)
    parts = [panel(sentences(words), curve, title=f"Your labels ({labelled:,})")]
    file = browsing.run.label_file
    saved = (
        ""
        if file is None
        else f"Each label is saved immediately to {file.path}, which you can pass to judgelm eval --labels."
    )
    parts.append(f'<div class="jl-small">{sentences([caveat if labelled else "", saved])}</div>')
    if browsing.other is not None:
        parts.append(panel(sentences(judge_agreement(browsing)), title="Other judge"))
    return "".join(parts)


def judge_agreement(browsing: BrowseState) -> list[str]:
    """Describe the agreement between the two judges."""
    other = browsing.other
    if other is None:
        return []
    verdicts = {key: browsing.comparison(key) for key in browsing.run.judgments}
    compared = {key: comparison for key, comparison in verdicts.items() if comparison is not None}
    joined = browsing.run.judgments.keys() & other.judgments.keys()
    lines = [
        f"{browsing.run.name} and {other.name} have {len(joined):,} items in common; "
        f"{len(browsing.run.judgments) - len(joined):,} items are only in the first run and "
        f"{len(other.judgments) - len(joined):,} only in the second."
    ]
    if not compared:
        return [*lines, "No item has a verdict from both judges.", *_label_agreement(browsing)]
    clusters = _clusters(browsing, list(compared))
    same = share(np.array([comparison == "same" for comparison in compared.values()]), clusters, Resampling())
    lines.append(f"The judges agree on {percent(same.value)} of {same.n:,} items that both judged ({_interval(same)}).")
    return [*lines, *_kappa(browsing, list(compared)), *_label_agreement(browsing)]


def _label_agreement(browsing: BrowseState) -> list[str]:
    assert browsing.other is not None, "checked by the caller"
    evaluations = {run.name: evaluate_labels(browsing, run) for run in (browsing.run, browsing.other)}
    return [
        f"{name} compared with your labels: {agreement_words(evaluation)}."
        for name, evaluation in evaluations.items()
        if evaluation is not None
    ]


def _kappa(browsing: BrowseState, keys: list[str]) -> list[str]:
    assert browsing.other is not None, "checked by the caller"
    sides = [(key, browsing.run.judgments[key].winner, browsing.other.judgments[key].winner) for key in keys]
    pairs = [(key, first, second) for key, first, second in sides if first is not None and second is not None]
    if not pairs:
        return []
    first = np.array([label_of(winner) for _, winner, _ in pairs])
    second = np.array([label_of(winner) for _, _, winner in pairs])
    kappa = cohens_kappa(first, second, _clusters(browsing, [key for key, _, _ in pairs]), Resampling())
    if kappa is None:
        return [f"Cohen's kappa is undefined for these {len(pairs):,} pairs because the verdicts vary too little."]
    limits = "interval undefined" if math.isnan(kappa.low) else f"95 % interval {kappa.low:.2f} to {kappa.high:.2f}"
    return [f"Cohen's kappa {kappa.value:.2f} ({limits}, n = {kappa.n:,})."]


def _clusters(browsing: BrowseState, keys: list[str]) -> list[str] | None:
    questions = browsing.run.questions
    return [questions.get(key, key) for key in keys] if questions else None


def _interval(estimate: Estimate) -> str:
    return f"95 % interval {format_percents(estimate)}"


MAX_POINTS = 40

_STOPPING = "Decide in advance how many pairs to label. If you stop when the agreement looks good, it is overestimated."


def evaluate_labels(browsing: BrowseState, run: OpenRun) -> Evaluation | None:
    """Evaluate a run against the user's labels, or return None if no label matches an item in the run."""
    labels = {
        key: Label(sample_id=key, winner=winner) for key, winner in browsing.labels.items() if key in run.judgments
    }
    if not labels:
        return None
    return evaluate({key: run.judgments[key] for key in labels}, labels, clusters=browsing.run.questions or None)


def progress_html(browsing: BrowseState) -> str:
    """Render one line with the number of labels and the agreement so far."""
    evaluation = evaluate_labels(browsing, browsing.run)
    text = "No labels yet. The agreement will appear here after your first label."
    if evaluation is not None:
        labels = "1 label" if evaluation.counts.joined == 1 else f"{evaluation.counts.joined:,} labels"
        text = f"{labels}: {agreement_words(evaluation)}."
    return f'<div class="jl-progress" role="status">{sentences([text])}</div>'


def agreement_words(evaluation: Evaluation) -> str:
    """Describe the agreement with its interval, or why it is unknown."""
    if evaluation.headline is None or evaluation.counts.judged == 0:
        return "no agreement, because all judgments failed"
    accuracy = evaluation.headline.accuracy
    return f"agreement {percent(accuracy.value)} (95\u00a0% interval {format_percents(accuracy)}, n = {accuracy.n:,})"


def growth_html(browsing: BrowseState, evaluation: Evaluation) -> str:
    """Render the agreement curve, or "" if it has fewer than two points."""
    labelled = [key for key in browsing.labels if key in browsing.run.judgments]
    growth = agreement_growth(labelled, evaluation, browsing.run.questions)
    return agreement_curve(growth) + sentences([_STOPPING]) if len(growth) > 1 else ""


def agreement_growth(labelled: list[str], evaluation: Evaluation, questions: Mapping[str, str]) -> list[Estimate]:
    """Return the agreement after each additional label, excluding failed judgments."""
    wrong = {each.sample_id for each in evaluation.disagreements}
    failed = set(evaluation.failed)
    keys = [key for key in labelled if key not in failed]
    hits = np.array([key not in wrong for key in keys])
    clusters = [questions.get(key, key) for key in keys]
    every = -(-len(keys) // MAX_POINTS) if keys else 1
    counts = sorted({*range(every, len(keys) + 1, every), len(keys)} - {0})
    return [share(hits[:count], clusters[:count], Resampling()) for count in counts]
