"""The engine for OpenAI-compatible servers. A background thread runs an event loop with one task per request."""

import queue
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import openai

from judgelm.engines.base import EngineOptions, ImageError
from judgelm.engines.grammars import mismatch, refusal
from judgelm.engines.loop_thread import LoopThread
from judgelm.engines.openai.cost import OverBudgetError
from judgelm.engines.openai.discovery import HELLO, ServerCapabilities, discover_servers
from judgelm.engines.openai.endpoint import RetriesExhaustedError
from judgelm.engines.openai.options import endpoint_options
from judgelm.engines.openai.pool import EndpointPool
from judgelm.engines.openai.prompts import PromptRenderer, RenderedPrompt
from judgelm.engines.openai.requests import RefusedError
from judgelm.engines.openai.responses import Choice
from judgelm.engines.openai.sampler import ReplySampler, UnusableReplyError, reply_of, without_end_tokens
from judgelm.engines.preprocess import prepare_request, refuse_images, thinking_policy
from judgelm.errors import ConfigError, EngineError
from judgelm.parsing.thinking import separate
from judgelm.prompts.chat_rendering import opening_of
from judgelm.prompts.truncation import Truncator
from judgelm.records import Completion, FinishReason, Request, Sampling

_QUEUED_PER_SLOT = 4
_CHAT_WRAPPING_TOKENS = 64
_IN_REASONING = (
    "the whole reply is in reasoning_content: the server's reasoning parser (vLLM: --reasoning-parser) does not match "
    "the model; if the model is not a reasoning model, pass --thinking off"
)
_OVERLONG = "pass --engine-arg tokenizer=... (the model's tokenizer) to truncate long answers"
_SMALLER_WINDOW = "the server's context window is smaller than the model's; set it with --max-model-len"
_SURROGATE = re.compile("[\ud800-\udfff]")
_ROLE_HEAD = re.compile(
    r"\s*(?:<\|start_header_id\|>assistant<\|end_header_id\|>|<\|im_start\|>assistant\b|<start_of_turn>model\b"
    r"|<\|assistant\|>)\s*"
)


class OpenAIEngine:
    """Sends concurrent requests to one or more servers."""

    def __init__(self, options: EngineOptions) -> None:
        own = self._options = endpoint_options(options)
        tokenizer: Any = None
        if own.tokenizer is not None:
            from judgelm.engines.model_files import load_tokenizer  # importing transformers takes seconds

            tokenizer = load_tokenizer(own.tokenizer, None, options)
        hello = None if tokenizer is None else list(tokenizer(HELLO)["input_ids"])
        self._model = options.model
        self.supports_images = own.api != "completions"  # images can be sent, but the model may ignore them
        pool = self._pool = EndpointPool(own, min(own.concurrency, options.max_num_seqs))
        loop = LoopThread("openai-engine")
        try:
            server = self._server = loop.run(discover_servers(pool, options.model, own, hello))
            window = server.window if tokenizer is None else _window(tokenizer, server, options)
            self.thinking = thinking_policy(options, window=window, resumes=False)
        except BaseException as error:
            loop.close(pool.close())
            if isinstance(error, OverBudgetError):
                raise ConfigError(f"max_cost_usd is too low to test {own.address}: {error}") from None
            raise
        self.supports_grammar = server.supports_grammar
        self._truncator = None if tokenizer is None else Truncator(tokenizer, window or 0, thinking=self.thinking.mode)
        self._loop: LoopThread | None = loop
        self._renderer = PromptRenderer(server.api, self._truncator, accepts_token_ids=server.accepts_token_ids)
        self._sampler = ReplySampler(pool, self._model, self.thinking.mode, self._renderer, own.candidate_samples)
        self._in_flight: dict[str, int] = {}
        self._serial = 0
        self._results: queue.SimpleQueue[tuple[int, Completion | BaseException]] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._left_tokens: Counter[str] = Counter()

    @property
    def max_in_flight(self) -> int:
        """See `Engine`."""
        return _QUEUED_PER_SLOT * self._pool.max_concurrency

    def submit(self, requests: Sequence[Request]) -> None:
        """Start requests."""
        if self._loop is None:
            raise EngineError("the openai engine is closed; load it again")
        for request in requests:
            self._check(request)
        for request in requests:
            self._serial += 1
            self._in_flight[request.key] = self._serial
            prepared = self._prepared(request)
            if isinstance(prepared, Completion):
                self._results.put((self._serial, prepared))
            else:
                self._start(self._loop, self._serial, *prepared)

    def collect(self, timeout_s: float) -> list[Completion]:
        """Wait until at least one request is finished."""
        until = time.monotonic() + timeout_s
        completions: list[Completion] = []
        while self._in_flight:
            wait_s = 0.0 if completions or self._error else max(0.0, until - time.monotonic())
            try:
                serial, result = self._results.get(timeout=wait_s)
            except queue.Empty:
                break
            if isinstance(result, BaseException):
                self._error = result
            elif self._in_flight.get(result.key) == serial:  # otherwise, it was aborted after it finished
                del self._in_flight[result.key]
                completions.append(result)
        if self._error is not None and not completions:
            raise self._error
        return completions

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Return an empty mapping. Replies are not streamed."""
        return {}

    def abort(self, keys: Iterable[str]) -> None:
        """Cancel requests."""
        for key in keys:
            serial = self._in_flight.pop(key, None)
            if serial is not None and self._loop is not None:
                self._loop.cancel(serial)

    def describe(self) -> dict[str, Any]:
        """See `Engine`."""
        described: dict[str, Any] = {
            "engine": "openai",
            "model": {"path": self._model},
            "endpoint": self._options.address,
            "api": self._server.api,
            "versions": {"openai": openai.__version__},
        }
        if self._options.tokenizer is not None:
            described["tokenizer"] = self._options.tokenizer
        window = self._truncator.window if self._truncator is not None else self._server.window
        return described | ({} if window is None else {"window": window}) | self.thinking.described()

    def stats(self) -> dict[str, Any]:
        """See `Engine`. Cached tokens are counted in full."""
        stats = self._pool.stats()
        notes = [*stats.get("notes", ()), *(self._truncator.notes if self._truncator else ())]
        notes += [
            f"removed {token!r} from {count:,} replies; configure stop tokens on the server"
            for token, count in self._left_tokens.items()
        ]
        return stats | ({"notes": list(dict.fromkeys(notes))} if notes else {})

    def close(self) -> None:
        """Cancel all requests and stop the thread."""
        loop, self._loop = self._loop, None
        self._in_flight.clear()
        if loop is not None:
            loop.close(self._pool.close())

    def _prepared(self, request: Request) -> tuple[Request, RenderedPrompt] | Completion:
        prompt = request.prompt
        surrogate = _SURROGATE.search("".join(prompt.texts) + prompt.prefill)
        if surrogate is not None:
            code = f"U+{ord(surrogate[0]):04X}"
            return Completion.failed(request.key, f"the prompt contains a lone surrogate ({code}); fix the input")
        grammar = request.sampling.grammar
        if grammar is not None and grammar.kind == "regex" and not self.supports_grammar:
            finding = f"{self._options.address} does not support regular expressions as grammars (vLLM servers do)"
            return Completion.failed(request.key, f"{finding}; remove the grammar")
        if why := refusal(request.sampling):
            return Completion.failed(request.key, why)
        tokenized = None
        if self._truncator is not None and not prompt.images:
            prepared = prepare_request(self._truncator, request)
            if isinstance(prepared, Completion):
                return prepared
            request, tokenized = prepared
        try:
            return request, self._renderer.render(request.prompt, tokenized)
        except ImageError as error:
            return Completion.failed(request.key, str(error))

    def _start(self, loop: LoopThread, serial: int, request: Request, rendered: RenderedPrompt) -> None:
        async def answer() -> None:
            try:
                completion = await self._answer(request, rendered)
            except EngineError as error:
                if self._options.when_down == "stop":
                    raise
                completion = _failed(request, rendered, str(error))
            self._results.put((serial, completion))

        loop.start(serial, answer(), lambda error: self._results.put((serial, error)))

    async def _answer(self, request: Request, rendered: RenderedPrompt) -> Completion:
        try:
            return await self._completion(request, rendered)
        except RefusedError as refused:
            if refused.too_long:
                way_out = _OVERLONG if self._truncator is None else _SMALLER_WINDOW
                return _failed(request, rendered, f"{refused}; {way_out}", "too_long")
            if refused.status in (401, 403):
                raise EngineError(self._options.rejected_key(refused.status)) from None
            if refused.fatal:
                raise EngineError(f"{self._options.address} does not serve {self._model!r}: {refused}") from None
            is_invalid = bool(request.prompt.messages) and refused.status in (400, 422)
            return _failed(request, rendered, str(refused), "invalid" if is_invalid else "error")
        except (RetriesExhaustedError, OverBudgetError, UnusableReplyError) as error:
            return _failed(request, rendered, str(error))

    async def _completion(self, request: Request, rendered: RenderedPrompt) -> Completion:
        scored, sampling = bool(request.candidates), request.sampling
        answer = await self._sampler.sample(rendered, sampling, logprobs=scored)
        logprobs: tuple[float, ...] | None = None
        approximation = ""
        if request.after and rendered.prefill and "continuation" in self._pool.unsupported_params:
            answer, logprobs, approximation = await self._sampler.verdict_in_reply(rendered, request)
        elif scored:
            logprobs, approximation = await self._sampler.candidate_logprobs(rendered, request, answer.choices)
        replies = [self._reply(choice, rendered, sampling) for choice in answer.choices]
        for text, reason in replies:
            if why := mismatch(sampling, separate(text).reply, reason):
                raise UnusableReplyError(f"{why}; {self._options.address} may not support it")
        tokens = [
            choice.token_logprobs(text, sampling.logprobs or 0)
            for choice, (text, _) in zip(answer.choices, replies, strict=True)
        ]
        opening = "" if rendered.api == "chat" else opening_of(rendered.text)
        thinking = tuple(choice.thinking for choice in answer.choices)
        return Completion(
            key=request.key,
            texts=tuple(opening + text for text, _ in replies),
            finish_reasons=tuple(reason for _, reason in replies),
            thinking=thinking if any(thinking) else (),
            error=_IN_REASONING if any(choice.is_in_reasoning for choice in answer.choices) else "",
            candidate_logprobs=logprobs,
            logprobs=None if sampling.logprobs is None or None in tokens else tuple(filter(None, tokens)),
            approximation=approximation,
            prompt_tokens=answer.usage.prompt_tokens,
            completion_tokens=answer.usage.completion_tokens,
            truncations=rendered.truncations,
            sanitized=rendered.sanitized,
        )

    def _reply(self, choice: Choice, rendered: RenderedPrompt, sampling: Sampling) -> tuple[str, FinishReason]:
        if head := _ROLE_HEAD.match(choice.text or ""):
            self._left_tokens[head[0].strip()] += 1
            choice = replace(choice, text=(choice.text or "")[head.end() :])
        text, reason = reply_of(choice, rendered, sampling)
        text, tokens = without_end_tokens(text)
        self._left_tokens.update(set(tokens))
        return text, reason

    def _check(self, request: Request) -> None:
        if request.adapter is not None:
            raise EngineError(
                "the openai engine does not support adapters; serve the adapter as a model and pass its name as --model"
            )
        if not self.supports_images:
            refuse_images(request, "/completions only accepts text; pass --engine-arg api=auto")
        renders_chat = self._truncator is not None and self._server.accepts_token_ids
        if request.prompt.chat and self._options.api == "completions" and not renders_chat:
            way_out = "pass --engine-arg tokenizer=... or --engine-arg api=auto"
            raise EngineError(f"chat prompts on /completions require the model's chat template; {way_out}")


def _failed(request: Request, rendered: RenderedPrompt, why: str, reason: FinishReason = "error") -> Completion:
    return Completion.failed(request.key, why, reason, truncations=rendered.truncations, sanitized=rendered.sanitized)


def _window(tokenizer: Any, server: ServerCapabilities, options: EngineOptions) -> int:
    stated = (options.max_model_len, server.window, tokenizer.model_max_length)
    known = [int(tokens) for tokens in stated if tokens and tokens < 10**9]
    if not known:
        raise ConfigError("the context window is unknown; set it with --max-model-len")
    return min(known) - (_CHAT_WRAPPING_TOKENS if server.api == "chat" else 0)
