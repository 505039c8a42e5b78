"""judgelm's own routes: samples in and judgments out, the explanation of a client's request, and OpenRLHF's rewards.

Source of the rewards' form: OpenRLHF at 3c3be62, `openrlhf/utils/agent.py` (client) and `openrlhf/cli/serve_rm.py`.
"""

import asyncio
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from judgelm.dialects.contract import JudgeResult, JudgeTask
from judgelm.dialects.request_body import ChatBody, CompletionBody, read_chat, read_completion
from judgelm.errors import BusyError, ConfigError, InputError
from judgelm.judge import expected_score, first_better
from judgelm.records import Judgment, Prompt, Sample
from judgelm.runs.runner import judgment_row
from judgelm.serving.chat_response import UnjudgedError
from judgelm.serving.handler import Explanation, JudgeHandler
from judgelm.serving.http_errors import HttpError, read_json, strict_json, typed_field, wait_for_answer
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
_END_TOKENS = re.compile(r"(?:\s*(?:<\|(?:im_end|endoftext|eot_id|end_of_text|end)\|>|</s>|<eos>|<end_of_turn>))+\s*$")
"""At a response's end, which OpenRLHF decodes with special tokens."""
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
        wanted = typed_field(body, "judge", str, "a text")  # `model` is a field of the sample
        name, handler = judges.find(wanted, request.state.owner)
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
        request.state.judge, handler = judges.find(model_name(body, None), request.state.owner)
        explanation, result = await handler.run_aside(chat_request, handler.explain), None
        if explanation.dialect is not None and request.query_params.get("ask") != "false":
            explanation, result = await wait_for_answer(handler.explain_with_result(chat_request), request, settings)
        return _json(explanation_row(explanation, result))

    async def reward(request: Request) -> Response:
        body = await read_json(request, settings)
        request.state.judge, handler = judges.find(request.query_params.get("judge"), request.state.owner)
        is_reward_model = handler.judge.template.reading == "reward"
        tasks = rewarded_tasks(body, is_reward_model=is_reward_model)
        judgments = await wait_for_answer(_judge_all(handler, tasks), request, settings)
        rewards = [_reward(each, None if is_reward_model else handler.judge.format.scale) for each in judgments]
        shares = [0.5 + math.tanh(each / 2) / 2 for each in rewards] if is_reward_model else rewards
        return _json({"rewards": rewards, "scores": shares, "extra_logs": {}})

    router.post("/get_reward", summary="Reward responses, in the form of OpenRLHF's remote reward models")(reward)
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


def rewarded_tasks(body: Mapping[str, Any], *, is_reward_model: bool) -> list[ModeTask]:
    """The tasks of OpenRLHF's `query`, `prompts` and `labels`: each response against its label, or by itself.

    Args:
        body: of the request. A query is a prompt with the response to it; a label is a reference answer, null, or a
            JSON object of `question` and, if there is one, `reference`.
        is_reward_model: whether the judge is one, which reads no reference.

    Raises:
        InputError: a field is no list of texts, one is longer than another, or a query does not begin with its prompt.
    """
    columns: list[list[Any]] = []
    for name in ("query", "prompts", "labels"):
        column = [None] * len(columns[0]) if name == "labels" and body.get(name) is None else body.get(name)
        if not isinstance(column, list) or not all(isinstance(each, str | None) for each in column):
            raise InputError(f'"{name}": expected a list of texts, as OpenRLHF sends it')
        columns.append(column)
    queries, prompts, labels = columns
    if not queries or not len(queries) == len(prompts) == len(labels):
        raise InputError(f"{len(queries)} queries, {len(prompts)} prompts and {len(labels)} labels; send one of each")
    tasks = []
    for index, (query, prompt, label) in enumerate(zip(queries, prompts, labels, strict=True)):
        if not prompt or not query or not query.startswith(prompt):
            raise InputError(f'"query", {index}: does not begin with its prompt, so its response is not known')
        answer = _END_TOKENS.sub("", query.removeprefix(prompt))
        question, reference = _question_and_reference(prompt, label)
        pair = bool(reference) and not is_reward_model
        sample = Sample(id=str(index), question=question, answers=(answer, str(reference)) if pair else (answer,))
        options = {"both_orders": True, "distribution": True} if pair else {}
        tasks.append(ModeTask(sample=sample, mode="pair" if pair else "single", options=options))
    return tasks


def _question_and_reference(prompt: str, label: str | None) -> tuple[str, str | None]:
    """Of a label that is a JSON object both, since a prompt may have a chat template's marks; else prompt and label.

    Raises:
        InputError: the object has a key twice.
    """
    try:
        row = json.loads(label or "null")
    except ValueError:
        row = None
    if not (isinstance(row, dict) and isinstance(row.get("question"), str) and row.keys() <= {"question", "reference"}):
        return prompt, label
    try:
        strict_json(str(label))
    except ValueError as error:
        raise InputError(f'"labels": {error}') from error
    return row["question"], row.get("reference")


def _reward(judgment: Judgment, scale: tuple[float, float] | None) -> float:
    """P(the response is better than its label), else its score.

    Raises:
        UnjudgedError: the judge gave no verdict; OpenRLHF has no place for a missing reward.
    """
    if judgment.failure is not None:
        raise UnjudgedError(judgment.failure)
    reward = expected_score(judgment, scale) if len(judgment.scores or ()) == 1 else first_better(judgment)
    assert reward is not None, "a judgment of a response has a score or a winner"
    return reward


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
