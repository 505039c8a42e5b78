"""HTML for the current item and the list of items."""

from judgelm.judges.resolve import JudgeFormat
from judgelm.records import Judgment, Sample
from judgelm.reports.wording import FAILURE_NAMES, WINNER_NAMES
from judgelm.serving.web.browse_state import BrowseState, verdict_counts
from judgelm.serving.web.judgment_view import doubts, judgment_panel, verdict_details, verdict_sentence
from judgelm.serving.web.markup import notice, panel, sentences, side_by_side, text_block
from judgelm.serving.web.runs import flips, verdict_name, verdict_word

_MAX_TITLE = 60


def texts_html(browsing: BrowseState) -> str:
    """Render the question, answers, and reference of the current item."""
    if browsing.current is None:
        return notice("No items match the filters.")
    sample = browsing.run.samples.get(browsing.current)
    return notice("The texts for this item are not available.") if sample is None else _texts(sample)


def judgment_html(browsing: BrowseState, judge: JudgeFormat, *, blind: bool) -> str:
    """Render both judges' judgments of the current item. With `blind`, unlabelled items show no judgment."""
    key = browsing.current
    if key is None:
        return ""
    if blind and key not in browsing.labels:
        return notice("The judgment is hidden until you have labelled this item.")
    panels = [judgment_panel(browsing.run.judgments[key], judge)]
    if browsing.other is not None:
        panels.append(_other_panel(browsing, key, browsing.other.judgments.get(key)))
    return "".join(panels)


def position_text(browsing: BrowseState) -> str:
    """Describe the current item's position in the list and its label."""
    key = browsing.current
    if key is None:
        return f"0 of {len(browsing.run.judgments):,} items listed"
    label = "not labelled" if key not in browsing.labels else WINNER_NAMES[browsing.labels[key]]
    return f"Item {browsing.position + 1:,} of {len(browsing.listed):,} listed · {key} · your label: {label}"


def list_choices(browsing: BrowseState, *, blind: bool) -> list[tuple[str, str]]:
    """Return the (text, id) choices for the current list page."""
    return [(_line(browsing, key, blind=blind), key) for key in browsing.page]


def run_overview(browsing: BrowseState) -> str:
    """Render the run's verdict counts, with notes about its files."""
    run = browsing.run
    counts = ", ".join(f"{count:,} {verdict_name(word)}" for word, count in verdict_counts(browsing).items())
    lines = [f"{run.name}: {len(run.judgments):,} judgments: {counts}."]
    failed = [f"{code}: {FAILURE_NAMES[code]}" for code in run.failures]
    return sentences(lines) + (notice(*run.notes) if run.notes else "") + sentences(failed)


def _line(browsing: BrowseState, key: str, *, blind: bool) -> str:
    judgment = browsing.run.judgments[key]
    marks = []
    if not blind or key in browsing.labels:
        marks.append(_short(verdict_word(judgment)))
        marks += [] if judgment.probability is None else [f"P {judgment.probability:.2f}"]
        marks += ["flips"] if flips(judgment) else []
        marks += ["differs"] if browsing.comparison(key) == "different" else []
    if key in browsing.labels:
        marks.append(f"you: {_short(str(browsing.labels[key]))}")
    sample = browsing.run.samples.get(key)
    title = " ".join((key if sample is None else sample.question)[:200].split())[:_MAX_TITLE]
    return f"{' · '.join(marks)}\n{title}" if marks else title


def _short(word: str) -> str:
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
    blocks = []
    for index, turn in enumerate(turns, 1):
        if not isinstance(turn, dict):
            continue
        blocks.append(text_block(str(turn.get("question", "")), title=f"Turn {index}: user"))
        answers = enumerate(given if isinstance(given := turn.get("answers"), list) else [], 1)
        shown = (text_block(str(answer), title=f"Turn {index}: assistant {place}") for place, answer in answers)
        blocks.append(side_by_side(shown))
    return "".join(blocks)


def _other_panel(browsing: BrowseState, key: str, theirs: Judgment | None) -> str:
    assert browsing.other is not None, "checked by the caller"
    if theirs is None:
        return panel(sentences(["This item was not judged."]), title=browsing.other.name)
    word = {"same": "Same verdict.", "different": "Different verdict."}.get(browsing.comparison(key) or "", "")
    reason = "" if theirs.reason is None else text_block(theirs.reason, title="Reason")
    lines = [verdict_sentence(theirs), word, *verdict_details(theirs), *doubts(theirs)]
    return panel(sentences(lines), reason, title=browsing.other.name)
