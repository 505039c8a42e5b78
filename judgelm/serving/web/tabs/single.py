"""The tab where one answer is graded."""

import gradio as gr

from judgelm.judge import Judge
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.web.components import judge_controls, text_field
from judgelm.serving.web.judge_actions import ModeAndSample, single_input
from judgelm.serving.web.tabs.pair import reason_info


def single_tab(judge: Judge, worker: EngineWorker) -> None:
    """Lay the tab out."""
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
    explain = gr.Checkbox(value=True, label="Reason", info=reason_info(judge), elem_id="single-reason")

    def make(asked: str, given: str, known: str, beside: str, reason: bool) -> ModeAndSample:
        return single_input(judge, asked, given, known, beside, explain=reason)

    judge_controls(judge, worker, "single", [question, answer, reference, anchor, explain], make)
