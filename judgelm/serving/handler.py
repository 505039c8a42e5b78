"""The handler of client requests: a request in, a reply in the form that the client expects out.

`judgelm.dialects.catalog` finds the dialect of a request, and `tasks` makes the tasks for the judge and the result from
its judgments; here they are run by the one `EngineWorker`. Tasks of judgelm's own routes run here too, so that all
callers share one engine. No HTTP.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from judgelm.dialects.catalog import DIALECTS, nearest_prompt, normalised, recognise, wants_a_verdict
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask
from judgelm.dialects.reply_format import in_format
from judgelm.engines.base import AdapterView
from judgelm.errors import EngineError, InputError
from judgelm.judge import Judge
from judgelm.modes.flow import RequestFlow, with_adapter
from judgelm.modes.mode import BatchMode
from judgelm.records import Judgment, Prompt, Sample
from judgelm.serving.chat import chat_flow, chat_response, stable_text
from judgelm.serving.chat_response import ChatResponse, UnjudgedError, UnrecognisedError
from judgelm.serving.engine_worker import EngineWorker, Finished, stream_flow
from judgelm.serving.judge_result import judge_result
from judgelm.serving.tasks import ModeTask, checked_sample, has_room_for_reason, mode_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The handler's reading of a request.

    Attributes:
        dialect: None where the model answers as in an ordinary chat.
        task: of the client; None of an ordinary chat.
        mode_tasks: for the judge; none of an ordinary chat or where nothing is judged.
        prompts: the first prompts of each of them; a reason is requested after them.
    """

    dialect: str | None
    task: JudgeTask | None
    mode_tasks: tuple[ModeTask, ...]
    prompts: tuple[Prompt, ...]


_CACHED_MODES = 256
_WAYS_OUT = "send a prompt of a known client, describe this one (--prompts FILE), or start the server with --chat"
_NO_CHAT = "it asks for a verdict, whose form a chat would guess: describe the prompt in a file (--prompts FILE)"
_LONG_REQUEST = 20_000
"""Characters of a request from which it is parsed outside the event loop, which others wait for: at worst 20 ms."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """Options of the handler.

    Attributes:
        chat: let the model answer prompts of no dialect, as in an ordinary chat, unless they ask for a verdict.
        both_orders: judge a pair in both orders, and three and more answers with each of them once at each position;
            else in the one order that the client shows, which mostly sends the other by itself.
        reasons: have the judge give its own reason, for replies that have room for it.
        prompts: dialects of the user's own, before those of known clients.
        learn: is called with each request that no dialect knows; None does nothing.
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


class _Judged(NamedTuple):
    """One for each mode task, in their order."""

    judgments: list[Judgment]
    results: list[JudgeResult]


class JudgeHandler:
    """Answers clients. Its methods belong to one event loop; the engine works in the worker's thread.

    Args:
        judge: loaded.
        worker: that drives the judge's engine.
        options: of the replies.
    """

    def __init__(self, judge: Judge, worker: EngineWorker, options: HandlerOptions = _DEFAULTS) -> None:
        self.judge = judge
        self.worker = worker
        self.options = options
        self.adapter = judge.engine.adapter if isinstance(judge.engine, AdapterView) else None
        """Of a judge that is one of several on the worker's engine."""
        self.in_flight = 0
        """Requests that are being answered."""
        self._mode: Callable[[str, str], BatchMode] = lru_cache(_CACHED_MODES)(self._new_mode)

    async def respond(self, request: ChatRequest) -> ChatResponse:
        """Judge a client's request, or let the model answer it; cancelling drops the flows.

        Raises:
            UnrecognisedError: no dialect knows the prompt, and ordinary chats are off.
            UnjudgedError: the judge gave no verdict.
            InputError: an ordinary chat that is not supported.
            BusyError: the queue is full.
            EngineError: the engine failed.
        """
        recognised = await self.run_aside(request, self._recognise)
        if recognised is None:
            flow = chat_flow(request)
            [completion] = await self._run_all([(flow, self._key(flow))])
            return chat_response(completion, request)
        return await self._judged_response(recognised, request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatResponse, None]:
        """As `respond`, preceded for an ordinary chat by its first text so far, whenever that has grown.

        Each text begins with the one before it. Closing the generator drops the flow.

        Raises:
            The errors of `respond`.
        """
        recognised = await self.run_aside(request, self._recognise)
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
                        raise EngineError("the worker that wrote this reply was lost, and another's reply differs")
                    yield response
                elif (text := stable_text(step[0].text, request.stop)) != written and text.startswith(written):
                    yield (written := text)

    async def run_task(self, task: ModeTask) -> Judgment:
        """Judge a sample by a mode; a failure is part of the judgment. Cancelling drops the flow.

        Raises:
            InputError: the mode cannot judge the sample, or it has images that the model cannot see.
            ConfigError: no such mode or option.
            BusyError, EngineError: as `respond`.
        """
        if task.sample.images and not self.judge.engine.supports_images:
            raise InputError('field "images": this judge cannot see images; leave them out')
        [judgment] = await self._run_tasks([task])
        return judgment

    def explain(self, request: ChatRequest) -> Explanation:
        """The task in a request and the prompts for it; nothing is judged.

        Raises:
            UnrecognisedError, InputError: as `respond`.
        """
        recognised = self._recognise(request)
        if recognised is None:
            prompt = chat_flow(request).request.prompt
            return Explanation(dialect=None, task=None, mode_tasks=(), prompts=(prompt,))
        return self._explanation(recognised)

    async def run_aside(self, request: ChatRequest, work: Callable[[ChatRequest], Result]) -> Result:
        """The result of `work` on a request; a long request is worked on in a thread, so that others need not wait."""
        if sum(len(message.text) for message in request.messages) < _LONG_REQUEST:
            return work(request)
        return await asyncio.to_thread(work, request)

    async def explain_with_result(self, request: ChatRequest) -> tuple[Explanation, JudgeResult]:
        """As `explain`, and the judge's result; of a batch the scores of all its pairs in a row.

        Raises:
            UnrecognisedError: also for an ordinary chat, in which nothing is judged.
            UnjudgedError, BusyError, EngineError: as `respond`.
        """
        recognised = await self.run_aside(request, self._recognise)
        if recognised is None:
            raise _unrecognised("nothing is judged in an ordinary chat")
        _, results = await self._judge(recognised, request)
        return self._explanation(recognised), _combined(results)

    def prompts_of(self, task: ModeTask) -> tuple[Prompt, ...]:
        """The first prompts of a task.

        Raises:
            InputError, ConfigError: as `run_task`.
        """
        mode = self._mode(task.mode, _canonical(task.options))
        flow = mode(checked_sample(task.sample, mode))
        try:
            return tuple(request.prompt for request in next(flow))
        except StopIteration:  # concluded without the judge
            return ()
        finally:
            flow.close()

    def _recognise(self, request: ChatRequest) -> _Recognised | None:
        """The dialect, the task and its mode tasks; None of an ordinary chat."""
        own = self.options.prompts
        recognised = (recognise(request, own) if own else None) or recognise(request)
        if recognised is None:
            if self.options.learn is not None:
                self.options.learn(request)
            judging = self.options.chat and wants_a_verdict(request)
            if judging or not self.options.chat:
                nearest = nearest_prompt(normalised(request), (*own, *DIALECTS))
                raise _unrecognised("; ".join(filter(None, (nearest, _NO_CHAT if judging else _WAYS_OUT))))
            return None
        dialect, task = recognised
        reasons = self.options.reasons and has_room_for_reason(dialect, task, request)
        return _Recognised(dialect, task, mode_tasks(task, both_orders=self.options.both_orders, reasons=reasons))

    def _explanation(self, recognised: _Recognised) -> Explanation:
        dialect, task, tasks = recognised
        prompts = tuple(prompt for mode_task in tasks for prompt in self.prompts_of(mode_task))
        return Explanation(dialect=dialect.name, task=task, mode_tasks=tasks, prompts=prompts)

    async def _judged_response(self, recognised: _Recognised, request: ChatRequest) -> ChatResponse:
        """Judge, and reply in the client's words."""
        judgments, results = await self._judge(recognised, request)
        dialect, task, _ = recognised
        result = _combined(results)
        return ChatResponse(
            reply=in_format(dialect.render(task, request, result), task, request, next(iter(results), result)),
            dialect=dialect.name,
            prompt_tokens=sum(judgment.prompt_tokens for judgment in judgments),
            completion_tokens=sum(judgment.completion_tokens for judgment in judgments),
            notes=tuple(dict.fromkeys(note for result in results for note in result.notes)),
            thinking=_thinking(judgments),
        )

    async def _judge(self, recognised: _Recognised, request: ChatRequest) -> _Judged:
        """The judge's result for each mode task.

        Raises:
            InputError: a reward model is asked for what is no comparison of two answers.
        """
        compares = all(len(task.sample.answers) == 2 for task in recognised.mode_tasks)
        if self.judge.template.reading == "reward" and not compares:
            raise InputError(
                "the judge is a reward model, whose numbers have no scale: it compares two answers; for its numbers "
                "ask /v1/judge with mode reward"
            )
        judgments = await self._run_tasks(recognised.mode_tasks)
        for judgment in judgments:
            if judgment.failure is not None:
                raise UnjudgedError(judgment.failure)
        scale = self.judge.format.scale
        return _Judged(
            judgments, [judge_result(recognised.task, each, scale=scale, draws=request.n) for each in judgments]
        )

    async def _run_tasks(self, tasks: Sequence[ModeTask]) -> list[Judgment]:
        """Judge tasks side by side."""
        flows: list[tuple[Callable[[], RequestFlow[Judgment]], Hashable]] = []
        for task in tasks:
            mode = self._mode(task.mode, _canonical(task.options))
            sample = _shareable(checked_sample(task.sample, mode), mode)
            flows.append((partial(mode, sample), self._key(mode, sample)))
        judgments = await self._run_all(flows)
        return [replace(judgment, sample_id=task.sample.id) for judgment, task in zip(judgments, tasks, strict=True)]

    async def _run_all(self, flows: Sequence[tuple[Callable[[], RequestFlow[Result]], Hashable]]) -> list[Result]:
        """The flows' results; where one fails or the caller is cancelled, the others are dropped."""
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
        """A flow whose requests name this judge's adapter, if it is one."""
        return begin if self.adapter is None else partial(with_adapter, begin, self.adapter)

    def _key(self, *parts: object) -> str:
        """Equal for flows with equal results: all fields of the mode, all texts of the sample, and the adapter."""
        whole = repr((self.adapter, *parts)).encode(errors="surrogatepass")
        return hashlib.blake2b(whole, digest_size=16).hexdigest()

    def _new_mode(self, name: str, options: str) -> BatchMode:
        return self.judge.mode(name, **json.loads(options))


def _shareable(sample: Sample, mode: BatchMode) -> Sample:
    """The sample without its id where that affects nothing: equal samples under other ids are then judged once."""
    greedy = mode.ignores_id and getattr(mode, "temperature", None) == 0
    return replace(sample, id="-") if greedy else sample


def _thinking(judgments: Sequence[Judgment]) -> tuple[str, ...]:
    """The judge's thinking, all of it beside the first text of the reply."""
    thoughts = [shown.thinking for judgment in judgments for shown in judgment.shown if shown.thinking is not None]
    return ("\n\n".join(thoughts),) if thoughts else ()


def _combined(results: Sequence[JudgeResult]) -> JudgeResult:
    """The result of a task: the one there is, of a batch the scores of all its samples in a row."""
    if len(results) == 1:
        return results[0]
    return JudgeResult(scores=tuple(score for each in results for score in each.scores), batch=tuple(results))


def _unrecognised(way_out: str) -> UnrecognisedError:
    return UnrecognisedError(f"no dialect of a judging client knows this prompt; {way_out}")


def _canonical(options: Mapping[str, Any]) -> str:
    """A mode's options as text, the same for the same options."""
    return json.dumps(options, sort_keys=True)
