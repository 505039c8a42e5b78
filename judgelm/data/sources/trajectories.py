"""Read agent trajectories in judgelm's format, from inspect_ai logs, and from tau-bench results.

The answer contains the messages as JSON text. Long texts that inspect_ai stores in `attachments` are restored. Sources:
inspect_ai (`tests/log/test_eval_log/log_tool_call_error.json`), tau-bench
(`historical_trajectories/gpt-4o-airline.json`).
"""

import json
from collections.abc import Sequence

from judgelm.data.label_codes import PAIR_CODE
from judgelm.data.readers.rows import Row
from judgelm.data.readers.values import describe, list_value
from judgelm.data.sources.layouts import models_of, plain_label
from judgelm.data.sources.source import Source, known_fields, sample_of
from judgelm.errors import InputError
from judgelm.prompts.trajectory import read_steps, task_of
from judgelm.records import Label, Sample

_NEEDS = "trajectories: one or two lists of chat messages"
_INSPECT_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""The letter scores: correct, partially correct, incorrect, and no answer."""
_ATTACHMENT = "attachment://"


def trajectory_sample(row: Row) -> Sample:
    """Read one or two trajectories; if there is no `question`, the task is the user's first message."""
    listed = list_value(row.data["trajectories"])
    if not isinstance(listed, list) or not listed:
        raise row.field_error("trajectories", f"expected {_NEEDS}, got {describe(listed)}; see docs/formats.md")
    answers = tuple(_messages_text(row, f"trajectories[{index}]", each) for index, each in enumerate(listed))
    models, wanted = models_of(row, len(answers)), row.data.get("reference")
    reference = _messages_text(row, "reference", wanted) if isinstance(wanted, list) else row.reference()
    question = row.optional_text("question") or _common_task(row, listed)
    name, category, metadata = row.id(), row.optional_text("category"), row.extras(known_fields("trajectory"))
    return sample_of(name, question, answers, reference, models=models, category=category, metadata=metadata)


def trajectory_label(row: Row, with_reference: bool) -> Label | None:
    """Read the label as in plain rows."""
    listed = list_value(row.data["trajectories"])
    answers = [""] * (len(listed) if isinstance(listed, list) else 1)
    return plain_label(row.with_data({**row.data, "answers": answers}), with_reference)


def _messages_text(row: Row, name: str, messages: object) -> str:
    try:
        read_steps(messages)
    except InputError as error:
        raise row.field_error(name, str(error)) from error
    return row.with_data({name: json.dumps(messages, ensure_ascii=False)}).text(name, _NEEDS)


def _common_task(row: Row, trajectories: Sequence[object]) -> str:
    tasks = [task_of(read_steps(each)) for each in trajectories]
    if tasks[0] is None or not tasks[0].strip():
        raise row.field_error("question", "missing, and there is no user message to use as the task; add the question")
    if any(task != tasks[0] for task in tasks):
        raise row.field_error("question", "missing, and the trajectories begin with different tasks; add the question")
    return tasks[0]


def inspect_sample(row: Row) -> Sample:
    """Read a sample from an inspect_ai log; the id includes the epoch, and the reference is the target."""
    attachments = row.data.get("attachments")
    texts = attachments if isinstance(attachments, dict) else {}
    answer = _messages_text(row, "messages", _attached(row, row.data["messages"], texts))
    asked = _attached(row, row.data["input"], texts)
    question = asked if isinstance(asked, str) else _common_task(row, [asked])
    target = row.data.get("target")
    accepted = [text for text in (target if isinstance(target, list) else [target]) if isinstance(text, str) and text]
    return Sample(
        id=f"{row.required_id('id', 'it identifies samples of a log')}-{row.data['epoch']}",
        question=question,
        answers=(answer,),
        reference=" or ".join(accepted) or None,
        metadata=row.extras(known_fields("inspect-ai")),
    )


def _attached(row: Row, value: object, texts: dict[str, object]) -> object:
    if isinstance(value, list):
        return [_attached(row, item, texts) for item in value]
    if isinstance(value, dict):
        return {name: _attached(row, item, texts) for name, item in value.items()}
    if not isinstance(value, str) or not value.startswith(_ATTACHMENT):
        return value
    text = texts.get(value.removeprefix(_ATTACHMENT))
    if not isinstance(text, str):
        raise row.field_error("attachments", f"{value} not found; include attachments when you export the log")
    return text


def inspect_label(row: Row, with_reference: bool) -> Label | None:
    """Read the log's only score, with letters converted to numbers, or return None if there are several scorers."""
    scores = row.data.get("scores")
    if not isinstance(scores, dict) or len(scores) != 1:
        return None
    [(name, score)] = scores.items()
    value = score.get("value") if isinstance(score, dict) else None
    if isinstance(value, str) and value in _INSPECT_GRADES:
        return Label(sample_id="", winner=None, scores=(_INSPECT_GRADES[value],))
    if not isinstance(value, bool | int | float):
        raise row.field_error(f"scores.{name}", f"expected a number or C, P, I, N, got {describe(value)}; remove it")
    return Label(sample_id="", winner=None, scores=(row.with_data({name: float(value)}).number(name),))


def tau_bench_sample(row: Row) -> Sample:
    """Read a tau-bench dialogue; the reference is the expected tool calls, as a trajectory.

    The task is the simulated user's instruction, which was not shown to the agent.
    """
    info = row.data["info"]
    task = info.get("task") if isinstance(info, dict) else None
    if not isinstance(task, dict) or not isinstance(task.get("actions"), list):
        raise row.field_error("info", f"expected a task with instruction and actions, got {describe(task)}; fix it")
    actions = task["actions"]
    calls = [
        {"name": each.get("name"), "args": each.get("kwargs")} if isinstance(each, dict) else each for each in actions
    ]
    expected = [{"role": "assistant", "tool_calls": calls}]
    return Sample(
        id=f"{row.required_id('task_id', 'it identifies the task')}-{row.data.get('trial', 0)}",
        question=row.with_data(task).text("instruction", "info.task.instruction"),
        answers=(_messages_text(row, "traj", row.data["traj"]),),
        reference=_messages_text(row, "info.task.actions", expected) if calls else None,
    )


def tau_bench_label(row: Row, with_reference: bool) -> Label | None:
    """Read the reward: 1 if the final database is correct and the user's questions were answered, else 0."""
    return Label(sample_id="", winner=None, scores=(row.number("reward"),))


SOURCES = (
    Source(name="trajectory", sample=trajectory_sample, label=trajectory_label, code=PAIR_CODE, soft="probability"),
    Source(name="inspect-ai", sample=inspect_sample, label=inspect_label),
    Source(name="tau-bench", sample=tau_bench_sample, label=tau_bench_label),
)
