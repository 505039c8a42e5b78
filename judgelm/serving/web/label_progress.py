"""Agreement with the user's labels as it grows: after each label, with its interval."""

from collections.abc import Mapping

import numpy as np

from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.records import Label
from judgelm.reports.wording import bounds, percent
from judgelm.serving.web.browse_state import BrowseState
from judgelm.serving.web.charts import agreement_curve
from judgelm.serving.web.markup import sentences
from judgelm.serving.web.runs import Run
from judgelm.studies.evaluation import Evaluation, evaluate

MOST_POINTS = 40
"""Points of the curve at most; of more labels every so many are drawn, and the last."""

_STOPPING = "Decide beforehand how many pairs you label: a stop when the number looks good makes it too good."


def evaluate_labels(browsing: BrowseState, run: Run) -> Evaluation | None:
    """A run's agreement with the labels made here, by the order rule of `evaluate`; None where no label joins."""
    labels = {
        key: Label(sample_id=key, winner=winner) for key, winner in browsing.labels.items() if key in run.judgments
    }
    if not labels:
        return None
    return evaluate({key: run.judgments[key] for key in labels}, labels, clusters=browsing.run.questions or None)


def progress_html(browsing: BrowseState) -> str:
    """The labels so far in a line beside the buttons: their number, and the agreement with its interval."""
    evaluation = evaluate_labels(browsing, browsing.run)
    text = "No labels yet: the agreement appears here with the first."
    if evaluation is not None:
        labels = "1 label" if evaluation.counts.joined == 1 else f"{evaluation.counts.joined:,} labels"
        text = f"{labels}: {agreement_words(evaluation)}."
    return f'<div class="jl-progress" role="status">{sentences([text])}</div>'


def agreement_words(evaluation: Evaluation) -> str:
    """`agreement 75.0 % (95 % interval 30.1 to 95.4, n = 4)`, or why there is none."""
    if evaluation.headline is None or evaluation.counts.judged == 0:
        return "no agreement, since all their judgments failed"
    accuracy = evaluation.headline.accuracy
    return f"agreement {percent(accuracy.value)} (95\u00a0% interval {bounds(accuracy)}, n = {accuracy.n:,})"


def growth_html(browsing: BrowseState, evaluation: Evaluation) -> str:
    """The curve of the agreement over the labels in the order given; empty below two judged labels."""
    labelled = [key for key in browsing.labels if key in browsing.run.judgments]
    growth = agreement_growth(labelled, evaluation, browsing.run.questions)
    return agreement_curve(growth) + sentences([_STOPPING]) if len(growth) > 1 else ""


def agreement_growth(labelled: list[str], evaluation: Evaluation, questions: Mapping[str, str]) -> list[Estimate]:
    """Agreement after the first labels, after one more, and so on; failed judgments are left out.

    Args:
        labelled: ids of the evaluated samples in the order of their labels.
        evaluation: of all these labels.
        questions: by sample id; pairs of one question are resampled together. Empty resamples single pairs.
    """
    wrong = {each.sample_id for each in evaluation.disagreements}
    failed = set(evaluation.failed)
    keys = [key for key in labelled if key not in failed]
    hits = np.array([key not in wrong for key in keys])
    clusters = [questions.get(key, key) for key in keys]
    every = -(-len(keys) // MOST_POINTS) if keys else 1
    counts = sorted({*range(every, len(keys) + 1, every), len(keys)} - {0})
    return [share(hits[:count], clusters[:count], Resampling()) for count in counts]
