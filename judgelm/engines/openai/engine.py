"""Any server that speaks OpenAI's API: vLLM's, llama.cpp's, Ollama's, or GPT-4 itself; or several of one model.

A thread runs an event loop with one task per request in flight; `submit` and `collect` are its synchronous ends.
"""

import asyncio
import queue
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import openai

from judgelm.engines.base import EngineOptions, ImageError, LoopThread, prepare_request, refuse_images, thinking_policy
from judgelm.engines.candidates import NEGLIGIBLE, TextTree, frequencies
from judgelm.engines.openai.endpoint import Choice, Replies, RetriesExhaustedError
from judgelm.engines.openai.options import BilledTokens, OverBudgetError, endpoint_options
from judgelm.engines.openai.requests import (
    CHAT_TEMPLATE,
    FEW_TOP_LOGPROBS,
    TOP_LOGPROBS,
    PromptRenderer,
    RefusedError,
    RenderedPrompt,
    request_body,
)
from judgelm.engines.openai.servers import HELLO, EndpointPool, ServerCapabilities, discover_servers
from judgelm.errors import ConfigError, EngineError
from judgelm.parsing.thinking import separate
from judgelm.prompts.chat_rendering import opening_of, template_arguments
from judgelm.prompts.truncation import Truncator
from judgelm.records import Completion, FinishReason, Request, Sampling, ThinkingMode

_QUEUED_PER_SLOT = 4
_MAX_CONTINUATION_TOKENS = 8
_CHAT_WRAPPING_TOKENS = 64
_IN_REASONING = (
    "the server put the whole reply into reasoning_content and left content empty: its reasoning parser (vLLM: "
    "--reasoning-parser) does not fit the model; if the model does not think, judge with --thinking off"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_END_TOKENS = (
    *("<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|EOT|>", "<|end|>"),
    *("<|end_of_turn|>", "<|END_OF_TURN_TOKEN|>", "<end_of_turn>", "<eos>", "</s>", "[/INST]", "<｜end▁of▁sentence｜>"),
    "\0",
)
_OPENS = {"</s>": "<s>", "[/INST]": "[INST]"}
"""What a text holds in which an end token may be a tag: `<s>` strikes text through in HTML."""
_ROLE_HEAD = re.compile(
    r"\s*(?:<\|start_header_id\|>assistant<\|end_header_id\|>|<\|im_start\|>assistant\b|<start_of_turn>model\b"
    r"|<\|assistant\|>)\s*"
)


class OpenAIEngine:
    """Sends requests to a server, as many at once as it takes.

    Args:
        options: the model as the server calls it; `engine_args` name the server.

    Raises:
        ConfigError: an argument that is wrong, unknown or without meaning here.
        ModelError: wrong API, key, model or tokenizer.
        EngineError: the server cannot be reached.
    """

    def __init__(self, options: EngineOptions) -> None:
        own = self._options = endpoint_options(options)
        tokenizer: Any = None
        if own.tokenizer is not None:
            from judgelm.engines.model_files import load_tokenizer  # transformers takes seconds

            tokenizer = load_tokenizer(own.tokenizer, None, options)
        hello = None if tokenizer is None else list(tokenizer(HELLO)["input_ids"])
        self._model = options.model
        pool = self._pool = EndpointPool(own, min(own.concurrency, options.max_num_seqs))
        loop = LoopThread("openai-engine")
        try:
            server = self._server = loop.run(discover_servers(pool, options.model, own, hello))
            window = server.window if tokenizer is None else _window(tokenizer, server, options)
            self.thinking = thinking_policy(options, window=window, resumes=False)
        except BaseException as error:
            loop.close(pool.close())
            if isinstance(error, OverBudgetError):
                message = f"max_cost_usd is too small to test what {own.address} supports: {error}"
                raise ConfigError(message) from None
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
    def supports_images(self) -> bool:
        """True if images can be sent; only the server knows whether the model uses them."""
        return self._options.api != "completions"

    @property
    def max_in_flight(self) -> int:
        """Enough that requests are always queued, however many finish between two calls."""
        return _QUEUED_PER_SLOT * self._pool.max_concurrency

    def submit(self, requests: Sequence[Request]) -> None:
        """Start requests.

        Raises:
            EngineError: the engine is closed, or a request asks for an adapter, or for a grammar that the server does
                not support; then no request was started.
        """
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
        """Wait until a request is finished or the time is up.

        Raises:
            EngineError: the endpoint no longer answers, or no longer accepts the key or the model.
        """
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
            elif self._in_flight.get(result.key) == serial:  # else it was aborted after it had finished
                del self._in_flight[result.key]
                completions.append(result)
        if self._error is not None and not completions:
            raise self._error
        return completions

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Nothing: replies are requested as a whole."""
        return {}

    def abort(self, keys: Iterable[str]) -> None:
        """Forget requests, and cancel them at the server."""
        for key in keys:
            serial = self._in_flight.pop(key, None)
            if serial is not None and self._loop is not None:
                self._loop.cancel(serial)

    def describe(self) -> dict[str, Any]:
        """The server's address, its name for the model, and the API in use."""
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
        """Requests, retries, billed tokens and cost.

        `cost_usd` is what the server stated. `cost_usd_at_most` adds the maximum for `replies_of_unknown_cost`: replies
        cut off, late or without usage. Cached tokens count in full.
        """
        stats = self._pool.stats()
        notes = [*stats.get("notes", ()), *(self._truncator.notes if self._truncator else ())]
        notes += [
            f"removed {token!r} from {count:,} of the server's replies; set the server's stop tokens"
            for token, count in self._left_tokens.items()
        ]
        return stats | ({"notes": list(dict.fromkeys(notes))} if notes else {})

    def close(self) -> None:
        """Cancel all requests, drop the connections, end the thread."""
        loop, self._loop = self._loop, None
        self._in_flight.clear()
        if loop is not None:
            loop.close(self._pool.close())

    def _prepared(self, request: Request) -> tuple[Request, RenderedPrompt] | Completion:
        """The request as it is sent, or a failed completion where it cannot be sent."""
        prompt = request.prompt
        surrogate = _SURROGATE.search("".join(span.text for span in prompt.spans) + prompt.prefill)
        if surrogate is not None:
            code = f"U+{ord(surrogate[0]):04X}"
            return Completion.failed(
                request.key, f"the prompt holds half a character ({code}), which cannot be sent; fix the input"
            )
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
                return _failed(request, rendered, f"{refused}; {self._too_long_hint()}", "too_long")
            if refused.status in (401, 403):
                raise EngineError(self._options.rejected_key(refused.status)) from None
            if refused.fatal:
                raise EngineError(f"{self._options.address} does not serve {self._model!r}: {refused}") from None
            return _failed(request, rendered, str(refused))
        except (RetriesExhaustedError, OverBudgetError, UnusableReplyError) as error:
            return _failed(request, rendered, str(error))

    async def _completion(self, request: Request, rendered: RenderedPrompt) -> Completion:
        scored = bool(request.candidates)
        answer = await self._sampler.sample(rendered, request.sampling, logprobs=scored)
        replies = [self._reply(choice, rendered, request.sampling) for choice in answer.choices]
        logprobs, approximation = None, ""
        if scored:
            logprobs, approximation = await self._sampler.candidate_logprobs(rendered, request, answer.choices)
        opening = "" if rendered.api == "chat" else opening_of(rendered.text)
        thinking = tuple(choice.thinking for choice in answer.choices)
        return Completion(
            key=request.key,
            texts=tuple(opening + text for text, _ in replies),
            finish_reasons=tuple(reason for _, reason in replies),
            thinking=thinking if any(thinking) else (),
            error=_IN_REASONING if any(choice.is_in_reasoning for choice in answer.choices) else "",
            candidate_logprobs=logprobs,
            approximation=approximation,
            prompt_tokens=answer.usage.prompt_tokens,
            completion_tokens=answer.usage.completion_tokens,
            truncations=rendered.truncations,
            sanitized=rendered.sanitized,
        )

    def _reply(self, choice: Choice, rendered: RenderedPrompt, sampling: Sampling) -> tuple[str, FinishReason]:
        """As `reply_of`, without the end tokens that the server left in; the replies with some are counted."""
        if head := _ROLE_HEAD.match(choice.text or ""):
            self._left_tokens[head[0].strip()] += 1
            choice = replace(choice, text=(choice.text or "")[head.end() :])
        text, reason = reply_of(choice, rendered, sampling)
        text, tokens = without_end_tokens(text)
        self._left_tokens.update(set(tokens))
        return text, reason

    def _check(self, request: Request) -> None:
        if request.sampling.grammar is not None and not self.supports_grammar:
            raise EngineError(
                f"{self._options.address} does not constrain replies to a grammar (vLLM's server does); leave it out"
            )
        if request.adapter is not None:
            raise EngineError("the openai engine has no adapters; serve one as a model and pass its name as --model")
        if not self.supports_images:
            refuse_images(request, "/completions takes only text; pass --engine-arg api=auto")
        if (
            request.prompt.chat
            and self._options.api == "completions"
            and not (self._truncator and self._server.accepts_token_ids)
        ):
            raise EngineError(
                "a chat prompt needs the model's chat template on /completions: pass --engine-arg tokenizer=..., "
                "or --engine-arg api=auto"
            )

    def _too_long_hint(self) -> str:
        if self._truncator is None:
            return "pass --engine-arg tokenizer=... (the model's tokenizer) to truncate long answers"
        return "the server's window is smaller than the model's: pass it as --max-model-len"


def _failed(request: Request, rendered: RenderedPrompt, why: str, reason: FinishReason = "error") -> Completion:
    return Completion.failed(request.key, why, reason, truncations=rendered.truncations, sanitized=rendered.sanitized)


def _window(tokenizer: Any, server: ServerCapabilities, options: EngineOptions) -> int:
    """The smallest window of user, server and tokenizer, minus the tokens that a chat server adds to a plain prompt."""
    stated = (options.max_model_len, server.window, tokenizer.model_max_length)
    known = [int(tokens) for tokens in stated if tokens and tokens < 10**9]
    if not known:
        raise ConfigError("neither server nor tokenizer states the model's window; pass --max-model-len")
    return min(known) - (_CHAT_WRAPPING_TOKENS if server.api == "chat" else 0)


class UnusableReplyError(Exception):
    """The server answered without a reply: filtered, refused by the model, or ended for an unknown reason."""


class ReplySampler:
    """Samples replies of one model, and finds the log-probabilities of given ones.

    Args:
        pool: the servers.
        model: the server's name for the model.
        thinking: passed to the server's chat template.
        renderer: renders prompts that continue from the beginning of a reply.
        candidate_samples: number of replies to sample where there are no log-probabilities.
    """

    def __init__(
        self, pool: EndpointPool, model: str, thinking: ThinkingMode, renderer: PromptRenderer, candidate_samples: int
    ) -> None:
        self._pool = pool
        self._model = model
        self._thinking = thinking
        self._template_arguments = template_arguments(thinking)
        self._renderer = renderer
        self._candidate_samples = candidate_samples
        self._begins_blank = False

    async def sample(self, prompt: RenderedPrompt, sampling: Sampling, *, logprobs: bool = False) -> Replies:
        """Sample `sampling.n` replies; a greedy one is sampled once and copied (vLLM refuses several).

        Raises:
            RefusedError, RetriesExhaustedError, OverBudgetError, EngineError: as `Endpoint.complete`.
        """
        greedy = sampling.temperature == 0 and "temperature" not in self._pool.unsupported_params
        wanted = 1 if greedy else sampling.n
        choices: tuple[Choice, ...] = ()
        prompt_tokens = completion_tokens = 0
        while len(choices) < wanted:
            # the same seed would give the same replies again
            rest = replace(sampling, n=wanted - len(choices), seed=sampling.seed + len(choices))
            if self._begins_blank:
                rest = replace(rest, stop=tuple(stop for stop in rest.stop if not stop.isspace()))
            body = request_body(self._model, prompt, rest, logprobs=logprobs)
            if self._template_arguments and prompt.api == "chat":
                body[CHAT_TEMPLATE] = self._template_arguments
            answer = await self._pool.complete(prompt.api, body)
            prompt_tokens = answer.usage.prompt_tokens
            completion_tokens += answer.usage.completion_tokens
            if "stop" in body and rest.blank_stops and any(choice.says_nothing for choice in answer.choices):
                self._begins_blank = True  # the server stops at an empty first line: from now on it is not told to
                continue
            choices += tuple(self._settled(choice, answer, rest) for choice in answer.choices)
        copies = sampling.n if greedy else 1
        usage = BilledTokens(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens * copies)
        return Replies(choices[:wanted] * copies, usage)

    def _settled(self, choice: Choice, answer: Replies, sampling: Sampling) -> Choice:
        """The choice with a known finish reason, and with its text where a reasoning parser took that for thinking."""
        if choice.finish_reason is None:  # with as many tokens as it may have, it may have been cut off
            tokens = answer.usage.completion_tokens or len(choice.text or "") + len(choice.thinking)
            choice = replace(choice, finish_reason="stop" if tokens < sampling.max_tokens else "length")
        if self._thinking == "off" and not choice.text and choice.thinking and choice.finish_reason == "stop":
            return replace(choice, text=choice.thinking, thinking="")
        return choice

    async def candidate_logprobs(
        self, rendered: RenderedPrompt, request: Request, choices: Sequence[Choice]
    ) -> tuple[tuple[float, ...], str]:
        """The values of `Completion.candidate_logprobs` and `Completion.approximation`.

        Args:
            rendered: the request's prompt.
            request: holds the candidates.
            choices: the replies, sampled with log-probabilities if the server has them.

        Raises:
            RefusedError, RetriesExhaustedError, OverBudgetError, EngineError: as `Endpoint.complete`.
        """
        if not all(choice.covers_reply for choice in choices):  # without stop strings, which candidates may contain
            sampling = replace(request.sampling, temperature=1.0, stop=(), n=self._candidate_samples, grammar=None)
            answer = await self.sample(rendered, sampling)
            texts = [separate(choice.text or "").reply for choice in answer.choices]
            return frequencies(request.candidates, texts), f"frequencies of {len(texts)} sampled replies"
        tree, notes = TextTree(request.candidates), []
        for choice in choices:
            tree.follow("", choice.text or "", choice.steps or ())
        if rendered.api == "completions":
            await self._explore(tree, rendered, max(map(len, request.candidates)))
        else:
            elsewhere = sum(tree.shares().open.values())
            while tree.borrow():
                pass
            if elsewhere > NEGLIGIBLE:
                notes.append(
                    f"{elsewhere:.2f} of the probability lies on beginnings other than the reply's; their continuation "
                    "is taken from the reply's own, since a chat API cannot continue from them"
                )
        if (unlisted := tree.shares().unlisted) > NEGLIGIBLE:
            top = FEW_TOP_LOGPROBS if "many_logprobs" in self._pool.unsupported_params else TOP_LOGPROBS
            chosen_only = all(len(step.tops) <= 1 for choice in choices for step in choice.steps or ())
            listed = "the chosen token" if chosen_only else f"the {top} most probable tokens"
            notes.append(f"up to {unlisted:.2f} of the probability may be missing: the server lists only {listed}")
        return tree.logprobs(), "; ".join(notes)

    async def _explore(self, tree: TextTree, rendered: RenderedPrompt, longest: int) -> None:
        """Have the model continue from other beginnings until the remaining probability is negligible."""

        async def explore(node: str) -> None:
            further = replace(rendered, content=self._renderer.continue_from(rendered, node))
            # every token has at least one character, so a candidate's rest has at most as many tokens as characters
            sampling = Sampling(max_tokens=max(1, min(longest - len(node), _MAX_CONTINUATION_TOKENS)))
            [choice, *_] = (await self.sample(further, sampling, logprobs=True)).choices
            tree.follow(node, choice.text or "", choice.steps or ())
            tree.close(node)

        while needed := tree.needed():
            tasks = [asyncio.create_task(explore(node)) for node in needed]
            try:
                await asyncio.gather(*tasks)
            finally:  # where one failed, the others are of no use
                for task in tasks:
                    task.cancel()


def without_end_tokens(text: str) -> tuple[str, tuple[str, ...]]:
    """A reply without end tokens and the blanks around them, and these tokens; any other text stays as it is."""
    tokens: list[str] = []
    while (end := next((token for token in _END_TOKENS if text.rstrip().endswith(token)), None)) is not None:
        rest = text.rstrip().removesuffix(end)
        if end in _OPENS and _OPENS[end] in rest:
            break
        text = rest.rstrip()
        tokens.append(end)
    return text, tuple(tokens)


def reply_of(choice: Choice, prompt: RenderedPrompt, sampling: Sampling) -> tuple[str, FinishReason]:
    """The text and the finish reason of a reply, as `Completion` has them.

    Raises:
        UnusableReplyError: there is no reply.
    """
    if choice.refusal is not None:
        raise UnusableReplyError(f"the model refused: {choice.refusal}")
    if choice.finish_reason not in ("stop", "length"):
        raise UnusableReplyError(f"the server ended the reply with finish_reason {choice.finish_reason!r}")
    text = choice.text or ""
    if not text and choice.thinking:
        return "", "thinking"
    if prompt.prefill:  # some servers repeat it, and not all of them say so
        text = text.removeprefix(prompt.prefill)
    if (stopped := sampling.cut_at_stop(text)) is not None:
        return stopped, "stop"
    return text, "stop" if choice.finish_reason == "stop" else "length"
