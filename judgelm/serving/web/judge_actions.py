"""Event handlers for the judging tabs: build a mode and a sample, and stream the judgment as HTML."""

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import gradio as gr

from judgelm.errors import ConfigError, InputError, JudgelmError
from judgelm.judge import Judge
from judgelm.modes import BatchMode
from judgelm.modes.follow_up import FollowUp
from judgelm.modes.pairwise import Pairwise
from judgelm.parsing.scores import score_lines
from judgelm.prompts.judge_prompt import FIELDS
from judgelm.records import Judgment, Sample
from judgelm.runs.engine_worker import EngineWorker, Finished, stream_flow
from judgelm.serving.web.judgment_view import judgment_panel, live_reasons, text_failure
from judgelm.serving.web.markup import alert, busy, notice, partial_text, text_block

SAMPLE_ID = "page"
"""Id used for every sample on the page; it does not affect greedy judgments."""

ModeAndSample = tuple[BatchMode, Sample]


async def stream_judgment(
    judge: Judge, worker: EngineWorker, make: Callable[[], ModeAndSample]
) -> AsyncIterator[tuple[str, FollowUp | None]]:
    """Yield the judgment's HTML as it changes and, at the end, the follow-up conversation."""
    try:
        mode, sample = make()
        yield busy("The judge is scoring the answers …"), None
        async for step in stream_flow(worker, lambda: mode(sample)):
            if isinstance(step, Finished):
                judgment = step.result
                lacks = _lacks_distribution(mode, judgment)
                yield judgment_panel(judgment, judge.format) + lacks, _talk(mode, sample, judgment)
            elif shown := live_reasons(step):
                yield busy("The scores are final. The judge is writing its reason …") + shown, None
    except JudgelmError as error:
        yield alert(error), None


async def stream_talk(worker: EngineWorker, talk: FollowUp, question: str) -> AsyncIterator[tuple[str, FollowUp]]:
    """Ask the judge a question, and yield the conversation's HTML and state as the reply arrives."""
    before = talk_log(talk)
    try:
        if not question.strip():
            raise InputError("the question is blank; enter a question")
        log = before + text_block(question, title="You")
        yield log + busy("The judge is reading your question …"), talk
        async for step in stream_flow(worker, partial(talk, question)):
            if not isinstance(step, Finished):
                yield log + "".join(partial_text(reply.text.lstrip(), title="Judge") for reply in step), talk
            elif step.result.reply is None and (failure := step.result.failure) is not None:
                yield (
                    log
                    + alert(f"The judge did not reply: {text_failure(failure)}. Try again or rephrase the question."),
                    talk,
                )
            else:
                yield talk_log(talk.after(step.result)), talk.after(step.result)
    except JudgelmError as error:
        yield before + alert(error), talk


def talk_log(talk: FollowUp) -> str:
    """Render the questions and replies in a conversation."""
    blocks = []
    for turn in talk.history:
        blocks.append(text_block(turn.question, title="You"))
        blocks.append(text_block(turn.reply or "", title="Judge"))
        if turn.failure is not None:
            blocks.append(notice(f"Problem with this reply: {text_failure(turn.failure)}."))
        if turn.truncations:
            blocks.append(notice("The answers were truncated to make room for the conversation."))
    return "".join(blocks)


def pair_input(
    judge: Judge, question: str, answers: Sequence[str], reference: str, options: dict[str, Any], *values: str
) -> ModeAndSample:
    """Return the mode and sample for judging a pair.

    `options` are fields of the pair mode. `values` are the other fields that the judge's prompt shows.
    """
    if options.get("reasons") == "flips" and not options.get("both_orders"):
        raise InputError("giving reasons where the orders disagree requires both orders; select “Both orders”")
    sample = _sample(judge, question, answers, reference, values=values)
    return judge.mode("pair", **options, **_distribution(judge)), sample


def single_input(
    judge: Judge, question: str, answer: str, reference: str, anchor: str, explain: bool, *values: str
) -> ModeAndSample:
    """Return the mode and sample for grading or labelling a single answer."""
    if reference.strip() and anchor.strip():
        raise InputError("enter either a reference or another answer, not both")
    metadata = {"anchor": anchor} if anchor.strip() else {}
    sample = _sample(judge, question, [answer], reference, metadata, values=values)
    mode = judge.format.modes[0] if judge.format.modes else "single"
    options = _distribution(judge) if mode == "single" else {}
    return judge.mode(mode, reasons=_all_or_none(explain), **options), sample


def several_input(
    judge: Judge,
    question: str,
    reference: str,
    rotate: bool,
    explain: bool,
    answers: Sequence[str],
    values: Sequence[str] = (),
) -> ModeAndSample:
    """Return the mode and sample for ranking answers. `rotate` shows each answer once in each position."""
    filled = [answer for answer in answers if answer.strip()]
    if len(filled) < 2:
        raise InputError("a ranking requires at least two answers; enter another one")
    orders = len(filled) if rotate else 1
    sample = _sample(judge, question, filled, reference, values=values)
    return judge.mode("multi", permutations=orders, reasons=_all_or_none(explain)), sample


def dialogue_input(judge: Judge, turns: Sequence[Sequence[str]], options: dict[str, Any]) -> ModeAndSample:
    """Return the mode and sample for two dialogues, or for one dialogue if no turn has a second answer.

    Each turn consists of a question, two answers, and a reference. Empty turns are skipped.
    """
    filled = [turn for turn in turns if any(text.strip() for text in turn)]
    if not filled:
        raise InputError("the dialogue is empty; enter at least one turn")
    two = any(turn[2].strip() for turn in filled)
    rows = []
    for index, (question, first, second, reference) in enumerate(filled, 1):
        answers = [first, second] if two else [first]
        _refuse_blank({f"the user message in turn {index}": question})
        _refuse_blank({f"answer {answer} in turn {index}": text for answer, text in enumerate(answers, 1)})
        rows.append({"question": question, "answers": answers, "reference": reference if reference.strip() else None})
    last = rows[-1]
    texts = str(last["question"]), list(last["answers"] or ()), str(last["reference"] or "")
    sample = _sample(judge, *texts, {"turns": rows})
    return judge.mode("conversation", **options, **_distribution(judge)), sample


def image_input(
    judge: Judge, question: str, answer: str, reference: str, image: str | None, explain: bool
) -> ModeAndSample:
    """Return the mode and sample for grading an answer about an image."""
    _refuse_blank({"the reference": reference})
    sees = judge.engine.supports_images
    if sees and image is None:
        raise InputError("no image; choose one")
    sample = _sample(judge, question, [answer], reference, images=(image,) if sees and image is not None else ())
    return judge.mode("multimodal", images="use" if sees else "ignore", reasons=_all_or_none(explain)), sample


def _sample(
    judge: Judge,
    question: str,
    answers: Sequence[str],
    reference: str,
    metadata: dict[str, Any] | None = None,
    *,
    images: tuple[str, ...] = (),
    values: Sequence[str] = (),
) -> Sample:
    required = {"the question": question}
    if (prompt := judge.format.prompt) is not None:
        fields = dict(zip(prompt.fields, values, strict=True))
        named = {"question": required, "reference": {"the reference": reference}} | {
            name: {name: text} for name, text in fields.items()
        }
        required = {name: text for slot, texts in named.items() if slot in prompt.slots for name, text in texts.items()}
        metadata = {FIELDS: fields}
    required |= {f"answer {index}" if len(answers) > 1 else "the answer": text for index, text in enumerate(answers, 1)}
    _refuse_blank(required)
    return Sample(
        id=SAMPLE_ID, question=question, answers=tuple(answers), reference=reference if reference.strip() else None,
        images=images, metadata=metadata or {},
    )  # fmt: skip


def _refuse_blank(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        if not text.strip():
            raise InputError(f"{name} is blank; fill it in")


def _all_or_none(explain: bool) -> str:
    return "all" if explain else "none"


def _distribution(judge: Judge) -> dict[str, bool]:
    try:
        score_lines(judge.format.scale, judge.format.step)
    except ConfigError:
        return {}
    return {"distribution": True}


def _lacks_distribution(mode: BatchMode, judgment: Judgment) -> str:
    wanted = getattr(mode, "distribution", False) and judgment.failure is None
    if not wanted or any(shown.distribution is not None or shown.grades is not None for shown in judgment.shown):
        return ""
    return notice("This engine does not return probabilities, so there is no chart of the distribution.")


def _talk(mode: BatchMode, sample: Sample, judgment: Judgment) -> FollowUp | None:
    if not isinstance(mode, Pairwise) or judgment.verdict is None:
        return None
    return FollowUp(mode=mode, sample=sample, judgment=judgment)


QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "concurrency_limit": None}
"""Options for all events: no public endpoint, no progress overlay, and no concurrency limit."""


REASONS = [("no", "none"), ("yes", "all"), ("where the orders disagree", "flips")]


def reason_info(judge: Judge) -> str:
    """Return a hint about how reliable this judge's reasons are."""
    if judge.format.never_explained:
        return "This judge was not trained to give reasons; the text it generates after the scores is unreliable."
    return "The judge writes its reason after the scores, so it does not affect them."


_PLAIN: dict[str, Any] = {"js_on_load": None, "apply_default_css": False, "padding": False, "elem_classes": "jl-place"}


def html(elem_id: str, *, value: str = "", visible: bool = True) -> gr.HTML:
    """Return a component that displays `markup` HTML."""
    return gr.HTML(value, elem_id=elem_id, visible=visible, **_PLAIN)


def judge_controls(
    judge: Judge,
    worker: EngineWorker,
    name: str,
    fields: Sequence[gr.components.Component],
    make: Callable[..., ModeAndSample],
    *,
    talk: bool = False,
) -> tuple[list[Any], Any]:
    """Add the buttons, the judgment, and, with `talk`, a conversation about the judgment.

    `make` is called with the values of `fields`; the page shows any `JudgelmError` it raises. `name` is a prefix for
    element ids.
    """
    with gr.Row(elem_classes="jl-buttons"):
        start = gr.Button("Judge", variant="primary", elem_id=f"{name}-judge")
        stop = gr.Button("Stop", elem_id=f"{name}-stop", scale=0, min_width=120)
    shown = html(f"{name}-judgment")
    state = gr.State(None)
    outputs: list[Any] = [shown, state]
    if talk:
        outputs += _talk_controls(worker, name, state)

    async def on_judge(*values: Any) -> AsyncIterator[tuple[Any, ...]]:
        async for page, follow_up in stream_judgment(judge, worker, lambda: make(*values)):
            fresh_talk = (gr.Column(visible=follow_up is not None), "") if talk else ()
            yield (page, follow_up, *fresh_talk)

    submits = [field.submit for field in fields if isinstance(field, gr.Textbox)]
    event = gr.on([start.click, *submits], on_judge, list(fields), outputs, trigger_mode="once", **QUIET)
    stop.click(lambda: "", None, shown, cancels=[event], **QUIET)
    return outputs, event


def _talk_controls(worker: EngineWorker, name: str, state: gr.State) -> list[Any]:
    """Do not add a `change` event for the state, because Gradio would hash the state on every event."""
    with gr.Column(visible=False, elem_id=f"{name}-talk") as group:
        log = html(f"{name}-log")
        label = "Ask the judge about this judgment"
        info = "The judge sees its prompt and its previous reply. Press Enter to send."
        question = gr.Textbox(label=label, lines=1, max_lines=6, elem_id=f"{name}-question", info=info)
        with gr.Row(elem_classes="jl-buttons"):
            ask = gr.Button("Ask", elem_id=f"{name}-ask", scale=0, min_width=120)

    async def on_ask(talk: FollowUp | None, text: str) -> AsyncIterator[tuple[Any, ...]]:
        if talk is None:
            return
        async for page, now in stream_talk(worker, talk, text):
            yield page, now, "" if now is not talk else gr.skip()

    gr.on([ask.click, question.submit], on_ask, [state, question], [log, state, question], trigger_mode="once", **QUIET)
    return [group, log]
