"""The engine protocol, its options, requests as engines prepare them, views of an engine, and what engines share."""

import asyncio
import ctypes
import importlib.util
import os
import threading
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from packaging.requirements import Requirement

from judgelm.errors import ConfigError, EngineError, MissingExtraError, first_line
from judgelm.package import install_hint
from judgelm.parsing.thinking import Thinking
from judgelm.records import Completion, FinishReason, Request, Sampling, ThinkingMode, Unparsed

if TYPE_CHECKING:
    from judgelm.prompts.truncation import TokenizedPrompt, Tokenizer, Truncator

MODEL_ENGINES = ("auto", "transformers", "vllm")
"""Names of the engines that load a model on this machine or on workers."""
Result = TypeVar("Result")
T = TypeVar("T")


class Engine(Protocol):
    """Takes requests and returns completions in any order. Not thread-safe: one runner drives one engine.

    Attributes:
        supports_grammar: whether it can constrain a reply to `Sampling.grammar`.
        thinking: its judge's thinking settings.
    """

    supports_grammar: bool
    thinking: Thinking

    @property
    def supports_images(self) -> bool:
        """True if a prompt may show images; otherwise requests with images are refused."""
        ...

    @property
    def max_in_flight(self) -> int:
        """Number of requests that keep the engine busy."""
        ...

    def submit(self, requests: Sequence[Request]) -> None:
        """Submit requests. Keys are unique among the requests in flight."""
        ...

    def collect(self, timeout_s: float) -> list[Completion]:
        """Work or wait up to about `timeout_s` and return the finished requests, possibly none.

        Raises:
            EngineError: the engine as a whole broke. A single request that fails is a completion with
                `finish_reasons == ("error",)`.
        """
        ...

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """The unfinished first replies to these requests, by key; an engine may know none."""
        ...

    def abort(self, keys: Iterable[str]) -> None:
        """Forget requests; they get no completion."""
        ...

    def describe(self) -> dict[str, Any]:
        """Model with its hash, dtype, device and versions, for the manifest."""
        ...

    def stats(self) -> dict[str, Any]:
        """Counts since the engine was loaded (passes, retries, cache hits, cost, ...), for the manifest.

        `notes`, where present, is a list of lines for the user on the engine's own choices.
        """
        ...

    def close(self) -> None:
        """Free the engine's resources. Safe to call twice."""
        ...


@runtime_checkable
class HoldsAdapters(Protocol):
    """An engine whose model can hold several LoRA adapters at once; `Request.adapter` chooses one."""

    def load_adapter(self, adapter: str) -> None:
        """Load a LoRA adapter, a folder or hub id, for the requests that name it; a loaded one stays.

        Raises:
            ModelError, EngineError: it cannot be loaded, or there is no room for it.
        """
        ...

    def unload_adapter(self, adapter: str) -> bool:
        """Free a LoRA adapter; False, and nothing is done, while requests in flight name it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options for all engines; each uses those that concern it.

    Attributes:
        model: local folder or hub id; for the scripted engine the reply, or a JSON file of replies.
        adapter: folder or hub id of a PEFT adapter.
        adapters: folders or hub ids of LoRA adapters that the model holds at once, for requests that name one.
        revision: hub revision.
        dtype: `auto` (the checkpoint's own; on a CPU see `judgelm.engines.dtype`), `float32`, `bfloat16` or
            `float16`.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, ...
        quantization: `4bit` or `8bit` through bitsandbytes, or None.
        max_num_batched_tokens: maximum tokens in one forward pass; None lets the engine choose.
        max_num_seqs: maximum sequences in flight.
        max_model_len: context window in tokens, where the model's config does not state it or it should be shorter.
        trust_remote_code: run Python code that comes with the model.
        thinking: whether the chat template asks the judge to think; None takes its card's setting, else `absent`.
        thinking_tokens: maximum tokens of its thinking, at most half of its window.
        engine_args: options of a single engine, by their own names.
    """

    model: str
    adapter: str | None = None
    adapters: tuple[str, ...] = ()
    revision: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    quantization: str | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int = 256
    max_model_len: int | None = None
    trust_remote_code: bool = False
    thinking: ThinkingMode | None = None
    thinking_tokens: int = 4096
    engine_args: Mapping[str, Any] = field(default_factory=dict)


def require(module: str, *, extra: str) -> None:
    """Check that a module is installed, with an error that names the package to install.

    Raises:
        MissingExtraError: the module is not installed.
    """
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(f"{module} is not installed; run: {install_hint(extra)}")


def require_local() -> None:
    """Check that torch is installed, without which no model runs in this process.

    Raises:
        MissingExtraError: it is not.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError(
            f"torch is not installed, which runs models on this machine; run: {install_hint('local')}\n"
            "A judge behind a server of OpenAI's protocol needs none: "
            "--engine openai --engine-arg base_url=URL --model NAME"
        )


def require_version(distribution: str) -> None:
    """Check that the installed version is not too old.

    A newer version than judgelm was tested with is not refused here; `judgelm doctor` names it.

    Raises:
        ConfigError: the installed version is below the lowest that judgelm declares.
    """
    try:
        installed, declared = version(distribution), requires("judgelm") or []
    except PackageNotFoundError:
        return  # judgelm runs from a folder that was never installed, or `require` has the error
    for requirement in map(Requirement, declared):
        lowest = [part for part in requirement.specifier if part.operator == ">="]
        if requirement.name == distribution and not all(part.contains(installed, prereleases=True) for part in lowest):
            raise ConfigError(
                f"{distribution} {installed} is installed, and judgelm needs {requirement.specifier}; "
                f"run: pip install '{distribution}{requirement.specifier}'"
            )


class ImageError(Exception):
    """An image cannot be read. Only the request that shows it fails."""


def thinking_policy(options: EngineOptions, *, window: int | None, resumes: bool) -> Thinking:
    """The thinking settings of an engine's judge.

    Raises:
        ConfigError: `thinking_tokens` is below 1.
    """
    if options.thinking_tokens < 1:
        raise ConfigError(f"thinking_tokens is {options.thinking_tokens}; it must be above 0")
    mode = options.thinking or "absent"
    return Thinking(mode=mode, max_tokens=options.thinking_tokens, resumes=resumes).within(window)


def prepare_request(truncator: "Truncator", request: Request) -> "tuple[Request, TokenizedPrompt] | Completion":
    """The request and its tokens, or a failed completion where it does not fit.

    Raises:
        ConfigError: as `Truncator.truncate`, for a prompt made from a template, since all others would fail too. Free
            chat messages fail alone.
    """
    sampling = request.sampling
    reserve = sampling.max_tokens if sampling.reserve is None else sampling.reserve
    try:
        tokenized = truncator.truncate(request.prompt, reserve)
    except (ImageError, ConfigError) as error:
        if isinstance(error, ConfigError) and any(span.kind == "template" for span in request.prompt.spans):
            raise
        return Completion.failed(request.key, str(error))
    if isinstance(tokenized, Unparsed):
        reason: FinishReason = "equal_after_cut" if tokenized.code == "equal_after_cut" else "too_long"
        return Completion.failed(request.key, tokenized.why, reason)
    room = truncator.window - len(tokenized.ids)
    if room < 1:
        why = f"the prompt fills the window of {truncator.window} tokens and leaves no room for the reply"
        return Completion.failed(request.key, why, "too_long", truncations=tokenized.truncations)
    if room < sampling.max_tokens:
        request = replace(request, sampling=replace(sampling, max_tokens=room))
    return request, tokenized


def check_head(request: Request, *, rewards: bool) -> None:
    """Refuse a request for a reward where the model writes text, and for text where it gives rewards.

    Raises:
        EngineError: it is one.
    """
    if request.reward != rewards:
        wanted, has = ("a reward", "writes text") if request.reward else ("a reply", "gives rewards alone")
        raise EngineError(f"request {request.key} asks for {wanted}, and the model {has}; use another model or mode")


def refuse_images(request: Request, why: str) -> None:
    """Refuse images for a text-only model, since a verdict without them would be wrong.

    Raises:
        EngineError: the prompt shows images.
    """
    if request.prompt.images:
        raise EngineError(f"request {request.key} shows images, which this model does not support: {why}")


def decode_reply(
    ids: list[int], sampling: Sampling, tokenizer: "Tokenizer", eos_ids: frozenset[int]
) -> tuple[str, FinishReason | None]:
    """The text of a reply's tokens, and its finish reason; None where it continues."""
    text = tokenizer.decode(ids, skip_special_tokens=True)
    if ids[-1] in eos_ids:
        return text, "stop"
    if (stopped := sampling.cut_at_stop(text)) is not None:
        return stopped, "stop"
    return text, "length" if len(ids) == sampling.max_tokens else None


class EngineView:
    """An engine as one of its users sees it; a subclass changes what it must.

    Args:
        engine: its owner closes it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.supports_grammar = engine.supports_grammar
        self.thinking = engine.thinking

    @property
    def supports_images(self) -> bool:
        """As the engine."""
        return self._engine.supports_images

    @property
    def max_in_flight(self) -> int:
        """As the engine."""
        return self._engine.max_in_flight

    def submit(self, requests: Sequence[Request]) -> None:
        """As the engine."""
        self._engine.submit(requests)

    def collect(self, timeout_s: float) -> list[Completion]:
        """As the engine."""
        return self._engine.collect(timeout_s)

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """As the engine."""
        return self._engine.progress(keys)

    def abort(self, keys: Iterable[str]) -> None:
        """As the engine."""
        self._engine.abort(keys)

    def describe(self) -> dict[str, Any]:
        """As the engine."""
        return self._engine.describe()

    def stats(self) -> dict[str, Any]:
        """As the engine."""
        return self._engine.stats()

    def close(self) -> None:
        """Nothing: the engine's owner closes it."""


class LoneFailures(EngineView):
    """The engine of a server: a request that it refuses fails by itself, where the run of a batch would end.

    Such as a mode whose prompts are chats, for a model without a chat template.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._refused: list[Completion] = []

    def submit(self, requests: Sequence[Request]) -> None:
        """Submit the requests together, or one by one where the engine refuses one of them."""
        try:
            super().submit(requests)
            return
        except Exception as error:  # of a tokenizer, an image processor or the engine
            if len(requests) == 1:
                self._refused.append(Completion.failed(requests[0].key, first_line(error)))
                return
        self._engine.abort([request.key for request in requests])
        for request in requests:
            self.submit([request])

    def collect(self, timeout_s: float) -> list[Completion]:
        """The refused requests, else as the engine."""
        refused, self._refused = self._refused, []
        return refused or super().collect(timeout_s)

    def abort(self, keys: Iterable[str]) -> None:
        """Forget requests."""
        dropped = set(keys)
        self._refused = [completion for completion in self._refused if completion.key not in dropped]
        super().abort(dropped)


class AdapterView(EngineView):
    """Adds an adapter's name to all requests. Views share the engine, so only one of them may run at a time.

    Args:
        engine: holds the adapter; its owner closes it.
        adapter: folder or hub id.
    """

    def __init__(self, engine: Engine, adapter: str) -> None:
        from judgelm.engines.model_files import adapter_identity  # loads transformers

        super().__init__(engine)
        self.adapter = adapter
        self._identity = adapter_identity(adapter)

    def submit(self, requests: Sequence[Request]) -> None:
        """Submit requests for the adapter."""
        self._engine.submit([replace(request, adapter=self.adapter) for request in requests])

    def describe(self) -> dict[str, Any]:
        """As the engine, with the adapter's folder and hash."""
        description = self._engine.describe()
        return description | {"model": description["model"] | self._identity}


class LoopThread:
    """Runs coroutines; `close` cancels those left and ends the thread.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Wait for a coroutine's result; an interrupt of the waiting thread cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def start(
        self, key: Hashable, coroutine: Coroutine[Any, Any, None], on_error: Callable[[BaseException], None]
    ) -> None:
        """Start a coroutine beside the others.

        Args:
            key: identifies it for `cancel`.
            coroutine: the coroutine.
            on_error: called in the loop's thread with the exception that it ended with.
        """

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.pop(key, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                on_error(error)

        def begin() -> None:
            self._tasks[key] = self._loop.create_task(coroutine)
            self._tasks[key].add_done_callback(ended)

        self._loop.call_soon_threadsafe(begin)

    def cancel(self, key: Hashable) -> None:
        """Cancel a started coroutine, if it still runs."""

        def end() -> None:
            if (task := self._tasks.get(key)) is not None:
                task.cancel()

        self._loop.call_soon_threadsafe(end)

    def close(self, last: Coroutine[Any, Any, None] | None = None, timeout_s: float | None = None) -> None:
        """Cancel everything, run one last coroutine, end the thread."""

        async def finish() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}  # also those that others have started
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if last is not None:
                await last
            await self._loop.shutdown_default_executor()

        try:
            self.run(finish(), timeout_s)
        finally:  # also when the wait is interrupted
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout_s)
            self._loop.close()


def release_openmp_threads() -> None:
    """End the OpenMP threads that compute for the calling thread; its next operation starts new ones.

    Each thread that computes has its own. GNU's OpenMP, which torch has on Linux, lets them wait ready for the
    next operation only while the process has no more of them than cores. With more, all of them sleep after each
    operation and are woken for the next one, and passes take up to 1.3 times as long. So a thread that computes no more
    lets go of them.
    """
    try:
        openmp = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except (OSError, AttributeError):  # not in this process, or not Linux
        return
    openmp.omp_pause_resource_all(2)  # omp_pause_hard
