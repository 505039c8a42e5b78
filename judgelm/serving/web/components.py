"""Gradio components shared by the tabs: text fields, HTML, and the controls that judge and talk."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import gradio as gr

from judgelm.judge import Judge
from judgelm.modes.conversation import FollowUp
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.web.judge_actions import ModeAndSample, stream_judgment, stream_talk

QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "concurrency_limit": None}
"""Options of every event: no public end point, no overlay over the page, no limit on concurrent events."""


REASONS = [("no", "none"), ("yes", "all"), ("where the orders disagree", "flips")]
"""Choices of the reasons of a pair."""


def reason_info(judge: Judge) -> str:
    """The value of this judge's reasons."""
    if judge.format.never_explained:
        return "This judge was trained without reasons: its text after the scores means little."
    return "Written after the scores, which do not change with it."


def text_field(
    label: str, *, value: str = "", lines: int = 3, info: str | None = None, elem_id: str | None = None
) -> gr.Textbox:
    """A field for an untrusted text, which is not changed."""
    return gr.Textbox(value, label=label, lines=lines, max_lines=14, info=info, elem_id=elem_id)


def html(elem_id: str, *, value: str = "", visible: bool = True) -> gr.HTML:
    """An element for the HTML of `markup`; without Gradio's own script."""
    return gr.HTML(
        value,
        elem_id=elem_id,
        js_on_load=None,
        apply_default_css=False,
        padding=False,
        visible=visible,
        elem_classes="jl-place",
    )


def judge_controls(
    judge: Judge,
    worker: EngineWorker,
    name: str,
    fields: Sequence[gr.components.Component],
    make: Callable[..., ModeAndSample],
    *,
    talk: bool = False,
) -> tuple[list[Any], Any]:
    """The buttons that judge and stop, the judgment, and the talk about it.

    Args:
        judge: its format is that of the charts.
        worker: of its engine.
        name: begins the elements' ids.
        fields: their values are the arguments of `make`, in this order.
        make: returns the mode and the sample, or raises an error to show.
        talk: whether judgments of this tab can be discussed.

    Returns:
        The outputs of a judgment (its HTML, the state of the talk and, with `talk`, its column and log), and the event.
    """
    with gr.Row(elem_classes="jl-buttons"):
        start = gr.Button("Judge", variant="primary", elem_id=f"{name}-judge")
        stop = gr.Button("Stop", elem_id=f"{name}-stop", scale=0, min_width=120)
    shown = html(f"{name}-judgment")
    state = gr.State(None)
    outputs: list[Any] = [shown, state]
    if talk:
        outputs += _talk_controls(worker, name, state)

    async def on_judge(*values: Any) -> AsyncIterator[tuple[Any, ...]]:
        async for page, follow_up in stream_judgment(judge, worker, lambda: make(*values)):
            fresh_talk = (gr.Column(visible=follow_up is not None), "") if talk else ()
            yield (page, follow_up, *fresh_talk)

    submits = [field.submit for field in fields if isinstance(field, gr.Textbox)]
    event = gr.on([start.click, *submits], on_judge, list(fields), outputs, trigger_mode="once", **QUIET)
    stop.click(lambda: "", None, shown, cancels=[event], **QUIET)
    return outputs, event


def _talk_controls(worker: EngineWorker, name: str, state: gr.State) -> list[Any]:
    """The log of the talk and a field to ask, in a column that is hidden until there is a judgment.

    Not wired to a `change` of the state, which Gradio would hash at every event.

    Returns:
        The column and the element of the log.
    """
    with gr.Column(visible=False, elem_id=f"{name}-talk") as group:
        log = html(f"{name}-log")
        question = gr.Textbox(
            label="Ask the judge about its judgment",
            lines=1,
            max_lines=6,
            elem_id=f"{name}-question",
            info="It answers with its prompt and its reply before it. Enter sends.",
        )
        with gr.Row(elem_classes="jl-buttons"):
            ask = gr.Button("Ask", elem_id=f"{name}-ask", scale=0, min_width=120)

    async def on_ask(talk: FollowUp | None, text: str) -> AsyncIterator[tuple[Any, ...]]:
        if talk is None:
            return
        async for page, now in stream_talk(worker, talk, text):
            yield page, now, "" if now is not talk else gr.skip()

    gr.on([ask.click, question.submit], on_ask, [state, question], [log, state, question], trigger_mode="once", **QUIET)
    return [group, log]
