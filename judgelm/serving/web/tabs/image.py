"""The tab where an answer about an image is graded."""

import gradio as gr

from judgelm.judge import Judge
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.web.components import html, judge_controls, text_field
from judgelm.serving.web.judge_actions import ModeAndSample, image_input
from judgelm.serving.web.markup import notice
from judgelm.serving.web.tabs.pair import reason_info

_BLIND = (
    "This judge cannot see images. For one that does, start `judgelm web` with a vision-language judge (a LLaVA or "
    "Idefics model, or a server's by --engine openai).",
    "Without the image it can still grade an answer by the reference alone, which must then say what is to be seen.",
)


def image_tab(judge: Judge, worker: EngineWorker) -> None:
    """Lay the tab out."""
    sees = judge.engine.supports_images
    html("image-help", value="" if sees else notice(*_BLIND), visible=not sees)
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
    explain = gr.Checkbox(value=False, label="Reason", info=reason_info(judge), elem_id="image-reason")

    def make(asked: str, given: str, known: str, picture: str | None, reason: bool) -> ModeAndSample:
        return image_input(judge, asked, given, known, picture, explain=reason)

    judge_controls(judge, worker, "image", [question, answer, reference, image, explain], make)
