"""What the tabs share in Gradio: how a judging button, its Stop, and a judgment's place on the page hang together."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import gradio as gr

from judgelm.judge import Judge
from judgelm.modes.chat import FollowUp
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.web.judge_actions import ModeAndSample, stream_judgment, stream_talk

QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "concurrency_limit": None}
"""How every event is wired: no public end point, no overlay over what is being read, and nobody waits for another."""

REASONS = [("no", "none"), ("yes", "all"), ("where the orders disagree", "flips")]


def text_field(label: str, *, lines: int = 3, info: str | None = None, elem_id: str | None = None) -> gr.Textbox:
    """A field for an untrusted text, kept as it is."""
    return gr.Textbox("", label=label, lines=lines, max_lines=14, info=info, elem_id=elem_id)


def html(elem_id: str, *, value: str = "", visible: bool = True) -> gr.HTML:
    """A place for what `markup` makes; without Gradio's own script."""
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
) -> None:
    """The buttons that judge and stop, where the judgment appears, and below it the talk about it.

    Args:
        judge: whose format the charts have.
        worker: that asks its engine.
        name: begins the elements' ids.
        fields: whose values `make` is given, in this order.
        make: the mode and the sample, or an error to show.
        talk: whether a judgment of this tab can be talked about.
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
        async for page, found in stream_judgment(judge, worker, lambda: make(*values)):
            fresh_talk = (gr.Column(visible=found is not None), "") if talk else ()
            yield (page, found, *fresh_talk)

    submits = [field.submit for field in fields if isinstance(field, gr.Textbox)]
    event = gr.on([start.click, *submits], on_judge, list(fields), outputs, trigger_mode="once", **QUIET)
    stop.click(lambda: "", None, shown, cancels=[event], **QUIET)


def _talk_controls(worker: EngineWorker, name: str, state: gr.State) -> list[Any]:
    """What was said about the judgment, and a field to ask, in a column that is hidden until there is a judgment.

    Not by a `change` of the state: Gradio would hash it at every event.

    Returns:
        The column, and the place of what was said.
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

    async def on_ask(talk: FollowUp | None, asked: str) -> AsyncIterator[tuple[Any, ...]]:
        if talk is None:
            return
        async for page, now in stream_talk(worker, talk, asked):
            yield page, now, "" if now is not talk else gr.skip()

    gr.on([ask.click, question.submit], on_ask, [state, question], [log, state, question], trigger_mode="once", **QUIET)
    return [group, log]
