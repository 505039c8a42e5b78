"""The tab for opening, browsing, comparing, and labelling run files."""

import dataclasses
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from judgelm.data.samples import Reading, parse_columns
from judgelm.errors import InputError, JudgelmError
from judgelm.judge import Judge
from judgelm.records import Winner
from judgelm.runs.recorded_rows import recorded_reading
from judgelm.serving.web.browse_state import ANY, PAGE, BrowseState, Filter, item_lines, label_lines, start_browsing
from judgelm.serving.web.item_view import judgment_html, list_choices, position_text, run_overview, texts_html
from judgelm.serving.web.judge_actions import QUIET, html
from judgelm.serving.web.label_agreement import agreement_html, progress_html
from judgelm.serving.web.markup import alert, sentences
from judgelm.serving.web.runs import OpenRun, open_run, read_winners, verdict_name

_NONE = "none"
_Name = str | None  # run name, or path to an uploaded file
_MAX_CHOICES = 100
_KEYS = (
    "Keys: 1 first better, 2 second better, 0 tie, u no label, j next, k back, / search. "
    "Shortcuts are disabled while you type in a field."
)
_FIXED = {
    "orders": [("any", ANY), ("agree", "agree"), ("disagree", "disagree"), ("only one order judged", "one")],
    "other": [("any", ANY), ("same verdict", "same"), ("different verdict", "different")],
    "label": [("any", ANY), *((state, state) for state in ("labelled", "not labelled", "against the judge"))],
}


class _View(NamedTuple):
    """Components that show the current item, in the same order as the output of `_shown`."""

    state: gr.State
    items: gr.Radio
    position: gr.HTML
    texts: gr.HTML
    item: gr.HTML
    findings: gr.HTML
    progress: gr.HTML
    problem: gr.HTML


def browse_tab(page: gr.Blocks, judge: Judge, runs: Sequence[OpenRun]) -> None:
    """Create the tab. `runs` are available from the start; users can upload more runs."""
    opening, sources, open_button, open_problem = _opening_part(runs)
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
        state = gr.State(None)
        _export_part(state)
    view = _View(
        state=state, items=items, position=position, texts=texts, item=shown, findings=findings,
        progress=progress, problem=problem,
    )  # fmt: skip
    _wire_steps(judge, view, blind, buttons, [(earlier, -PAGE), (later, PAGE)])
    _wire_filters(judge, view, blind, fields)

    def on_open(hidden: bool, *values: Any) -> list[Any]:
        try:
            browsing = opening(*values)
        except JudgelmError as error:
            return [alert(error), *[gr.skip()] * (len(view) + len(fields) + 2)]
        reset = _filter_choices(browsing.run)
        return ["", gr.Column(visible=True), run_overview(browsing), *reset, *_shown(judge, browsing, blind=hidden)]

    outputs = [open_problem, body, summary, *fields, *view]
    for event in (open_button.click, page.load) if runs else (open_button.click,):
        event(on_open, [blind, *sources], outputs, **QUIET)


def _opening_part(runs: Sequence[OpenRun]) -> tuple[Callable[..., BrowseState], list[Any], gr.Button, gr.HTML]:
    by_name = {run.name: run for run in runs}
    names = [(name, name) for name in by_name]
    with gr.Accordion("Files", open=not runs, elem_id="browse-files"):
        with gr.Row(visible=bool(runs)):
            run_name = gr.Dropdown(names, value=runs[0].name if runs else None, label="Run", elem_id="browse-run-name")
            others, second = [("no other judge", _NONE), *names], runs[1].name if len(runs) > 1 else _NONE
            other_run = gr.Dropdown(others, value=second, label="Compare with", elem_id="browse-other-name")
        with gr.Row():
            run_file = gr.File(label="Run file", height=150, elem_id="browse-run-file")
            texts = gr.File(label="Judged file", height=150, elem_id="browse-texts-file")
            other = gr.File(label="Another judge's run", height=150, elem_id="browse-other-file")
            labels = gr.File(label="Earlier labels", height=150, elem_id="browse-labels-file")
        with gr.Row():
            info = "For the judged file and the label file, e.g. question=prompt, answer_1=ours"
            column_names = gr.Textbox("", label="Column names", info=info, lines=1, elem_id="browse-columns")
            info = "Excel sheet name or number"
            sheet_name = gr.Textbox("", label="Sheet", info=info, lines=1, elem_id="browse-sheet")
        button = gr.Button("Open", variant="primary", elem_id="browse-open")
    problem = html(
        "browse-open-problem"
    )  # outside the accordion, so that it stays visible when the accordion is closed

    def opening(
        name: _Name, other_name: str, run: _Name, texts: _Name, other: _Name, labels: _Name, columns: str, sheet: str
    ) -> BrowseState:
        reading, labels_reading = _readings(columns, sheet, texts, labels)
        if run is None and name is None:
            raise InputError("no run file; choose an output file of judgelm-batch")
        first = by_name[name or ""] if run is None else open_run(run, texts, uploaded=True, reading=reading)
        if other is None:
            second = by_name.get(other_name)
        else:
            second = open_run(other, texts, name=_other_name(other, first), uploaded=True, reading=reading)
        winners = {} if labels is None else read_winners(labels, first, labels_reading)
        return start_browsing(first, other=second, labels=winners)

    return opening, [run_name, other_run, run_file, texts, other, labels, column_names, sheet_name], button, problem


def _readings(columns: str, sheet: str, texts: _Name, labels: _Name) -> tuple[Reading, Reading]:
    """If both files are given, a column mapping applies only to files that have the column."""
    parts = (part.strip(" '") for part in re.split(r",|--column\s", columns))
    given = Reading(columns=parse_columns([part for part in parts if part]), sheet=sheet.strip() or None)
    if texts is None or labels is None:
        return given, given
    return (recorded_reading(texts, given, [], other=labels)[0], recorded_reading(labels, given, [], other=texts)[0])


def _other_name(path: str, first: OpenRun) -> str:
    name = Path(path).name
    return f"{name} (other)" if name == first.name else name


def _filter_part() -> list[Any]:
    names = {"verdict": "Verdict", "category": "Category", "failure": "Failure", "orders": "Orders"}
    names |= {"other": "Other judge", "label": "Your label"}
    with gr.Accordion("Filters", open=True, elem_id="browse-filters"), gr.Row(elem_classes="jl-filters"):
        fields: list[Any] = [
            gr.Dropdown(_FIXED.get(key, [("any", ANY)]), value=ANY, label=name, min_width=110, elem_id=f"filter-{key}")
            for key, name in names.items()
        ]
        fields.append(gr.Textbox(label="Search texts", lines=1, min_width=200, elem_id="filter-text"))
    return fields


def _filter_choices(run: OpenRun) -> list[Any]:
    choices = {
        "verdict": [(verdict_name(word), word) for word in run.verdicts[:_MAX_CHOICES]],
        "category": [(name, name) for name in run.categories[:_MAX_CHOICES]],
        "failure": [(code, code) for code in run.failures],
    }
    reset = [gr.Dropdown([("any", ANY), *values], value=ANY) for values in choices.values()]
    return [*reset, *(gr.Dropdown(value=ANY) for _ in _FIXED), gr.Textbox(value="")]


def _label_part() -> tuple[dict[str, gr.Button], gr.Checkbox]:
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
        blind = gr.Checkbox(value=True, label="Hide judgments until I have labelled the item", elem_id="browse-blind")
        gr.Checkbox(True, label="Keyboard shortcuts", info=_KEYS, interactive=True, elem_id="browse-keys")
    return buttons, blind


def _export_part(state: gr.State) -> None:
    exports = (
        ("labels", "Export my labels", "Labels for judgelm eval --labels", label_lines, "labels.jsonl"),
        ("listed", "Export listed items", "Items", item_lines, "items.jsonl"),
    )
    with gr.Row():
        for key, title, contents, lines, name in exports:
            with gr.Column(min_width=260):
                button = gr.Button(title, size="md", elem_id=f"export-{key}")
                file = gr.File(label=contents, visible=False, elem_id=f"{key}-file")
            button.click(_export(lines, name), state, file, **QUIET)


def _export(lines: Callable[[BrowseState], Iterable[bytes]], name: str) -> Callable[[BrowseState | None], gr.File]:
    def on_export(browsing: BrowseState | None) -> gr.File:
        if browsing is None:
            return gr.File(visible=False)
        target = Path(tempfile.mkdtemp(prefix="judgelm-web-")) / name
        target.write_bytes(b"".join(lines(browsing)))
        return gr.File(value=str(target), visible=True)

    return on_export


def _shown(judge: Judge, browsing: BrowseState, *, blind: bool, also_findings: bool = True) -> list[Any]:
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
    def on_filter(browsing: BrowseState | None, hidden: bool, *values: Any) -> list[Any]:
        if browsing is None:
            return [gr.skip()] * len(view)
        by = Filter(**dict(zip((field.name for field in dataclasses.fields(Filter)), values, strict=True)))
        return _shown(judge, browsing.filtered(by), blind=hidden, also_findings=False)

    changes = [field.submit if isinstance(field, gr.Textbox) else field.input for field in fields]
    gr.on([*changes, fields[-1].blur], on_filter, [view.state, blind, *fields], list(view), **QUIET)
