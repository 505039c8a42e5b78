"""What labels and a second judge say about a run, in sentences with n and interval; and the files to take away."""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from judgelm.jsonl import encode_line
from judgelm.metrics.paired import cohens_kappa
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.records import Label, Winner
from judgelm.reports.wording import WINNER_NAMES, bounds, headline, percent
from judgelm.runs.serialization import judgment_row
from judgelm.serving.web.browse_state import BrowseState
from judgelm.serving.web.runs import verdict_word
from judgelm.studies.evaluation import evaluate
from judgelm.studies.pair_labels import label_of


def label_agreement(browsing: BrowseState) -> list[str]:
    """How far the judge agrees with the labels made here, by `evaluate`'s own order rule, which the sentences name."""
    labels = {
        key: Label(sample_id=key, winner=winner)
        for key, winner in browsing.labels.items()
        if key in browsing.run.judgments
    }
    if not labels:
        return ["No labels yet: the judge's agreement with yours will stand here."]
    judgments = {key: browsing.run.judgments[key] for key in labels}
    found = evaluate(judgments, labels, clusters=_questions(browsing) or None)
    return headline(found)


def judge_agreement(browsing: BrowseState) -> list[str]:
    """How often the two judges say the same of the items that both say something of."""
    other = browsing.other
    if other is None:
        return []
    beside = {key: found for key in browsing.run.judgments if (found := browsing.beside(key)) is not None}
    joined = browsing.run.judgments.keys() & other.judgments.keys()
    lines = [
        f"{browsing.run.name} and {other.name} share {len(joined):,} items; "
        f"{len(browsing.run.judgments) - len(joined):,} are only in the first and "
        f"{len(other.judgments) - len(joined):,} only in the second."
    ]
    if not beside:
        return [*lines, "Of none of them both give a verdict."]
    clusters = _clusters(browsing, list(beside))
    same = share(np.array([found == "same" for found in beside.values()]), clusters, Resampling())
    lines.append(f"Of {same.n:,} items that both judge they say the same of {percent(same.value)} ({_interval(same)}).")
    return [*lines, *_kappa(browsing, list(beside))]


def label_lines(browsing: BrowseState) -> Iterator[bytes]:
    """The labels as rows that `judgelm eval --labels` reads; with the texts where all of them are known."""
    samples = browsing.run.samples
    whole = all(key in samples and len(samples[key].answers) == 2 for key in browsing.labels)
    for key, winner in browsing.labels.items():
        row: dict[str, object] = {"id": key, "winner": winner}
        if whole:
            sample = samples[key]
            first, second = sample.answers
            row |= {"question": sample.question, "answer_1": first, "answer_2": second}
            row |= {"reference": sample.reference, "category": sample.category}
        yield encode_line(row)


def item_lines(browsing: BrowseState) -> Iterator[bytes]:
    """The items listed: the run's rows, with texts, the other judge's verdict and the label where there are any."""
    for key in browsing.listed:
        row: dict[str, object] = dict(judgment_row(browsing.run.judgments[key]))
        if (sample := browsing.run.samples.get(key)) is not None:
            row |= {"question": sample.question, "answers": list(sample.answers), "reference": sample.reference}
            row |= {"category": sample.category}
        if browsing.other is not None and key in browsing.other.judgments:
            row["other_verdict"] = verdict_word(browsing.other.judgments[key])
        if key in browsing.labels:
            row["label"] = browsing.labels[key]
        yield encode_line(row)


def winner_words(winner: Winner | None) -> str:
    """A label in words."""
    return "not labelled" if winner is None else WINNER_NAMES[winner]


def _kappa(browsing: BrowseState, keys: list[str]) -> list[str]:
    """Cohen's kappa over the pairs among the items; nothing where there are none or it is undefined."""
    assert browsing.other is not None, "its caller looked"
    sides = [(key, browsing.run.judgments[key].winner, browsing.other.judgments[key].winner) for key in keys]
    pairs = [(key, first, second) for key, first, second in sides if first is not None and second is not None]
    if not pairs:
        return []
    first = np.array([label_of(one) for _, one, _ in pairs])
    second = np.array([label_of(one) for _, _, one in pairs])
    found = cohens_kappa(first, second, _clusters(browsing, [key for key, _, _ in pairs]), Resampling())
    if found is None:
        return [f"Cohen's kappa over {len(pairs):,} pairs is undefined: there is too little to tell apart."]
    limits = "interval undefined" if math.isnan(found.low) else f"95 % interval {found.low:.2f} to {found.high:.2f}"
    return [f"Cohen's kappa {found.value:.2f} ({limits}, n = {found.n:,})."]


def _clusters(browsing: BrowseState, keys: list[str]) -> list[str] | None:
    """Items of one question are resampled together, where the questions are known."""
    questions: Mapping[str, str] = _questions(browsing)
    return [questions.get(key, key) for key in keys] if questions else None


def _questions(browsing: BrowseState) -> dict[str, str]:
    return {key: sample.question for key, sample in browsing.run.samples.items()}


def _interval(found: Estimate) -> str:
    return f"95 % interval {bounds(found)}"
