"""The tab where two answers and more are ranked."""

import gradio as gr

from judgelm.judge import Judge
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.web.components import QUIET, judge_controls, text_field
from judgelm.serving.web.judge_actions import ModeAndSample, several_input
from judgelm.serving.web.tabs.pair import reason_info

MOST_ANSWERS = 8
_AT_FIRST = 3


def several_tab(judge: Judge, worker: EngineWorker) -> None:
    """Lay the tab out."""
    question = text_field("Question", lines=2, elem_id="several-question")
    answers = []
    with gr.Row(elem_classes="jl-answers"):
        for number in range(1, MOST_ANSWERS + 1):
            field = text_field(f"Answer {number}", lines=4, elem_id=f"several-answer-{number}")
            field.visible = number <= _AT_FIRST
            answers.append(field)
    count = gr.State(_AT_FIRST)
    more = gr.Button("Add an answer", size="sm", elem_id="several-more")
    reference = text_field("Reference answer (optional)", lines=2, elem_id="several-reference")
    with gr.Row():
        every_place = gr.Checkbox(
            value=False,
            label="Each answer once at each place",
            info="As many prompts as answers; their mean scores rank.",
            elem_id="several-places",
        )
        explain = gr.Checkbox(value=False, label="Reason", info=reason_info(judge), elem_id="several-reason")

    def show_more(shown: int) -> list[object]:
        now = min(shown + 1, MOST_ANSWERS)
        fields = [gr.Textbox(visible=number < now) for number in range(MOST_ANSWERS)]
        return [now, gr.Button(interactive=now < MOST_ANSWERS), *fields]

    more.click(show_more, count, [count, more, *answers], **QUIET)

    def make(asked: str, known: str, places: bool, reason: bool, *given: str) -> ModeAndSample:
        return several_input(judge, asked, given, known, every_place=places, explain=reason)

    judge_controls(judge, worker, "several", [question, reference, every_place, explain, *answers], make)
