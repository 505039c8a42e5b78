"""The desk: a client's request in, a judge's finding in the client's own words out.

Which dialect a request is of says `judgelm.dialects.catalog`, what the judge is asked about it `asking`, what its
judgments say `findings`; here they are put together and asked through the one `EngineWorker`. Questions of our own kind
(`questions`) are judged here too, so that all that asks shares one engine. No HTTP.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from judgelm.dialects.alpaca_eval import render_batch
from judgelm.dialects.catalog import recognise
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply
from judgelm.errors import InputError
from judgelm.judge import Judge
from judgelm.modes.flow import Asking, BatchMode
from judgelm.records import Judgment, Prompt, Sample
from judgelm.serving.chat import chat_flow, chat_response, stable_text
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.responses import ChatResponse, Explanation, UnjudgedError, UnrecognisedError
from judgelm.serving.results import Found, judge_result
from judgelm.serving.streaming import Finished, stream_flow
from judgelm.serving.task_prompts import has_room_for_reason, mode_tasks
from judgelm.serving.tasks import ModeTask, checked_sample

_MODES_KEPT = 256
_ASIDE = 20_000
"""Characters of a request from which it is taken apart beside the event loop, which others wait for: at worst 20 ms."""

_IDLESS = ("pair", "single", "conversation")
"""Modes in which a sample's id moves nothing but draws."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """How the desk answers.

    Attributes:
        chat: let the model answer what no dialect knows, as in an ordinary chat.
        both_orders: judge a pair in both orders, and three and more answers with each of them once at each place;
            else in the one order that the client shows, which mostly asks for the other by itself.
        reasons: have the judge give its own reason, for replies that have room for it.
    """

    chat: bool = False
    both_orders: bool = False
    reasons: bool = False


_USUAL = HandlerOptions()


class _Recognised(NamedTuple):
    dialect: Dialect
    case: JudgeTask
    questions: tuple[ModeTask, ...]


class _Judged(NamedTuple):
    """One for each question, in their order."""

    judgments: list[Judgment]
    found: list[Found]


class JudgeHandler:
    """Answers clients. Its methods belong to one event loop; the engine works in the service's thread.

    Args:
        judge: loaded.
        service: that drives the judge's engine.
        options: how it answers.
    """

    def __init__(self, judge: Judge, service: EngineWorker, options: HandlerOptions = _USUAL) -> None:
        self.loaded = judge
        self.service = service
        self.options = options
        self._mode: Callable[[str, str], BatchMode] = lru_cache(_MODES_KEPT)(self._made)

    async def answer(self, asked: ChatRequest) -> ChatResponse:
        """Judge what a client asks, or let the model answer; cancelling drops what is being judged.

        Raises:
            UnrecognisedError: no dialect knows the prompt, and ordinary chats are not answered.
            UnjudgedError: the judge gave no verdict.
            InputError: an ordinary chat that cannot be had.
            BusyError: too much is waiting.
            EngineError: the engine broke.
        """
        recognised = await self.aside(asked, self._recognise)
        if recognised is None:
            chatting = chat_flow(asked)
            [completion] = await self._ask_all([(chatting, _key(chatting))])
            return chat_response(completion, asked)
        return await self._answered(recognised, asked)

    async def write(self, asked: ChatRequest) -> AsyncGenerator[str | ChatResponse, None]:
        """As `answer`, and before it of an ordinary chat what its first reply is so far, whenever that has grown.

        Each text begins with the one before it, the answer's with all of them. Closing the generator drops the flow.

        Raises:
            What `answer` does.
        """
        recognised = await self.aside(asked, self._recognise)
        if recognised is not None:
            yield await self._answered(recognised, asked)
            return
        chatting = chat_flow(asked)
        written = ""
        async with aclosing(stream_flow(self.service, chatting, key=_key(chatting))) as steps:
            async for found in steps:
                if isinstance(found, Finished):
                    yield chat_response(found.result, asked)
                elif len(text := stable_text(found[0].text, asked.stop)) > len(written):
                    yield (written := text)

    async def judge(self, question: ModeTask) -> Judgment:
        """Judge a question; a failure is the judgment's own. Cancelling drops it.

        Raises:
            InputError: the mode cannot judge the sample, or it has images that the model cannot see.
            ConfigError: no such mode or option.
            BusyError, EngineError: as `answer`.
        """
        if question.sample.images and not self.loaded.engine.supports_images:
            raise InputError('field "images": this judge cannot see images; leave them out')
        [judgment] = await self._judge_all([question])
        return judgment

    def explain(self, asked: ChatRequest) -> Explanation:
        """What is made of a request, before anything is asked.

        Raises:
            UnrecognisedError, InputError: as `answer`.
        """
        recognised = self._recognise(asked)
        if recognised is None:
            prompt = chat_flow(asked).request.prompt
            return Explanation(dialect=None, case=None, questions=(), prompts=(prompt,))
        return self._explained(recognised)

    async def aside(self, asked: ChatRequest, work: Callable[[ChatRequest], Result]) -> Result:
        """What `work` makes of a request; of a long one in a thread, so that others need not wait for it."""
        if sum(len(one.text) for one in asked.messages) < _ASIDE:
            return work(asked)
        return await asyncio.to_thread(work, asked)

    async def explain_fully(self, asked: ChatRequest) -> tuple[Explanation, JudgeResult]:
        """As `explain`, and what the judge finds; of a batch the scores of all its pairs in a row.

        Raises:
            UnrecognisedError: also of an ordinary chat, in which nothing is found.
            UnjudgedError, BusyError, EngineError: as `answer`.
        """
        recognised = await self.aside(asked, self._recognise)
        if recognised is None:
            raise _unrecognised("nothing is judged in an ordinary chat")
        _, found = await self._conclude(recognised, asked)
        scores = tuple(score for one in found for score in one.finding.scores)
        finding = found[0].finding if len(found) == 1 else JudgeResult(scores=scores)
        return self._explained(recognised), finding

    def prompts_of(self, question: ModeTask) -> tuple[Prompt, ...]:
        """What the judge reads first for a question.

        Raises:
            InputError, ConfigError: as `judge`.
        """
        mode = self._mode(question.mode, _canonical(question.options))
        flow = mode(checked_sample(question.sample, mode))
        try:
            return tuple(request.prompt for request in next(flow))
        except StopIteration:  # concluded without the judge
            return ()
        finally:
            flow.close()

    def _recognise(self, asked: ChatRequest) -> _Recognised | None:
        """The dialect, the case and its questions; None of an ordinary chat."""
        found = recognise(asked)
        if found is None:
            if not self.options.chat:
                raise _unrecognised("send a prompt of a client that is known, or start the server with --chat")
            return None
        dialect, case = found
        explained = self.options.reasons and has_room_for_reason(dialect, case, asked)
        return _Recognised(dialect, case, mode_tasks(case, both_orders=self.options.both_orders, explained=explained))

    def _explained(self, recognised: _Recognised) -> Explanation:
        dialect, case, questions = recognised
        prompts = tuple(prompt for one in questions for prompt in self.prompts_of(one))
        return Explanation(dialect=dialect.name, case=case, questions=questions, prompts=prompts)

    async def _answered(self, recognised: _Recognised, asked: ChatRequest) -> ChatResponse:
        """Judge, and say it in the client's words."""
        judgments, found = await self._conclude(recognised, asked)
        dialect, case, _ = recognised
        return ChatResponse(
            reply=_rendered(dialect, case, asked, [one.finding for one in found]),
            dialect=dialect.name,
            prompt_tokens=sum(one.prompt_tokens for one in judgments),
            completion_tokens=sum(one.completion_tokens for one in judgments),
            notes=tuple(dict.fromkeys(note for one in found for note in one.notes)),
            thinking=_thinking(judgments),
        )

    async def _conclude(self, recognised: _Recognised, asked: ChatRequest) -> _Judged:
        """What the judge says to each question."""
        judgments = await self._judge_all(recognised.questions)
        for one in judgments:
            if one.failure is not None:
                raise UnjudgedError(one.failure)
        scale = self.loaded.format.scale
        found = [judge_result(recognised.case, one, scale=scale, draws=asked.n) for one in judgments]
        return _Judged(judgments, found)

    async def _judge_all(self, questions: Sequence[ModeTask]) -> list[Judgment]:
        """Judge questions side by side."""
        flows: list[tuple[Callable[[], Asking[Judgment]], Hashable]] = []
        for question in questions:
            mode = self._mode(question.mode, _canonical(question.options))
            sample = _shareable(checked_sample(question.sample, mode), mode)
            flows.append((partial(mode, sample), _key(mode, sample)))
        judgments = await self._ask_all(flows)
        return [replace(one, sample_id=question.sample.id) for one, question in zip(judgments, questions, strict=True)]

    async def _ask_all(self, flows: Sequence[tuple[Callable[[], Asking[Result]], Hashable]]) -> list[Result]:
        """The flows' results; where one fails or nobody waits any more, the others are dropped."""
        futures: list[Future[Result]] = []
        try:
            for begin, key in flows:
                futures.append(self.service.ask(begin, key=key))
            return await asyncio.gather(*(asyncio.wrap_future(one) for one in futures))
        except BaseException:
            for one in futures:
                one.cancel()
            raise

    def _made(self, name: str, options: str) -> BatchMode:
        return self.loaded.mode(name, **json.loads(options))


def _shareable(sample: Sample, mode: BatchMode) -> Sample:
    """The sample without its id where that moves nothing: equal ones under other ids are then judged once."""
    greedy = mode.name in _IDLESS and getattr(mode, "temperature", None) == 0
    return replace(sample, id="-") if greedy else sample


def _rendered(dialect: Dialect, case: JudgeTask, asked: ChatRequest, findings: Sequence[JudgeResult]) -> Reply:
    if "batch" in case.facts:
        return render_batch(case, asked, findings)
    return dialect.render(case, asked, findings[0] if findings else JudgeResult())


def _thinking(judgments: Sequence[Judgment]) -> tuple[str, ...]:
    """What the judge thought, all of it beside the first text of the reply."""
    thoughts = [shown.thinking for one in judgments for shown in one.shown if shown.thinking is not None]
    return ("\n\n".join(thoughts),) if thoughts else ()


def _unrecognised(way_out: str) -> UnrecognisedError:
    return UnrecognisedError(f"no dialect of a judging client knows this prompt; {way_out}")


def _canonical(options: Mapping[str, Any]) -> str:
    """A mode's options as text, the same for the same options."""
    return json.dumps(options, sort_keys=True)


def _key(*what: object) -> str:
    """Equal for flows with equal results: all fields of the mode, all texts of the sample."""
    return hashlib.blake2b(repr(what).encode(errors="surrogatepass"), digest_size=16).hexdigest()
