"""The handler of client requests: recognises the prompt, judges it, and replies in the client's format. No HTTP.

All judges of a server, and judgelm's own routes, share one `EngineWorker` and so one engine.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

from judgelm.dialects.catalog import DIALECTS, nearest_prompt, normalised, recognise, wants_a_verdict
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask
from judgelm.dialects.reply_format import in_format
from judgelm.engines.base import AdapterView
from judgelm.errors import EngineError, InputError
from judgelm.judge import Judge
from judgelm.modes.flow import RequestFlow, with_adapter
from judgelm.modes.mode import BatchMode
from judgelm.records import Judgment, Sample
from judgelm.serving.chat import chat_flow, chat_response, stable_text
from judgelm.serving.chat_response import ChatResponse, UnjudgedError, UnrecognisedError
from judgelm.serving.engine_worker import EngineWorker, Finished, stream_flow
from judgelm.serving.judge_result import judge_result
from judgelm.serving.tasks import ModeTask, checked_sample, has_room_for_reason, mode_tasks

_CACHED_MODES = 256
_LONG_REQUEST = 20_000
"""Characters from which a request is parsed in a thread: shorter ones block the event loop for at most 20 ms."""

_WAYS_OUT = "send a prompt of a known client, describe this one (--prompts FILE), or start the server with --chat"
_NO_CHAT = "it asks for a verdict, and a chat would guess its format: describe the prompt in a file (--prompts FILE)"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """Options of the handler.

    Attributes:
        chat: whether the model answers prompts that no dialect knows, unless they ask for a verdict.
        both_orders: judge a pair in both orders, and three or more answers once per position of each answer. Off
            judges the order shown; most clients send the other order as a second request.
        reasons: generate the judge's reason for replies that have room for it.
        prompts: the user's own dialects, tried before the built-in ones.
        learn: called with each request that no dialect knows.
    """

    chat: bool = False
    both_orders: bool = False
    reasons: bool = False
    prompts: tuple[Dialect, ...] = ()
    learn: Callable[[ChatRequest], None] | None = None


_DEFAULTS = HandlerOptions()


class _Recognised(NamedTuple):
    dialect: Dialect
    task: JudgeTask
    mode_tasks: tuple[ModeTask, ...]


class JudgeHandler:
    """Answers the requests of one judge. Call its methods from one event loop; the engine runs in the worker's thread.

    Attributes:
        adapter: adapter of this judge, if it shares the worker's engine with other judges.
        in_flight: number of requests being answered.
    """

    def __init__(self, judge: Judge, worker: EngineWorker, options: HandlerOptions = _DEFAULTS) -> None:
        self.judge = judge
        self.worker = worker
        self.options = options
        self.adapter = judge.engine.adapter if isinstance(judge.engine, AdapterView) else None
        self.in_flight = 0
        self._mode: Callable[[str, str], BatchMode] = lru_cache(_CACHED_MODES)(self._new_mode)

    async def respond(self, request: ChatRequest) -> ChatResponse:
        """Judge a client's request, or chat. Cancelling it drops the work.

        Raises:
            UnrecognisedError: no dialect knows the prompt, and ordinary chats are off.
            UnjudgedError: the judge gave no verdict.
            InputError: an ordinary chat with unsupported fields.
            BusyError: the queue is full.
            EngineError: the engine failed.
        """
        recognised = await self._recognise_in_time(request)
        if recognised is None:
            flow = chat_flow(request)
            [completion] = await self._run_all([(flow, self._key(flow))])
            return chat_response(completion, request)
        return await self._judged_response(recognised, request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatResponse, None]:
        """Yield the growing first text of an ordinary chat, then the response; a verdict yields only the response.

        Each text starts with the previous one. Closing the generator drops the work. Raises the errors of `respond`.
        """
        recognised = await self._recognise_in_time(request)
        if recognised is not None:
            yield await self._judged_response(recognised, request)
            return
        flow = chat_flow(request)
        written = ""
        begin = self._for_adapter(flow)
        async with self._counted(), aclosing(stream_flow(self.worker, begin, key=self._key(flow))) as steps:
            async for step in steps:
                if isinstance(step, Finished):
                    response = chat_response(step.result, request)
                    if not response.reply.texts[0].startswith(written):
                        raise EngineError("the replica that wrote this reply was lost; the retry gave another text")
                    yield response
                elif (text := stable_text(step[0].text, request.stop)) != written and text.startswith(written):
                    yield (written := text)

    async def run_task(self, task: ModeTask) -> Judgment:
        """Judge a sample; the judgment may be a failure. Cancelling it drops the work.

        Raises:
            InputError: the mode cannot judge the sample, or the judge cannot see its images.
            ConfigError: unknown mode or option.
            BusyError: the queue is full.
            EngineError: the engine failed.
        """
        if task.sample.images and not self.judge.engine.supports_images:
            raise InputError('field "images": this judge cannot see images; leave them out')
        [judgment] = await self._run_tasks([task])
        return judgment

    async def _recognise_in_time(self, request: ChatRequest) -> _Recognised | None:
        if sum(len(message.text) for message in request.messages) < _LONG_REQUEST:
            return self._recognise(request)
        return await asyncio.to_thread(self._recognise, request)

    def _recognise(self, request: ChatRequest) -> _Recognised | None:
        """None for an ordinary chat."""
        own = self.options.prompts
        recognised = (recognise(request, own) if own else None) or recognise(request)
        if recognised is None:
            if self.options.learn is not None:
                self.options.learn(request)
            judging = self.options.chat and wants_a_verdict(request)
            if judging or not self.options.chat:
                nearest = nearest_prompt(normalised(request), (*own, *DIALECTS))
                hints = "; ".join(filter(None, (nearest, _NO_CHAT if judging else _WAYS_OUT)))
                raise UnrecognisedError(f"no dialect of a judging client knows this prompt; {hints}")
            return None
        dialect, task = recognised
        reasons = self.options.reasons and has_room_for_reason(dialect, task, request)
        return _Recognised(dialect, task, mode_tasks(task, both_orders=self.options.both_orders, reasons=reasons))

    async def _judged_response(self, recognised: _Recognised, request: ChatRequest) -> ChatResponse:
        dialect, task, tasks = recognised
        if self.judge.template.reading == "reward" and not all(len(each.sample.answers) == 2 for each in tasks):
            raise InputError(
                "the judge is a reward model and its rewards have no scale, so it only compares two answers; "
                "for the rewards call /v1/judge with mode reward"
            )
        judgments = await self._run_tasks(tasks)
        for judgment in judgments:
            if judgment.failure is not None:
                raise UnjudgedError(judgment.failure)
        scale = self.judge.format.scale
        results = [judge_result(task, judgment, scale=scale, draws=request.n) for judgment in judgments]
        result = _combined(results)
        return ChatResponse(
            reply=in_format(dialect.render(task, request, result), task, request, next(iter(results), result)),
            dialect=dialect.name,
            prompt_tokens=sum(judgment.prompt_tokens for judgment in judgments),
            completion_tokens=sum(judgment.completion_tokens for judgment in judgments),
            notes=tuple(dict.fromkeys(note for result in results for note in result.notes)),
            thinking=_thinking(judgments),
        )

    async def _run_tasks(self, tasks: Sequence[ModeTask]) -> list[Judgment]:
        flows: list[tuple[Callable[[], RequestFlow[Judgment]], Hashable]] = []
        for task in tasks:
            mode = self._mode(task.mode, json.dumps(task.options, sort_keys=True))
            sample = _shareable(checked_sample(task.sample, mode), mode)
            flows.append((partial(mode, sample), self._key(mode, sample)))
        judgments = await self._run_all(flows)
        return [replace(judgment, sample_id=task.sample.id) for judgment, task in zip(judgments, tasks, strict=True)]

    async def _run_all(self, flows: Sequence[tuple[Callable[[], RequestFlow[Result]], Hashable]]) -> list[Result]:
        """Run flows concurrently; an error of one, or cancelling, drops the others."""
        futures: list[Future[Result]] = []
        async with self._counted():
            try:
                for begin, key in flows:
                    futures.append(self.worker.submit(self._for_adapter(begin), key=key))
                return await asyncio.gather(*(asyncio.wrap_future(future) for future in futures))
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    @asynccontextmanager
    async def _counted(self) -> AsyncGenerator[None, None]:
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    def _for_adapter(self, begin: Callable[[], RequestFlow[Result]]) -> Callable[[], RequestFlow[Result]]:
        return begin if self.adapter is None else partial(with_adapter, begin, self.adapter)

    def _key(self, *parts: object) -> str:
        """Equal keys mean equal results: all fields of the mode, all texts of the sample, and the adapter."""
        whole = repr((self.adapter, *parts)).encode(errors="surrogatepass")
        return hashlib.blake2b(whole, digest_size=16).hexdigest()

    def _new_mode(self, name: str, options: str) -> BatchMode:
        return self.judge.mode(name, **json.loads(options))


def _shareable(sample: Sample, mode: BatchMode) -> Sample:
    """Drop the id if it affects nothing, so that equal samples with different ids are judged once."""
    greedy = mode.ignores_id and getattr(mode, "temperature", None) == 0
    return replace(sample, id="-") if greedy else sample


def _thinking(judgments: Sequence[Judgment]) -> tuple[str, ...]:
    """Attach all thinking to the first text of the reply."""
    thoughts = [shown.thinking for judgment in judgments for shown in judgment.shown if shown.thinking is not None]
    return ("\n\n".join(thoughts),) if thoughts else ()


def _combined(results: Sequence[JudgeResult]) -> JudgeResult:
    """Concatenate the scores of a batch; a single result stays unchanged."""
    if len(results) == 1:
        return results[0]
    return JudgeResult(scores=tuple(score for each in results for score in each.scores), batch=tuple(results))
