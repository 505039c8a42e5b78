"""The tab where one answer is graded."""

import gradio as gr

from judgelm.judge import Judge
from judgelm.serving.service import Service
from judgelm.serving.web.judging import Asked, single
from judgelm.serving.web.pair_tab import reason_info
from judgelm.serving.web.wiring import judging_part, text_field


def single_tab(judge: Judge, service: Service) -> None:
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

    def make(asked: str, given: str, known: str, beside: str, reason: bool) -> Asked:
        return single(judge, asked, given, known, beside, explain=reason)

    judging_part(judge, service, "single", [question, answer, reference, anchor, explain], make)
