"""judgelm's own routes: samples in and judgments out, and the explanation of a client's request."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from judgelm.dialects.contract import JudgeResult, JudgeTask
from judgelm.dialects.request_body import ChatBody, CompletionBody, read_chat, read_completion
from judgelm.errors import BusyError, ConfigError, InputError
from judgelm.records import Judgment, Prompt, Sample
from judgelm.runs.runner import judgment_row
from judgelm.serving.handler import Explanation, JudgeHandler
from judgelm.serving.http_errors import HttpError, read_json, typed_field, wait_for_answer
from judgelm.serving.judges import ServedJudges
from judgelm.serving.openai_routes import model_name
from judgelm.serving.schemas import replies, request_body
from judgelm.serving.settings import ServerSettings
from judgelm.serving.tasks import ModeTask, read_task

_FLAGS = (
    *("both_orders", "order_rule", "tie_threshold", "accept_one_order", "temperature", "seed", "max_tokens"),
    *("distribution", "reasons", "close_threshold", "reason_tokens", "retry_unparseable"),
)
"""Options of modes that may stand beside `mode`, as they stand in a configuration of judgelm-batch."""
_AT_ONCE = 256
_ASK = {
    "name": "ask",
    "in": "query",
    "description": "false does not judge and leaves the finding out.",
    "schema": {"type": "boolean", "default": True},
}


def native_routes(judges: ServedJudges, settings: ServerSettings) -> APIRouter:
    """The routes, each request answered by the judge that it names."""
    router = APIRouter()

    async def judge(request: Request) -> Response:
        body = dict(await read_json(request, settings))
        name, handler = judges.find(typed_field(body, "judge", str, "a text"))  # `model` is a field of the sample
        body.pop("judge", None)
        request.state.judge = name
        tasks, several = read_tasks(body)
        judgments = await wait_for_answer(_judge_all(handler, tasks), request, settings)
        request.state.tokens = (
            sum(judgment.prompt_tokens for judgment in judgments),
            sum(judgment.completion_tokens for judgment in judgments),
        )
        request.state.failures = tuple(each.failure.code for each in judgments if each.failure is not None)
        rows = [judgment_row(judgment) for judgment in judgments]
        return _json({"judgments": rows} if several else rows[0])

    async def explain(request: Request) -> Response:
        body = await read_json(request, settings)
        chat_request = (read_completion if "prompt" in body else read_chat)(body)
        request.state.judge, handler = judges.find(model_name(body, None))
        explanation, result = await handler.run_aside(chat_request, handler.explain), None
        if explanation.dialect is not None and request.query_params.get("ask") != "false":
            explanation, result = await wait_for_answer(handler.explain_with_result(chat_request), request, settings)
        return _json(explanation_row(explanation, result))

    router.post(
        "/v1/judge",
        summary="Judge a sample, or several",
        responses=replies("Judgment", "Judgments", description="As in a run file."),
        openapi_extra=request_body("JudgeBody"),
    )(judge)
    router.post(
        "/v1/judge/explain",
        summary="Explain how a request of /v1/chat/completions or /v1/completions is read, and judge it",
        responses=replies("Explanation"),
        openapi_extra=request_body(ChatBody, CompletionBody) | {"parameters": [_ASK]},
    )(explain)
    return router


def read_tasks(body: Mapping[str, Any]) -> tuple[list[ModeTask], bool]:
    """The tasks of a body, and whether it has several (`samples`), which share its mode and options.

    Raises:
        InputError: a sample cannot be read; the message names it.
    """
    if "samples" not in body:
        return [read_task(_with_options(body, {}))], False
    samples = body["samples"]
    if not isinstance(samples, list) or not samples:
        raise InputError('"samples": expected a list of samples, at least one')
    shared = {name: value for name, value in body.items() if name != "samples"}
    if unknown := shared.keys() - {"mode", "options", *_FLAGS}:
        raise InputError(f'"{min(unknown)}": not allowed beside "samples"; put it into each of them')
    tasks = []
    for index, sample in enumerate(samples):
        if not isinstance(sample, Mapping):
            raise InputError(f'"samples", {index}: expected an object')
        try:
            tasks.append(read_task(_with_options(sample, shared)))
        except InputError as error:
            raise InputError(f'"samples", {index}: {error}') from error
    return tasks, True


def explanation_row(explanation: Explanation, result: JudgeResult | None) -> dict[str, Any]:
    """An explanation and the judge's result as JSON."""
    finding = None if result is None else asdict(result)
    if finding is not None:
        del finding["notes"], finding["batch"]  # notes stand in headers of the reply, not in this body
    return {
        "dialect": explanation.dialect,
        "case": None if explanation.task is None else _task_row(explanation.task),
        "questions": [_mode_task_row(task) for task in explanation.mode_tasks],
        "prompts": [_prompt_row(prompt) for prompt in explanation.prompts],
        "finding": finding,
    }


def _with_options(row: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """A sample's row with all options in `options`: the shared ones, over them its own, over them its flags."""
    options: dict[str, Any] = {}
    for source in (shared, row):
        own = source.get("options")
        if own is not None and not isinstance(own, Mapping):
            raise InputError('"options": expected an object')
        options |= own or {}
        options |= {name: source[name] for name in _FLAGS if name in source}
    rest = {name: value for name, value in row.items() if name not in _FLAGS}
    return {"mode": shared.get("mode", "pair"), **rest, "options": options}


async def _judge_all(handler: JudgeHandler, tasks: Sequence[ModeTask]) -> list[Judgment]:
    """The judgments in the order of the tasks; at most `_AT_ONCE` at a time, so that others find room in the queue.

    Raises:
        HttpError: one of several was refused; the message names it (the others are dropped).
    """
    if len(tasks) == 1:
        return [await handler.run_task(tasks[0])]
    room = asyncio.Semaphore(_AT_ONCE)

    async def judge(index: int, task: ModeTask) -> Judgment:
        async with room:
            try:
                return await handler.run_task(task)
            except (InputError, ConfigError, BusyError) as error:
                raise type(error)(f'"samples", {index}: {error}') from error

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(judge(index, task)) for index, task in enumerate(tasks)]
    return [judging.result() for judging in running]


def _task_row(task: JudgeTask) -> dict[str, Any]:
    row = {"task": task.kind, **_texts(task.sample), "scale": task.scale}
    return {**row, "beside": task.sample.metadata, "doubt": task.doubt}


def _mode_task_row(task: ModeTask) -> dict[str, Any]:
    return {"mode": task.mode, "options": task.options, **_texts(task.sample)}


def _texts(sample: Sample) -> dict[str, Any]:
    return {"question": sample.question, "answers": sample.answers, "reference": sample.reference}


def _prompt_row(prompt: Prompt) -> dict[str, Any]:
    """A prompt: one text, or messages, which the judge's own chat template joins."""
    if not prompt.chat:
        return {"text": "".join(span.text for span in prompt.spans), "continuation": prompt.prefill}
    messages: list[dict[str, str]] = []
    for span in prompt.spans:
        role = span.role or "user"
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": ""})
        messages[-1]["content"] += span.text
    return {"messages": messages, "continuation": prompt.prefill}


def _json(row: Any) -> Response:
    return Response(json.dumps(row, default=_plain, allow_nan=False).encode(), media_type="application/json")


def _plain(value: object) -> Any:
    """Mappings that are not dicts."""
    if isinstance(value, Mapping):
        return dict(value)
    raise HttpError(500, "internal_error", f"{type(value).__name__} has no JSON")
