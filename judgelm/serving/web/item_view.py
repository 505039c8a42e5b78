"""An item of a run, and the run as a whole, as the browsing tab shows them."""

from judgelm.judge import JudgeFormat
from judgelm.records import Judgment, Sample
from judgelm.reports.wording import FAILURE_NAMES
from judgelm.serving.web.browse_state import BrowseState, verdict_counts
from judgelm.serving.web.findings import judge_agreement, label_agreement, winner_words
from judgelm.serving.web.markup import card, notice, sentences, side_by_side, text_block
from judgelm.serving.web.runs import flips, verdict_name, verdict_word
from judgelm.serving.web.verdicts import judgment_card, verdict_details, verdict_sentence

HIDDEN = "hidden until you have labelled it"


def item_html(browsing: BrowseState, judge: JudgeFormat, *, blind: bool) -> str:
    """The current item: its texts side by side, the judgment, the other judge's, and the label.

    Args:
        browsing: whose current item it is.
        judge: its scale is the charts'; a run whose scores it does not hold is drawn as far as it does.
        blind: whether to hide what judges say of an item without label.
    """
    key = browsing.current
    if key is None:
        return notice("No item passes the filters. Widen them.")
    judgment, sample = browsing.run.judgments[key], browsing.run.samples.get(key)
    parts = [_texts(sample) if sample is not None else notice("The texts of this item are not known.")]
    if blind and key not in browsing.labels:
        return "".join([*parts, notice(f"What the judge says is {HIDDEN}.")])
    parts.append(judgment_card(judgment, judge))
    if browsing.other is not None:
        theirs = browsing.other.judgments.get(key)
        parts.append(_beside(browsing, key, theirs))
    return "".join(parts)


def position_text(browsing: BrowseState) -> str:
    """Where in the list the current item stands, and its label."""
    key = browsing.current
    if key is None:
        return f"0 of {len(browsing.run.judgments):,} items listed"
    label = winner_words(browsing.labels.get(key))
    return f"Item {browsing.position + 1:,} of {len(browsing.listed):,} listed · {key} · your label: {label}"


def list_choices(browsing: BrowseState, *, blind: bool) -> list[tuple[str, str]]:
    """The list's page: what stands beside each item, and its id."""
    return [(_line(browsing, key, blind=blind), key) for key in browsing.page]


def run_overview(browsing: BrowseState) -> str:
    """The run in numbers, with what there is to know about its files."""
    run = browsing.run
    found = verdict_counts(browsing)
    said = ", ".join(f"{number:,} {verdict_name(word)}" for word, number in found.items())
    lines = [f"{run.name}: {len(run.judgments):,} judgments: {said}."]
    failed = [f"{code}: {FAILURE_NAMES[code]}" for code in run.failures]
    notes = (*run.notes, *browsing.notes)
    return sentences(lines) + (notice(*notes) if notes else "") + sentences(failed)


def agreement_html(browsing: BrowseState, *, blind: bool) -> str:
    """Agreement with the labels, where they are kept, and agreement with the other judge."""
    labelled = sum(key in browsing.run.judgments for key in browsing.labels)
    how = " Labels given with the judge's verdict in view agree with it more than they should." if not blind else ""
    parts = [card(sentences(label_agreement(browsing)), title=f"Your labels ({labelled:,})")]
    kept = browsing.run.label_file
    where = "" if kept is None else f"Each is kept at once in {kept.path}, which judgelm eval --labels reads."
    parts.append(f'<div class="jl-small">{sentences([how if labelled else "", where])}</div>')
    if browsing.other is not None:
        parts.append(card(sentences(judge_agreement(browsing)), title="The other judge"))
    return "".join(parts)


def _line(browsing: BrowseState, key: str, *, blind: bool) -> str:
    judgment = browsing.run.judgments[key]
    marks = []
    if not blind or key in browsing.labels:
        marks.append(_short(verdict_word(judgment)))
        marks += ["flips"] if flips(judgment) else []
        marks += ["differs"] if browsing.beside(key) == "different" else []
    if key in browsing.labels:
        marks.append(f"you: {_short(str(browsing.labels[key]))}")
    return f"{key[:60]} · {' · '.join(marks)}" if marks else key[:60]


def _short(word: str) -> str:
    """A verdict in a word for the list: which answer of a pair, in words."""
    return {"1": "first", "2": "second"}.get(word, word)


def _texts(sample: Sample) -> str:
    turns = sample.metadata.get("turns")
    models = sample.answer_models or ("",) * len(sample.answers)
    answers = [
        text_block(answer, title=f"Answer {number}", note=model)
        for number, (answer, model) in enumerate(zip(sample.answers, models, strict=True), 1)
    ]
    question = text_block(sample.question, title="Question", note=sample.category or "")
    if isinstance(turns, list) and len(turns) > 1:
        question = _earlier_turns(turns[:-1]) + question
    reference = "" if sample.reference is None else text_block(sample.reference, title="Reference")
    return question + side_by_side(answers) + reference


def _earlier_turns(turns: list[object]) -> str:
    """The turns before the last, which is the sample's own question and answers."""
    said = []
    for number, turn in enumerate(turns, 1):
        if not isinstance(turn, dict):
            continue
        said.append(text_block(str(turn.get("question", "")), title=f"Turn {number}: the user"))
        answers = turn.get("answers")
        said.append(
            side_by_side(
                text_block(str(answer), title=f"Turn {number}: assistant {position_text}")
                for position_text, answer in enumerate(answers if isinstance(answers, list) else [], 1)
            )
        )
    return "".join(said)


def _beside(browsing: BrowseState, key: str, theirs: Judgment | None) -> str:
    assert browsing.other is not None, "its caller looked"
    if theirs is None:
        return card(sentences(["It did not judge this item."]), title=browsing.other.name)
    word = {"same": "The same verdict.", "different": "Another verdict."}.get(browsing.beside(key) or "", "")
    reason = "" if theirs.reason is None else text_block(theirs.reason, title="Its reason")
    return card(
        sentences([verdict_sentence(theirs), word, *verdict_details(theirs)]), reason, title=browsing.other.name
    )
