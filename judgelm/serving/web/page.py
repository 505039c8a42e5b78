"""The page: a tab for each way of judging, the tab to browse and label runs, and the ASGI application that serves it.

Nothing on the page comes from other servers: fonts, scripts and styles are served from here, telemetry is off, and a
content security policy has the browser refuse requests to other servers.
"""

import hmac
import json
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gradio as gr
import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.middleware.base import RequestResponseEndpoint

from judgelm.judge import Judge
from judgelm.package import EVERYDAY_PAIRS
from judgelm.records import Winner
from judgelm.reports.wording import WINNER_NAMES
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.web.browse import browse_tab
from judgelm.serving.web.judge_actions import (
    QUIET,
    REASONS,
    ModeAndSample,
    dialogue_input,
    html,
    image_input,
    judge_controls,
    pair_input,
    reason_info,
    several_input,
    single_input,
    text_field,
)
from judgelm.serving.web.judgment_view import folded, notice, sentences
from judgelm.serving.web.runs import OpenRun

_UPLOADS_KEPT_S = 24 * 3600
_MOST_ANSWERS, _ANSWERS_AT_FIRST = 8, 3
_MOST_TURNS, _TURNS_AT_FIRST, _FIELDS_OF_TURN = 8, 2, 4
_VIEWS = [("each turn", "each"), ("the last turn", "last"), ("the whole at once", "whole")]
_NO_IMAGES = (
    "This judge cannot see images. For one that does, start `judgelm web` with a vision-language judge (a LLaVA or "
    "Idefics model, or a server's by --engine openai).",
    "Without the image it can still grade an answer by the reference alone, which must then describe the image.",
)


def create_page(judge: Judge, worker: EngineWorker, runs: Sequence[OpenRun] = ()) -> gr.Blocks:
    """The page, to be served by `judgelm.serving.web.page.web_app`, which adds its theme and keys.

    Args:
        judge: loaded; its engine is used through the worker alone.
        worker: that drives the judge's engine for all users of the page.
        runs: run files to browse from the start; others are uploaded by the browser.
    """
    page: gr.Blocks
    with gr.Blocks(title="judgelm", analytics_enabled=False, delete_cache=(_UPLOADS_KEPT_S, _UPLOADS_KEPT_S)) as page:
        html("jl-head", value=f"<h1>judgelm</h1>{sentences([_about(judge)])}")
        with gr.Tabs(selected="browse" if runs else "pair", overflow_behavior="wrap", elem_id="jl-tabs"):
            with gr.Tab("Pair", id="pair"):
                pair_tab(judge, worker)
            with gr.Tab("Single answer", id="single"):
                _single_tab(judge, worker)
            with gr.Tab("Several answers", id="several"):
                _several_tab(judge, worker)
            with gr.Tab("Conversation", id="dialogue"):
                _dialogue_tab(judge, worker)
            with gr.Tab("Image", id="image"):
                _image_tab(judge, worker)
            with gr.Tab("Browse and label", id="browse"):
                browse_tab(page, judge, runs)
    return page


def _about(judge: Judge) -> str:
    """The name, engine, template and scale of the judge."""
    described = judge.engine.describe()
    model = described.get("model", {})
    if isinstance(model, dict):
        name = str(model.get("judge") or model.get("path", "a judge")).rstrip("/").rsplit("/", 1)[-1]
    else:
        name = str(model)
    low, high = judge.format.scale
    return (
        f"{name} on the {described['engine']} engine, template {judge.format.template}, scores {low:g} to {high:g}. "
        "Shift+Enter in a field judges."
    )


def _reason_box(judge: Judge, name: str, *, value: bool = False) -> gr.Checkbox:
    return gr.Checkbox(value=value, label="Reason", info=reason_info(judge), elem_id=f"{name}-reason")


def _more_button(
    name: str, label: str, first: int, most: int, update: Callable[[int], list[Any]]
) -> Callable[[list[Any]], Any]:
    """A button that shows one more part of a form; call the result with the parts.

    Args:
        name: begins the element's id.
        label: of the button.
        first: parts shown at first.
        most: parts there are.
        update: new states of all parts for a number of shown ones.
    """
    count = gr.State(first)
    button = gr.Button(label, size="sm", elem_id=f"{name}-more")

    def show_more(shown: int) -> list[Any]:
        now = min(shown + 1, most)
        return [now, gr.Button(interactive=now < most), *update(now)]

    return lambda parts: button.click(show_more, count, [count, button, *parts], **QUIET)


def _single_tab(judge: Judge, worker: EngineWorker) -> None:
    question = text_field("Question", lines=2, elem_id="single-question")
    answer = text_field("Answer", lines=5, elem_id="single-answer")
    with gr.Row():
        reference = text_field(
            "Reference answer (optional)",
            lines=2,
            info="The judge grades the answer beside it.",
            elem_id="single-reference",
        )
        anchor = text_field(
            "Another answer (optional)",
            lines=2,
            info="Instead of a reference: scored as well.",
            elem_id="single-anchor",
        )
    explain = _reason_box(judge, "single", value=not judge.format.never_explained)

    def make(question: str, answer: str, reference: str, anchor: str, explain: bool) -> ModeAndSample:
        return single_input(judge, question, answer, reference, anchor, explain=explain)

    judge_controls(judge, worker, "single", [question, answer, reference, anchor, explain], make)


def _several_tab(judge: Judge, worker: EngineWorker) -> None:
    question = text_field("Question", lines=2, elem_id="several-question")
    answers = []
    with gr.Row(elem_classes="jl-answers"):
        for index in range(1, _MOST_ANSWERS + 1):
            field = text_field(f"Answer {index}", lines=4, elem_id=f"several-answer-{index}")
            field.visible = index <= _ANSWERS_AT_FIRST
            answers.append(field)
    show_more = _more_button(
        "several", "Add an answer", _ANSWERS_AT_FIRST, _MOST_ANSWERS,
        lambda now: [gr.Textbox(visible=index < now) for index in range(_MOST_ANSWERS)],
    )  # fmt: skip
    show_more(answers)
    reference = text_field("Reference answer (optional)", lines=2, elem_id="several-reference")
    with gr.Row():
        every_place = gr.Checkbox(
            value=False,
            label="Each answer once at each place",
            info="As many prompts as answers; their mean scores rank.",
            elem_id="several-places",
        )
        explain = _reason_box(judge, "several")

    def make(question: str, reference: str, every_place: bool, explain: bool, *answers: str) -> ModeAndSample:
        return several_input(judge, question, answers, reference, every_place=every_place, explain=explain)

    judge_controls(judge, worker, "several", [question, reference, every_place, explain, *answers], make)


def _dialogue_tab(judge: Judge, worker: EngineWorker) -> None:
    html("dialogue-help", value=notice("Leave every second assistant's answer blank to grade one dialogue."))
    groups, fields = [], []
    for turn in range(1, _MOST_TURNS + 1):
        with gr.Group(visible=turn <= _TURNS_AT_FIRST) as group:
            name = f"dialogue-{turn}"
            fields.append(text_field(f"Turn {turn}: the user", lines=2, elem_id=f"{name}-user"))
            with gr.Row():
                fields.append(text_field(f"Turn {turn}: assistant 1", elem_id=f"{name}-answer-1"))
                fields.append(text_field(f"Turn {turn}: assistant 2", elem_id=f"{name}-answer-2"))
            fields.append(text_field(f"Turn {turn}: reference (optional)", lines=1, elem_id=f"{name}-reference"))
        groups.append(group)
    show_more = _more_button(
        "dialogue", "Add a turn", _TURNS_AT_FIRST, _MOST_TURNS,
        lambda now: [gr.Group(visible=index < now) for index in range(_MOST_TURNS)],
    )  # fmt: skip
    show_more(groups)
    with gr.Row():
        views = gr.Radio(_VIEWS, value="each", label="Judge", elem_id="dialogue-turns")
        both = gr.Checkbox(value=True, label="Both orders", info="Of two dialogues.", elem_id="dialogue-orders")
        reasons = gr.Radio(
            REASONS[:2], value="none", label="Reason", info=reason_info(judge), elem_id="dialogue-reasons"
        )

    def make(view: str, both: bool, reasons: str, *texts: str) -> ModeAndSample:
        rows = [texts[start : start + _FIELDS_OF_TURN] for start in range(0, len(texts), _FIELDS_OF_TURN)]
        return dialogue_input(judge, rows, {"turns": view, "both_orders": both, "reasons": reasons})

    judge_controls(judge, worker, "dialogue", [views, both, reasons, *fields], make, talk=True)


def _image_tab(judge: Judge, worker: EngineWorker) -> None:
    sees = judge.engine.supports_images
    html("image-help", value="" if sees else notice(*_NO_IMAGES), visible=not sees)
    image = gr.Image(
        label="Image",
        type="filepath",
        sources=["upload", "clipboard"],
        visible=sees,
        height=280,
        buttons=[],
        elem_id="image-file",
    )
    question = text_field("Question", lines=2, elem_id="image-question")
    answer = text_field("Answer", lines=4, elem_id="image-answer")
    reference = text_field("Reference answer", lines=3, info="Gets the full score.", elem_id="image-reference")
    explain = _reason_box(judge, "image")

    def make(question: str, answer: str, reference: str, image: str | None, explain: bool) -> ModeAndSample:
        return image_input(judge, question, answer, reference, image, explain=explain)

    judge_controls(judge, worker, "image", [question, answer, reference, image, explain], make)


_GRACE_S = 2
_LARGEST_UPLOAD = "2gb"
_HERE = Path(__file__).parent
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'"
)
"""Gradio's own page needs inline scripts and evaluates its templates; the texts shown on it are escaped (`markup`)."""
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_PASSWORD_WORDS = "Any user name, and the password of `judgelm web`."


def web_app(page: gr.Blocks, *, password: str | None = None) -> FastAPI:
    """An ASGI application of the page.

    Args:
        page: from `judgelm.serving.web.page.create_page`.
        password: required to see the page; None requires none.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.middleware("http")
    async def guard(request: Request, go_on: RequestResponseEndpoint) -> Response:
        response = await go_on(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    mounted: FastAPI = gr.mount_gradio_app(
        app,
        page,
        path="/",
        footer_links=[],
        run_history=False,
        auth=None if password is None else (lambda user, text: hmac.compare_digest(text.encode(), password.encode())),
        auth_message=_PASSWORD_WORDS,
        show_error=False,
        max_file_size=_LARGEST_UPLOAD,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        theme=_theme(),
        css_paths=[_HERE / "style.css"],
        head=f"<script>{(_HERE / 'keys.js').read_text(encoding='utf-8')}</script>",
    )
    return mounted


def _theme() -> gr.themes.Base:
    """System fonts, blue, and enough contrast for small print and boxes."""
    own = ["system-ui", "-apple-system", "'Segoe UI'", "Roboto", "sans-serif"]
    mono = ["ui-monospace", "Menlo", "Consolas", "monospace"]
    theme: gr.themes.Base = gr.themes.Default(primary_hue=gr.themes.colors.blue, font=own, font_mono=mono)
    return theme.set(
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        checkbox_border_color="*neutral_500",
        checkbox_border_color_dark="*neutral_400",
    )


def serve_page(app: FastAPI, bound: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Args:
        app: from `web_app`.
        bound: to the address, see `judgelm.serving.settings.bind`.
    """
    config = uvicorn.Config(
        app, log_level="warning", proxy_headers=False, server_header=False, timeout_graceful_shutdown=_GRACE_S
    )
    with suppress(KeyboardInterrupt):  # raised again by uvicorn after an orderly end
        uvicorn.Server(config).run(sockets=[bound])


def pair_tab(judge: Judge, worker: EngineWorker) -> None:
    """Lay the tab out; the judgment goes when another example takes the place of the judged texts."""
    example = examples()[0]
    with gr.Row(elem_classes="jl-example"):
        note = html("pair-example", value=example_note(0))
        another = gr.Button("Another example", size="sm", scale=0, min_width=140, elem_id="pair-another")
        clear = gr.Button("Clear", size="sm", scale=0, min_width=90, elem_id="pair-clear")
    question = text_field("Question", value=example.question, lines=2, elem_id="pair-question-field")
    with gr.Row():
        first = text_field("Answer 1", value=example.answers[0], lines=4, elem_id="pair-answer-1")
        second = text_field("Answer 2", value=example.answers[1], lines=4, elem_id="pair-answer-2")
    reference = text_field("Reference answer (optional)", lines=2, elem_id="pair-reference")
    with gr.Row():
        both = gr.Checkbox(
            value=True, label="Both orders", info="Shows the answers a second time, exchanged.", elem_id="pair-orders"
        )
        explained = "none" if judge.format.never_explained else "all"
        reasons = gr.Radio(REASONS, value=explained, label="Reason", info=reason_info(judge), elem_id="pair-reasons")

    def make(question: str, first: str, second: str, reference: str, both: bool, reasons: str) -> ModeAndSample:
        return pair_input(judge, question, (first, second), reference, {"both_orders": both, "reasons": reasons})

    fields = [question, first, second, reference]
    outputs, judging = judge_controls(judge, worker, "pair", [*fields, both, reasons], make, talk=True)
    position = gr.State(0)
    no_judgment = ["", None, gr.Column(visible=False), ""]

    def on_another(now: int) -> list[Any]:
        index = (now + 1) % len(examples())
        example = examples()[index]
        return [index, example_note(index), example.question, *example.answers, "", *no_judgment]

    def on_clear(now: int) -> list[Any]:
        return [now - 1, *[""] * (1 + len(fields)), *no_judgment]  # the same example comes next

    for button, event in ((another, on_another), (clear, on_clear)):
        button.click(event, position, [position, note, *fields, *outputs], cancels=[judging], **QUIET)
    gr.on([field.input for field in fields], lambda: "", None, note, **QUIET)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamplePair:
    """A pair to judge at once, with its label and the label's reason."""

    question: str
    answers: tuple[str, str]
    winner: Winner
    reason: str


@cache
def examples() -> tuple[ExamplePair, ...]:
    """All everyday pairs, in the order of their file."""
    rows = [json.loads(line) for line in EVERYDAY_PAIRS.read_text(encoding="utf-8").splitlines()]
    return tuple(
        ExamplePair(
            question=row["question"],
            answers=(row["answer_1"], row["answer_2"]),
            winner=row["winner"],
            reason=row["reason"],
        )
        for row in rows
    )


def example_note(index: int) -> str:
    """The source of an example, and its label folded away, so that nobody reads it before the verdict."""
    example = examples()[index]
    source = f"Example {index + 1} of {len(examples())}, from judgelm's everyday pairs. Press Judge, or type your own."
    label = f"{WINNER_NAMES[example.winner]}. {example.reason}"
    return f'<div class="jl-small">{sentences([source])}{folded(label[0].upper() + label[1:], title="Its label")}</div>'
