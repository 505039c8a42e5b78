"""vLLM's engine arguments from judgelm's options, and the two ways to run vLLM with them behind one interface.

On one device its engine runs in this process, with no child process to hang or to be left behind. On several devices
vLLM needs worker processes, and its asynchronous engine runs in its own thread: it reports a dead engine core at once,
where the synchronous one would wait forever.
"""

import dataclasses
import difflib
import importlib.util
import os
import queue
import sys
import time
import types
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import vllm
from transformers import GenerationConfig
from vllm import EngineArgs, PoolingParams, RequestOutput, SamplingParams
from vllm.config import VllmConfig
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.exceptions import VLLMValidationError
from vllm.inputs import TokensPrompt
from vllm.lora.request import LoRARequest
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS
from vllm.platforms import current_platform
from vllm.usage.usage_lib import UsageContext
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.engine.llm_engine import LLMEngine

from judgelm.engines.base import EngineOptions, LoopThread
from judgelm.engines.dtype import DtypeChoice, resolve_dtype
from judgelm.engines.model_files import load_config, window_of
from judgelm.engines.vllm import logged_stages
from judgelm.engines.weights import check_pickled, pickled_files
from judgelm.errors import ConfigError, EngineError, ModelError, first_line
from judgelm.jsonl import parse_json

_START_TIMEOUT_S = 3600.0
_CLOSE_TIMEOUT_S = 60.0
_CONTEXT = UsageContext.LLM_CLASS
"""vLLM sets the tokens of a step by this: as for its `LLM` class, which works through a list, not as for a server."""
_OWN_OPTIONS = {
    "model": "--model",
    "tokenizer": "--model",
    "revision": "--revision",
    "dtype": "--dtype",
    "trust_remote_code": "--trust-remote-code",
    "max_model_len": "--max-model-len",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
}
_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_CPU_KEY_VALUE_BYTES = 4 << 30
_CPU_DEFAULTS: dict[str, Any] = {
    "enforce_eager": True,  # compiling takes half a minute and is seldom won back
    "block_size": 32,  # vLLM's 128 would leave most of a score tree's branches uncached
    "kv_cache_memory_bytes": _CPU_KEY_VALUE_BYTES,
    "worker_cls": "judgelm.engines.vllm.cpu_worker.SeededCPUWorker",
}
_PRECISE_HEAD = {"head_dtype": "float32"}
"""Logits in bfloat16 lie an eighth apart: judges that are read off a word would call a quarter of the pairs ties."""


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


def engine_args(
    base: str, adapter: str | None, tokenizer: Any, options: EngineOptions, *, dtype: str | None = None
) -> EngineArgs:
    """The arguments for vLLM; the user's `engine_args` override every default.

    docs/judging.md lists them beside vLLM's own defaults, with reasons.

    Args:
        base: the model's folder or hub id.
        adapter: the LoRA adapter's folder or hub id.
        tokenizer: the model's.
        options: the user's options.
        dtype: the result of `choose_dtype`; None takes `options.dtype`.

    Raises:
        ConfigError: vLLM does not have the argument, or it has its own option.
        ModelError: the model's config cannot be read, or there are no weights that may be loaded.
    """
    _check_names(options)
    _check_weights(base, options)
    config = load_config(base, options)
    _check_heads(base, config)
    arguments: dict[str, Any] = {
        "model": base,
        "tokenizer": tokenizer.name_or_path,
        "revision": options.revision,
        "trust_remote_code": options.trust_remote_code,
        "dtype": dtype or options.dtype,
        "max_model_len": window_of(config, tokenizer, options),
        "max_num_seqs": options.max_num_seqs,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "quantization": _quantization(options),
        "load_format": "bitsandbytes" if options.quantization else "hf",  # safetensors, else pickles as tensors alone
        "enable_prefix_caching": True,
        "use_tqdm_on_load": False,
        "disable_log_stats": True,
        "worker_extension_cls": "judgelm.engines.weights.WeightsCheck",
        "seed": 0,
    }
    if getattr(config, "quantization_config", None) is None:  # vLLM refuses to widen a head that is quantised
        arguments["hf_overrides"] = _PRECISE_HEAD
    if current_platform.is_cpu():
        arguments |= _CPU_DEFAULTS
    if adapters := (*([adapter] if adapter is not None else []), *options.adapters):
        arguments |= {"enable_lora": True, "max_lora_rank": max(map(lora_rank, adapters)), "max_loras": len(adapters)}
    if current_platform.is_cpu() and options.engine_args.get("pipeline_parallel_size", 1) != 1:
        arguments["enforce_eager"] = False  # CPU workers make the buffers between stages in a warm-up that eager skips
    arguments |= dict(options.engine_args)
    if current_platform.is_cpu() and arguments.get("enable_lora"):
        # The CPU kernels give a request without adapter the weights of the last slot: that one must stay empty.
        arguments["max_loras"] = int(arguments.get("max_loras", 1)) + 1
    try:
        return EngineArgs(**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"vLLM refuses its arguments: {first_line(error)}") from error


def choose_dtype(base: str, options: EngineOptions) -> DtypeChoice:
    """The format for `options.dtype`; vLLM's own `auto` would turn a float32 checkpoint into bfloat16 on a CPU too.

    Raises:
        ModelError: the model's config cannot be read.
    """
    reserved = int(options.engine_args.get("kv_cache_memory_bytes", _CPU_KEY_VALUE_BYTES))
    config = load_config(base, options)
    device = current_platform.device_type
    return resolve_dtype(
        base,
        config,
        options,
        device=device,
        reserved_bytes=reserved,
        has_bfloat16=lambda: torch.bfloat16 in current_platform.supported_dtypes,  # without starting CUDA here
    )


def resolved_args(config: VllmConfig) -> dict[str, Any]:
    """The arguments that decide speed and memory, as vLLM resolved them, for the manifest."""
    scheduler, cache, parallel = config.scheduler_config, config.cache_config, config.parallel_config
    return {
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "enable_chunked_prefill": scheduler.enable_chunked_prefill,
        "enable_prefix_caching": cache.enable_prefix_caching,
        "block_size": cache.block_size,
        "kv_cache_dtype": cache.cache_dtype,
        "head_dtype": str(config.model_config.head_dtype).removeprefix("torch."),
        "enforce_eager": config.model_config.enforce_eager,
        "enable_lora": config.lora_config is not None,
    }


def batch_note(config: VllmConfig, options: EngineOptions) -> str:
    """A note on the prompt tokens of a step, where vLLM chose them for this device; else empty."""
    if options.max_num_batched_tokens is not None:
        return ""
    tokens = config.scheduler_config.max_num_batched_tokens
    device = "a CPU" if current_platform.is_cpu() else current_platform.get_device_name()
    return (
        f"vLLM: up to {tokens:,} prompt tokens a step, its choice for {device}; --max-num-batched-tokens sets another"
    )


def generation_config(base: str, options: EngineOptions) -> Any:
    """The model's generation settings; None where it has none, as many checkpoints."""
    try:
        return GenerationConfig.from_pretrained(base, revision=options.revision or "main")
    except OSError:
        return None


def device_count(arguments: EngineArgs) -> int:
    """Number of devices that the arguments request."""
    return int(arguments.tensor_parallel_size * arguments.pipeline_parallel_size * arguments.data_parallel_size)


def max_adapters(arguments: EngineArgs) -> int | None:
    """Maximum adapters that the engine can load; None where vLLM swaps them as needed."""
    return int(arguments.max_loras) - 1 if current_platform.is_cpu() else None


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


def lora_rank(adapter: str) -> int:
    """The smallest rank that vLLM supports and that is at least the adapter's.

    Raises:
        ModelError: the adapter's config cannot be read, or its rank is above vLLM's largest.
    """
    path = Path(adapter) / "adapter_config.json"
    if not Path(adapter).is_dir():
        return 64  # on the hub: peft reads the config only after the engine was made
    try:
        rank = int(parse_json(path.read_text(encoding="utf-8"))["r"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: not a LoRA adapter's config ({error}); check --adapter") from error
    for supported in _LORA_RANKS:
        if rank <= supported:
            return supported
    raise ModelError(f"{path}: rank {rank} is above vLLM's largest, {_LORA_RANKS[-1]}; merge the adapter into its base")


def _check_names(options: EngineOptions) -> None:
    known = [field.name for field in dataclasses.fields(EngineArgs)]
    for name in options.engine_args:
        if name in _OWN_OPTIONS:
            raise ConfigError(f"--engine-arg {name}: use its own option, {_OWN_OPTIONS[name]}")
        if name not in known:
            similar = ", ".join(difflib.get_close_matches(name, known, n=3)) or "see vLLM's engine arguments"
            raise ConfigError(f"--engine-arg {name}: vLLM has no such argument; similar: {similar}")
    if options.device not in ("auto", current_platform.device_type):
        raise ConfigError(
            f"--device {options.device}: this vLLM runs on {current_platform.device_type}; choose devices with "
            "CUDA_VISIBLE_DEVICES and their number with --engine-arg tensor_parallel_size=N"
        )


def has_vision(base: str, options: EngineOptions) -> bool:
    """True if the model's config has a part for vision."""
    return getattr(load_config(base, options), "vision_config", None) is not None


def _check_heads(base: str, config: Any) -> None:
    """Refuse at once a head size that the CPU build would refuse only at the first prompt."""
    text = config.get_text_config()
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    sizes = CPUAttentionBackend.get_supported_head_sizes()
    if current_platform.is_cpu() and width not in sizes:
        raise ModelError(
            f"{base}: its attention heads have {width} dimensions, and vLLM's CPU build takes only "
            f"{', '.join(map(str, sizes))}; use --engine transformers"
        )


def _quantization(options: EngineOptions) -> str | None:
    if options.quantization is None:
        return None
    if options.quantization == "4bit" and "bitsandbytes" in QUANTIZATION_METHODS:
        return "bitsandbytes"
    fp8 = "fp8_per_tensor" if "fp8_per_tensor" in QUANTIZATION_METHODS else "fp8"
    raise ConfigError(
        f"quantization {options.quantization!r}: vLLM {vllm.__version__} cannot quantise to it while loading; use "
        f"--engine transformers, or FP8 on a GPU (--engine-arg quantization={fp8}), or a checkpoint in AWQ, GPTQ or "
        "FP8, which is recognised"
    )


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


def _check_weights(base: str, options: EngineOptions) -> None:
    folder = Path(base)
    if folder.is_dir() and not any(folder.glob("*.safetensors")) and not pickled_files(folder):
        raise ModelError(f"{base}: no weights (*.safetensors or pytorch_model*.bin) in this folder")
    check_pickled(base, options.revision)
