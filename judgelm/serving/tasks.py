"""Creates mode tasks from JSON or from a client's task.

A JSON task is a judgelm-batch row with optional `mode` and `options` fields. For client tasks, other texts from the
prompt (such as a criterion) are appended to the question under headings.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from judgelm.data.readers.rows import Row
from judgelm.data.samples import allows_count, count_range_text
from judgelm.data.sources.registry import recognise
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, digest
from judgelm.errors import InputError
from judgelm.modes import BatchMode
from judgelm.prompts.judge_prompt import JudgePrompt
from judgelm.records import Sample

_SOURCE = "question"
_TASK_FIELDS = ("mode", "options")
_MAX_REPEATS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeTask:
    """A sample, and the mode and options for judging it.

    Attributes:
        mode: a key of `judgelm.modes.MODES`.
        options: fields of the mode, in JSON form.
        prompt: the prompt to judge with, instead of the judge's template.
    """

    sample: Sample
    mode: str = "pair"
    options: Mapping[str, Any] = field(default_factory=dict)
    prompt: JudgePrompt | None = None


def read_task(body: Mapping[str, Any]) -> ModeTask:
    """Parse a mode task from a JSON object.

    Images must be `data:` URLs, so that clients cannot access the server's files or network.
    """
    mode, options = body.get("mode", "pair"), body.get("options")
    if not isinstance(mode, str):
        raise InputError(f'field "mode": expected a mode name, got {json.dumps(mode)}')
    if options is not None and not isinstance(options, Mapping):
        raise InputError('field "options": expected an object with options for the mode, such as {"both_orders": true}')
    options = options or {}
    for name, noun in (("permutations", "orders"), ("solves", "self-answers")):
        repeats = options.get(name)
        if isinstance(repeats, int | float) and repeats > _MAX_REPEATS:
            limit = f"the server allows at most {_MAX_REPEATS} {noun}"
            raise InputError(f'field "options": {name} is {str(repeats)[:40]}; {limit}')
    row = Row(_SOURCE, 1, {name: value for name, value in body.items() if name not in _TASK_FIELDS})
    try:
        known = recognise(row)
        if known.note:
            raise InputError(known.note)
        assert known.sample is not None
        sample = known.sample(row)
    except InputError as error:
        raise InputError(str(error).removeprefix(f"{_SOURCE}:1: ")) from error
    if not all(image.startswith("data:") for image in sample.images):
        raise InputError('field "images": the server only accepts data: URLs, such as data:image/png;base64,...')
    return ModeTask(sample=sample, mode=mode, options=dict(options))


def checked_sample(sample: Sample, mode: BatchMode) -> Sample:
    """Check the sample against the mode, and drop the reference if the mode ignores it."""
    if not allows_count(len(sample.answers), mode.answers):
        raise InputError(f"mode {mode.name}: expected {count_range_text(mode.answers)}, got {len(sample.answers)}")
    if mode.reference == "use" and sample.reference is None:
        raise InputError(f'mode {mode.name}: field "reference" is required but missing')
    if mode.reference == "ignore":
        sample = replace(sample, reference=None)
    mode.check(sample)
    return sample


REASON_TOKENS = 256
"""Maximum number of tokens per reason; replies include up to 600 characters of the reason."""

_MIN_WORDS = 20
"""A reason is generated only if the reply has room for this many words."""

_NOT_TEXT = ("turns", "batch")


def mode_tasks(task: JudgeTask, *, both_orders: bool = False, reasons: bool = False) -> tuple[ModeTask, ...]:
    """Return the mode tasks for a task: none for `prepare`, one per pair for a batch, otherwise a single task."""
    if task.kind == "prepare":
        return ()
    prompt: JudgePrompt | None = task.facts.get("prompt")
    if prompt is not None:
        return (_prompt_task(task, prompt, reasons=reasons),)
    samples = task.facts.get("batch", (task.sample,))
    options = {"reasons": "all", "reason_tokens": REASON_TOKENS} if reasons else {}
    return tuple(_mode_task(task, _judge_sample(sample), options, both_orders=both_orders) for sample in samples)


def _prompt_task(task: JudgeTask, prompt: JudgePrompt, *, reasons: bool) -> ModeTask:
    asks_reason = reasons and prompt.reply.reason is None
    options = {"reasons": "all", "reason_tokens": REASON_TOKENS} if asks_reason else {}
    return ModeTask(sample=task.sample, mode=prompt.modes[0], options=options, prompt=prompt)


def headed_question(sample: Sample) -> str:
    """Append all other texts to the question under headings; the criterion comes last."""
    parts = [sample.question] if sample.question else []
    for name in sorted(sample.metadata, key=lambda name: name == "criterion"):
        value = sample.metadata[name]
        if name not in _NOT_TEXT:
            titled = value if isinstance(value, tuple) else [(name, value)]
            parts += [f"{_heading(title)}:\n{text}" for title, text in titled]
    return "\n\n".join(parts)


def has_room_for_reason(dialect: Dialect, task: JudgeTask, request: ChatRequest) -> bool:
    """Render a dummy result to check whether the reply has room for a reason."""
    if task.kind == "prepare" or "batch" in task.facts:
        return False
    count = len(task.sample.answers)
    scores = tuple(float(5 + index) for index in range(min(count, 2))) + (5.0,) * (count - 2)
    reason = "zqz " * 2 * _MIN_WORDS
    dummy = JudgeResult(scores=scores, grades=((5.0, 1.0),), correct=1.0, reason=reason)
    dummy = replace(dummy, winner=2, first_better=0.0, tie=0.0) if count == 2 else dummy
    reply = dialect.render(task, replace(request, n=1, logprobs=False), dummy)
    return "".join((*reply.texts, reply.arguments)).count("zqz") >= _MIN_WORDS


def _mode_task(task: JudgeTask, sample: Sample, reasons: Mapping[str, Any], *, both_orders: bool) -> ModeTask:
    if task.kind == "choice":
        orders = {"permutations": len(sample.answers)} if both_orders else {}
        return ModeTask(sample=sample, mode="multi", options={**orders, **reasons})
    options: dict[str, Any] = {"distribution": True, **reasons}
    if task.kind == "pair" and both_orders:
        options["both_orders"] = True
    if "turns" in sample.metadata:  # clients send a separate request for each turn
        return ModeTask(sample=sample, mode="conversation", options=options | {"turns": "last"})
    return ModeTask(sample=sample, mode="pair" if task.kind == "pair" else "single", options=options)


def _judge_sample(sample: Sample) -> Sample:
    question = headed_question(sample)
    given = sample.metadata.get("turns", ())
    assert isinstance(given, tuple | list), "dialects must store turns as a sequence"
    turns = [
        {"question": turn["question"], "answers": list(turn["answers"]), "reference": turn.get("reference")}
        for turn in given
    ]
    if turns:
        turns[-1]["question"] = question
    texts = [question, *sample.answers, str(sample.reference), str(turns)]
    metadata = {"turns": turns} if turns else {}
    return replace(sample, id=digest("\0".join(texts))[:16], question=question, metadata=metadata)


def _heading(name: str) -> str:
    return "Evaluation criterion" if name == "criterion" else name.replace("_", " ").capitalize()
