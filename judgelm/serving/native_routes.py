"""judgelm's own routes: `/v1/judge` judges samples, and `/get_reward` is a remote reward model for OpenRLHF and slime.

Sources for the reward formats: OpenRLHF at 3c3be62, `openrlhf/utils/agent.py` (client) and `openrlhf/cli/serve_rm.py`;
slime of August 2026, `slime/rollout/rm_hub/__init__.py`.
"""

import asyncio
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from judgelm.errors import BusyError, ConfigError, InputError
from judgelm.judge import expected_score, first_better
from judgelm.records import Judgment, Sample
from judgelm.serialization import judgment_row
from judgelm.serving.chat_response import UnjudgedError, abstained_header
from judgelm.serving.handler import JudgeHandler
from judgelm.serving.http_errors import json_response, read_json, strict_json, typed_field, wait_for_answer
from judgelm.serving.judges import ServedJudges
from judgelm.serving.schemas import replies, request_body
from judgelm.serving.settings import ServerSettings
from judgelm.serving.tasks import ModeTask, read_task

_FLAGS = (
    *("both_orders", "order_rule", "tie_threshold", "accept_one_order", "temperature", "seed", "max_tokens"),
    *("distribution", "reasons", "close_threshold", "reason_tokens", "retry_unparseable"),
)
"""Mode options that are also allowed at the top level of a body, as in a judgelm-batch configuration."""

_MAX_CONCURRENT = 256
"""Maximum number of queued samples per request, to leave room for other clients."""

_END_TOKENS = re.compile(r"(?:\s*(?:<\|(?:im_end|endoftext|eot_id|end_of_text|end)\|>|</s>|<eos>|<end_of_turn>))+\s*$")
"""OpenRLHF does not strip special tokens when it decodes responses."""


def native_routes(judges: ServedJudges, settings: ServerSettings) -> APIRouter:
    """Return the routes for `/v1/judge` and `/get_reward`."""
    router = APIRouter()

    async def judge(request: Request) -> Response:
        body = dict(await read_json(request, settings))
        wanted = typed_field(body, "judge", str, "a string")  # `model` is already a field of the sample
        name, handler = judges.find(wanted)
        body.pop("judge", None)
        request.state.judge = name
        tasks, has_several = read_tasks(body)
        judgments = await wait_for_answer(_judge_all(handler, tasks), request, settings)
        prompt_tokens = sum(judgment.prompt_tokens for judgment in judgments)
        request.state.tokens = (prompt_tokens, sum(judgment.completion_tokens for judgment in judgments))
        request.state.failures = tuple(each.failure.code for each in judgments if each.failure is not None)
        rows = [judgment_row(judgment) for judgment in judgments]
        response = json_response({"judgments": rows} if has_several else rows[0])
        response.headers.update(abstained_header(sum(each.abstained for each in judgments)))
        return response

    async def reward(request: Request) -> Response:
        body = await read_json(request, settings)
        request.state.judge, handler = judges.find(request.query_params.get("judge"))
        is_reward_model = handler.judge.template.reading == "reward"
        is_slime = "response" in body
        tasks = rewarded_tasks(_slime_columns(body) if is_slime else body, is_reward_model=is_reward_model)
        judgments = await wait_for_answer(_judge_all(handler, tasks), request, settings)
        rewards = [_reward(each, None if is_reward_model else handler.judge.format.scale) for each in judgments]
        if is_slime:
            return json_response(rewards[0])
        shares = [0.5 + math.tanh(each / 2) / 2 for each in rewards] if is_reward_model else rewards
        return json_response({"rewards": rewards, "scores": shares, "extra_logs": {}})

    router.post("/get_reward", summary="Score responses as a remote reward model for OpenRLHF or slime")(reward)
    responses, body = (
        replies("Judgment", "Judgments", description="Same format as a run file."),
        request_body("JudgeBody"),
    )
    router.post("/v1/judge", summary="Judge one or more samples", responses=responses, openapi_extra=body)(judge)
    return router


def read_tasks(body: Mapping[str, Any]) -> tuple[list[ModeTask], bool]:
    """Return the tasks in a body, and whether the body has a `samples` list."""
    if "samples" not in body:
        return [read_task(_with_options(body, {}))], False
    samples = body["samples"]
    if not isinstance(samples, list) or not samples:
        raise InputError('"samples": expected a non-empty list of samples')
    shared = {name: value for name, value in body.items() if name != "samples"}
    if unknown := shared.keys() - {"mode", "options", *_FLAGS}:
        raise InputError(f'"{min(unknown)}": not allowed next to "samples"; set it in each sample')
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
    """Parse OpenRLHF's `query`, `prompts`, and `labels`. Responses are compared with their reference answer, if any.

    A label is a reference answer, null, or a JSON object with a `question` and optionally a `reference`.
    """
    columns: list[list[Any]] = []
    for name in ("query", "prompts", "labels"):
        column = [None] * len(columns[0]) if name == "labels" and body.get(name) is None else body.get(name)
        if not isinstance(column, list) or not all(isinstance(each, str | None) for each in column):
            raise InputError(f'"{name}": expected a list of strings, as sent by OpenRLHF')
        columns.append(column)
    queries, prompts, labels = columns
    if not queries or not len(queries) == len(prompts) == len(labels):
        raise InputError(
            f"expected equal numbers, got {len(queries)} queries, {len(prompts)} prompts, {len(labels)} labels"
        )
    tasks = []
    for index, (query, prompt, label) in enumerate(zip(queries, prompts, labels, strict=True)):
        if not prompt or not query or not query.startswith(prompt):
            raise InputError(f'"query", {index}: expected the prompt followed by the response')
        answer = _END_TOKENS.sub("", query.removeprefix(prompt))
        question, reference = _question_and_reference(prompt, label)
        pair = bool(reference) and not is_reward_model
        sample = Sample(id=str(index), question=question, answers=(answer, str(reference)) if pair else (answer,))
        options = {"both_orders": True, "distribution": True} if pair else {}
        tasks.append(ModeTask(sample=sample, mode="pair" if pair else "single", options=options))
    return tasks


def _slime_columns(body: Mapping[str, Any]) -> dict[str, list[str | None]]:
    """Convert slime's request for one response to OpenRLHF's columns. The prompt can be a list of messages."""
    prompt, response, label = body.get("prompt"), body["response"], body.get("label")
    if isinstance(prompt, list):
        texts = [each.get("content") for each in prompt if isinstance(each, Mapping) and each.get("role") == "user"]
        prompt = None if any(not isinstance(text, str) for text in texts) else "\n\n".join(map(str, texts))
    if not (
        isinstance(prompt, str) and prompt and isinstance(response, str) and isinstance(label, str | int | float | None)
    ):
        form = "a response as text, a prompt as text or as messages of a user, and a label as text, a number, or null"
        raise InputError(f'"prompt", "response", "label": expected {form}, as sent by slime')
    return {"query": [prompt + response], "prompts": [prompt], "labels": [None if label is None else str(label)]}


def _question_and_reference(prompt: str, label: str | None) -> tuple[str, str | None]:
    """Prefer the label's question, because the prompt may include chat template tokens."""
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
    """Raise UnjudgedError if the judgment failed, because OpenRLHF cannot skip a reward."""
    if judgment.failure is not None:
        raise UnjudgedError(judgment.failure)
    reward = expected_score(judgment, scale) if len(judgment.scores or ()) == 1 else first_better(judgment)
    assert reward is not None, "the judgment has either one score or a winner"
    return reward


def _with_options(row: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """A sample's options override the shared options, and top-level flags override `options`."""
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
    if len(tasks) == 1:
        return [await handler.run_task(tasks[0])]
    limit = asyncio.Semaphore(_MAX_CONCURRENT)

    async def judge(index: int, task: ModeTask) -> Judgment:
        async with limit:
            try:
                return await handler.run_task(task)
            except (InputError, ConfigError, BusyError) as error:
                raise type(error)(f'"samples", {index}: {error}') from error

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(judge(index, task)) for index, task in enumerate(tasks)]
    return [judging.result() for judging in running]
