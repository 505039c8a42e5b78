"""Build vLLM's engine arguments from judgelm's options."""

import dataclasses
import difflib
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm import EngineArgs
from vllm.config import StructuredOutputsConfig, VllmConfig
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS
from vllm.platforms import current_platform
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

from judgelm.engines.base import EngineOptions
from judgelm.engines.dtype import DtypeChoice, resolve_dtype
from judgelm.engines.model_files import load_config, window_of
from judgelm.engines.weights import check_pickled, pickled_files
from judgelm.errors import ConfigError, ModelError, first_line
from judgelm.jsonl import parse_json

_OWN_NAMES = ("revision", "dtype", "trust_remote_code", "max_model_len", "max_num_seqs", "max_num_batched_tokens")
_OWN_OPTIONS = {"model": "--model", "tokenizer": "--model"} | {
    name: f"--{name.replace('_', '-')}" for name in _OWN_NAMES
}
_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_CPU_KEY_VALUE_BYTES = 4 << 30

_CPU_DEFAULTS: dict[str, Any] = {
    "enforce_eager": True,  # compilation takes half a minute and rarely pays off
    "block_size": 32,  # with vLLM's default of 128, most branches of a candidate tree would not be cached
    "kv_cache_memory_bytes": _CPU_KEY_VALUE_BYTES,
    "worker_cls": "judgelm.engines.vllm.cpu_worker.SeededCPUWorker",
}
_PRECISE_HEAD = {"head_dtype": "float32"}
"""Bfloat16 logits are rounded to steps of 1/8, so a quarter of pairs would tie if a verdict word is scored."""


def engine_args(
    base: str, adapter: str | None, tokenizer: Any, options: EngineOptions, *, dtype: str | None = None
) -> EngineArgs:
    """Build vLLM's arguments. The user's `engine_args` override all defaults (see docs/engines.md)."""
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
        "load_format": "bitsandbytes" if options.quantization else "hf",  # safetensors, or safe pickles
        "enable_prefix_caching": True,
        "use_tqdm_on_load": False,
        "disable_log_stats": True,
        "worker_extension_cls": "judgelm.engines.weights.WeightsCheck",
        "seed": 0,
    }
    if getattr(config, "quantization_config", None) is None:  # vLLM cannot convert a quantised head to float32
        arguments["hf_overrides"] = _PRECISE_HEAD
    if current_platform.is_cpu():
        arguments |= _CPU_DEFAULTS
    if adapters := (*([adapter] if adapter is not None else []), *options.adapters):
        arguments |= {"enable_lora": True, "max_lora_rank": max(map(lora_rank, adapters)), "max_loras": len(adapters)}
    if current_platform.is_cpu() and options.engine_args.get("pipeline_parallel_size", 1) != 1:
        arguments["enforce_eager"] = False  # eager mode skips the warm-up that creates buffers between CPU stages
    if getattr(tokenizer, "is_fast", False):  # the same library as in the transformers engine
        arguments["structured_outputs_config"] = StructuredOutputsConfig(
            backend="guidance", disable_any_whitespace=True
        )
    arguments |= dict(options.engine_args)
    if current_platform.is_cpu() and arguments.get("enable_lora"):
        # the CPU kernels use the last slot for requests without an adapter, so it must stay empty
        arguments["max_loras"] = int(arguments.get("max_loras", 1)) + 1
    try:
        return EngineArgs(**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"vLLM rejected its arguments: {first_line(error)}") from error


def choose_dtype(base: str, options: EngineOptions) -> DtypeChoice:
    """Resolve `options.dtype`. On CPUs, vLLM's `auto` would use bfloat16 for float32 checkpoints."""
    reserved = int(options.engine_args.get("kv_cache_memory_bytes", _CPU_KEY_VALUE_BYTES))
    config, device = load_config(base, options), current_platform.device_type

    def has_bfloat16() -> bool:
        return torch.bfloat16 in current_platform.supported_dtypes  # does not initialise CUDA in this process

    return resolve_dtype(base, config, options, device=device, reserved_bytes=reserved, has_bfloat16=has_bfloat16)


def resolved_args(config: VllmConfig) -> dict[str, Any]:
    """Return the resolved arguments that affect speed and memory."""
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
    """Report the maximum number of prompt tokens per step if vLLM chose it."""
    if options.max_num_batched_tokens is not None:
        return ""
    tokens = config.scheduler_config.max_num_batched_tokens
    device = "a CPU" if current_platform.is_cpu() else current_platform.get_device_name()
    return f"vLLM: up to {tokens:,} prompt tokens per step on {device}; change it with --max-num-batched-tokens"


def device_count(arguments: EngineArgs) -> int:
    """Return the number of devices that the arguments request."""
    return int(arguments.tensor_parallel_size * arguments.pipeline_parallel_size * arguments.data_parallel_size)


def max_adapters(arguments: EngineArgs) -> int | None:
    """Return the maximum number of loaded adapters, or None if vLLM swaps adapters."""
    return int(arguments.max_loras) - 1 if current_platform.is_cpu() else None


def lora_rank(adapter: str) -> int:
    """Return the smallest supported rank that fits the adapter."""
    path = Path(adapter) / "adapter_config.json"
    if not Path(adapter).is_dir():
        return 64  # on the hub; the config is only read after the engine is created
    try:
        rank = int(parse_json(path.read_text(encoding="utf-8"))["r"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: invalid LoRA config ({error}); check --adapter") from error
    for supported in _LORA_RANKS:
        if rank <= supported:
            return supported
    raise ModelError(f"{path}: rank {rank} exceeds vLLM's maximum of {_LORA_RANKS[-1]}; merge the adapter")


def _check_names(options: EngineOptions) -> None:
    known = [field.name for field in dataclasses.fields(EngineArgs)]
    for name in options.engine_args:
        if name in _OWN_OPTIONS:
            raise ConfigError(f"--engine-arg {name}: use {_OWN_OPTIONS[name]} instead")
        if name not in known:
            similar = ", ".join(difflib.get_close_matches(name, known, n=3)) or "see vLLM's engine arguments"
            raise ConfigError(f"--engine-arg {name}: vLLM has no such argument; similar: {similar}")
    if options.device not in ("auto", current_platform.device_type):
        way_out = "select GPUs with CUDA_VISIBLE_DEVICES and --engine-arg tensor_parallel_size=N"
        raise ConfigError(f"--device {options.device}: this vLLM runs on {current_platform.device_type}; {way_out}")


def _check_heads(base: str, config: Any) -> None:
    """Reject unsupported head sizes, because some of them fail only at the first prompt."""
    text = config.get_text_config()
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    sizes = CPUAttentionBackend.get_supported_head_sizes()
    if current_platform.is_cpu() and width not in sizes:
        finding = f"the attention head size is {width}, but vLLM's CPU build supports {', '.join(map(str, sizes))}"
        raise ModelError(f"{base}: {finding}; use --engine transformers")


def _quantization(options: EngineOptions) -> str | None:
    if options.quantization is None:
        return None
    if options.quantization == "4bit" and "bitsandbytes" in QUANTIZATION_METHODS:
        return "bitsandbytes"
    fp8 = "fp8_per_tensor" if "fp8_per_tensor" in QUANTIZATION_METHODS else "fp8"
    raise ConfigError(
        f"quantization {options.quantization!r}: vLLM {vllm.__version__} cannot apply it when loading a model; use "
        f"--engine transformers, FP8 on a GPU (--engine-arg quantization={fp8}), or an AWQ, GPTQ, or FP8 checkpoint"
    )


def _check_weights(base: str, options: EngineOptions) -> None:
    folder = Path(base)
    if folder.is_dir() and not any(folder.glob("*.safetensors")) and not pickled_files(folder):
        raise ModelError(f"{base}: no weights (*.safetensors or pytorch_model*.bin) found in this folder")
    check_pickled(base, options.revision)
