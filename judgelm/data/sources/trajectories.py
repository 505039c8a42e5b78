"""Rows with trajectories of agents: the project's own layout, inspect_ai's logs and tau-bench's results.

`judgelm.prompts.trajectory` has the forms of messages. Of a row's messages nothing is changed: the answer is their
JSON text. inspect_ai moves long texts of a log into `attachments`, from which they are put back.

Sources: inspect_ai (`tests/log/test_eval_log/log_tool_call_error.json` and the samples of `EvalSample`), tau-bench
(`historical_trajectories/gpt-4o-airline.json`).
"""

import json
from collections.abc import Sequence

from judgelm.data.label_codes import PAIR_CODE
from judgelm.data.readers.rows import Row
from judgelm.data.readers.values import ID_FIELDS, content_id, describe, list_value
from judgelm.data.sources.layouts import plain_label
from judgelm.data.sources.source import Source
from judgelm.errors import InputError
from judgelm.prompts.trajectory import read_steps, task_of
from judgelm.records import Label, Sample

_NEEDS = "trajectories: one or two lists of chat messages"
_FIELDS = frozenset(
    {"trajectories", "question", "reference", "category", "answer_models", "model_1", "model_2", *ID_FIELDS}
    | {"winner", "votes", "score", "scores", "score_1", "score_2", "score_a", "score_b", "preference", "reason"}
)
_INSPECT_FIELDS = frozenset(
    {"id", "epoch", "input", "target", "messages", "scores", "events", "events_data", "attachments", "store", "output"}
)
_INSPECT_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Values of a score in letters: correct, partly, incorrect, no answer."""
_ATTACHMENT = "attachment://"


def trajectory_sample(row: Row) -> Sample:
    """One or two trajectories of one task; without `question` the task is the first text of the user.

    Raises:
        InputError: no lists of messages, or two trajectories that begin with different tasks and no `question`.
    """
    listed = list_value(row.data["trajectories"])
    if not isinstance(listed, list) or not listed:
        raise row.field_error("trajectories", f"expected {_NEEDS}, got {describe(listed)}; see docs/formats.md")
    answers = tuple(_messages_text(row, f"trajectories[{index}]", each) for index, each in enumerate(listed))
    named, wanted = row.data.get("answer_models"), row.data.get("reference")
    models = row.text_list("answer_models", len(answers)) if named else row.optional_texts("model_1", "model_2")
    reference = _messages_text(row, "reference", wanted) if isinstance(wanted, list) else row.reference()
    question = row.optional_text("question") or _common_task(row, listed)
    return Sample(
        id=row.id() or content_id(question, answers, reference),
        question=question,
        answers=answers,
        reference=reference,
        answer_models=models,
        category=row.optional_text("category"),
        metadata=row.extras(_FIELDS),
    )


def trajectory_label(row: Row, with_reference: bool) -> Label | None:
    """As of a plain row with so many answers."""
    listed = list_value(row.data["trajectories"])
    answers = [""] * (len(listed) if isinstance(listed, list) else 1)
    return plain_label(row.with_data({**row.data, "answers": answers}), with_reference)


def _messages_text(row: Row, name: str, messages: object) -> str:
    """The JSON text of messages that can be read.

    Raises:
        InputError: they cannot; names the row's place and field.
    """
    try:
        read_steps(messages)
    except InputError as error:
        raise row.field_error(name, str(error)) from error
    return row.with_data({name: json.dumps(messages, ensure_ascii=False)}).text(name, _NEEDS)


def _common_task(row: Row, trajectories: Sequence[object]) -> str:
    tasks = [task_of(read_steps(each)) for each in trajectories]
    if tasks[0] is None or not tasks[0].strip():
        raise row.field_error("question", "is missing, and no text of the user says the task; add it")
    if any(task != tasks[0] for task in tasks):
        raise row.field_error("question", "is missing, and the trajectories begin with different tasks; add it")
    return tasks[0]


def inspect_sample(row: Row) -> Sample:
    """A sample of an inspect_ai log; its id is the sample's with the epoch, the reference is the target."""
    attachments = row.data.get("attachments")
    texts = attachments if isinstance(attachments, dict) else {}
    messages = _attached(row, row.data["messages"], texts)
    answer = _messages_text(row, "messages", messages)
    asked = _attached(row, row.data["input"], texts)
    question = asked if isinstance(asked, str) else _common_task(row, [asked])
    target = row.data.get("target")
    accepted = [text for text in (target if isinstance(target, list) else [target]) if isinstance(text, str) and text]
    return Sample(
        id=f"{row.required_id('id', 'samples of a log are told apart by it')}-{row.data['epoch']}",
        question=question,
        answers=(answer,),
        reference=" or ".join(accepted) or None,
        metadata=row.extras(_INSPECT_FIELDS),
    )


def _attached(row: Row, value: object, texts: dict[str, object]) -> object:
    """A JSON value with the texts that the log keeps as attachments."""
    if isinstance(value, list):
        return [_attached(row, item, texts) for item in value]
    if isinstance(value, dict):
        return {name: _attached(row, item, texts) for name, item in value.items()}
    if not isinstance(value, str) or not value.startswith(_ATTACHMENT):
        return value
    text = texts.get(value.removeprefix(_ATTACHMENT))
    if not isinstance(text, str):
        raise row.field_error("attachments", f"does not hold {value}; export the log with its attachments")
    return text


def inspect_label(row: Row, with_reference: bool) -> Label | None:
    """The score of the log's only scorer, letters as numbers; None with none or several of them.

    Raises:
        InputError: the only score is neither a number nor one of inspect_ai's letters.
    """
    scores = row.data.get("scores")
    if not isinstance(scores, dict) or len(scores) != 1:
        return None
    [(name, score)] = scores.items()
    value = score.get("value") if isinstance(score, dict) else None
    if isinstance(value, str) and value in _INSPECT_GRADES:
        return Label(sample_id="", winner=None, scores=(_INSPECT_GRADES[value],))
    if not isinstance(value, bool | int | float):
        raise row.field_error(f"scores.{name}", f"expected a number or C, P, I, N, got {describe(value)}; leave it out")
    return Label(sample_id="", winner=None, scores=(row.with_data({name: float(value)}).number(name),))


def tau_bench_sample(row: Row) -> Sample:
    """A simulated dialogue of tau-bench; the reference is the calls that its author expects, as a trajectory.

    The task is what the simulated user was told, which the agent did not see.
    """
    info = row.data["info"]
    task = info.get("task") if isinstance(info, dict) else None
    if not isinstance(task, dict) or not isinstance(task.get("actions"), list):
        raise row.field_error("info", f"expected a task with instruction and actions, got {describe(task)}; correct it")
    calls = [
        {"name": action.get("name"), "args": action.get("kwargs")} if isinstance(action, dict) else action
        for action in task["actions"]
    ]
    expected = [{"role": "assistant", "tool_calls": calls}]
    return Sample(
        id=f"{row.required_id('task_id', 'tau-bench numbers its tasks')}-{row.data.get('trial', 0)}",
        question=row.with_data(task).text("instruction", "info.task.instruction"),
        answers=(_messages_text(row, "traj", row.data["traj"]),),
        reference=_messages_text(row, "info.task.actions", expected) if calls else None,
    )


def tau_bench_label(row: Row, with_reference: bool) -> Label | None:
    """The reward: 1 where the database ends as expected and the user was told what was asked, else 0."""
    return Label(sample_id="", winner=None, scores=(row.number("reward"),))


SOURCES = (
    Source(name="trajectory", sample=trajectory_sample, label=trajectory_label, code=PAIR_CODE, soft="probability"),
    Source(name="inspect-ai", sample=inspect_sample, label=inspect_label),
    Source(name="tau-bench", sample=tau_bench_sample, label=tau_bench_label),
)
