"""The tab to judge a pair, which opens with an example."""

from typing import Any

import gradio as gr

from judgelm.judge import Judge
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.web.components import QUIET, REASONS, html, judge_controls, reason_info, text_field
from judgelm.serving.web.examples import example_note, examples
from judgelm.serving.web.judge_actions import ModeAndSample, pair_input


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
