"""The tab where two answers are compared."""

import gradio as gr

from judgelm.judge import Judge
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.web.components import REASONS, judge_controls, text_field
from judgelm.serving.web.judge_actions import ModeAndSample, pair_input


def pair_tab(judge: Judge, worker: EngineWorker) -> None:
    """Lay the tab out."""
    question = text_field("Question", lines=2, elem_id="pair-question-field")
    with gr.Row():
        first = text_field("Answer 1", lines=5, elem_id="pair-answer-1")
        second = text_field("Answer 2", lines=5, elem_id="pair-answer-2")
    reference = text_field("Reference answer (optional)", lines=2, elem_id="pair-reference")
    with gr.Row():
        both = gr.Checkbox(
            value=True, label="Both orders", info="Shows the answers a second time, exchanged.", elem_id="pair-orders"
        )
        reasons = gr.Radio(REASONS, value="all", label="Reason", info=reason_info(judge), elem_id="pair-reasons")

    def make(asked: str, one: str, other: str, known: str, both_orders: bool, explain: str) -> ModeAndSample:
        return pair_input(judge, asked, (one, other), known, {"both_orders": both_orders, "reasons": explain})

    judge_controls(judge, worker, "pair", [question, first, second, reference, both, reasons], make, talk=True)


def reason_info(judge: Judge) -> str:
    """What a reason of this judge is worth."""
    if judge.format.never_explained:
        return "This judge was trained without reasons: what it writes after the scores means little."
    return "Written after the scores, which do not change with it."
