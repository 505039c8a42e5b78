"""Load a model, its tokenizer, and an optional adapter."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSequenceClassification,
    BitsAndBytesConfig,
)
from transformers.models.auto import modeling_auto

from judgelm.engines import model_files
from judgelm.engines.base import EngineOptions
from judgelm.engines.dtype import TORCH_HAS_BFLOAT16, DtypeChoice, choose_gpu_dtype, resolve_dtype
from judgelm.engines.gguf.checkpoint import gguf_note, gguf_record
from judgelm.engines.heads import SCORE, keep_layers, read_head
from judgelm.engines.images import Vision
from judgelm.engines.model_files import LOAD_ERRORS, split_adapter
from judgelm.engines.preprocess import thinking_policy
from judgelm.engines.transformers.attention import ATTENTION_NAME
from judgelm.engines.transformers.layers import pack
from judgelm.engines.weights import adapter_vocabulary, check_weights, first_not_finite, safe_unpickling
from judgelm.errors import ConfigError, ModelError, first_line
from judgelm.machine import driver_cuda, driver_too_old, usable_gpus
from judgelm.parsing.thinking import NOT_ASKED, Thinking

_DTYPES = {"auto": "auto", "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_ATTENTION_LAYERS = {"full_attention", "sliding_attention"}
_VISION_ATTENTION = {"": ATTENTION_NAME, "text_config": ATTENTION_NAME, "vision_config": "sdpa"}
_IMAGE_MODELS = frozenset(modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
_TEXT_MODELS = frozenset(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
IMAGE_TOKEN_MODELS = frozenset({"llava", "vipllava", "mistral3", "internvl", "idefics3", "smolvlm"})
"""Models that only insert image features at image tokens, and therefore support packed rows."""
_ROWS_AND_COLUMNS = "two-dimensional image positions"
_BOTH_WAYS = "bidirectional attention between image tokens"
_NEEDS = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "glm4v", "ernie4_5_vl"), _ROWS_AND_COLUMNS),
    **dict.fromkeys(("gemma3", "gemma3n", "gemma4", "paligemma"), _BOTH_WAYS),
    "mllama": "cross-attention to the image",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model that is ready to run.

    Attributes:
        head: exact weights of `EngineOptions.head`, shape (rows, hidden size), float32.
    """

    model: Any
    tokenizer: Any
    window: int
    eos_ids: frozenset[int]
    quantization: str | None
    identity: dict[str, Any]
    vision: Vision | None = None
    notes: tuple[str, ...] = ()
    thinking: Thinking = NOT_ASKED
    head: torch.Tensor | None = None
    head_layer: int = 0


@model_files.without_progress_bars()
def load(options: EngineOptions) -> LoadedModel:
    """Load the model, tokenizer, and adapter."""
    base, adapter = split_adapter(options)
    tokenizer = model_files.load_tokenizer(base, adapter, options)
    device = device_of(options.device)
    rewards = model_files.has_reward_head(options)
    if rewards and options.quantization is not None:
        raise ConfigError(f"{options.model}: reward models cannot be quantised; remove --quantization")
    if options.dtype not in _DTYPES:
        raise ConfigError(f"dtype {options.dtype!r} does not exist; available: {', '.join(_DTYPES)}")
    config = model_files.load_config(base, options)
    weights = None if options.head is None else read_head(options.head, config)
    if options.head is not None and weights is not None and rewards:
        keep_layers(config, options.head.layer, len(weights))
    vision = not rewards and _runs_vision(base, str(config.model_type))
    kind: Any = AutoModelForImageTextToText if vision else AutoModelForCausalLM
    kind = AutoModelForSequenceClassification if rewards else kind
    choice = resolve_dtype(base, config, options, device=device)
    model = _load_model(base, config, options, device, dtype=choice.dtype, kind=kind)
    model, choice = in_gpu_dtype(model, choice, device)
    if adapter is not None:
        model = attach_adapter(model, adapter)
        if options.quantization is None:  # merging saves time per token
            model = model.merge_and_unload()
    model_files.check_vocabulary(adapter or base, tokenizer, model)
    model.eval()
    if not runs_packed(model):
        kind = getattr(model.config.get_text_config(), "model_type", "these")
        raise ModelError(f"{base}: the transformers engine does not support {kind} models; use --engine vllm")
    pack(model.base_model if rewards else model)  # without the reward head
    window = model_files.window_of(model.config, tokenizer, options)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        window=window,
        eos_ids=model_files.eos_ids(getattr(model, "generation_config", None), tokenizer),
        quantization=options.quantization,
        identity=model_files.identity_of(base, adapter, options),
        vision=Vision.load(base, options) if vision else None,
        notes=tuple(note for note in (gguf_note(base), choice.note) if note),
        thinking=thinking_policy(options, window=window, resumes=True),
        head=None if weights is None else weights.to(model.device),
        head_layer=0 if options.head is None else options.head.layer,
    )


def load_classifier(options: EngineOptions) -> tuple[Any, Any]:
    """Load the first layers with the head as the output layer, and the tokenizer; the head stays in float32."""
    base, adapter = split_adapter(options)
    assert options.head is not None, "only for judges with a head"
    config = model_files.load_config(base, options)
    weights = read_head(options.head, config)
    keep_layers(config, options.head.layer, len(weights))
    dtype = resolve_dtype(base, config, options, device="cpu").dtype
    model = _load_model(base, config, options, "cpu", dtype=dtype, kind=AutoModelForSequenceClassification)
    if adapter is not None:
        model = attach_adapter(model, adapter).merge_and_unload()
    model.score.weight = torch.nn.Parameter(weights)
    return model, model_files.load_tokenizer(base, adapter, options)


def _runs_vision(source: str, kind: str) -> bool:
    if kind not in IMAGE_TOKEN_MODELS and kind in _IMAGE_MODELS and kind not in _TEXT_MODELS:
        raise ModelError(f"{source}: the transformers engine does not support {kind} models: {no_vision_reason(kind)}")
    return kind in IMAGE_TOKEN_MODELS


def no_vision_reason(kind: str) -> str:
    """Explain why images are not supported for this model."""
    if kind in _IMAGE_MODELS:
        needs = _NEEDS.get(kind.rsplit("_moe", 1)[0], "more than image features at image tokens")
        known = ", ".join(sorted(IMAGE_TOKEN_MODELS))
        return f"they need {needs}; supported: {known}; use --engine vllm, or a server with --engine openai"
    return f"{kind} models only support text; use a vision-language model, or judge without images"


def in_gpu_dtype(
    model: Any, choice: DtypeChoice, device: str, has_bfloat16: Callable[[], bool] = TORCH_HAS_BFLOAT16
) -> tuple[Any, DtypeChoice]:
    """Convert the model to the GPU's dtype if the checkpoint's dtype was unknown."""
    if choice.dtype != "auto" or not device.startswith("cuda"):
        return model, choice
    choice = choose_gpu_dtype(str(model.dtype).removeprefix("torch."), has_bfloat16)
    quantized = getattr(model, "is_quantized", False)
    return (model if quantized else model.to(_DTYPES[choice.dtype])), choice


def _load_model(source: str, config: Any, options: EngineOptions, device: str, *, dtype: str, kind: Any) -> Any:
    rewards = kind is AutoModelForSequenceClassification
    quantization = _quantization(options.quantization)
    if (stored := getattr(config, "quantization_config", None)) is not None:  # the scales would be ignored
        method = stored.get("quant_method", "unknown")
        own = method == "bitsandbytes"
        way_out = "pass the unquantised model and --quantization 4bit" if own else "use --engine vllm"
        raise ModelError(f"{source}: the transformers engine does not support quantised weights ({method}); {way_out}")
    separate = rewards and (options.head is not None or split_adapter(options)[1] is not None)
    try:
        with safe_unpickling(source, options.revision), model_files.without_progress_bars(report=not separate):
            loaded: Any = kind.from_pretrained(
                source,
                revision=options.revision,
                trust_remote_code=options.trust_remote_code,
                dtype=_DTYPES[dtype],
                device_map={"": device} if quantization else None,  # needs accelerate, like bitsandbytes
                # image patches attend to each other using transformers' own attention
                attn_implementation=_VISION_ATTENTION if kind is AutoModelForImageTextToText else ATTENTION_NAME,
                quantization_config=quantization,
                output_loading_info=True,
                **({"config": config} if options.head is not None else {"num_labels": 1} if rewards else {}),
            )
    except LOAD_ERRORS as error:
        hint = "" if Path(source).is_dir() else "; check the hub id and the network, or pass a local folder"
        raise ModelError(f"{source}: cannot load the model: {first_line(error)}{hint}") from error
    model, info = loaded
    if missing := sorted(set(info["missing_keys"]) - ({SCORE} if separate else set())):
        some = ", ".join(missing[:3])
        raise ModelError(f"{source}: {len(missing)} weights are missing ({some}, ...); copy the folder again")
    model_files.check_config(source, model.config)
    model = model if quantization else model.to(device)
    if gguf_record(source) is None and (name := first_not_finite(model.named_parameters())):  # checked at conversion
        raise ModelError(f"{source}: {name} contains NaN or infinity; use another copy, or an earlier checkpoint")
    return model


def _quantization(name: str | None) -> Any:
    if name is None:
        return None
    make: Any = BitsAndBytesConfig  # its constructor is untyped
    if name == "4bit":
        nf4 = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
        return make(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16, **nf4)
    if name == "8bit":
        return make(load_in_8bit=True)
    raise ConfigError(f"quantization {name!r} does not exist; available: 4bit, 8bit")


def runs_packed(model: Any) -> bool:
    """Return True if the attention can be replaced and the layers store only keys and values."""
    layers = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    return bool(getattr(model, "_supports_attention_backend", False)) and not layers - _ATTENTION_LAYERS


def device_of(name: str) -> str:
    """Resolve the device option."""
    if name == "auto":
        return "cuda" if usable_gpus() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device {name!r} does not exist; try auto, cpu, cuda, or cuda:0") from error
    if device.type == "cuda" and (device.index or 0) >= (count := usable_gpus()):
        reason = driver_too_old(driver_cuda(), torch.version.cuda) or f"{count} CUDA devices are available"
        raise ConfigError(f"device {name!r} not found: {reason}; try auto")
    return name


def attach_adapter(model: Any, adapter: str, *, trainable: bool = False) -> Any:
    """Attach an adapter without merging it."""
    from peft import PeftModel  # importing peft takes a second

    check_weights(adapter)
    fit_vocabulary(model, adapter)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "error", message="Found missing adapter keys"
            )  # otherwise, PEFT initialises them randomly
            peft_model = PeftModel.from_pretrained(model, adapter, is_trainable=trainable)
    except (*LOAD_ERRORS, UserWarning) as error:
        raise ModelError(f"{adapter}: cannot load the adapter: {first_line(error)[:300]}") from error
    if (place := model_files.nan_in(peft_model.peft_config["default"].to_dict().items())) is not None:
        raise ModelError(f"{adapter}: adapter_config.json: {place} is NaN; restore the adapter folder")
    return peft_model


def fit_vocabulary(model: Any, adapter: str) -> None:
    """Resize the base model's embeddings to the adapter's vocabulary."""
    vocabulary, weight = adapter_vocabulary(adapter), model.get_input_embeddings().weight
    base = int(getattr(weight, "ds_shape", weight.shape)[0])  # with ZeRO-3, this process only holds a part
    if not (others := {layer: rows for layer, rows in vocabulary.rows.items() if rows != base}):
        return
    rows = max(others.values())
    heads = {id(layer): name for name, layer in model.named_modules()}
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    own = {heads[id(layer)].rpartition(".")[2] for layer in ends}
    missing = own - vocabulary.saved if rows > base else set()
    if missing or len(set(vocabulary.rows.values())) > 1:
        sizes = ", ".join(f"{layer} {count:,}" for layer, count in sorted(vocabulary.rows.items()))
        lacks = f": {' and '.join(sorted(missing))}" if missing else ""
        raise ModelError(
            f"{adapter}: trained with a different vocabulary ({sizes} tokens) from its base ({base:,}), but some "
            f"embeddings are missing{lacks}; pass the resized base model"
        )
    model.resize_token_embeddings(rows, mean_resizing=False)
