"""Loads a model, its tokenizer and its adapter from a folder or the hub."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, BitsAndBytesConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from judgelm.engines.base import INT8, EngineOptions, thinking_policy
from judgelm.engines.dtype import TORCH_HAS_BFLOAT16, DtypeChoice, choose_gpu_dtype, resolve_dtype
from judgelm.engines.gguf import gguf_note
from judgelm.engines.model_files import (
    LOAD_ERRORS,
    check_config,
    check_vocabulary,
    eos_ids,
    identity_of,
    load_config,
    load_tokenizer,
    split_adapter,
    window_of,
)
from judgelm.engines.parameters import first_not_finite
from judgelm.engines.pickled_weights import safe_unpickling
from judgelm.engines.progress_bars import without_progress_bars
from judgelm.engines.transformers.int8_calibration import check_int8, quantise
from judgelm.engines.transformers.packed_attention import ATTENTION_NAME
from judgelm.engines.transformers.packed_layers import pack
from judgelm.engines.transformers.vision import Vision
from judgelm.errors import ConfigError, ModelError, first_line
from judgelm.prompts.chat_templates import NOT_ASKED, Thinking

_DTYPES = {"auto": "auto", "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_ATTENTION_LAYERS = {"full_attention", "sliding_attention"}
_VISION_ATTENTION = {"": ATTENTION_NAME, "text_config": ATTENTION_NAME, "vision_config": "sdpa"}
_IMAGE_MODELS = frozenset(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
_TEXT_MODELS = frozenset(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
IMAGE_TOKEN_MODELS = frozenset({"llava", "vipllava", "mistral3", "internvl", "idefics3", "smolvlm"})
"""Models that only put image features at the positions of image tokens, so that they can run packed."""
_ROWS_AND_COLUMNS = "positions that count an image's rows and columns"
_BOTH_WAYS = "attention both ways between an image's tokens"
_NEEDS = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "glm4v", "ernie4_5_vl"), _ROWS_AND_COLUMNS),
    **dict.fromkeys(("gemma3", "gemma3n", "gemma4", "paligemma"), _BOTH_WAYS),
    "mllama": "cross-attention to the image",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to run.

    Attributes:
        window: context window in tokens.
        eos_ids: token ids that end a reply.
        identity: identifies the model in the manifest, see `identity_of`.
        vision: its image processor; None for text-only models.
        notes: lines for the user on the choices made.
        thinking: its thinking settings.
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


@without_progress_bars()
def load(options: EngineOptions) -> LoadedModel:
    """Load model, tokenizer and adapter.

    Raises:
        ModelError: the model cannot be loaded.
        ConfigError: an invalid option.
    """
    base, adapter = split_adapter(options)
    tokenizer = load_tokenizer(base, adapter, options)
    device = device_of(options.device)
    if options.quantization == INT8:
        check_int8(device)
    vision = _runs_vision(base, options)
    choice = _dtype(base, options, device)
    model, choice = in_gpu_dtype(_load_model(base, options, device, dtype=choice.dtype, vision=vision), choice, device)
    if adapter is not None:
        from judgelm.engines.transformers.adapters import load_adapter

        model = load_adapter(model, adapter, merge=options.quantization in (None, INT8))
    check_vocabulary(adapter or base, tokenizer, model)
    model.eval()
    _check_attention(model, base)
    int8_note = quantise(model, tokenizer) if options.quantization == INT8 else ""
    pack(model)
    window = window_of(model.config, tokenizer, options)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        window=window,
        eos_ids=eos_ids(model.generation_config, tokenizer),
        quantization=options.quantization,
        identity=identity_of(base, adapter, options),
        vision=Vision.load(base, options) if vision else None,
        notes=tuple(note for note in (gguf_note(base), choice.note, int8_note) if note),
        thinking=thinking_policy(options, window=window, resumes=True),
    )


def _runs_vision(source: str, options: EngineOptions) -> bool:
    """True if it is a vision-language model that this engine can run with images.

    Raises:
        ModelError: a vision-language model of another kind, which cannot be loaded for text alone either.
    """
    try:
        kind = str(load_config(source, options).model_type)
    except ModelError:
        return False  # loading the model gives the better error
    if kind in IMAGE_TOKEN_MODELS:
        return True
    if kind in _IMAGE_MODELS and kind not in _TEXT_MODELS:
        raise ModelError(f"{source}: the transformers engine cannot run {kind} models: {no_vision_reason(kind)}")
    return False


def no_vision_reason(kind: str) -> str:
    """The reason why this engine does not support images for a model type, and the way out."""
    if kind in _IMAGE_MODELS:
        needs = _NEEDS.get(kind.rsplit("_moe", 1)[0], "more than image features at the positions of image tokens")
        known = ", ".join(sorted(IMAGE_TOKEN_MODELS))
        return f"they need {needs}; supported: {known}; use --engine vllm, or a server with --engine openai"
    return f"{kind} models take only text; choose a vision-language model, or judge without images"


def _dtype(source: str, options: EngineOptions, device: str) -> DtypeChoice:
    if options.dtype not in _DTYPES:
        raise ConfigError(f"dtype {options.dtype!r} does not exist; available: {', '.join(_DTYPES)}")
    try:
        return resolve_dtype(source, load_config(source, options), options, device=device, engine="transformers")
    except ModelError:
        return DtypeChoice(dtype=options.dtype)  # loading the model gives the better error


def in_gpu_dtype(
    model: Any, choice: DtypeChoice, device: str, has_bfloat16: Callable[[], bool] = TORCH_HAS_BFLOAT16
) -> tuple[Any, DtypeChoice]:
    """The model in the format of a CUDA device, where the checkpoint's was not known before it was loaded."""
    if choice.dtype != "auto" or not device.startswith("cuda"):
        return model, choice
    choice = choose_gpu_dtype(str(model.dtype).removeprefix("torch."), has_bfloat16)
    quantized = getattr(model, "is_quantized", False)
    return (model if quantized else model.to(_DTYPES[choice.dtype])), choice


def _load_model(source: str, options: EngineOptions, device: str, *, dtype: str, vision: bool) -> Any:
    quantization = _quantization(options.quantization)
    _refuse_quantised(source, options)
    try:
        kind: Any = AutoModelForImageTextToText if vision else AutoModelForCausalLM
        with safe_unpickling(source, options.revision):
            loaded: Any = kind.from_pretrained(
                source,
                revision=options.revision,
                trust_remote_code=options.trust_remote_code,
                dtype=_DTYPES[dtype],
                device_map={"": device} if quantization else None,  # needs accelerate, as bitsandbytes does
                # all patches of an image attend to each other, in transformers' own attention
                attn_implementation=_VISION_ATTENTION if vision else ATTENTION_NAME,
                quantization_config=quantization,
                output_loading_info=True,
            )
    except LOAD_ERRORS as error:
        raise ModelError(f"{source}: cannot load the model: {first_line(error)}{_load_hint(source)}") from error
    model, info = loaded
    if info["missing_keys"]:
        some = ", ".join(sorted(info["missing_keys"])[:3])
        raise ModelError(
            f"{source}: {len(info['missing_keys'])} weights are missing ({some}, ...); copy the folder again"
        )
    check_config(source, model.config)
    model = model if quantization else model.to(device)
    if name := first_not_finite(model.named_parameters()):
        raise ModelError(
            f"{source}: {name} holds NaN or infinity; take another copy, or an earlier state of the training"
        )
    return model


def _refuse_quantised(source: str, options: EngineOptions) -> None:
    """Refuse a checkpoint whose weights are stored quantised: they would be read without their scales.

    Raises:
        ModelError: it is one.
    """
    try:
        stored = getattr(load_config(source, options), "quantization_config", None)
    except ModelError:
        return  # loading the model gives the better error
    if stored is None:
        return
    method = stored.get("quant_method", "unknown")
    way_out = "name the whole model with --quantization 4bit" if method == "bitsandbytes" else "use --engine vllm"
    raise ModelError(
        f"{source}: its weights are stored quantised ({method}), which the transformers engine does not read; {way_out}"
    )


def _quantization(name: str | None) -> Any:
    if name in (None, INT8):
        return None
    make: Any = BitsAndBytesConfig  # its constructor is untyped
    if name == "4bit":
        return make(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    if name == "8bit":
        return make(load_in_8bit=True)
    raise ConfigError(f"quantization {name!r} does not exist; available: 4bit, 8bit, int8")


def _load_hint(source: str) -> str:
    return "" if Path(source).is_dir() else "; check the hub id and the network, or give a local folder"


def runs_packed(model: Any) -> bool:
    """True if the model's attention can be replaced and its layers have no state but keys and values."""
    layers = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    return bool(getattr(model, "_supports_attention_backend", False)) and not layers - _ATTENTION_LAYERS


def _check_attention(model: Any, source: str) -> None:
    """Refuse models that cannot run packed."""
    if not runs_packed(model):
        kind = getattr(model.config.get_text_config(), "model_type", "this kind of model")
        raise ModelError(f"{source}: the transformers engine cannot run {kind} models packed; use --engine vllm")


def device_of(name: str) -> str:
    """The device of an option, for torch.

    Raises:
        ConfigError: this machine has no such device.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device {name!r} does not exist; try auto, cpu, cuda or cuda:0") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device {name!r} not found: torch sees {torch.cuda.device_count()} CUDA devices; try auto")
    return name
