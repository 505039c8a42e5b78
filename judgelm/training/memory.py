"""Estimate the GPU memory needed for fine-tuning (`judgelm doctor --train`), without weights or a GPU.

Model states follow ZeRO (Rajbhandari et al., 2020) and DeepSpeed's estimators. Activations are the tensors that
autograd keeps for a Llama block (compare Korthikanti et al., 2022).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

from judgelm.engines.dependencies import require
from judgelm.errors import ConfigError, InputError, ModelError, not_found
from judgelm.prompts.catalog import TEMPLATES
from judgelm.training.arguments import optimizer_states
from judgelm.yaml_files import read_yaml

Sharding = Literal["ddp", "zero2", "zero3", "fsdp"]

USABLE_SHARE = 0.95
"""Usable share of GPU memory; the rest is lost to fragmentation."""
RESERVE_BYTES = 3 << 29
"""CUDA context, and cuBLAS and NCCL workspaces."""
_BUCKET, _MAX_LIVE, _HEAD_TILE = 500_000_000, 1_000_000_000, 4096
_DROPOUT_BYTES = 3  # the input of a LoRA layer after dropout, and the dropout mask
_QUANTISED_BYTES = {"none": 0.0, "8bit": 1.0, "4bit": 0.5 + 4 / 64}  # nf4: one float32 scale per 64 weights
_DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2, "auto": 2}
_OTHER_RECIPES = {"train/grpo.py": ("num_generations", "max_completion_length", "form_weight", "length_weight")}
_PREFERENCE_ONLY = {
    "reading", "both_orders", "consistency_weight", "score_line_weight", "word_weight", "pointwise_weight"
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSizes:
    """Sizes of a causal language model, in parameters and features.

    Attributes:
        total: all parameters, counting shared parameters once.
        linear: parameters of linear layers, excluding the output head.
        largest_module: parameters of the largest module that ZeRO-3 gathers.
        query: number of heads x head width; `key_value` is the same for keys and values.
        adapter_inputs: input features of all adapted layers in one block.
    """

    total: int
    linear: int
    largest_module: int
    block: int
    layers: int
    hidden: int
    query: int
    key_value: int
    intermediate: int
    vocab: int
    adapter: int = 0
    adapter_inputs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """The parts of a training configuration that affect memory.

    Attributes:
        prompts: sequences per row.
        state_numbers: optimizer states per parameter (2 for Adam).
        state_bytes: bytes per optimizer state (None: same as the parameters).
    """

    window: int
    micro_batch: int
    prompts: int = 1
    weight_bytes: int = 4
    compute_bytes: int = 2
    state_numbers: int = 2
    state_bytes: int | None = None
    checkpointing: bool = True
    lora: bool = False
    quantisation: Literal["none", "8bit", "4bit"] = "none"


class GpuMemory(NamedTuple):
    """Peak bytes on one GPU if every row fills the context window.

    `loss` is either a recomputed block or the logits and their loss, whichever is larger.
    """

    weights: float
    gradients: float
    optimizer: float
    gathered: float
    communication: float
    activations: float = 0.0
    loss: float = 0.0
    reserve: float = RESERVE_BYTES


def read_setup(path: Path, changes: Mapping[str, Any]) -> tuple[Mapping[str, Any], TrainingSetup]:
    """Return the fields of a YAML file after applying `changes`, and the settings that affect memory."""
    values = read_yaml(path) or {}
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected a mapping, as in configs/train/demo.yaml")
    values |= changes
    for recipe, names in _OTHER_RECIPES.items():
        if only := next((name for name in names if name in values), None):
            raise ConfigError(
                f"{path}: {only} is an argument of {recipe}, whose memory cannot be estimated; use train/sft.py"
            )
    if values.get("attn_implementation") == "eager":
        raise ConfigError(f"{path}: cannot estimate memory for attn_implementation eager; use sdpa, or remove it")
    dtype = str(values.get("dtype") or "auto") if "dtype" in values else "float32"
    if dtype not in _DTYPES:
        raise not_found(f"{path}: dtype", dtype, _DTYPES)
    template = TEMPLATES.get(str(values.get("template")))
    is_preference = not values.keys().isdisjoint(_PREFERENCE_ONLY) or (template is not None and template.reads_words)
    half = bool(values.get("fp16")) or values.get("bf16", True) is not False
    numbers, width = optimizer_states(str(values.get("optim", "adamw_torch")))
    return values, TrainingSetup(
        window=_positive(values, "max_length", 0, path),
        micro_batch=_positive(values, "per_device_train_batch_size", 8, path),
        prompts=2 if is_preference and values.get("both_orders", True) is not False else 1,
        weight_bytes=_DTYPES[dtype],
        compute_bytes=2 if half or _DTYPES[dtype] == 2 else 4,
        state_numbers=numbers,
        state_bytes=width,
        checkpointing=values.get("gradient_checkpointing", True) is not False,
        lora=bool(values.get("use_peft")),
        quantisation="8bit" if values.get("load_in_8bit") else "4bit" if values.get("load_in_4bit") else "none",
    )


def _positive(values: Mapping[str, Any], name: str, default: int, path: Path) -> int:
    value = values.get(name, default)
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"{path}: {name} is {value!r}; expected an integer of at least 1")
    return value


def memory_of(model: ModelSizes, setup: TrainingSetup, *, gpus: int = 1, sharding: Sharding = "ddp") -> GpuMemory:
    """Return the peak bytes on one GPU by purpose."""
    states = _torch_states if sharding in ("ddp", "fsdp") else _zero_states
    stored, recomputed = _activations(model, setup, sharding)
    memory = states(model, setup, gpus, sharding)
    return memory._replace(activations=stored, loss=max(recomputed, _logits(model, setup)))


def _frozen_bytes(model: ModelSizes, setup: TrainingSetup, width: int) -> tuple[float, float]:
    quantised = 0 if setup.quantisation == "none" else model.linear
    return width * (model.total - quantised), quantised * _QUANTISED_BYTES[setup.quantisation]


def _zero_states(model: ModelSizes, setup: TrainingSetup, gpus: int, sharding: Sharding) -> GpuMemory:
    """Like DeepSpeed's estimators, count 16- and 32-bit gradients for ZeRO-2, but only 32-bit gradients for ZeRO-3."""
    width, trained = setup.compute_bytes, model.adapter if setup.lora else model.total
    base, quantised = _frozen_bytes(model, setup, width)
    held = base + (width * model.adapter if setup.lora else 0)
    master = 4 if width == 2 else 0
    optimizer = trained * (master + setup.state_numbers * (setup.state_bytes or 4)) / gpus
    bucket = width * min(_BUCKET, trained) if gpus > 1 else 0
    if sharding == "zero2":
        return GpuMemory(held + quantised, trained * (master + width) / gpus, optimizer, 0.0, bucket)
    gathered = (1 if setup.lora else 2) * width * model.largest_module  # frozen modules have no gradients
    live = max(0, width * min(_MAX_LIVE, model.total) - width * model.largest_module) if gpus > 1 else 0
    return GpuMemory(held / gpus + quantised, 4 * trained / gpus, optimizer, gathered, bucket + live)


def _torch_states(model: ModelSizes, setup: TrainingSetup, gpus: int, sharding: Sharding) -> GpuMemory:
    adapter_width = 4 if setup.quantisation == "none" else 2  # PEFT's default; TRL uses 2 bytes for a quantised base
    trained = model.adapter if setup.lora else model.total
    width = adapter_width if setup.lora else setup.weight_bytes
    base, quantised = _frozen_bytes(model, setup, setup.weight_bytes)
    held = base + (adapter_width * model.adapter if setup.lora else 0)
    gradients = width * trained
    optimizer = trained * setup.state_numbers * (setup.state_bytes or width)
    if sharding == "fsdp":
        outer = model.total - model.layers * model.block
        gathered = setup.compute_bytes * (outer + (2 if setup.lora else 4) * model.block)
        return GpuMemory(held / gpus + quantised, gradients / gpus, optimizer / gpus, gathered, 0.0)
    casts = setup.compute_bytes < setup.weight_bytes and setup.quantisation == "none"
    cast = setup.compute_bytes * model.linear if casts and not (setup.lora and setup.checkpointing) else 0
    return GpuMemory(held + quantised, gradients, optimizer, cast, gradients if gpus > 1 else 0)  # DDP's buckets


def _activations(model: ModelSizes, setup: TrainingSetup, sharding: Sharding) -> tuple[int, int]:
    """Return the bytes kept between the forward and backward passes, and the bytes of the recomputed block.

    In a block, attention keeps queries, keys, values, and its output; the MLP keeps the gate, its activation, the up
    projection, and the product. Both norms keep their input and their normalised and scaled outputs.
    """
    width, tokens = setup.compute_bytes, setup.micro_batch * setup.prompts * setup.window
    mixed = sharding == "ddp" and setup.weight_bytes > width  # autocast keeps the residual stream in float32
    norm = (8 + width if mixed else 4 + 2 * width) * model.hidden
    attention = 2 * width * (model.query + model.key_value)
    adapters = _DROPOUT_BYTES * model.adapter_inputs if setup.lora else 0
    block = tokens * (2 * norm + attention + 4 * width * model.intermediate + adapters)
    if not setup.checkpointing:
        return model.layers * block + tokens * norm, 0
    return tokens * (model.layers * model.hidden * (4 if mixed else width) + norm), block


def _logits(model: ModelSizes, setup: TrainingSetup) -> int:
    tokens = setup.micro_batch * setup.prompts * setup.window
    trained = 0 if setup.lora else 4 * model.vocab * model.hidden
    return min(tokens, _HEAD_TILE) * model.vocab * setup.compute_bytes + 4 * tokens * model.hidden + trained


def _llama(hidden: int, layers: int, heads: int, intermediate: int) -> dict[str, Any]:
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    return {"vocab_size": 32_000, "intermediate_size": intermediate, **sizes}


SHAPES = {  # Touvron et al., 2023, Table 2; the MLP widths are from the released configs
    "llama-7b": _llama(4096, 32, 32, 11_008),
    "llama-13b": _llama(5120, 40, 40, 13_824),
    "llama-33b": _llama(6656, 60, 52, 17_920),
}


def sizes_of(values: Mapping[str, Any], shape: str = "") -> ModelSizes:
    """Return the sizes of the base model, or of a `shape` from `SHAPES`."""
    config = _config(values, shape).get_text_config()
    build: Any = AutoModelForCausalLM.from_config  # untyped in transformers
    with torch.device("meta"):
        model = build(config)
    head = model.get_output_embeddings()
    linear = [part for part in model.modules() if isinstance(part, torch.nn.Linear) and part is not head]
    blocks = max((part for part in model.modules() if isinstance(part, torch.nn.ModuleList)), key=_parameters)
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    sizes = ModelSizes(
        total=_parameters(model),
        linear=sum(layer.weight.numel() for layer in linear),
        largest_module=max(sum(p.numel() for p in part.parameters(recurse=False)) for part in model.modules()),
        block=_parameters(blocks[0]),
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        query=heads * width,
        key_value=(getattr(config, "num_key_value_heads", None) or heads) * width,
        intermediate=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
        vocab=config.vocab_size,
    )
    if not values.get("use_peft"):
        return sizes
    adapter, inputs = _adapter(model, values)
    return replace(sizes, adapter=adapter, adapter_inputs=inputs // config.num_hidden_layers)


def _config(values: Mapping[str, Any], shape: str) -> Any:
    if shape:
        if shape not in SHAPES:
            raise not_found("--shape", shape, SHAPES)
        return LlamaConfig(**SHAPES[shape])
    model = values.get("model_name_or_path")
    if not isinstance(model, str):
        raise ConfigError("model_name_or_path is missing; add --set model_name_or_path=BASE (a folder or hub ID)")
    try:
        return AutoConfig.from_pretrained(model, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{model}: {reason}; download the model, or pass --shape {' or '.join(SHAPES)}") from error


def _parameters(module: Any) -> int:
    return sum(tensor.numel() for tensor in module.parameters())  # parameters() yields shared parameters only once


def _adapter(model: Any, values: Mapping[str, Any]) -> tuple[int, int]:
    require("peft", extra="train")
    from peft import LoraConfig, get_peft_model

    targets = values.get("lora_target_modules") or None
    if isinstance(targets, list) and len(targets) == 1:
        targets = targets[0]  # TRL passes a single entry as a string, which PEFT treats as a pattern
    try:
        get_peft_model(model, LoraConfig(r=int(values.get("lora_r", 16)), target_modules=targets))
    except (ValueError, TypeError, re.error) as error:
        raise ConfigError(f"lora_target_modules {targets!r}: {str(error).splitlines()[0]}") from error
    inputs = sum(part.in_features for name, part in model.named_modules() if name.endswith("lora_A.default"))
    return sum(tensor.numel() for tensor in model.parameters() if tensor.requires_grad), inputs
