"""The two ways to run vLLM behind one face.

On one device its engine runs in this process: there is no child to hang on or to be left behind. Over several devices
vLLM needs worker processes, and its asynchronous engine runs in a thread of its own: should the engine core die, that
one says so at once, where the other would wait for ever.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, Protocol

from vllm import EngineArgs, RequestOutput, SamplingParams
from vllm.config import VllmConfig
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.exceptions import VLLMValidationError
from vllm.inputs import TokensPrompt
from vllm.lora.request import LoRARequest
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.engine.llm_engine import LLMEngine

from judgelm.engines.vllm.engine_args import quiet_start
from judgelm.errors import EngineError

_START_LIMIT_S = 3600.0
_CONTEXT = UsageContext.LLM_CLASS
"""What vLLM chooses the tokens of a step by: as for its `LLM` class, which works through a list, not for a server."""


class RefusedError(Exception):
    """vLLM does not take a request."""


class Backend(Protocol):
    """Takes tokenised prompts, gives vLLM's outputs."""

    @property
    def config(self) -> VllmConfig:
        """The configuration as vLLM completed it."""
        ...

    def add(self, key: str, prompt: TokensPrompt, sampling: SamplingParams, adapter: LoRARequest | None) -> None:
        """Hand a prompt over.

        Raises:
            RefusedError: vLLM does not take it.
        """
        ...

    def collect(self, timeout_s: float) -> list[RequestOutput | tuple[str, str]]:
        """What there is of replies, finished or so far; for a request that failed its key and vLLM's words.

        Raises:
            EngineError: the engine as a whole is dead.
        """
        ...

    def abort(self, keys: Iterable[str]) -> None:
        """Forget prompts."""
        ...

    def load_adapter(self, adapter: LoRARequest) -> None:
        """Load an adapter before the first request asks for it."""
        ...

    def close(self) -> None:
        """End every process and free the memory."""
        ...


class InProcessBackend:
    """vLLM's engine, stepped by this thread; only one at a time, since they would share torch's process groups.

    Raises:
        EngineError: this process has one already.
    """

    _loaded = False

    def __init__(self, arguments: EngineArgs) -> None:
        if InProcessBackend._loaded:
            raise EngineError("this process already runs a vLLM engine, and there can be only one: close it first")
        with quiet_start(arguments.model, multiprocessing=False):
            self._engine = LLMEngine.from_engine_args(arguments, usage_context=_CONTEXT)
        InProcessBackend._loaded = True

    @property
    def config(self) -> VllmConfig:
        """The configuration as vLLM completed it."""
        return self._engine.vllm_config

    def add(self, key: str, prompt: TokensPrompt, sampling: SamplingParams, adapter: LoRARequest | None) -> None:
        """Hand a prompt over."""
        try:
            self._engine.add_request(key, prompt, sampling, lora_request=adapter)
        except (VLLMValidationError, ValueError) as error:
            raise RefusedError(str(error)) from error

    def collect(self, timeout_s: float) -> list[RequestOutput | tuple[str, str]]:
        """Step until there is something of a reply or the time is up."""
        until = time.monotonic() + timeout_s
        while self._engine.has_unfinished_requests():
            try:
                found = self._engine.step()
            except Exception as error:  # vLLM's step raises whatever its model raises
                raise EngineError(f"vLLM's step failed: {type(error).__name__}: {error}") from error
            if found or time.monotonic() > until:
                return list(found)
        return []

    def abort(self, keys: Iterable[str]) -> None:
        """Forget prompts."""
        self._engine.abort_request(list(keys))

    def load_adapter(self, adapter: LoRARequest) -> None:
        """Load an adapter."""
        self._engine.add_lora(adapter)

    def close(self) -> None:
        """Free the model, so that another engine can be made in this process."""
        self._engine.engine_core.shutdown()
        del self._engine
        cleanup_dist_env_and_memory()
        InProcessBackend._loaded = False


class AsyncBackend:
    """vLLM's asynchronous engine with its child processes, in an event loop of its own thread."""

    def __init__(self, arguments: EngineArgs) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()
        self._outputs: queue.SimpleQueue[RequestOutput | tuple[str, str] | BaseException] = queue.SimpleQueue()
        self._tasks: dict[str, Future[None]] = {}
        try:
            with quiet_start(arguments.model, multiprocessing=True):
                self._engine: AsyncLLM = self._wait(_start(arguments))
        except BaseException:
            self._stop_loop()
            raise

    @property
    def config(self) -> VllmConfig:
        """The configuration as vLLM completed it."""
        return self._engine.vllm_config

    def add(self, key: str, prompt: TokensPrompt, sampling: SamplingParams, adapter: LoRARequest | None) -> None:
        """Hand a prompt over; a refusal comes back from `collect`."""
        one = self._one(key, prompt, sampling, adapter)
        self._tasks[key] = asyncio.run_coroutine_threadsafe(one, self._loop)

    async def _one(self, key: str, prompt: TokensPrompt, sampling: SamplingParams, adapter: LoRARequest | None) -> None:
        try:
            async for output in self._engine.generate(prompt, sampling, key, lora_request=adapter):
                self._outputs.put(output)
        except (VLLMValidationError, ValueError) as error:
            self._outputs.put((key, str(error)))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # EngineDeadError, or whatever the model raised in the core
            self._outputs.put(error)

    def collect(self, timeout_s: float) -> list[RequestOutput | tuple[str, str]]:
        """Wait for the first output, then take all that are there; none comes of what was aborted."""
        outputs: list[RequestOutput | tuple[str, str]] = []
        if not self._tasks:
            return outputs
        try:
            found = self._outputs.get(timeout=timeout_s)
            while True:
                if isinstance(found, BaseException):
                    raise _dead(found) from found
                ended, key = (True, found[0]) if isinstance(found, tuple) else (found.finished, found.request_id)
                if key in self._tasks:
                    outputs.append(found)
                    if ended:
                        del self._tasks[key]
                found = self._outputs.get_nowait()
        except queue.Empty:
            return outputs

    def abort(self, keys: Iterable[str]) -> None:
        """Forget prompts; leaving `generate` aborts them in the core."""
        for key in keys:
            if (task := self._tasks.pop(key, None)) is not None:
                task.cancel()

    def load_adapter(self, adapter: LoRARequest) -> None:
        """Load an adapter in every worker."""
        self._wait(self._engine.add_lora(adapter))

    def close(self) -> None:
        """End the child processes, then the thread."""
        self.abort(list(self._tasks))
        self._loop.call_soon_threadsafe(self._engine.shutdown)
        self._stop_loop()

    def _wait(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result(_START_LIMIT_S)

    def _stop_loop(self) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


async def _start(arguments: EngineArgs) -> AsyncLLM:
    return AsyncLLM.from_engine_args(AsyncEngineArgs(**vars(arguments)), usage_context=_CONTEXT)


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _dead(error: BaseException) -> EngineError:
    if isinstance(error, EngineDeadError):
        return EngineError("vLLM's engine core has died; what was finished is on disk, run the same command again")
    return EngineError(f"vLLM failed: {type(error).__name__}: {error}")
