"""HTML of a run, its items, and the agreement with labels and with a second judge, for the tab to browse."""

import math

import numpy as np

from judgelm.judges.released import JudgeFormat
from judgelm.metrics.agreement import cohens_kappa
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.records import Judgment, Sample
from judgelm.reports.wording import FAILURE_NAMES, WINNER_NAMES, bounds, headline, percent
from judgelm.serving.web.browse_state import BrowseState, verdict_counts
from judgelm.serving.web.doubts import doubts
from judgelm.serving.web.label_progress import agreement_words, evaluate_labels, growth_html
from judgelm.serving.web.markup import card, notice, sentences, side_by_side, text_block
from judgelm.serving.web.runs import flips, verdict_name, verdict_word
from judgelm.serving.web.verdicts import judgment_card, verdict_details, verdict_sentence
from judgelm.studies.evaluation import Evaluation
from judgelm.studies.pair_labels import label_of

HIDDEN = "hidden until you have labelled it"


def item_html(browsing: BrowseState, judge: JudgeFormat, *, blind: bool) -> str:
    """The current item: its texts side by side, the judgment, the other judge's, and the label.

    Args:
        browsing: whose current item it is.
        judge: its scale is the charts'; a run whose scores it does not hold is drawn as far as it does.
        blind: whether to hide judgments of an item without label.
    """
    key = browsing.current
    if key is None:
        return notice("No item passes the filters. Widen them.")
    judgment, sample = browsing.run.judgments[key], browsing.run.samples.get(key)
    parts = [_texts(sample) if sample is not None else notice("The texts of this item are not known.")]
    if blind and key not in browsing.labels:
        return "".join([*parts, notice(f"The judgment is {HIDDEN}.")])
    parts.append(judgment_card(judgment, judge))
    if browsing.other is not None:
        theirs = browsing.other.judgments.get(key)
        parts.append(_beside(browsing, key, theirs))
    return "".join(parts)


def position_text(browsing: BrowseState) -> str:
    """The position of the current item in the list, and its label."""
    key = browsing.current
    if key is None:
        return f"0 of {len(browsing.run.judgments):,} items listed"
    label = "not labelled" if key not in browsing.labels else WINNER_NAMES[browsing.labels[key]]
    return f"Item {browsing.position + 1:,} of {len(browsing.listed):,} listed · {key} · your label: {label}"


def list_choices(browsing: BrowseState, *, blind: bool) -> list[tuple[str, str]]:
    """The page of the list: text and id of each item."""
    return [(_line(browsing, key, blind=blind), key) for key in browsing.page]


def run_overview(browsing: BrowseState) -> str:
    """The run in numbers, with notes on its files."""
    run = browsing.run
    counts = ", ".join(f"{count:,} {verdict_name(word)}" for word, count in verdict_counts(browsing).items())
    lines = [f"{run.name}: {len(run.judgments):,} judgments: {counts}."]
    failed = [f"{code}: {FAILURE_NAMES[code]}" for code in run.failures]
    notes = (*run.notes, *browsing.notes)
    return sentences(lines) + (notice(*notes) if notes else "") + sentences(failed)


def agreement_html(browsing: BrowseState, *, blind: bool) -> str:
    """Agreement with the labels, their file, and agreement with the other judge."""
    labelled = sum(key in browsing.run.judgments for key in browsing.labels)
    evaluation = evaluate_labels(browsing, browsing.run)
    caveat = "" if blind else " Labels given with the judge's verdict in view agree with it more than they should."
    curve = "" if evaluation is None else growth_html(browsing, evaluation)
    parts = [card(sentences(_agreement_words(evaluation)), curve, title=f"Your labels ({labelled:,})")]
    file = browsing.run.label_file
    saved = "" if file is None else f"Each is saved at once in {file.path}, which judgelm eval --labels reads."
    parts.append(f'<div class="jl-small">{sentences([caveat if labelled else "", saved])}</div>')
    if browsing.other is not None:
        parts.append(card(sentences(judge_agreement(browsing)), title="The other judge"))
    return "".join(parts)


def judge_agreement(browsing: BrowseState) -> list[str]:
    """Agreement of the two judges on the items with a verdict of both."""
    other = browsing.other
    if other is None:
        return []
    compared = {
        key: comparison for key in browsing.run.judgments if (comparison := browsing.comparison(key)) is not None
    }
    joined = browsing.run.judgments.keys() & other.judgments.keys()
    lines = [
        f"{browsing.run.name} and {other.name} share {len(joined):,} items; "
        f"{len(browsing.run.judgments) - len(joined):,} are only in the first and "
        f"{len(other.judgments) - len(joined):,} only in the second."
    ]
    if not compared:
        return [*lines, "No item has a verdict from both judges.", *_labels_beside(browsing)]
    clusters = _clusters(browsing, list(compared))
    same = share(np.array([comparison == "same" for comparison in compared.values()]), clusters, Resampling())
    lines.append(f"Of {same.n:,} items with two verdicts {percent(same.value)} have the same ({_interval(same)}).")
    return [*lines, *_kappa(browsing, list(compared)), *_labels_beside(browsing)]


def _line(browsing: BrowseState, key: str, *, blind: bool) -> str:
    judgment = browsing.run.judgments[key]
    marks = []
    if not blind or key in browsing.labels:
        marks.append(_short(verdict_word(judgment)))
        marks += ["flips"] if flips(judgment) else []
        marks += ["differs"] if browsing.comparison(key) == "different" else []
    if key in browsing.labels:
        marks.append(f"you: {_short(str(browsing.labels[key]))}")
    return f"{key[:60]} · {' · '.join(marks)}" if marks else key[:60]


def _short(word: str) -> str:
    """A verdict in a word for the list; of a pair, the answer in words."""
    return {"1": "first", "2": "second"}.get(word, word)


def _texts(sample: Sample) -> str:
    turns = sample.metadata.get("turns")
    models = sample.answer_models or ("",) * len(sample.answers)
    answers = [
        text_block(answer, title=f"Answer {index}", note=model)
        for index, (answer, model) in enumerate(zip(sample.answers, models, strict=True), 1)
    ]
    question = text_block(sample.question, title="Question", note=sample.category or "")
    if isinstance(turns, list) and len(turns) > 1:
        question = _earlier_turns(turns[:-1]) + question
    reference = "" if sample.reference is None else text_block(sample.reference, title="Reference")
    return question + side_by_side(answers) + reference


def _earlier_turns(turns: list[object]) -> str:
    """The turns before the last, which is the sample's own question and answers."""
    blocks = []
    for index, turn in enumerate(turns, 1):
        if not isinstance(turn, dict):
            continue
        blocks.append(text_block(str(turn.get("question", "")), title=f"Turn {index}: the user"))
        answers = turn.get("answers")
        blocks.append(
            side_by_side(
                text_block(str(answer), title=f"Turn {index}: assistant {position_text}")
                for position_text, answer in enumerate(answers if isinstance(answers, list) else [], 1)
            )
        )
    return "".join(blocks)


def _beside(browsing: BrowseState, key: str, theirs: Judgment | None) -> str:
    assert browsing.other is not None, "checked by the caller"
    if theirs is None:
        return card(sentences(["No judgment of this item."]), title=browsing.other.name)
    word = {"same": "The same verdict.", "different": "Another verdict."}.get(browsing.comparison(key) or "", "")
    reason = "" if theirs.reason is None else text_block(theirs.reason, title="Its reason")
    return card(
        sentences([verdict_sentence(theirs), word, *verdict_details(theirs), *doubts(theirs)]),
        reason,
        title=browsing.other.name,
    )


def _agreement_words(evaluation: Evaluation | None) -> list[str]:
    if evaluation is None:
        return ["No labels yet: the judge's agreement with yours will stand here."]
    return headline(evaluation)


def _labels_beside(browsing: BrowseState) -> list[str]:
    """The agreement of each of the two judges with the labels, one below the other; nothing without labels."""
    assert browsing.other is not None, "checked by the caller"
    evaluations = {run.name: evaluate_labels(browsing, run) for run in (browsing.run, browsing.other)}
    return [
        f"With your labels, {name}: {agreement_words(evaluation)}."
        for name, evaluation in evaluations.items()
        if evaluation is not None
    ]


def _kappa(browsing: BrowseState, keys: list[str]) -> list[str]:
    """Cohen's kappa over the pairs among the items; nothing without pairs."""
    assert browsing.other is not None, "checked by the caller"
    sides = [(key, browsing.run.judgments[key].winner, browsing.other.judgments[key].winner) for key in keys]
    pairs = [(key, first, second) for key, first, second in sides if first is not None and second is not None]
    if not pairs:
        return []
    first = np.array([label_of(winner) for _, winner, _ in pairs])
    second = np.array([label_of(winner) for _, _, winner in pairs])
    kappa = cohens_kappa(first, second, _clusters(browsing, [key for key, _, _ in pairs]), Resampling())
    if kappa is None:
        return [f"Cohen's kappa over {len(pairs):,} pairs is undefined: too little variation."]
    limits = "interval undefined" if math.isnan(kappa.low) else f"95 % interval {kappa.low:.2f} to {kappa.high:.2f}"
    return [f"Cohen's kappa {kappa.value:.2f} ({limits}, n = {kappa.n:,})."]


def _clusters(browsing: BrowseState, keys: list[str]) -> list[str] | None:
    """Items of one question are resampled together, where the questions are known."""
    questions = browsing.run.questions
    return [questions.get(key, key) for key in keys] if questions else None


def _interval(estimate: Estimate) -> str:
    return f"95 % interval {bounds(estimate)}"
