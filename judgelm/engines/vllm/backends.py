"""Run vLLM in this process for a single device, or in worker processes for multiple devices."""

import importlib.util
import os
import queue
import sys
import time
import types
import warnings
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

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
"""Determines vLLM's default number of tokens per step."""


VllmSampling: TypeAlias = SamplingParams | PoolingParams


class PromptRefusedError(Exception):
    """Raised if vLLM rejects a request."""


class _Backend:
    _engine: Any

    def _call(self, result: Any) -> Any:
        return result

    @property
    def config(self) -> VllmConfig:
        """The configuration resolved by vLLM."""
        config: VllmConfig = self._engine.vllm_config
        return config

    def load_adapter(self, adapter: LoRARequest) -> None:
        """Load an adapter before its first request."""
        self._call(self._engine.add_lora(adapter))

    def call_workers(self, method: str) -> list[Any]:
        """Call a method on each worker."""
        results: list[Any] = self._call(self._engine.collective_rpc(method))
        return results


class InProcessBackend(_Backend):
    """Runs vLLM in this thread. Only one instance can exist, because engines would share torch's process groups."""

    _loaded = False

    def __init__(self, arguments: EngineArgs) -> None:
        if InProcessBackend._loaded:
            raise EngineError("only one vLLM engine can run per process; close the other engine first")
        with quiet_start(arguments.model, multiprocessing=False), logged_stages(1):
            self._engine = LLMEngine.from_engine_args(arguments, usage_context=_CONTEXT)
        InProcessBackend._loaded = True

    def add(self, key: str, prompt: TokensPrompt, sampling: VllmSampling, adapter: LoRARequest | None) -> None:
        """Submit a prompt."""
        try:
            self._engine.add_request(key, prompt, sampling, lora_request=adapter)
        except (VLLMValidationError, ValueError) as error:
            raise PromptRefusedError(str(error)) from error

    def collect(self, timeout_s: float) -> list[RequestOutput | tuple[str, str]]:
        """Run steps until there are outputs."""
        until = time.monotonic() + timeout_s
        while self._engine.has_unfinished_requests():
            try:
                outputs = self._engine.step()
            except Exception as error:  # vLLM does not wrap the model's errors
                raise EngineError(f"vLLM's step failed: {type(error).__name__}: {error}") from error
            if outputs or time.monotonic() > until:
                return list(outputs)
        return []

    def abort(self, keys: Iterable[str]) -> None:
        """Cancel prompts."""
        self._engine.abort_request(list(keys))

    def close(self) -> None:
        """Release the model, so that another engine can start."""
        self._engine.engine_core.shutdown()
        del self._engine
        cleanup_dist_env_and_memory()
        InProcessBackend._loaded = False


class AsyncBackend(_Backend):
    """Runs vLLM's asynchronous engine in a background thread, with worker processes."""

    def __init__(self, arguments: EngineArgs) -> None:
        self._loop = LoopThread("vllm")
        self._outputs: queue.SimpleQueue[RequestOutput | tuple[str, str] | BaseException] = queue.SimpleQueue()
        self._in_flight: set[str] = set()
        try:
            with quiet_start(arguments.model, multiprocessing=True), logged_stages(device_count(arguments)):
                self._engine = self._call(_start(arguments))
        except BaseException:
            self._loop.close(timeout_s=_CLOSE_TIMEOUT_S)
            raise

    def _call(self, result: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run(result, _START_TIMEOUT_S)

    def add(self, key: str, prompt: TokensPrompt, sampling: VllmSampling, adapter: LoRARequest | None) -> None:
        """Submit a prompt. If vLLM rejects the request, `collect` returns the error."""
        self._in_flight.add(key)
        # errors are EngineDeadError or come from the model
        self._loop.start(key, self._generate(key, prompt, sampling, adapter), self._outputs.put)

    async def _generate(
        self, key: str, prompt: TokensPrompt, sampling: VllmSampling, adapter: LoRARequest | None
    ) -> None:
        try:
            answer = self._engine.encode if isinstance(sampling, PoolingParams) else self._engine.generate
            async for output in answer(prompt, sampling, key, lora_request=adapter):
                self._outputs.put(output)
        except (VLLMValidationError, ValueError) as error:
            self._outputs.put((key, str(error)))

    def collect(self, timeout_s: float) -> list[RequestOutput | tuple[str, str]]:
        """Wait for an output, and return all available outputs."""
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
        """Cancel prompts."""
        for key in self._in_flight.intersection(keys):
            self._in_flight.remove(key)
            self._loop.cancel(key)

    def close(self) -> None:
        """Stop the worker processes, then the thread."""
        self._in_flight.clear()
        self._loop.close(self._shutdown(), _CLOSE_TIMEOUT_S)

    async def _shutdown(self) -> None:
        self._engine.shutdown()


Backend = InProcessBackend | AsyncBackend
"""Accepts tokenised prompts. Returns vLLM's outputs, or the key and error message of each failed request."""


async def _start(arguments: EngineArgs) -> AsyncLLM:
    return AsyncLLM.from_engine_args(AsyncEngineArgs(**vars(arguments)), usage_context=_CONTEXT)


def _dead(error: BaseException) -> EngineError:
    if isinstance(error, EngineDeadError):
        return EngineError("vLLM's engine core has died; run the same command again to continue")
    return EngineError(f"vLLM failed: {type(error).__name__}: {error}")


@contextmanager
def quiet_start(base: str, *, multiprocessing: bool) -> Iterator[None]:
    """Start vLLM, then restore the environment and torch settings."""
    environment, set_num_threads = dict(os.environ), torch.set_num_threads
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1" if multiprocessing else "0"
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning), _hidden_main():
            _protect_llvmlite()
            yield
    except Exception as error:  # vLLM's loaders raise many types
        check_pickled(base)
        raise ModelError(f"{base}: vLLM cannot load the model: {_root_words(error)}{_vision_hint(error)}") from error
    finally:
        # vLLM preloads libraries into child processes and blocks torch.set_num_threads
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        torch.set_num_threads = set_num_threads


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Prevent spawned processes from running an unguarded main module again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _protect_llvmlite() -> None:
    """On CPUs, vLLM 0.32 accesses every module's `__dict__`, which crashes llvmlite."""
    if llvmlite := sys.modules.get("llvmlite.binding.ffi"):
        llvmlite.lib._fntab.setdefault("__dict__", {})


def _root_words(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    wrapped = len(lines) > 1 and "validation error" in lines[0]
    words = " ".join(lines[1:2] if wrapped else lines[:1]).split(" [type=")[0]
    return words.removeprefix("Value error, ").rstrip(".") or type(error).__name__


def _vision_hint(error: BaseException) -> str:
    """Suggest torchvision, because vLLM only logs that it is missing."""
    if "failed to be inspected" not in str(error) or importlib.util.find_spec("torchvision") is not None:
        return ""
    return "; for a vision model, install torchvision (not part of the CPU build), or use --engine transformers"
