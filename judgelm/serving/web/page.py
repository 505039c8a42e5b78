"""The page as a whole."""

from collections.abc import Sequence

import gradio as gr

from judgelm.judge import Judge
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.web.components import html
from judgelm.serving.web.markup import sentences
from judgelm.serving.web.runs import Run
from judgelm.serving.web.tabs.browse import browse_tab
from judgelm.serving.web.tabs.dialogue import dialogue_tab
from judgelm.serving.web.tabs.image import image_tab
from judgelm.serving.web.tabs.pair import pair_tab
from judgelm.serving.web.tabs.several import several_tab
from judgelm.serving.web.tabs.single import single_tab

_KEPT_S = 24 * 3600


def create_page(judge: Judge, worker: EngineWorker, runs: Sequence[Run] = ()) -> gr.Blocks:
    """The page, to be served by `judgelm.serving.web.app.web_app`, which also gives it its looks and keys.

    Args:
        judge: loaded; its engine is asked through the worker alone.
        worker: that drives the judge's engine for all who have the page open.
        runs: run files to browse from the start; others are uploaded by the browser.
    """
    page: gr.Blocks
    with gr.Blocks(title="judgelm", analytics_enabled=False, delete_cache=(_KEPT_S, _KEPT_S)) as page:
        html("jl-head", value=f"<h1>judgelm</h1>{sentences([_about(judge)])}")
        with gr.Tabs(selected="browse" if runs else "pair", overflow_behavior="wrap", elem_id="jl-tabs"):
            with gr.Tab("Pair", id="pair"):
                pair_tab(judge, worker)
            with gr.Tab("Single answer", id="single"):
                single_tab(judge, worker)
            with gr.Tab("Several answers", id="several"):
                several_tab(judge, worker)
            with gr.Tab("Conversation", id="dialogue"):
                dialogue_tab(judge, worker)
            with gr.Tab("Image", id="image"):
                image_tab(judge, worker)
            with gr.Tab("Browse and label", id="browse"):
                browse_tab(page, judge, runs)
    return page


def _about(judge: Judge) -> str:
    """Which judge is asked, and how."""
    described = judge.engine.describe()
    model = described.get("model", {})
    name = str(model.get("path", "a judge")).rstrip("/").rsplit("/", 1)[-1] if isinstance(model, dict) else str(model)
    low, high = judge.format.scale
    return (
        f"{name} on the {described['engine']} engine, template {judge.format.template}, scores {low:g} to {high:g}. "
        "Shift+Enter in a field judges."
    )
