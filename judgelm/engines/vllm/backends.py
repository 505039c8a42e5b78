"""vLLM's engine arguments from judgelm's options, and the two ways to run vLLM with them behind one interface.

On one device its engine runs in this process, with no child process to hang or to be left behind. On several devices
vLLM needs worker processes, and its asynchronous engine runs in its own thread: it reports a dead engine core at once,
where the synchronous one would wait forever.
"""

import importlib.util
import os
import queue
import sys
import time
import types
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from vllm import EngineArgs, PoolingParams, RequestOutput, SamplingParams
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

from judgelm.engines.loop_thread import LoopThread
from judgelm.engines.vllm import logged_stages
from judgelm.engines.vllm.arguments import device_count
from judgelm.engines.weights import check_pickled
from judgelm.errors import EngineError, ModelError

_START_TIMEOUT_S = 3600.0
_CLOSE_TIMEOUT_S = 60.0
_CONTEXT = UsageContext.LLM_CLASS
"""vLLM sets the tokens of a step by this: as for its `LLM` class, which works through a list, not as for a server."""


class PromptRefusedError(Exception):
    """vLLM refuses a request."""


class InProcessBackend:
    """vLLM's engine, stepped by this thread; only one at a time, since two would share torch's process groups.

    Raises:
        EngineError: this process already has one.
    """

    _loaded = False

    def __init__(self, arguments: EngineArgs) -> None:
        if InProcessBackend._loaded:
            raise EngineError("this process already runs a vLLM engine, and only one is possible: close it first")
        with quiet_start(arguments.model, multiprocessing=False), logged_stages(1):
            self._engine = LLMEngine.from_engine_args(arguments, usage_context=_CONTEXT)
        InProcessBackend._loaded = True

    @property
    def config(self) -> VllmConfig:
        """The configuration as vLLM completed it."""
        return self._engine.vllm_config

    def add(
        self, key: str, prompt: TokensPrompt, sampling: SamplingParams | PoolingParams, adapter: LoRARequest | None
    ) -> None:
        """Submit a prompt.

        Raises:
            RefusedError: vLLM refuses it.
        """
        try:
            self._engine.add_request(key, prompt, sampling, lora_request=adapter)
        except (VLLMValidationError, ValueError) as error:
            raise PromptRefusedError(str(error)) from error

    def collect(self, timeout_s: float) -> list[RequestOutput | tuple[str, str]]:
        """Step until there is an output or the time is up.

        Raises:
            EngineError: the engine as a whole has died.
        """
        until = time.monotonic() + timeout_s
        while self._engine.has_unfinished_requests():
            try:
                outputs = self._engine.step()
            except Exception as error:  # vLLM's step raises whatever its model raises
                raise EngineError(f"vLLM's step failed: {type(error).__name__}: {error}") from error
            if outputs or time.monotonic() > until:
                return list(outputs)
        return []

    def abort(self, keys: Iterable[str]) -> None:
        """Forget prompts."""
        self._engine.abort_request(list(keys))

    def load_adapter(self, adapter: LoRARequest) -> None:
        """Load an adapter before the first request uses it."""
        self._engine.add_lora(adapter)

    def unload_adapter(self, adapter: LoRARequest) -> None:
        """Free an adapter's room."""
        self._engine.remove_lora(adapter.lora_int_id)

    def call_workers(self, method: str) -> list[Any]:
        """The result of a method of each worker."""
        results: list[Any] = self._engine.collective_rpc(method)
        return results

    def close(self) -> None:
        """Free the model, so that another engine can be made in this process."""
        self._engine.engine_core.shutdown()
        del self._engine
        cleanup_dist_env_and_memory()
        InProcessBackend._loaded = False


class AsyncBackend:
    """vLLM's asynchronous engine with its child processes, in the event loop of a separate thread."""

    def __init__(self, arguments: EngineArgs) -> None:
        self._loop = LoopThread("vllm")
        self._outputs: queue.SimpleQueue[RequestOutput | tuple[str, str] | BaseException] = queue.SimpleQueue()
        self._in_flight: set[str] = set()
        try:
            with quiet_start(arguments.model, multiprocessing=True), logged_stages(device_count(arguments)):
                self._engine: AsyncLLM = self._loop.run(_start(arguments), _START_TIMEOUT_S)
        except BaseException:
            self._loop.close(timeout_s=_CLOSE_TIMEOUT_S)
            raise

    @property
    def config(self) -> VllmConfig:
        """The configuration as vLLM completed it."""
        return self._engine.vllm_config

    def add(
        self, key: str, prompt: TokensPrompt, sampling: SamplingParams | PoolingParams, adapter: LoRARequest | None
    ) -> None:
        """Submit a prompt; `collect` returns a refusal."""
        self._in_flight.add(key)
        # an error is EngineDeadError, or whatever the model raised in the core
        self._loop.start(key, self._generate(key, prompt, sampling, adapter), self._outputs.put)

    async def _generate(
        self, key: str, prompt: TokensPrompt, sampling: SamplingParams | PoolingParams, adapter: LoRARequest | None
    ) -> None:
        try:
            answer = self._engine.encode if isinstance(sampling, PoolingParams) else self._engine.generate
            async for output in answer(prompt, sampling, key, lora_request=adapter):
                self._outputs.put(output)
        except (VLLMValidationError, ValueError) as error:
            self._outputs.put((key, str(error)))

    def collect(self, timeout_s: float) -> list[RequestOutput | tuple[str, str]]:
        """Wait for the first output, then take all available ones, except those of aborted requests.

        Raises:
            EngineError: the engine as a whole has died.
        """
        outputs: list[RequestOutput | tuple[str, str]] = []
        if not self._in_flight:
            return outputs
        try:
            output = self._outputs.get(timeout=timeout_s)
            while True:
                if isinstance(output, BaseException):
                    raise _dead(output) from output
                key, finished = (output[0], True) if isinstance(output, tuple) else (output.request_id, output.finished)
                if key in self._in_flight:
                    outputs.append(output)
                    if finished:
                        self._in_flight.remove(key)
                output = self._outputs.get_nowait()
        except queue.Empty:
            return outputs

    def abort(self, keys: Iterable[str]) -> None:
        """Forget prompts; leaving `generate` aborts them in the core."""
        for key in self._in_flight.intersection(keys):
            self._in_flight.remove(key)
            self._loop.cancel(key)

    def load_adapter(self, adapter: LoRARequest) -> None:
        """Load an adapter in every worker."""
        self._loop.run(self._engine.add_lora(adapter), _START_TIMEOUT_S)

    def unload_adapter(self, adapter: LoRARequest) -> None:
        """Free an adapter's room in every worker."""
        self._loop.run(self._engine.remove_lora(adapter.lora_int_id), _START_TIMEOUT_S)

    def call_workers(self, method: str) -> list[Any]:
        """The result of a method of each worker."""
        results: list[Any] = self._loop.run(self._engine.collective_rpc(method), _START_TIMEOUT_S)
        return results

    def close(self) -> None:
        """End the child processes, then the thread."""
        self._in_flight.clear()
        self._loop.close(self._shutdown(), _CLOSE_TIMEOUT_S)

    async def _shutdown(self) -> None:
        self._engine.shutdown()


Backend = InProcessBackend | AsyncBackend
"""Takes tokenised prompts and returns vLLM's outputs, finished or not; for a failed request its key and the message."""


async def _start(arguments: EngineArgs) -> AsyncLLM:
    return AsyncLLM.from_engine_args(AsyncEngineArgs(**vars(arguments)), usage_context=_CONTEXT)


def _dead(error: BaseException) -> EngineError:
    if isinstance(error, EngineDeadError):
        return EngineError("vLLM's engine core has died; finished judgments are on disk, run the same command again")
    return EngineError(f"vLLM failed: {type(error).__name__}: {error}")


@contextmanager
def quiet_start(base: str, *, multiprocessing: bool) -> Iterator[None]:
    """Start vLLM and leave this process's environment and torch as they were.

    Its processes are spawned, unless the user says otherwise: a fork of a process that has used CUDA cannot use it, and
    does not show a run's mark.

    Raises:
        ModelError: vLLM could not load the model; the message quotes vLLM.
    """
    environment, set_num_threads = dict(os.environ), torch.set_num_threads
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1" if multiprocessing else "0"
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning), _hidden_main():
            _protect_llvmlite()
            yield
    except Exception as error:  # whatever its many loaders raise
        check_pickled(base)
        raise ModelError(f"{base}: vLLM cannot load the model: {_root_words(error)}{_vision_hint(error)}") from error
    finally:
        # vLLM preloads libraries into every later child process, and forbids torch to change its threads.
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        torch.set_num_threads = set_num_threads


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Hide the main module from spawned processes: they would run it again if it lacks `if __name__ == "__main__"`."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _protect_llvmlite() -> None:
    """Give llvmlite's library an empty `__dict__`, where numba was imported before vLLM starts.

    vLLM 0.32 on the CPU reads the `__dict__` of everything in every module. This object answers any name it
    does not know, `__dict__` too, with a C function, which ends vLLM's start.
    """
    if llvmlite := sys.modules.get("llvmlite.binding.ffi"):
        llvmlite.lib._fntab.setdefault("__dict__", {})


def _root_words(error: BaseException) -> str:
    """The first informative line: vLLM and pydantic wrap the error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    wrapped = len(lines) > 1 and "validation error" in lines[0]
    words = " ".join(lines[1:2] if wrapped else lines[:1]).split(" [type=")[0]
    return words.removeprefix("Value error, ").rstrip(".") or type(error).__name__


def _vision_hint(error: BaseException) -> str:
    """A hint to install torchvision, which most vision models import; only vLLM's log states that it is missing."""
    if "failed to be inspected" not in str(error) or importlib.util.find_spec("torchvision") is not None:
        return ""
    return "; if it is a vision model, install torchvision (the CPU build has none), or use --engine transformers"
