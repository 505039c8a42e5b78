"""Handles client requests, independently of HTTP: recognises the prompt, judges, and replies in the client's format.

All judges on a server share one `EngineWorker` and thus one engine.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar

from judgelm.dialects.catalog import DIALECTS, nearest_prompt, normalised, recognise
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask
from judgelm.dialects.reply_format import in_format
from judgelm.engines.grammars import check_grammar
from judgelm.engines.views import AdapterView
from judgelm.errors import EngineError, InputError
from judgelm.judge import Judge
from judgelm.modes.flow import RequestFlow, with_adapter
from judgelm.modes.mode import BatchMode
from judgelm.prompts.judge_prompt import JudgePrompt
from judgelm.records import Judgment, Request
from judgelm.runs.engine_worker import EngineWorker, Finished, stream_flow
from judgelm.serving.chat import DEFAULT_MAX_TOKENS, ask, called_tools, chat_response, model_request, stable_text
from judgelm.serving.chat_response import ChatResponse, UnjudgedError, UnrecognisedError
from judgelm.serving.judge_result import judge_result
from judgelm.serving.tasks import ModeTask, checked_sample, has_room_for_reason, mode_tasks
from judgelm.serving.unknown_prompts import UnknownPrompts

_CACHED_MODES = 256
_MAX_SYNC_CHARACTERS = 20_000  # longer requests are parsed in a thread to avoid blocking the event loop

_WAYS_OUT = (
    "use a supported client's prompt, describe yours with --prompt FILE (serve --learn FILE records examples), "
    "or pass --unknown answer"
)
Unknown = Literal["answer", "refuse"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """Options for `JudgeHandler`.

    Attributes:
        unknown: let the model answer unrecognised prompts, or refuse them; None answers if `Judge.is_instruct`.
        both_orders: judge pairs in both orders, and show three or more answers once in each position.
        reasons: generate reasons if the reply has room for them.
        prompts: custom dialects, tried before the built-in dialects.
        learn: called with each unrecognised request.
        unknown_prompts: counts the prompts that the model answers.
    """

    unknown: Unknown | None = None
    both_orders: bool = False
    reasons: bool = False
    prompts: tuple[Dialect, ...] = ()
    learn: Callable[[ChatRequest], None] | None = None
    unknown_prompts: UnknownPrompts = field(default_factory=UnknownPrompts)


_Recognised = tuple[Dialect, JudgeTask, tuple[ModeTask, ...]]


class JudgeHandler:
    """Handles requests for one judge. All methods must be called from the same event loop.

    Attributes:
        adapter: this judge's LoRA adapter, if several judges share the engine.
        answers_unknown: whether the model answers unrecognised prompts.
    """

    def __init__(self, judge: Judge, worker: EngineWorker, options: HandlerOptions | None = None) -> None:
        self.judge = judge
        self.worker = worker
        self.options = options = options or HandlerOptions()
        self.answers_unknown = judge.is_instruct if options.unknown is None else options.unknown == "answer"
        self.adapter = judge.engine.adapter if isinstance(judge.engine, AdapterView) else None
        self._default_sampling = _default_sampling(judge.engine.describe()) if self.answers_unknown else {}
        for dialect in options.prompts:
            if dialect.prompt is not None:
                judge.mode_with(dialect.prompt)  # rejects prompts that this judge was not trained with
        self._mode: Callable[[str, str, JudgePrompt | None], BatchMode] = lru_cache(_CACHED_MODES)(
            lambda name, options, prompt: (
                self.judge.mode(name, **json.loads(options))
                if prompt is None
                else self.judge.mode_with(prompt, name, **json.loads(options))
            )
        )

    async def respond(self, request: ChatRequest) -> ChatResponse:
        """Respond to a request. Cancelling the call drops the work.

        Raises:
            UnrecognisedError: no dialect recognises the prompt, and this judge does not answer such prompts.
            UnjudgedError: the judge did not return a valid verdict.
            InputError: the model cannot answer the request as asked.
            BusyError: the queue is full.
            EngineError: the engine failed.
        """
        recognised = await self._recognise_async(request)
        if recognised is None:
            asked = await self._model_request(request)
            [completion] = await self._run_all([(partial(ask, asked), self._key(asked))])
            return chat_response(completion, request)
        return await self._judged_response(recognised, request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatResponse, None]:
        """Yield the model's growing reply to an unrecognised prompt, then the response.

        Verdicts, function calls, and replies with log-probabilities yield only the response. Closing the generator
        drops the work. Raises the same errors as `respond`.
        """
        recognised = await self._recognise_async(request)
        if recognised is not None:
            yield await self._judged_response(recognised, request)
            return
        asked = await self._model_request(request)
        whole, written = request.logprobs or bool(called_tools(request)), ""
        begin = self._for_adapter(partial(ask, asked))
        async with aclosing(stream_flow(self.worker, begin, key=self._key(asked))) as steps:
            async for step in steps:
                if isinstance(step, Finished):
                    response = chat_response(step.result, request)
                    if written and not response.reply.texts[0].startswith(written):
                        raise EngineError("a replica failed during this reply, and the retry produced different text")
                    yield response
                elif not whole:
                    text = stable_text(step[0].text, request.stop)
                    if text != written and text.startswith(written):
                        yield (written := text)

    async def run_task(self, task: ModeTask) -> Judgment:
        """Judge a sample. Cancelling the call drops the work."""
        if task.sample.images and not self.judge.engine.supports_images:
            raise InputError('field "images": this judge does not support images')
        [judgment] = await self._run_tasks([task])
        return judgment

    async def _model_request(self, request: ChatRequest) -> Request:
        engine = self.judge.engine
        window = engine.describe().get("window") or 2 * DEFAULT_MAX_TOKENS
        asked = model_request(request, min(DEFAULT_MAX_TOKENS, window // 2), self._default_sampling)
        if (grammar := asked.sampling.grammar) is not None:
            name = "tools" if called_tools(request) else "response_format"
            if not engine.supports_grammar:
                finding = f"the {engine.describe()['engine']} engine does not support structured output"
                raise InputError(f'"{name}": {finding}; serve the model with --engine transformers or vllm')
            try:
                await asyncio.to_thread(check_grammar, grammar)
            except InputError as error:
                raise InputError(f'"{name}": {error}') from error
        return asked

    async def _recognise_async(self, request: ChatRequest) -> _Recognised | None:
        if sum(len(message.text) for message in request.messages) < _MAX_SYNC_CHARACTERS:
            return self._recognise(request)
        return await asyncio.to_thread(self._recognise, request)

    def _recognise(self, request: ChatRequest) -> _Recognised | None:
        custom = self.options.prompts
        recognised = (recognise(request, custom) if custom else None) or recognise(request)
        if recognised is None:
            if self.options.learn is not None:
                self.options.learn(request)
            if not self.answers_unknown:
                nearest = nearest_prompt(normalised(request), (*custom, *DIALECTS))
                hints = "; ".join(str(hint) for hint in (nearest, _WAYS_OUT) if hint is not None)
                raise UnrecognisedError(f"unrecognised judge prompt; {hints}")
            self.options.unknown_prompts.add(request, (*custom, *DIALECTS))
            return None
        dialect, task = recognised
        reasons = self.options.reasons and has_room_for_reason(dialect, task, request)
        return dialect, task, mode_tasks(task, both_orders=self.options.both_orders, reasons=reasons)

    async def _judged_response(self, recognised: _Recognised, request: ChatRequest) -> ChatResponse:
        dialect, task, tasks = recognised
        if self.judge.template.reading == "reward" and not all(len(each.sample.answers) == 2 for each in tasks):
            raise InputError(
                "this judge is a reward model without a score scale, so it can only compare two answers; "
                "to get rewards, call /v1/judge with mode reward"
            )
        judgments = await self._run_tasks(tasks)
        for judgment in judgments:
            if judgment.failure is not None:
                raise UnjudgedError(judgment.failure)
        prompt = tasks[0].prompt if tasks else None
        scale = self.judge.format.scale if prompt is None else prompt.reply.scale
        results = [judge_result(task, judgment, scale=scale, draws=request.n) for judgment in judgments]
        scores = tuple(score for each in results for score in each.scores)
        result = results[0] if len(results) == 1 else JudgeResult(scores=scores, batch=tuple(results))
        thoughts = [shown.thinking for judgment in judgments for shown in judgment.shown if shown.thinking is not None]
        return ChatResponse(
            reply=in_format(dialect.render(task, request, result), task, request, next(iter(results), result)),
            dialect=dialect.name,
            prompt_tokens=sum(judgment.prompt_tokens for judgment in judgments),
            completion_tokens=sum(judgment.completion_tokens for judgment in judgments),
            notes=tuple(dict.fromkeys(note for result in results for note in result.notes)),
            thinking=("\n\n".join(thoughts),) if thoughts else (),
            abstained=sum(judgment.abstained for judgment in judgments),
        )

    async def _run_tasks(self, tasks: Sequence[ModeTask]) -> list[Judgment]:
        flows: list[tuple[Callable[[], RequestFlow[Judgment]], Hashable]] = []
        for task in tasks:
            mode = self._mode(task.mode, json.dumps(task.options, sort_keys=True), task.prompt)
            sample = checked_sample(task.sample, mode)
            if mode.ignores_id and getattr(mode, "temperature", None) == 0:
                sample = replace(sample, id="-")  # the id has no effect, so identical samples are judged only once
            flows.append((partial(mode, sample), self._key(mode, sample)))
        judgments = await self._run_all(flows)
        return [replace(judgment, sample_id=task.sample.id) for judgment, task in zip(judgments, tasks, strict=True)]

    async def _run_all(self, flows: Sequence[tuple[Callable[[], RequestFlow[Result]], Hashable]]) -> list[Result]:
        futures: list[Future[Result]] = []
        try:
            for begin, key in flows:
                futures.append(self.worker.submit(self._for_adapter(begin), key=key))
            return await asyncio.gather(*(asyncio.wrap_future(future) for future in futures))
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    def _for_adapter(self, begin: Callable[[], RequestFlow[Result]]) -> Callable[[], RequestFlow[Result]]:
        return begin if self.adapter is None else partial(with_adapter, begin, self.adapter)

    def _key(self, *parts: object) -> str:
        parts_repr = repr((self.adapter, *parts)).encode(errors="surrogatepass")
        return hashlib.blake2b(parts_repr, digest_size=16).hexdigest()


def _default_sampling(described: Mapping[str, Any]) -> dict[str, float]:
    if described["engine"] not in ("transformers", "vllm"):
        return {}
    from judgelm.engines.model_files import default_sampling

    model = described["model"]
    return default_sampling(model["path"], model.get("revision"))
