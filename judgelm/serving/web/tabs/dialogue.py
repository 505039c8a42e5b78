"""The tab where conversations are judged: two assistants' with the same user, or one's."""

import gradio as gr

from judgelm.judge import Judge
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.web.components import QUIET, REASONS, html, judge_controls, text_field
from judgelm.serving.web.judge_actions import ModeAndSample, dialogue_input
from judgelm.serving.web.markup import notice
from judgelm.serving.web.tabs.pair import reason_info

MOST_TURNS = 8
_AT_FIRST = 2
_FIELDS = 4
_VIEWS = [("each turn", "each"), ("the last turn", "last"), ("the whole at once", "whole")]


def dialogue_tab(judge: Judge, worker: EngineWorker) -> None:
    """Lay the tab out."""
    html("dialogue-help", value=notice("Leave every second assistant's answer blank to grade one dialogue."))
    groups, fields = [], []
    for number in range(1, MOST_TURNS + 1):
        with gr.Group(visible=number <= _AT_FIRST) as group:
            name = f"dialogue-{number}"
            fields.append(text_field(f"Turn {number}: the user", lines=2, elem_id=f"{name}-user"))
            with gr.Row():
                fields.append(text_field(f"Turn {number}: assistant 1", elem_id=f"{name}-answer-1"))
                fields.append(text_field(f"Turn {number}: assistant 2", elem_id=f"{name}-answer-2"))
            fields.append(text_field(f"Turn {number}: reference (optional)", lines=1, elem_id=f"{name}-reference"))
        groups.append(group)
    count = gr.State(_AT_FIRST)
    more = gr.Button("Add a turn", size="sm", elem_id="dialogue-more")
    with gr.Row():
        turns = gr.Radio(_VIEWS, value="each", label="Judge", elem_id="dialogue-turns")
        both = gr.Checkbox(value=True, label="Both orders", info="Of two dialogues.", elem_id="dialogue-orders")
        reasons = gr.Radio(
            REASONS[:2], value="none", label="Reason", info=reason_info(judge), elem_id="dialogue-reasons"
        )

    def show_more(shown: int) -> list[object]:
        now = min(shown + 1, MOST_TURNS)
        return [now, gr.Button(interactive=now < MOST_TURNS), *(gr.Group(visible=n < now) for n in range(MOST_TURNS))]

    more.click(show_more, count, [count, more, *groups], **QUIET)

    def make(view: str, both_orders: bool, explain: str, *texts: str) -> ModeAndSample:
        rows = [texts[start : start + _FIELDS] for start in range(0, len(texts), _FIELDS)]
        return dialogue_input(judge, rows, {"turns": view, "both_orders": both_orders, "reasons": explain})

    judge_controls(judge, worker, "dialogue", [turns, both, reasons, *fields], make, talk=True)
