"""judgelm's own routes: samples in and judgments out, and how a client's request is understood."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from judgelm.dialects.contract import JudgeResult, JudgeTask
from judgelm.dialects.request_body import read_chat, read_completion
from judgelm.errors import BusyError, ConfigError, InputError
from judgelm.records import Judgment, Prompt
from judgelm.runs.serialization import judgment_row
from judgelm.serving import openapi as documenting
from judgelm.serving.handler import JudgeHandler
from judgelm.serving.http_errors import HttpError
from judgelm.serving.limits import read_json, wait_for_answer
from judgelm.serving.metrics import Metrics
from judgelm.serving.responses import Explanation
from judgelm.serving.settings import ServerSettings
from judgelm.serving.tasks import ModeTask, read_task

_FLAGS = (
    *("both_orders", "order_rule", "tie_band", "accept_one_order", "temperature", "seed", "max_tokens"),
    *("distribution", "reasons", "close_band", "reason_tokens", "repair"),
)
"""Options of modes that may stand beside `mode`, as they stand in a configuration of judgelm-batch."""
_AT_ONCE = 256


def native_routes(desk: JudgeHandler, settings: ServerSettings, metrics: Metrics) -> APIRouter:
    """The routes, which ask this desk."""
    router = APIRouter()

    async def judge(request: Request) -> Response:
        questions, several = read_tasks(await read_json(request, settings))
        judgments = await wait_for_answer(_judge_all(desk, questions), request, settings)
        for one in judgments:
            metrics.tokens(one.prompt_tokens, one.completion_tokens)
            if one.failure is not None:
                metrics.failure(one.failure.code)
        rows = [judgment_row(one) for one in judgments]
        return _json({"judgments": rows} if several else rows[0])

    async def explain(request: Request) -> Response:
        body = await read_json(request, settings)
        asked = (read_completion if "prompt" in body else read_chat)(body)
        explained, finding = await desk.aside(asked, desk.explain), None
        if explained.dialect is not None and request.query_params.get("ask") != "false":
            explained, finding = await wait_for_answer(desk.explain_fully(asked), request, settings)
        return _json(explanation_row(explained, finding))

    router.add_api_route("/v1/judge", judge, methods=["POST"], openapi_extra=documenting.JUDGE)
    router.add_api_route("/v1/judge/explain", explain, methods=["POST"], openapi_extra=documenting.EXPLAIN)
    return router


def read_tasks(body: Mapping[str, Any]) -> tuple[list[ModeTask], bool]:
    """The questions of a body, and whether it may be several (`samples`), which share its mode and options.

    Raises:
        InputError: which sample cannot be read, and why.
    """
    if "samples" not in body:
        return [read_task(_with_options(body, {}))], False
    samples = body["samples"]
    if not isinstance(samples, list) or not samples:
        raise InputError('"samples": expected a list of samples, at least one')
    shared = {name: value for name, value in body.items() if name != "samples"}
    if unknown := shared.keys() - {"mode", "options", *_FLAGS}:
        raise InputError(f'"{min(unknown)}": stands beside "samples"; it belongs into each of them')
    questions = []
    for place, sample in enumerate(samples):
        if not isinstance(sample, Mapping):
            raise InputError(f'"samples", {place}: expected an object')
        try:
            questions.append(read_task(_with_options(sample, shared)))
        except InputError as error:
            raise InputError(f'"samples", {place}: {error}') from error
    return questions, True


def explanation_row(explained: Explanation, finding: JudgeResult | None) -> dict[str, Any]:
    """What became of a request, as JSON."""
    return {
        "dialect": explained.dialect,
        "case": None if explained.case is None else _case_row(explained.case),
        "questions": [_question_row(one) for one in explained.questions],
        "prompts": [_prompt_row(one) for one in explained.prompts],
        "finding": None if finding is None else asdict(finding),
    }


def _with_options(row: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """A sample's row with all options in `options`: the shared ones, over them its own, over them its flags."""
    options: dict[str, Any] = {}
    for one in (shared, row):
        given = one.get("options")
        if given is not None and not isinstance(given, Mapping):
            raise InputError('"options": expected an object')
        options |= given or {}
        options |= {name: one[name] for name in _FLAGS if name in one}
    rest = {name: value for name, value in row.items() if name not in _FLAGS}
    return {"mode": shared.get("mode", "pair"), **rest, "options": options}


async def _judge_all(desk: JudgeHandler, questions: Sequence[ModeTask]) -> list[Judgment]:
    """The judgments in the order of the questions; some at once, so that a large request leaves room for others.

    Raises:
        HttpError: one of several was refused; the message says which (the others are given up).
    """
    if len(questions) == 1:
        return [await desk.judge(questions[0])]
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(place: int, question: ModeTask) -> Judgment:
        async with room:
            try:
                return await desk.judge(question)
            except (InputError, ConfigError, BusyError) as error:
                raise type(error)(f'"samples", {place}: {error}') from error

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(place, question)) for place, question in enumerate(questions)]
    return [task.result() for task in tasks]


def _case_row(case: JudgeTask) -> dict[str, Any]:
    sample = case.sample
    return {
        "task": case.kind,
        "question": sample.question,
        "answers": sample.answers,
        "reference": sample.reference,
        "scale": case.scale,
        "beside": sample.metadata,
        "doubt": case.doubt,
    }


def _question_row(question: ModeTask) -> dict[str, Any]:
    sample = question.sample
    return {
        "mode": question.mode,
        "options": question.options,
        "question": sample.question,
        "answers": sample.answers,
        "reference": sample.reference,
    }


def _prompt_row(prompt: Prompt) -> dict[str, Any]:
    """What the judge reads: one text, or messages, which the judge's own chat template puts together."""
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
    """Mappings that are no dicts."""
    if isinstance(value, Mapping):
        return dict(value)
    raise HttpError(500, "internal_error", f"{type(value).__name__} has no JSON")
