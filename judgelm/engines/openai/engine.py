"""Any server that speaks OpenAI's API: vLLM's, llama.cpp's, Ollama's, or GPT-4 itself; or several of one model.

A thread runs an event loop with one task per request in hand; `submit` and `collect` are its synchronous ends. What
the server is told and how often is the business of `openai_calls`, what it can of `openai_serving`.
"""

import queue
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import openai

from judgelm.engines.base import EngineOptions, thinking_policy
from judgelm.engines.images import ImageError
from judgelm.engines.openai.candidates import CandidateScorer
from judgelm.engines.openai.choices import ReplySampler, UnusableReplyError
from judgelm.engines.openai.cost import OverBudgetError, max_usage
from judgelm.engines.openai.discovery import ServerCapabilities, discover_servers
from judgelm.engines.openai.endpoint import RetriesExhaustedError
from judgelm.engines.openai.event_loop import LoopThread
from judgelm.engines.openai.options import EndpointOptions, endpoint_options
from judgelm.engines.openai.pool import EndpointPool
from judgelm.engines.openai.request_body import PromptRenderer, RenderedPrompt, request_body
from judgelm.engines.openai.response import Usage
from judgelm.engines.openai.unsupported_params import RefusedError
from judgelm.engines.request_preparation import prepare_request, refuse_images
from judgelm.errors import ConfigError, EngineError
from judgelm.prompts.thinking import NOT_ASKED, Thinking, opening_of
from judgelm.prompts.truncation import Truncator
from judgelm.records import Completion, Request

_HANDS_PER_PLACE = 4
_CHAT_WRAPPING_TOKENS = 64
_HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")


class OpenAIEngine:
    """Sends requests to a server, as many at once as it takes.

    Args:
        options: the engine's own arguments.
        model: the server's name for the model.
        pool: the servers.
        served: what they can.
        truncator: the length policy, where the tokenizer is known.
        loop: where the endpoint's requests run; the engine closes it.
        thinking: whether the model is asked to think.
    """

    def __init__(
        self,
        options: EndpointOptions,
        model: str,
        pool: EndpointPool,
        served: ServerCapabilities,
        truncator: Truncator | None,
        loop: LoopThread,
        thinking: Thinking = NOT_ASKED,
    ) -> None:
        self.supports_grammar = served.supports_grammar
        self.thinking = thinking
        self._options = options
        self._model = model
        self._pool = pool
        self._served = served
        self._truncator = truncator
        self._loop: LoopThread | None = loop
        self._writer = PromptRenderer(served.api, truncator, takes_ids=served.takes_ids)
        self._replier = ReplySampler(pool, model, thinking.asked)
        self._candidates = CandidateScorer(self._replier, self._writer, options.candidate_samples)
        self._in_hand: dict[str, int] = {}
        self._numbers = 0
        self._done: queue.SimpleQueue[tuple[int, Completion | BaseException]] = queue.SimpleQueue()
        self._broken: BaseException | None = None

    @classmethod
    def load(cls, options: EngineOptions) -> "OpenAIEngine":
        """Ask the server that `engine_args` name whether it is there and has the model.

        Raises:
            ConfigError: an argument that is wrong, unknown or means nothing here.
            ModelError: no such API, key, model or tokenizer.
            EngineError: the server cannot be reached.
        """
        endpoint_args = endpoint_options(options)
        tokenizer = None if endpoint_args.tokenizer is None else _tokenizer(endpoint_args.tokenizer, options)
        hello = None if tokenizer is None else list(tokenizer("Hello")["input_ids"])
        pool = EndpointPool(endpoint_args, min(endpoint_args.concurrency, options.max_num_seqs))
        loop = LoopThread()
        try:
            served = loop.run(discover_servers(pool, options.model, endpoint_args, hello))
            asked = options.thinking or "absent"
            window = served.window if tokenizer is None else _window(tokenizer, served, options)
            truncator = None if tokenizer is None else Truncator(tokenizer, window or 0, thinking=asked)
            thinking = thinking_policy(options, window=window, resumes=False)
        except OverBudgetError as error:
            loop.close(pool.close())
            raise ConfigError(
                f"max_cost_usd is too little to ask {endpoint_args.address} what it can: {error}"
            ) from None
        except BaseException:
            loop.close(pool.close())
            raise
        return cls(endpoint_args, options.model, pool, served, truncator, loop, thinking)

    @property
    def supports_images(self) -> bool:
        """Whether images can be sent; whether the model looks at them, only its server knows."""
        return self._options.api != "completions"

    @property
    def max_in_flight(self) -> int:
        """So many that there is always one waiting for a place, whatever was finished since the last look."""
        return _HANDS_PER_PLACE * self._pool.most

    def submit(self, requests: Sequence[Request]) -> None:
        """Start requests.

        Raises:
            EngineError: the engine is closed, or a request asks for an adapter, for a grammar where the server knows
                none, or for no reply; then none of them was started.
        """
        if self._loop is None:
            raise EngineError("the openai engine is closed; load it again")
        for request in requests:
            self._check(request)
        for request in requests:
            self._numbers += 1
            self._in_hand[request.key] = self._numbers
            prepared = self._prepared(request)
            if isinstance(prepared, Completion):
                self._done.put((self._numbers, prepared))
            else:
                self._start(self._loop, self._numbers, *prepared)

    def collect(self, timeout_s: float) -> list[Completion]:
        """Wait until a request is finished or the time is up.

        Raises:
            EngineError: the endpoint does not answer any more, or no longer accepts the key or the model.
        """
        until = time.monotonic() + timeout_s
        found: list[Completion] = []
        while self._in_hand:
            wait_s = 0.0 if found or self._broken else max(0.0, until - time.monotonic())
            try:
                number, done = self._done.get(timeout=wait_s)
            except queue.Empty:
                break
            if isinstance(done, BaseException):
                self._broken = done
            elif self._in_hand.get(done.key) == number:  # else it was aborted when it was already done
                del self._in_hand[done.key]
                found.append(done)
        if self._broken is not None and not found:
            raise self._broken
        return found

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Nothing: replies are asked for whole."""
        return {}

    def abort(self, keys: Iterable[str]) -> None:
        """Forget requests; what the server is still writing for them is cut off."""
        for key in keys:
            number = self._in_hand.pop(key, None)
            if number is not None and self._loop is not None:
                self._loop.cancel(number)

    def describe(self) -> dict[str, Any]:
        """The server's address, its name for the model, and how it is asked."""
        described: dict[str, Any] = {
            "engine": "openai",
            "model": {"path": self._model},
            "endpoint": self._options.address,
            "api": self._served.api,
            "versions": {"openai": openai.__version__},
        }
        if self._options.tokenizer is not None:
            described["tokenizer"] = self._options.tokenizer
        window = self._truncator.window if self._truncator is not None else self._served.window
        return described | ({} if window is None else {"window": window}) | self.thinking.described()

    def stats(self) -> dict[str, Any]:
        """Requests sent, what went wrong on the way, tokens as billed, and what they cost.

        `cost_usd` is what the server stated; `cost_usd_at_most` adds the worst for `replies_of_unknown_cost`, those cut
        off, late or without usage. Cached tokens count in full.
        """
        counted: dict[str, Any] = {
            "requests": self._pool.requests,
            "retries": dict(self._pool.retries),
            "concurrency": self._pool.limit,
            "not_taken_by_server": sorted(self._pool.given_up),
        }
        moved = {"moved_to_another_server": self._pool.moved} if len(self._pool.endpoints) > 1 else {}
        return counted | moved | self._pool.bill.row()

    def cost_at_most_usd(self, requests: Sequence[Request]) -> float:
        """An estimate from above, before anything is sent: all replies as long as they may be, each request once.

        What candidates take beyond the first reply is not in it.

        Raises:
            ConfigError: without prices.
        """
        if self._options.price_in is None:
            raise ConfigError("pass --engine-arg price_in=... and price_out=... (USD per million tokens)")
        total = Usage()
        for request in requests:
            prepared = self._prepared(request)
            if not isinstance(prepared, Completion):
                request, written = prepared
                drawn = replace(request.sampling, n=1) if request.sampling.temperature == 0 else request.sampling
                total += max_usage(request_body(self._model, written, drawn, logprobs=False))
        return self._pool.bill.usd(total)

    def close(self) -> None:
        """Cancel what is under way, drop the connections, end the thread."""
        loop, self._loop = self._loop, None
        self._in_hand.clear()
        if loop is not None:
            loop.close(self._pool.close())

    def _prepared(self, request: Request) -> tuple[Request, RenderedPrompt] | Completion:
        """The request as it is sent, or the completion of one that cannot be."""
        prompt = request.prompt
        half = _HALF_A_CHARACTER.search("".join(span.text for span in prompt.spans) + prompt.prefill)
        if half is not None:
            why = f"the prompt holds half a character (U+{ord(half[0]):04X}), which cannot be sent; mend the input"
            return Completion(key=request.key, texts=(), finish_reasons=("error",), error=why)
        tokenized = None
        if self._truncator is not None and not prompt.images:
            admitted = prepare_request(self._truncator, request)
            if isinstance(admitted, Completion):
                return admitted
            request, tokenized = admitted
        try:
            return request, self._writer.write(request.prompt, tokenized)
        except ImageError as error:
            return Completion(key=request.key, texts=(), finish_reasons=("error",), error=str(error))

    def _start(self, loop: LoopThread, number: int, request: Request, written: RenderedPrompt) -> None:
        async def answer() -> None:
            try:
                done = await self._answer(request, written)
            except EngineError as error:
                if self._options.when_down == "stop":
                    raise
                done = _failed(request, written, str(error))
            self._done.put((number, done))

        loop.start(number, answer(), lambda error: self._done.put((number, error)))

    async def _answer(self, request: Request, written: RenderedPrompt) -> Completion:
        try:
            return await self._completion(request, written)
        except RefusedError as refused:
            if refused.too_long:
                return _failed(request, written, f"{refused}; {self._way_out_of_too_long()}", too_long=True)
            if refused.status in (401, 403):
                raise EngineError(self._options.refused_key(refused.status)) from None
            if refused.fatal:
                raise EngineError(f"{self._options.address} does not serve {self._model!r}: {refused}") from None
            return _failed(request, written, str(refused))
        except (RetriesExhaustedError, OverBudgetError, UnusableReplyError) as error:
            return _failed(request, written, str(error))

    async def _completion(self, request: Request, written: RenderedPrompt) -> Completion:
        asks = bool(request.candidates)
        replies = await self._replier.draw(written, request.sampling, logprobs=asks)
        ended = [self._replier.ended(choice, written, request.sampling) for choice in replies.choices]
        logprobs, approximation = None, ""
        if asks:
            logprobs, approximation = await self._candidates.logprobs(written, request, replies.choices)
        opening = "" if written.api == "chat" else opening_of(written.text)
        thoughts = tuple(choice.thinking for choice in replies.choices)
        return Completion(
            key=request.key,
            texts=tuple(opening + text for text, _ in ended),
            finish_reasons=tuple(reason for _, reason in ended),
            thinking=thoughts if any(thoughts) else (),
            candidate_logprobs=logprobs,
            approximation=approximation,
            prompt_tokens=replies.prompt_tokens,
            completion_tokens=replies.completion_tokens,
            truncations=written.truncations,
            sanitized=written.sanitized,
        )

    def _check(self, request: Request) -> None:
        if request.sampling.grammar is not None and not self.supports_grammar:
            raise EngineError(
                f"{self._options.address} does not hold replies to a grammar (vLLM's server does); leave it out"
            )
        if request.adapter is not None:
            raise EngineError("the openai engine has no adapters; serve one as a model and pass its name as --model")
        if not self.supports_images:
            refuse_images(request, "/completions takes text alone; pass --engine-arg api=auto")
        if request.sampling.n < 1 or request.sampling.max_tokens < 1:
            raise EngineError(f"request {request.key}: n and max_tokens must be 1 or more")
        if (
            request.prompt.chat
            and self._options.api == "completions"
            and not (self._truncator and self._served.takes_ids)
        ):
            raise EngineError(
                "a chat prompt needs the model's chat template on /completions: pass --engine-arg tokenizer=..., "
                "or --engine-arg api=auto"
            )

    def _way_out_of_too_long(self) -> str:
        if self._truncator is None:
            return "pass --engine-arg tokenizer=... (the model's tokenizer) to have long answers cut"
        return "the server's window is smaller than the model's: pass it as --window-tokens"


def _failed(request: Request, written: RenderedPrompt, why: str, *, too_long: bool = False) -> Completion:
    return Completion(
        key=request.key,
        texts=(),
        finish_reasons=("too_long" if too_long else "error",),
        truncations=written.truncations,
        sanitized=written.sanitized,
        error=why,
    )


def _tokenizer(source: str, options: EngineOptions) -> Any:
    from judgelm.engines.model_files import load_tokenizer  # transformers takes seconds, and most need no tokenizer

    return load_tokenizer(source, None, options)


def _window(tokenizer: Any, served: ServerCapabilities, options: EngineOptions) -> int:
    """The shortest that user, server and tokenizer say, less what a chat server wraps around a plain prompt."""
    stated = (options.max_model_len, served.window, tokenizer.model_max_length)
    known = [int(tokens) for tokens in stated if tokens and tokens < 10**9]
    if not known:
        raise ConfigError("neither server nor tokenizer says the model's window; pass --window-tokens")
    return min(known) - (_CHAT_WRAPPING_TOKENS if served.api == "chat" else 0)
