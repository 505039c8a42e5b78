"""Agent trajectories: messages with tool calls, shown to the judge as steps or matched with a reference.

A trajectory is a JSON list of chat messages in the format of OpenAI's Chat or Responses API, inspect_ai, or LangChain.
The judge is shown numbered steps, such as `[Step 3: call]`, without the agent's reasoning. If the prompt does not fit
the window, whole texts are elided in the order of `_RANKS`, oldest first. The task, the last result, and the
assistant's last text are always kept.

Source: OpenAI's API reference; inspect_ai's `log_tool_call_error.json`; `trajectory/match.py` and `trajectory/utils.py`
in agentevals.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from judgelm.errors import InputError
from judgelm.records import Span, SpanKind, StepPlace, TrajectoryMatch

StepKind = Literal["system", "user", "assistant", "call", "result"]

STEP_MARKER = "[Step"
"""Start of every step label. Confusables in untrusted text are sanitized."""

ABOVE = "(the task above)"
"""Replacement for a user message that is shown above the trajectory as its task."""

_KINDS: Mapping[str, StepKind] = {
    **{"system": "system", "developer": "system", "user": "user", "human": "user"},
    **{"assistant": "assistant", "ai": "assistant", "tool": "result", "function": "result"},
}
_TEXTS = ("text", "input_text", "output_text")
_NOT_SHOWN = ("reasoning", "thinking", "redacted_thinking")
_RANKS: Mapping[StepKind, int] = {"result": 0, "assistant": 1, "user": 2, "call": 3}
_BETWEEN = "\n\n"
_SHOWN_VALUE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A text, a tool call, or a tool's result.

    Attributes:
        message: index of the message.
        text: for a call, its JSON arguments as the agent wrote them.
        call_id: links a result to its call; may be empty.
    """

    kind: StepKind
    message: int
    text: str
    tool: str = ""
    call_id: str = ""

    @property
    def arguments(self) -> object:
        """A call's arguments as JSON values, or as a string if they are not valid JSON."""
        try:
            return json.loads(self.text, parse_float=_number)
        except (ValueError, RecursionError):
            return self.text


def _number(text: str) -> float:
    """Parse whole numbers as integers, so that 1.0 matches 1."""
    value = float(text)
    return int(value) if value.is_integer() else value


def read_trajectory(text: str) -> tuple[Step, ...]:
    """Return the steps of an answer.

    Raises:
        InputError: the answer is not a JSON list of messages.
    """
    try:
        messages = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"expected a trajectory (a JSON list of chat messages), got {_shown(text)}") from None
    return read_steps(messages)


def read_steps(messages: object) -> tuple[Step, ...]:
    """Convert messages to steps.

    Raises:
        InputError: the input is not a list of messages, or a message has an unsupported role, call, or content.
    """
    if not isinstance(messages, list) or not messages:
        raise InputError(f"expected a non-empty list of chat messages, got {_shown(messages)}")
    steps = tuple(step for index, message in enumerate(messages) for step in _read_message(message, index))
    if not steps:
        raise InputError("the messages contain neither text nor tool calls; remove this row")
    return steps


def _read_message(message: object, index: int) -> Iterator[Step]:
    place = f"messages[{index}]"
    if not isinstance(message, dict):
        raise InputError(f"{place}: expected an object with role and content, got {_shown(message)}; fix it")
    form = message.get("type")
    if form in _NOT_SHOWN:
        return
    if form == "function_call":
        yield _read_call(message, index, place)
        return
    if form == "function_call_output":
        text, name = _text_of(message.get("output"), f"{place}.output"), message.get("call_id")
        yield Step(kind="result", message=index, text=text, call_id=str(name or ""))
        return
    role = message.get("role", form)
    kind = _KINDS.get(role) if isinstance(role, str) else None
    if kind is None:
        known = "system, user, assistant, or tool (or type function_call, function_call_output)"
        raise InputError(f"{place}.role: expected {known}, got {_shown(role)}; remove this message")
    calls = message.get("tool_calls") or [call for call in [message.get("function_call")] if call]
    if not isinstance(calls, list) or (calls and kind != "assistant"):
        raise InputError(f"{place}.tool_calls: expected a list in an assistant message, got {_shown(calls)}")
    text = _text_of(message.get("content"), f"{place}.content", calls=bool(calls), values=kind == "result")
    if kind == "result":
        text = _with_error(text, message.get("error"))
    if text.strip() or not calls:
        yield Step(kind=kind, message=index, text=text, call_id=str(message.get("tool_call_id") or ""))
    for number, call in enumerate(calls):
        yield _read_call(call, index, f"{place}.tool_calls[{number}]")


def _read_call(call: object, index: int, place: str) -> Step:
    """Parse a call from OpenAI, inspect_ai (where `function` is the name), or LangChain (with `args`)."""
    if not isinstance(call, dict):
        raise InputError(f"{place}: expected an object with the called function, got {_shown(call)}; fix it")
    function = call.get("function")
    source = function if isinstance(function, dict) else call
    name = function if isinstance(function, str) else source.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"{place}: expected the name of a function, got {_shown(name)}; fix it")
    arguments = source.get("arguments", source.get("args"))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    call_id = call.get("call_id") or call.get("id") or ""
    return Step(kind="call", message=index, text=text, tool=name, call_id=str(call_id))


def _text_of(content: object, place: str, *, calls: bool = False, values: bool = True) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [_part_text(part, f"{place}[{number}]", calls) for number, part in enumerate(content)]
        return "\n".join(part for part in parts if part is not None)
    if not values:
        raise InputError(f"{place}: expected a string or text parts, got {_shown(content)}; use a single string")
    return json.dumps(content, ensure_ascii=False)


def _part_text(part: object, place: str, calls: bool) -> str | None:
    if isinstance(part, str):
        return part
    form = part.get("type") if isinstance(part, dict) else None
    if form in _NOT_SHOWN or (form == "tool_use" and calls):
        return None
    text = part.get("refusal" if form == "refusal" else "text") if isinstance(part, dict) else None
    if form not in (*_TEXTS, "refusal") or not isinstance(text, str):
        raise InputError(f"{place}: expected a text part, got {_shown(part)}; remove this row")
    return text


def _with_error(text: str, error: object) -> str:
    if not isinstance(error, dict):
        return text
    message = str(error.get("message") or "")
    whole = text if message in text else f"{message}\n{text}"
    return f"Error ({error.get('type') or 'unknown'}): {whole}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}..."


def task_of(steps: Sequence[Step]) -> str | None:
    """Return the user's first message, the default task."""
    return next((step.text for step in steps if step.kind == "user"), None)


def trajectory_spans(text: str, answer: int, task: str) -> list[Span]:
    """Return a trajectory as spans of trusted labels and untrusted text.

    `answer` is the trajectory's position among the answers shown, counting from 0. `task` is not repeated in the steps.
    """
    steps = read_trajectory(text)
    return _spans(steps, task, answer=answer, ranks=_elision_ranks(steps), kind="question")


def reference_spans(text: str, task: str) -> list[Span]:
    """Return a reference as spans: steps if it is a trajectory, otherwise one span."""
    steps = reference_steps(text)
    if steps is None:
        return [Span(text, "reference")]
    return _spans(steps, task, answer=None, ranks={}, kind="reference")


def reference_steps(text: str | None) -> tuple[Step, ...] | None:
    """Return the steps of a reference, or None if it is not a trajectory."""
    if text is None or not text.lstrip().startswith("["):
        return None
    try:
        return read_trajectory(text)
    except InputError:
        return None


def _spans(
    steps: Sequence[Step], task: str, *, answer: int | None, ranks: Mapping[int, tuple[int, int]], kind: SpanKind
) -> list[Span]:
    spans: list[Span] = []
    calls: dict[str, int] = {}
    for number, step in enumerate(steps, 1):
        calls |= {step.call_id: number} if step.kind == "call" and step.call_id else {}
        of = f" of step {calls[step.call_id]}" if step.kind == "result" and step.call_id in calls else ""
        label = f"{_BETWEEN if spans else ''}{STEP_MARKER} {number}: {step.kind}{of}]\n"
        body = Span(ABOVE) if step.kind == "user" and step.text == task else Span(step.text, kind)
        tool = [Span(step.tool, kind), Span("(")] if step.kind == "call" else []
        stays = None if answer is None else StepPlace(answer=answer, step=number, rank=None)
        place = None if stays is None else replace(stays, rank=ranks.get(number))
        spans += [replace(span, step=stays) for span in [Span(label), *tool]]
        spans.append(replace(body, step=place))
        spans += [Span(")", step=stays)] if tool else []
    return spans


def _elision_ranks(steps: Sequence[Step]) -> dict[int, tuple[int, int]]:
    last = {step.kind: number for number, step in enumerate(steps, 1)}
    task = next((number for number, step in enumerate(steps, 1) if step.kind == "user"), 0)
    stay = {task, last.get("result"), last.get("assistant")}
    may_go = [(number, step.kind) for number, step in enumerate(steps, 1) if number not in stay]
    return {number: (_RANKS[kind], number) for number, kind in may_go if kind in _RANKS}


def match_trajectory(
    steps: Sequence[Step], reference: Sequence[Step], *, arguments: Literal["exact", "ignore"] = "exact"
) -> TrajectoryMatch:
    """Compare a trajectory's tool calls with a reference's.

    `exact` compares `arguments` as JSON values; `ignore` compares only tool names.
    """
    called, wanted = ([_key(step, arguments) for step in each if step.kind == "call"] for each in (steps, reference))
    counts, needs = Counter(called), Counter(wanted)
    shared = (counts & needs).total()
    return TrajectoryMatch(
        strict=_messages(steps, arguments) == _messages(reference, arguments),
        ordered=called == wanted,
        unordered=counts == needs,
        subset=counts <= needs,
        superset=counts >= needs,
        recall=shared / len(wanted) if wanted else None,
        precision=shared / len(called) if called else None,
    )


def _key(step: Step, arguments: str) -> str:
    return json.dumps([step.tool, step.arguments if arguments == "exact" else None], sort_keys=True)


def _messages(steps: Sequence[Step], arguments: str) -> list[tuple[str, list[str]]]:
    messages: dict[int, tuple[str, list[str]]] = {}
    for step in steps:
        kind = "assistant" if step.kind == "call" else step.kind
        _, calls = messages.setdefault(step.message, (kind, []))
        calls += [_key(step, arguments)] if step.kind == "call" else []
    return [(kind, sorted(calls)) for kind, calls in messages.values()]
