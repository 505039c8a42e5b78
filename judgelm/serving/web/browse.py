"""The tab to open, browse, compare and label run files."""

import dataclasses
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
import numpy as np

from judgelm.data.samples import Reading, parse_columns
from judgelm.errors import InputError, JudgelmError
from judgelm.judge import Judge
from judgelm.judges.released import JudgeFormat
from judgelm.metrics.agreement import cohens_kappa
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.records import Judgment, Label, Sample, Winner
from judgelm.reports.wording import FAILURE_NAMES, WINNER_NAMES, bounds, headline, percent
from judgelm.runs.recorded_rows import recorded_reading
from judgelm.serving.web.judge_actions import QUIET, html
from judgelm.serving.web.judgment_view import (
    agreement_curve,
    alert,
    doubts,
    judgment_panel,
    notice,
    panel,
    sentences,
    side_by_side,
    text_block,
    verdict_details,
    verdict_sentence,
)
from judgelm.serving.web.runs import (
    ANY,
    PAGE,
    BrowseState,
    Filter,
    OpenRun,
    flips,
    item_lines,
    label_lines,
    open_run,
    read_winners,
    start_browsing,
    verdict_counts,
    verdict_name,
    verdict_word,
)
from judgelm.studies.evaluation import Evaluation, evaluate
from judgelm.studies.pair_labels import label_of

_NONE = "none"
_MOST_CHOICES = 100
_BEGINNING = 60
"""Characters of a question in the list."""
_KEYS = (
    "Keys: 1 first better, 2 second better, 0 tie, u no label, j next, k back, / search. "
    "They work unless you are typing in a field."
)
_FIXED = {
    "orders": [("any", ANY), ("agree", "agree"), ("disagree", "disagree"), ("only one known", "one")],
    "other": [("any", ANY), ("says the same", "same"), ("says otherwise", "different")],
    "label": [("any", ANY), *((state, state) for state in ("labelled", "not labelled", "against the judge"))],
}


class _View(NamedTuple):
    """The elements of the current position, in the order of the values from `_shown`."""

    state: gr.State
    items: gr.Radio
    position: gr.HTML
    texts: gr.HTML
    item: gr.HTML
    findings: gr.HTML
    progress: gr.HTML
    problem: gr.HTML


def browse_tab(page: gr.Blocks, judge: Judge, runs: Sequence[OpenRun]) -> None:
    """Lay the tab out; `runs` were opened when the page was started, others come from the browser."""
    opening, opened = _opening_part(runs)
    with gr.Column(visible=bool(runs), elem_id="browse-body") as body:
        summary = html("browse-overview")
        fields = _filter_part()
        with gr.Row(elem_classes="jl-browse"):
            with gr.Column(scale=1, min_width=260):
                items = gr.Radio([], label="Items", elem_id="browse-items", elem_classes="jl-list")
                with gr.Row(elem_classes="jl-buttons"):
                    earlier, later = gr.Button("Earlier items", size="sm"), gr.Button("Later items", size="sm")
            with gr.Column(scale=3, min_width=300):
                position, problem = html("browse-place"), html("browse-problem")
                texts = html("browse-item")
                buttons, blind = _label_part()
                progress = html("browse-progress")
                shown = html("browse-judgment")
        findings = html("browse-findings")
        exporting = _export_part()
    view = _View(
        state=gr.State(None), items=items, position=position, texts=texts, item=shown, findings=findings,
        progress=progress, problem=problem,
    )  # fmt: skip
    _wire_steps(judge, view, blind, buttons, [(earlier, -PAGE), (later, PAGE)])
    _wire_filters(judge, view, blind, fields)
    _wire_exports(view.state, exporting)

    def on_open(hidden: bool, *sources: Any) -> list[Any]:
        try:
            browsing = opening(*sources)
        except JudgelmError as error:
            return [alert(error), *[gr.skip()] * (len(view) + len(fields) + 2)]
        reset = _filter_choices(browsing.run)
        return ["", gr.Column(visible=True), run_overview(browsing), *reset, *_shown(judge, browsing, blind=hidden)]

    outputs = [opened.problem, body, summary, *fields, *view]
    opened.button.click(on_open, [blind, *opened.sources], outputs, **QUIET)
    if runs:
        page.load(on_open, [blind, *opened.sources], outputs, **QUIET)


class _Opened(NamedTuple):
    """The button that opens files, the fields that it reads, and the element for errors."""

    button: gr.Button
    sources: list[Any]
    problem: gr.HTML


def _opening_part(runs: Sequence[OpenRun]) -> tuple[Callable[..., BrowseState], _Opened]:
    """The fields to choose files, and the function that opens them."""
    by_name = {run.name: run for run in runs}
    names = [(name, name) for name in by_name]
    with gr.Accordion("Files", open=not runs, elem_id="browse-files"):
        with gr.Row(visible=bool(runs)):
            run_name = gr.Dropdown(names, value=runs[0].name if runs else None, label="Run", elem_id="browse-run-name")
            other_run = gr.Dropdown(
                [("no other judge", _NONE), *names],
                value=runs[1].name if len(runs) > 1 else _NONE,
                label="Compare with",
                elem_id="browse-other-name",
            )
        with gr.Row():
            run_file = gr.File(label="Run file", height=150, elem_id="browse-run-file")
            texts = gr.File(label="Judged file", height=150, elem_id="browse-texts-file")
            other = gr.File(label="Another judge's run", height=150, elem_id="browse-other-file")
            labels = gr.File(label="Earlier labels", height=150, elem_id="browse-labels-file")
        with gr.Row():
            info = "Of the judged file and the labels: question=prompt, answer_1=ours"
            own_names = gr.Textbox("", label="Column names", info=info, lines=1, elem_id="browse-columns")
            info = "Name or number, of an Excel workbook"
            own_sheet = gr.Textbox("", label="Sheet", info=info, lines=1, elem_id="browse-sheet")
        button = gr.Button("Open", variant="primary", elem_id="browse-open")
    problem = html("browse-open-problem")  # outside the files' part, which is closed where runs are open from the start

    def opening(
        name: str | None,
        other_name: str,
        run: str | None,
        texts: str | None,
        other: str | None,
        labels: str | None,
        columns: str,
        sheet: str,
    ) -> BrowseState:
        reading, labels_reading = _readings(columns, sheet, texts, labels)
        if run is None and name is None:
            raise InputError("there is no run file; choose the OUT.jsonl that judgelm-batch wrote")
        first = by_name[name or ""] if run is None else open_run(run, texts, uploaded=True, reading=reading)
        if other is None:
            second = by_name.get(other_name)
        else:
            second = open_run(other, texts, name=_other_name(other, first), uploaded=True, reading=reading)
        winners = {} if labels is None else read_winners(labels, first, labels_reading)
        return start_browsing(first, other=second, labels=winners)

    return opening, _Opened(
        button=button,
        sources=[run_name, other_run, run_file, texts, other, labels, own_names, own_sheet],
        problem=problem,
    )


def _readings(columns: str, sheet: str, texts: str | None, labels: str | None) -> tuple[Reading, Reading]:
    """How to read the judged file and the labels; where both are given, each takes the columns that it has.

    Raises:
        InputError: neither has a column.
        ConfigError: the text has another form than `question=prompt, answer_1=ours`.
    """
    parts = (part.strip(" '") for part in re.split(r",|--column\s", columns))
    given = Reading(columns=parse_columns([part for part in parts if part]), sheet=sheet.strip() or None)
    if texts is None or labels is None:
        return given, given
    return (
        recorded_reading(texts, given, [], beside=labels)[0],
        recorded_reading(labels, given, [], beside=texts)[0],
    )


def _other_name(path: str, first: OpenRun) -> str:
    """The second file's name, made different from the first's where they are equal."""
    name = Path(path).name
    return f"{name} (the other)" if name == first.name else name


def _filter_part() -> list[Any]:
    """A field for each part of a `Filter`, in its order."""
    names = {"verdict": "Verdict", "category": "Category", "failure": "Failure", "orders": "Orders"}
    names |= {"other": "Other judge", "label": "Your label"}
    with gr.Accordion("Filters", open=True, elem_id="browse-filters"), gr.Row(elem_classes="jl-filters"):
        fields: list[Any] = [
            gr.Dropdown(_FIXED.get(key, [("any", ANY)]), value=ANY, label=name, min_width=110, elem_id=f"filter-{key}")
            for key, name in names.items()
        ]
        fields.append(gr.Textbox(label="Search the texts", lines=1, min_width=200, elem_id="filter-text"))
    return fields


def _filter_choices(run: OpenRun) -> list[Any]:
    """All filters reset, with the choices of this run."""
    choices = {
        "verdict": [(verdict_name(word), word) for word in run.verdicts[:_MOST_CHOICES]],
        "category": [(name, name) for name in run.categories[:_MOST_CHOICES]],
        "failure": [(code, code) for code in run.failures],
    }
    reset = [gr.Dropdown([("any", ANY), *values], value=ANY) for values in choices.values()]
    return [*reset, *(gr.Dropdown(value=ANY) for _ in _FIXED), gr.Textbox(value="")]


def _label_part() -> tuple[dict[str, gr.Button], gr.Checkbox]:
    """The buttons for labels and steps, and the box that hides judgments until an item is labelled."""
    with gr.Row(elem_classes="jl-labels"):
        buttons = {
            "1": gr.Button("First (1)", size="sm", elem_id="label-first"),
            "tie": gr.Button("Tie (0)", size="sm", elem_id="label-tie"),
            "2": gr.Button("Second (2)", size="sm", elem_id="label-second"),
            "none": gr.Button("No label (u)", size="sm", elem_id="label-none"),
            "back": gr.Button("Back (k)", size="sm", elem_id="step-back"),
            "next": gr.Button("Next (j)", size="sm", elem_id="step-next"),
        }
    with gr.Row():
        blind = gr.Checkbox(value=False, label="Hide judgments until I have labelled", elem_id="browse-blind")
        gr.Checkbox(True, label="Keyboard shortcuts", info=_KEYS, interactive=True, elem_id="browse-keys")
    return buttons, blind


def _export_part() -> list[tuple[gr.Button, gr.File, Callable[[BrowseState], Iterable[bytes]], str]]:
    """The exports: a button, the element of the file, its lines and its name."""
    with gr.Row():
        with gr.Column(min_width=260):
            labels = gr.Button("Export my labels", size="md", elem_id="export-labels")
            labels_file = gr.File(label="Labels, for judgelm eval --labels", visible=False, elem_id="labels-file")
        with gr.Column(min_width=260):
            listed = gr.Button("Export the items listed", size="md", elem_id="export-listed")
            listed_file = gr.File(label="Items", visible=False, elem_id="listed-file")
    return [(labels, labels_file, label_lines, "labels.jsonl"), (listed, listed_file, item_lines, "items.jsonl")]


def _shown(judge: Judge, browsing: BrowseState, *, blind: bool, also_findings: bool = True) -> list[Any]:
    """The values of `_View`."""
    return [
        browsing,
        gr.Radio(
            list_choices(browsing, blind=blind), value=browsing.current, label=f"Items ({len(browsing.listed):,})"
        ),
        sentences([position_text(browsing)]),
        texts_html(browsing),
        judgment_html(browsing, judge.format, blind=blind),
        agreement_html(browsing, blind=blind) if also_findings else gr.skip(),
        progress_html(browsing) if also_findings else gr.skip(),
        "",
    ]


def _wire_steps(
    judge: Judge, view: _View, blind: gr.Checkbox, buttons: dict[str, gr.Button], pages: list[tuple[gr.Button, int]]
) -> None:
    """Wire the list, the steps and the labels."""

    def after(step: Callable[..., BrowseState], *, also_findings: bool) -> Callable[..., list[Any]]:
        def on_event(browsing: BrowseState | None, hidden: bool, *values: Any) -> list[Any]:
            if browsing is None:
                return [gr.skip()] * len(view)
            try:
                return _shown(judge, step(browsing, *values), blind=hidden, also_findings=also_findings)
            except JudgelmError as error:
                return [*[gr.skip()] * (len(view) - 1), alert(error)]

        return on_event

    def wire(event: Any, step: Callable[..., BrowseState], *more: Any, also_findings: bool = False) -> None:
        event(after(step, also_findings=also_findings), [view.state, blind, *more], list(view), **QUIET)

    winners: dict[str, Winner | None] = {"1": 1, "2": 2, "tie": "tie", "none": None}
    for name, winner in winners.items():
        wire(buttons[name].click, lambda now, winner=winner: now.labelled(winner), also_findings=True)
    wire(buttons["next"].click, lambda now: now.moved(1))
    wire(buttons["back"].click, lambda now: now.moved(-1))
    for button, steps in pages:
        wire(button.click, lambda now, by=steps: now.moved(by))
    wire(view.items.input, lambda now, key: now.at(key), view.items)
    wire(blind.input, lambda now: now, also_findings=True)


def _wire_filters(judge: Judge, view: _View, blind: gr.Checkbox, fields: list[Any]) -> None:
    """Update the list whenever a filter changes."""

    def on_filter(browsing: BrowseState | None, hidden: bool, *values: Any) -> list[Any]:
        if browsing is None:
            return [gr.skip()] * len(view)
        by = Filter(**dict(zip((field.name for field in dataclasses.fields(Filter)), values, strict=True)))
        return _shown(judge, browsing.filtered(by), blind=hidden, also_findings=False)

    changes = [field.submit if isinstance(field, gr.Textbox) else field.input for field in fields]
    gr.on([*changes, fields[-1].blur], on_filter, [view.state, blind, *fields], list(view), **QUIET)


def _wire_exports(
    state: gr.State, exports: list[tuple[gr.Button, gr.File, Callable[[BrowseState], Iterable[bytes]], str]]
) -> None:
    """Write the file of an export on its button, and offer it."""
    for button, file, lines, name in exports:

        def on_export(browsing: BrowseState | None, lines: Any = lines, name: str = name) -> gr.File:
            if browsing is None:
                return gr.File(visible=False)
            target = Path(tempfile.mkdtemp(prefix="judgelm-web-")) / name
            target.write_bytes(b"".join(lines(browsing)))
            return gr.File(value=str(target), visible=True)

        button.click(on_export, state, file, **QUIET)


HIDDEN = "hidden until you have labelled it"


def texts_html(browsing: BrowseState) -> str:
    """The texts of the current item: the question, the answers side by side, a reference."""
    if browsing.current is None:
        return notice("No item passes the filters. Widen them.")
    sample = browsing.run.samples.get(browsing.current)
    return notice("The texts of this item are not known.") if sample is None else _texts(sample)


def judgment_html(browsing: BrowseState, judge: JudgeFormat, *, blind: bool) -> str:
    """The judgment of the current item, and the other judge's beside it.

    Args:
        browsing: whose current item it is.
        judge: its scale is the charts'; a run whose scores it does not hold is drawn as far as it does.
        blind: whether to hide judgments of an item without label.
    """
    key = browsing.current
    if key is None:
        return ""
    if blind and key not in browsing.labels:
        return notice(f"The judgment is {HIDDEN}.")
    panels = [judgment_panel(browsing.run.judgments[key], judge)]
    if browsing.other is not None:
        panels.append(_beside(browsing, key, browsing.other.judgments.get(key)))
    return "".join(panels)


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
    none_yet = ["No labels yet: the judge's agreement with yours will stand here."]
    words = none_yet if evaluation is None else headline(evaluation)
    parts = [panel(sentences(words), curve, title=f"Your labels ({labelled:,})")]
    file = browsing.run.label_file
    saved = "" if file is None else f"Each is saved at once in {file.path}, which judgelm eval --labels reads."
    parts.append(f'<div class="jl-small">{sentences([caveat if labelled else "", saved])}</div>')
    if browsing.other is not None:
        parts.append(panel(sentences(judge_agreement(browsing)), title="The other judge"))
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
    """The verdict and other marks in one line, the beginning of the question in the next."""
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
    beginning = " ".join((key if sample is None else sample.question)[:200].split())[:_BEGINNING]
    return f"{' · '.join(marks)}\n{beginning}" if marks else beginning


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
        return panel(sentences(["No judgment of this item."]), title=browsing.other.name)
    word = {"same": "The same verdict.", "different": "Another verdict."}.get(browsing.comparison(key) or "", "")
    reason = "" if theirs.reason is None else text_block(theirs.reason, title="Its reason")
    return panel(
        sentences([verdict_sentence(theirs), word, *verdict_details(theirs), *doubts(theirs)]),
        reason,
        title=browsing.other.name,
    )


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


MOST_POINTS = 40
"""Points of the curve at most; of more labels every so many are drawn, and the last."""

_STOPPING = "Decide beforehand how many pairs you label: a stop when the number looks good makes it too good."


def evaluate_labels(browsing: BrowseState, run: OpenRun) -> Evaluation | None:
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
