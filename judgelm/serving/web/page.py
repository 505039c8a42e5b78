"""The web page, with one tab per way of judging and a tab for browsing and labelling runs.

The page does not contact other servers: fonts, scripts, and styles are local, telemetry is disabled, and a content
security policy blocks external requests.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import gradio as gr
from PIL import Image

from judgelm.judge import Judge
from judgelm.package import EVERYDAY_PAIRS
from judgelm.reports.wording import WINNER_NAMES
from judgelm.runs.engine_worker import EngineWorker
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
)
from judgelm.serving.web.markup import folded, notice, sentences
from judgelm.serving.web.runs import OpenRun

_UPLOADS_KEPT_S = 24 * 3600
_MAX_LISTED_WORDS = 3
_MAX_ANSWERS, _ANSWERS_AT_FIRST = 8, 3
_MAX_TURNS, _TURNS_AT_FIRST, _FIELDS_PER_TURN = 8, 2, 4
_EXAMPLE_TEXTS = ("question", "answer_1", "answer_2")
_VIEWS = [("each turn", "each"), ("the last turn", "last"), ("the whole conversation", "whole")]
_NO_IMAGES = (
    "This judge does not support images. To use images, start `judgelm web` with a vision-language judge: a LLaVA or "
    "Idefics model, or a model on a server (--engine openai).",
    "The judge does not see the image and relies on the reference answer, which must describe the image.",
)


def create_page(judge: Judge, worker: EngineWorker, runs: Sequence[OpenRun] = ()) -> gr.Blocks:
    """Create the page. Pass it to `judgelm.serving.web.web_app.web_app`.

    `worker` runs the judge's engine for all users. `runs` are available from the start; users can upload more runs.
    """
    page: gr.Blocks
    with gr.Blocks(title="judgelm", analytics_enabled=False, delete_cache=(_UPLOADS_KEPT_S, _UPLOADS_KEPT_S)) as page:
        html("jl-head", value=f"<h1>judgelm</h1>{sentences([_about(judge)])}")
        offered = _tabs_of(judge.format.modes) if judge.format.modes else list(_TABS)
        first = "browse" if runs or not offered else offered[0]
        with gr.Tabs(selected=first, overflow_behavior="wrap", elem_id="jl-tabs"):
            for name, (title, lay_out) in _TABS.items():
                if name in offered:
                    with gr.Tab(title, id=name):
                        lay_out(judge, worker)
            with gr.Tab("Browse and label", id="browse"):
                browse_tab(page, judge, runs)
    return page


def _about(judge: Judge) -> str:
    low, high = judge.format.scale
    asked = f"template {judge.format.template}, scores {low:g} to {high:g}"
    if (prompt := judge.format.prompt) is not None:
        words = list(prompt.reply.words)
        listed = ", ".join(words) if len(words) <= _MAX_LISTED_WORDS else f"{words[0]} to {words[-1]}"
        asked = f"prompt {prompt.name} ({prompt.file}), replies {listed}"
    engine = judge.engine.describe()["engine"]
    return f"{judge.name} on the {engine} engine, {asked}. Press Shift+Enter in a text field to judge."


def _tabs_of(modes: Sequence[str]) -> list[str]:
    """Return the tabs for these modes, in the same order."""
    names = {"pair": "pair", "single": "single", "label": "single", "multi": "several"}
    return list(dict.fromkeys(names[mode] for mode in modes if mode in names))


class _Field(NamedTuple):
    id: str
    label: str
    lines: int = 3
    info: str | None = None


def _text_fields(name: str, *fields: _Field) -> list[gr.Textbox]:
    return [
        gr.Textbox("", label=label, lines=lines, max_lines=14, info=info, elem_id=f"{name}-{key}")
        for key, label, lines, info in fields
    ]


def _prompt_fields(judge: Judge, name: str, question: gr.Textbox) -> list[gr.Textbox]:
    """Add a text field for each other slot of the judge's prompt. Hide the question unless the prompt shows it."""
    if (prompt := judge.format.prompt) is None:
        return []
    question.visible = "question" in prompt.slots
    return _text_fields(name, *(_Field(f"slot-{slot}", slot.replace("_", " ").capitalize()) for slot in prompt.fields))


def _reference_field(judge: Judge, name: str, info: str | None = None) -> gr.Textbox:
    [field] = _text_fields(name, _REFERENCE._replace(info=info))
    if (prompt := judge.format.prompt) is not None:
        field.visible, field.label, field.info = "reference" in prompt.slots, "Reference answer", None
    return field


def _explains_later(judge: Judge) -> bool:
    """Return whether reasons are optional: the prompt does not ask for one before the verdict, and there is no head."""
    form = judge.format
    return form.head is None and (form.prompt is None or form.prompt.reply.reason is None)


def _has_examples(judge: Judge) -> bool:
    return judge.format.prompt is None or not judge.format.prompt.fields


def _reason_box(judge: Judge, name: str, *, value: bool = False) -> gr.Checkbox:
    later = _explains_later(judge)
    return gr.Checkbox(
        value=value and later, label="Reason", info=reason_info(judge), visible=later, elem_id=f"{name}-reason"
    )


def _more_button(name: str, label: str, first: int, parts: Sequence[Any]) -> None:
    count = gr.State(first)
    button = gr.Button(label, size="sm", elem_id=f"{name}-more")

    def show_more(shown: int) -> list[Any]:
        now = min(shown + 1, len(parts))
        updates = [type(part)(visible=index < now) for index, part in enumerate(parts)]
        return [now, gr.Button(interactive=now < len(parts)), *updates]

    button.click(show_more, count, [count, button, *parts], **QUIET)


_QUESTION = _Field("question", "Question", 2)
_REFERENCE = _Field("reference", "Reference answer (optional)", 2)
_SINGLE_EXAMPLE = ("How many legs does a spider have?", "Eight, in four pairs.")
_SEVERAL_EXAMPLE = (
    "Translate into French: good evening", "Bonsoir.", "Bonne nuit, said before going to bed.", "Good evening."
)  # fmt: skip
_DIALOGUE_EXAMPLE = (
    *("Name a planet with rings.", "Saturn.", "Venus.", ""),
    *("How many moons does it have?", "Well over a hundred are known.", "None.", ""),
)
_IMAGE_EXAMPLE = ("How many squares are there, and what colour are they?", "Two blue squares.", "Two, both blue.")


def _filled_in(fields: Sequence[gr.Textbox], texts: Sequence[str]) -> None:
    for field, text in zip(fields, texts, strict=False):
        field.value = text


@cache
def _two_squares() -> Image.Image:
    image = Image.new("RGB", (240, 120), "white")
    for left in (20, 140):
        image.paste("#0072b2", (left, 20, left + 80, 100))
    return image


def _single_tab(judge: Judge, worker: EngineWorker) -> None:
    texts = _text_fields("single", _QUESTION)
    own = _prompt_fields(judge, "single", texts[0])
    texts += _text_fields("single", _Field("answer", "Answer", 5))
    if _has_examples(judge):
        _filled_in(texts, _SINGLE_EXAMPLE)
    anchor = _Field(
        "anchor", "Another answer (optional)", 2, "For comparison, instead of a reference. It is scored too."
    )
    with gr.Row():
        texts += [_reference_field(judge, "single", "The judge compares the answer with the reference.")]
        texts += _text_fields("single", anchor)
    texts[-1].visible = judge.format.prompt is None
    explain = _reason_box(judge, "single", value=not judge.format.never_explained)
    judge_controls(judge, worker, "single", [*texts, explain, *own], partial(single_input, judge))


def _several_tab(judge: Judge, worker: EngineWorker) -> None:
    [question] = _text_fields("several", _QUESTION)
    own, prompt = _prompt_fields(judge, "several", question), judge.format.prompt
    fixed = len(prompt.answers) if prompt is not None and prompt.reply.kind == "choice" else None
    with gr.Row(elem_classes="jl-answers"):
        numbers = range(1, _MAX_ANSWERS + 1)
        answers = _text_fields("several", *(_Field(f"answer-{number}", f"Answer {number}", 4) for number in numbers))
    if _has_examples(judge):
        _filled_in([question, *answers], _SEVERAL_EXAMPLE)
    for field in answers[fixed or _ANSWERS_AT_FIRST :]:
        field.visible = False
    if fixed is None:
        _more_button("several", "Add an answer", _ANSWERS_AT_FIRST, answers)
    reference = _reference_field(judge, "several")
    with gr.Row():
        rotate = gr.Checkbox(
            value=False, label="Show each answer once in each position", visible=not judge.template.reads_alone,
            info="Uses one prompt per answer and ranks answers by their mean scores.", elem_id="several-places",
        )  # fmt: skip
        explain = _reason_box(judge, "several")

    def make(question: str, reference: str, rotate: bool, explain: bool, *texts: str) -> ModeAndSample:
        shown, values = texts[:_MAX_ANSWERS], texts[_MAX_ANSWERS:]
        return several_input(judge, question, reference, rotate, explain, shown, values)

    judge_controls(judge, worker, "several", [question, reference, rotate, explain, *answers, *own], make)


def _dialogue_tab(judge: Judge, worker: EngineWorker) -> None:
    html("dialogue-help", value=notice("To grade a single dialogue, leave all replies from assistant 2 empty."))
    groups, fields = [], []
    for turn in range(1, _MAX_TURNS + 1):
        name, title = f"dialogue-{turn}", f"Turn {turn}:"
        with gr.Group(visible=turn <= _TURNS_AT_FIRST) as group:
            fields += _text_fields(name, _Field("user", f"{title} user", 2))
            with gr.Row():
                both = (_Field(f"answer-{place}", f"{title} assistant {place}") for place in (1, 2))
                fields += _text_fields(name, *both)
            fields += _text_fields(name, _Field("reference", f"{title} reference (optional)", 1))
        groups.append(group)
    _filled_in(fields, _DIALOGUE_EXAMPLE)
    _more_button("dialogue", "Add a turn", _TURNS_AT_FIRST, groups)
    with gr.Row():
        options = [
            gr.Radio(_VIEWS, value="each", label="Judge", elem_id="dialogue-turns"),
            gr.Checkbox(
                value=True,
                label="Both orders",
                info="Only applies to two dialogues.",
                visible=not judge.template.reads_alone,
                elem_id="dialogue-orders",
            ),
            gr.Radio(REASONS[:2], value="none", label="Reason", info=reason_info(judge), elem_id="dialogue-reasons"),
        ]

    def make(view: str, both: bool, reasons: str, *texts: str) -> ModeAndSample:
        rows = [texts[start : start + _FIELDS_PER_TURN] for start in range(0, len(texts), _FIELDS_PER_TURN)]
        return dialogue_input(judge, rows, {"turns": view, "both_orders": both, "reasons": reasons})

    judge_controls(judge, worker, "dialogue", [*options, *fields], make, talk=True)


def _image_tab(judge: Judge, worker: EngineWorker) -> None:
    sees = judge.engine.supports_images
    html("image-help", value="" if sees else notice(*_NO_IMAGES), visible=not sees)
    image = gr.Image(
        _two_squares() if sees else None, label="Image", type="filepath", sources=["upload", "clipboard"],
        visible=sees, height=280, buttons=[], elem_id="image-file",
    )  # fmt: skip
    reference = _Field("reference", "Reference answer", 3, "An answer that would get full marks.")
    texts = _text_fields("image", _QUESTION, _Field("answer", "Answer", 4), reference)
    if sees:
        _filled_in(texts, _IMAGE_EXAMPLE)
    fields = [*texts, image, _reason_box(judge, "image")]
    judge_controls(judge, worker, "image", fields, partial(image_input, judge))


def pair_tab(judge: Judge, worker: EngineWorker) -> None:
    """Create the tab for pairs. Loading another example clears the judgment."""
    with gr.Row(elem_classes="jl-example"):
        shows = _has_examples(judge)
        note = html("pair-example", value=example_note(0) if shows else "")
        another = gr.Button("Another example", size="sm", scale=0, min_width=140, visible=shows, elem_id="pair-another")
        clear = gr.Button("Clear", size="sm", scale=0, min_width=90, elem_id="pair-clear")
    fields = _text_fields("pair", _QUESTION._replace(id="question-field"))
    own = _prompt_fields(judge, "pair", fields[0])
    with gr.Row():
        fields += _text_fields("pair", _Field("answer-1", "Answer 1", 4), _Field("answer-2", "Answer 2", 4))
    if shows:
        _filled_in(fields, [examples()[0][key] for key in _EXAMPLE_TEXTS])
    fields.append(_reference_field(judge, "pair"))
    with gr.Row():
        both = gr.Checkbox(
            value=True, label="Both orders", info="Judges the pair again with the answers swapped.",
            visible=not judge.template.reads_words, elem_id="pair-orders",
        )  # fmt: skip
        later = _explains_later(judge)
        explained = "all" if later and not judge.format.never_explained else "none"
        offered = REASONS[:2] if judge.template.reads_alone else REASONS
        reasons = gr.Radio(
            offered, value=explained, label="Reason", info=reason_info(judge), visible=later, elem_id="pair-reasons"
        )

    def make(
        question: str, first: str, second: str, reference: str, both: bool, reasons: str, *values: str
    ) -> ModeAndSample:
        options = {"both_orders": both, "reasons": reasons}
        return pair_input(judge, question, (first, second), reference, options, *values)

    outputs, judging = judge_controls(judge, worker, "pair", [*fields, both, reasons, *own], make, talk=True)
    position = gr.State(0)
    no_judgment = ["", None, gr.Column(visible=False), ""]

    def on_another(now: int) -> list[Any]:
        index = (now + 1) % len(examples())
        texts = [examples()[index][key] for key in _EXAMPLE_TEXTS]
        return [index, example_note(index), *texts, "", *(gr.skip() for _ in own), *no_judgment]

    def on_clear(now: int) -> list[Any]:
        cleared = [""] * (1 + len(fields) + len(own))
        return [now - 1, *cleared, *no_judgment]  # so that the same example comes next

    for button, event in ((another, on_another), (clear, on_clear)):
        button.click(event, position, [position, note, *fields, *own, *outputs], cancels=[judging], **QUIET)
    gr.on([field.input for field in fields], lambda: "", None, note, **QUIET)


@cache
def examples() -> tuple[dict[str, Any], ...]:
    """Return all everyday pairs, with labels and the reasons for the labels."""
    return tuple(json.loads(line) for line in EVERYDAY_PAIRS.read_text(encoding="utf-8").splitlines())


def example_note(index: int) -> str:
    """Render a note about an example, with the label hidden until clicked."""
    example = examples()[index]
    source = f"Example {index + 1} of {len(examples())} everyday pairs. Press Judge, or edit the texts first."
    label = f"{WINNER_NAMES[example['winner']]}. {example['reason']}"
    return f'<div class="jl-small">{sentences([source])}{folded(label[0].upper() + label[1:], title="Label")}</div>'


_TABS: dict[str, tuple[str, Callable[[Judge, EngineWorker], None]]] = {
    "pair": ("Pair", pair_tab),
    "single": ("Single answer", _single_tab),
    "several": ("Several answers", _several_tab),
    "dialogue": ("Conversation", _dialogue_tab),
    "image": ("Image", _image_tab),
}
