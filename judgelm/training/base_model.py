"""The base model of a training: its tokenizer, weights, attention, numeric formats, and LoRA on a CPU.

Attention: where the config names none, FlashAttention if a package of it is installed. With and without it, rows stand
one behind another without padding (`judgelm.training.trainer.settle_padding`). Kernels of the hub
(`attn_implementation: kernels-community/flash-attn2`, with the `kernels` package) are code that is downloaded and run,
so they are used only where a config names them.

Numeric formats: TRL 1.16 trains in bf16 by default. A CPU without bfloat16 instructions is several times slower in it
than in float32: there `bf16` is off where the config leaves it open, and `dtype: auto` is chosen as for judging.
Configured formats stay, and a note states their cost. A resumed run keeps the formats that it began with.

LoRA on a CPU: peft computes W x, A x, B A x, the scaled product and the sum one after another, each a pass over the
activations, and so does the backward pass. On a CPU these passes cost more than the products. Here the products with A
and B are accumulated onto those with W, and the scale is part of B: the same numbers up to rounding. W is frozen, so it
is laid out for oneDNN once instead of in every product, where memory allows: once for the forward and once for the
backward pass. In float32 that also replaces MKL, which on processors that are not Intel's uses AVX2 alone.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from peft.tuners.lora.layer import Linear as LoraLinear
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GenerationConfig,
    Trainer,
    set_seed,
)
from transformers.utils import (  # type: ignore[attr-defined]  # re-exported implicitly
    is_flash_attn_2_available,
    is_flash_attn_3_available,
    is_flash_attn_4_available,
    is_kernels_available,
)
from trl import (  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see
    ModelConfig,
    get_peft_config,
    get_quantization_config,
)
from trl.trainer.utils import create_model_from_path

from judgelm.engines.base import EngineOptions
from judgelm.engines.dtype import (
    available_bytes,
    measure_products,
    requested_dtype,
    resolve_dtype,
    slowness,
    stored_dtype,
    this_cpu_flags,
)
from judgelm.engines.gguf.checkpoint import gguf_record
from judgelm.engines.model_files import LOAD_ERRORS, check_config, tokenizer_finding
from judgelm.engines.transformers.layers import is_packable
from judgelm.engines.transformers.loaded_model import attach_adapter
from judgelm.engines.weights import all_parameters, first_not_finite, safe_unpickling
from judgelm.errors import CardError, ConfigError, ModelError, first_line
from judgelm.prompts.judge_card import find_card
from judgelm.training.arguments import JudgeArguments, base_name
from judgelm.training.checkpoints import broadcast_from_rank0, checkpoints_in, flaw_of, read_state

_WIDEST_HEAD = 256
_FLASH = {2: is_flash_attn_2_available, 3: is_flash_attn_3_available, 4: is_flash_attn_4_available}
_BUILT_FOR = {8: (2,), 9: (3, 2)}
"""FlashAttention's versions for a GPU of a generation (major compute capability), the fastest first."""
_BUILT_FOR_LATER = (4, 2)
_COPIES_SHARE = 0.25
"""Of the free memory, for packed weights."""
_TRAINED_BYTES = 12
"""Bytes per trained float32 weight beside itself: a gradient and AdamW's two states."""


class Attention(NamedTuple):
    """The chosen attention.

    Attributes:
        implementation: for `attn_implementation`; None leaves it to transformers 5.x, which takes torch's sdpa.
        note: one sentence for the user.
    """

    implementation: str | None
    note: str


def requested_attention(base: Any, args: Any) -> str | None:
    """The attention that the config names; `model_init_kwargs` take precedence."""
    own = args.model_init_kwargs if isinstance(args.model_init_kwargs, dict) else {}
    requested: str | None = own.get("attn_implementation", base.attn_implementation)
    return requested


def choose_attention(base: Any, args: Any) -> Attention:
    """Choose the attention for a base model on this machine.

    Args:
        base: TRL's `ModelConfig`.
        args: TRL's `SFTConfig` or `DPOConfig`.

    Raises:
        ConfigError: the config names a FlashAttention that is not installed.
    """
    generation = torch.cuda.get_device_capability(args.device)[0] if args.device.type == "cuda" else None
    installed = [version for version, is_available in _FLASH.items() if generation is not None and is_available()]
    if (requested := requested_attention(base, args)) is not None:
        return named_attention(requested, installed, kernels=is_kernels_available())
    half = args.bf16 or args.fp16 or str(base.dtype).removeprefix("torch.") in ("bfloat16", "float16")
    supported = bool(installed) and supports_flash_attention(base_name(base), revision=base.model_revision)
    return best_attention(generation, installed, half=half, supported=supported)


def best_attention(generation: int | None, installed: Collection[int], *, half: bool, supported: bool) -> Attention:
    """FlashAttention where the GPU, a package, the model and the precision allow it, else sdpa.

    Args:
        generation: the GPU's major compute capability; None without a CUDA device.
        installed: versions of FlashAttention.
        half: whether products are in 16 bits.
        supported: whether the model can run with FlashAttention.
    """
    versions = [each for each in _BUILT_FOR.get(generation or 0, _BUILT_FOR_LATER) if each in installed]
    reasons = {
        "not on a CUDA GPU": generation is None,
        "FlashAttention needs an Ampere GPU or a later one": (generation or 0) < min(_BUILT_FOR),
        "FlashAttention multiplies in 16 bits; bf16: true would allow it": not half,
        "flash-attn is not installed": not versions,
        "the model does not support FlashAttention": not supported,
    }
    for reason, applies in reasons.items():
        if applies:
            return Attention(None, f"sdpa ({reason})")
    return Attention(f"flash_attention_{versions[0]}", f"flash_attention_{versions[0]}")


def named_attention(requested: str, installed: Collection[int], *, kernels: bool) -> Attention:
    """The attention that the config names, with a note where transformers downloads it.

    Raises:
        ConfigError: it is a FlashAttention that is not installed.
    """
    version, note = requested.removeprefix("flash_attention_"), ""
    if "/" in requested:
        note = ", a kernel of the hub"
    elif version.isdecimal() and int(version) not in installed:
        if not kernels:
            raise ConfigError(
                f"attn_implementation is {requested}, but its package is not installed, or there is no GPU for it; "
                "leave attn_implementation out, or install it (pip install flash-attn)"
            )
        note = "; its package is not installed, so transformers loads the kernel from the hub"
    return Attention(requested, f"{requested}, as requested{note}")


def supports_flash_attention(name: str, **options: Any) -> bool:
    """True if a model can be loaded with FlashAttention; False where only the model's own code could tell.

    Args:
        name: folder or hub id.
        options: for its configuration (revision).
    """
    try:
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False, **options)
    except (OSError, ValueError):  # code of its own, or no config, which loading the model reports
        return False
    classes = [getattr(transformers, name, None) for name in config.architectures or ()]
    text = config.get_text_config()
    heads = getattr(text, "num_attention_heads", None) or 1
    width = getattr(text, "head_dim", None) or getattr(text, "hidden_size", 0) // heads
    # transformers 5.x would load a model's own kernels from the hub instead
    return width <= _WIDEST_HEAD and any(
        getattr(each, "_supports_flash_attn", False) and not getattr(each, "_compatible_flash_implementations", None)
        for each in classes
    )


def load_tokenizer(model: ModelConfig, *, trust_remote_code: bool) -> Any:
    """Load the base model's tokenizer; it gets a padding token where it has none.

    Raises:
        ModelError: it cannot be loaded, is not a fast one, or has no end-of-sequence token.
    """
    source = base_name(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source, revision=model.model_revision, trust_remote_code=trust_remote_code
        )
    except Exception as error:  # the tokenizers library raises Exception itself
        raise ModelError(f"{source}: cannot load the tokenizer: {tokenizer_finding(source, error)}") from error
    if not tokenizer.is_fast or tokenizer.eos_token_id is None:
        raise ModelError(f"{source}: needs a fast tokenizer with an end-of-sequence token")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
    return tokenizer


def load_base_model(base: ModelConfig, args: Any, attention: Attention | None = None, *, rewards: bool = False) -> Any:
    """Load the model to be trained, as TRL 1.16 would, but with pickled weights that cannot run code.

    Args:
        base: TRL's `ModelConfig`.
        args: TRL's `SFTConfig` or `DPOConfig`; its `model_init_kwargs` take precedence over `base`.
        attention: implementation; None leaves it to `base` and transformers.
        rewards: with a head of one number, new where the files have none, instead of the one that writes text.

    Raises:
        ConfigError: pickled weights would be read as more than tensors.
        ModelError: the model cannot be loaded, or holds weights that are no numbers.
    """
    own = args.model_init_kwargs if isinstance(args.model_init_kwargs, dict) else {}
    if own.get("weights_only", True) is not True:
        raise ConfigError("model_init_kwargs: weights_only: false would run code that the weights bring; leave it out")
    options = {"revision": base.model_revision, "dtype": base.dtype, "trust_remote_code": args.trust_remote_code, **own}
    options["attn_implementation"] = attention.implementation if attention else requested_attention(base, args)
    if (quantization := get_quantization_config(base)) is not None:
        options["quantization_config"] = quantization
    if args.distributed_state.distributed_type in ("MULTI_GPU", "DEEPSPEED"):
        options["device_map"] = None
    set_seed(args.seed)  # for weights that the files lack
    name = base_name(base)
    options |= {"architecture": AutoModelForSequenceClassification, "num_labels": 1} if rewards else {}
    try:
        with safe_unpickling(name, base.model_revision):
            model = create_model_from_path(name, **options)
    except LOAD_ERRORS as error:
        raise ModelError(f"{name}: cannot load the base model: {first_line(error)}") from error
    check_config(name, model.config)
    if weight := first_not_finite(model.named_parameters()):
        raise ModelError(
            f"{name}: {weight} holds NaN or infinity; take another copy, or an earlier state of the training"
        )
    drop_sampling(model)
    return model


def check_adapter(judge: JudgeArguments, base: ModelConfig) -> None:
    """Check that the adapter to be trained further fits the template and the base.

    Raises:
        ConfigError: `use_peft` is missing, or the adapter was trained with another template.
        CardError: it was trained on another GGUF file.
    """
    if judge.adapter is None:
        return
    if not base.use_peft:
        raise ConfigError(f"adapter is {judge.adapter}, but use_peft is false; set use_peft: true")
    card, gguf = find_card(judge.adapter), gguf_record(base_name(base))
    if card is not None and card.template != judge.template:
        raise ConfigError(f"{judge.adapter}: trained with template {card.template}, not {judge.template}")
    if card is not None and card.base is not None and (gguf is None or card.base.gguf_sha256 != gguf.sha256):
        file, sha = card.base.file, card.base.gguf_sha256
        raise CardError(f"{judge.adapter}: trained on {file} (sha256 {sha}); name that file as model_name_or_path")


def with_adapter(model: Any, base: ModelConfig, judge: JudgeArguments) -> tuple[Any, Any]:
    """The model to train, and the LoRA configuration that the trainer gives it.

    With `adapter`, the model has that adapter already, to be trained further, and the configuration is None.

    Raises:
        ModelError: the folder holds no adapter of this model.
    """
    if judge.adapter is None:
        return model, get_peft_config(base)
    return attach_adapter(model, judge.adapter, trainable=True), None


def drop_sampling(model: Any) -> None:
    """Replace a generation config that cannot be saved by a greedy one, as judges reply.

    Vicuna v1.5 sets a temperature without `do_sample`; transformers 5.x loads that, and refuses to save it at the first
    checkpoint.
    """
    config = getattr(model, "generation_config", None)
    if config is None:
        return
    try:
        config.validate(strict=True)
    except ValueError:
        ids = {name: getattr(config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        model.generation_config = GenerationConfig(**ids)  # type: ignore[no-untyped-call]  # transformers leaves it untyped


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Formats of a training: of its products (`bf16`) and of the base's weights; and notes for the user."""

    bf16: bool
    dtype: str | None
    notes: tuple[str, ...] = ()


def settle_precision(judge: Any, args: Any, model: ModelConfig) -> tuple[str, ...]:
    """Choose formats that were left open, on all processes alike, and set them in the arguments.

    Args:
        judge: the recipe's own arguments.
        args: TRL's `SFTConfig` or `DPOConfig`.
        model: TRL's `ModelConfig`.

    Returns:
        notes for the user on chosen formats, and on configured ones that are slow here.
    """
    if args.device.type != "cpu":
        return ()
    settled = broadcast_from_rank0(lambda: _settled(judge, args, model))
    if args.bf16 and not settled.bf16:
        args.bf16, args.mixed_precision = False, "no"
    model.dtype = settled.dtype
    return settled.notes


def _settled(judge: Any, args: Any, model: ModelConfig) -> Precision:
    is_open = getattr(args, "bf16_is_open", False) and args.deepspeed_plugin is None
    recorded = _recorded(judge, args)
    quantized = model.load_in_4bit or model.load_in_8bit
    bf16, dtype = bool(args.bf16), model.dtype
    if recorded:  # where they differ from the config, the run is refused as another one
        bf16 = bool(recorded.get("bf16", bf16)) if is_open else bf16
        dtype = recorded.get("dtype", dtype) if dtype == "auto" else dtype
        is_open = False
    try:
        config = AutoConfig.from_pretrained(
            base_name(model), revision=model.model_revision, trust_remote_code=args.trust_remote_code
        )
    except (OSError, ValueError, KeyError):
        return Precision(bf16=bf16, dtype=dtype)  # loading the model reports it better
    notes = []
    if not quantized and not recorded:
        dtype, note = _weights(model, config, args)
        notes.append(note)
    if bf16:
        finding = slowness("bfloat16", measure_products(config), this_cpu_flags())
        if finding and is_open:
            bf16 = False
            notes.append(f"bf16: false ({finding} than float32)")
        elif finding:
            notes.append(f"bf16: true, as configured ({finding} than float32; bf16: false makes it faster)")
    return Precision(bf16=bf16, dtype=dtype, notes=tuple(note for note in notes if note))


def _weights(model: ModelConfig, config: Any, args: Any) -> tuple[str | None, str]:
    """The format of the base's weights, and a note for the user."""
    if model.dtype is None:
        return None, ""
    if model.dtype != "auto":
        choice = requested_dtype(model.dtype, this_cpu_flags(), partial(measure_products, config))
        return model.dtype, choice.note
    if stored_dtype(base_name(model), config) == "float32":
        return "float32", ""
    trained = 0 if model.use_peft else _TRAINED_BYTES
    weights = all_parameters(config, trust_remote_code=args.trust_remote_code) or 0
    base = base_name(model)
    options = EngineOptions(model=base, trust_remote_code=args.trust_remote_code)
    choice = resolve_dtype(base, config, options, device="cpu", reserved_bytes=trained * weights)
    return choice.dtype, "" if choice.dtype == "auto" else choice.note


def _recorded(judge: Any, args: Any) -> dict[str, Any]:
    """Settings of the checkpoint that the run resumes from; empty where there is none."""
    if judge.overwrite_output_dir:
        return {}
    checkpoint = args.resume_from_checkpoint
    folders = [Path(checkpoint)] if checkpoint is not None else checkpoints_in(Path(str(args.output_dir)))
    states = (read_state(folder) for folder in folders if not flaw_of(folder))
    return next((dict(state.settings) for state in states if state is not None and state.resumable), {})


def speed_up_lora(trainer: Trainer) -> int:
    """Exchange the forward pass of a trainer's plain LoRA layers that lie on a CPU.

    Left as they are: layers with dropout, a bias of their own, DoRA or another variant, several adapters, quantised
    base weights; and models whose weights are sharded (DeepSpeed, FSDP), which their own layers gather.

    Returns:
        Number of layers that were changed.
    """
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled or trainer.model is None:
        return 0
    return speed_up_layers(trainer.model)


def speed_up_layers(model: nn.Module) -> int:
    """`speed_up_lora` for a model that no trainer shards."""
    layers = [module for module in model.modules() if isinstance(module, LoraLinear) and _is_plain(module)]
    weights: list[Any] = [layer.base_layer.weight for layer in layers]
    copies = 2 * sum(weight.numel() * weight.element_size() for weight in weights)
    packs = copies <= _COPIES_SHARE * available_bytes() and all(map(is_packable, weights))
    for layer in layers:
        layer.forward = partial(_forward, layer, FrozenWeight() if packs else None)  # type: ignore[method-assign]
    return len(layers)


class FrozenWeight:
    """A frozen weight in oneDNN's layout, in the numeric format in which it was last used."""

    def __init__(self) -> None:
        self._packed: tuple[torch.dtype, Tensor, Tensor] | None = None

    def packed(self, weight: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        """For products with rows, and with their gradients; None where this CPU has no kernels for the format."""
        if self._packed is None or self._packed[0] != dtype:
            plain = weight.detach().to(dtype)
            if not is_packable(plain):
                return None
            reorder = torch.ops.mkldnn._reorder_linear_weight
            self._packed = dtype, reorder(plain), reorder(plain.t().contiguous())
        return self._packed[1:]


def _is_plain(layer: LoraLinear) -> bool:
    base, adapters = layer.base_layer, layer.active_adapters
    if type(base) is not nn.Linear or base.weight.device.type != "cpu" or len(adapters) != 1:
        return False
    name = adapters[0]
    no_extras = name not in layer.lora_variant and not layer.lora_bias[name] and not base.weight.requires_grad
    return no_extras and isinstance(layer.lora_dropout[name], nn.Identity)


def _forward(layer: LoraLinear, frozen: FrozenWeight | None, x: Tensor) -> Tensor:
    """W x + b + s B A x, shape (..., out)."""
    if layer.disable_adapters or layer.merged:
        result: Tensor = LoraLinear.forward(layer, x)
        return result
    name = layer.active_adapters[0]
    base: Any = layer.base_layer
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    first, second = layer.lora_A[name].weight, layer.lora_B[name].weight
    packed = None if frozen is None else frozen.packed(base.weight, dtype)
    plain = base.weight.to(dtype) if packed is None else None
    arguments = (x.to(dtype), plain, packed, first.to(dtype), (second * layer.scaling[name]).to(dtype))
    adapted: Tensor = _AdaptedLinear.apply(*arguments)  # type: ignore[no-untyped-call]
    return adapted if base.bias is None else adapted + base.bias.to(dtype)


class _AdaptedLinear(torch.autograd.Function):
    """x W^T + x A^T B^T; W is frozen, and either plain or packed."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, plain: Tensor | None, packed: tuple[Tensor, Tensor] | None, first: Tensor, second: Tensor
    ) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        with torch.autocast("cpu", enabled=False):
            reduced = rows @ first.t()
            frozen = rows @ plain.t() if plain is not None else _product(rows, packed, 0)
            result = frozen.addmm_(reduced, second.t())
        ctx.save_for_backward(rows, first, second, reduced)
        ctx.plain, ctx.packed, ctx.shape = plain, packed, x.shape
        return result.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, first, second, reduced = ctx.saved_tensors
        outer = gradients[0].reshape(-1, gradients[0].shape[-1])
        inner = outer @ second
        below = None
        if ctx.needs_input_grad[0]:
            frozen = outer @ ctx.plain if ctx.plain is not None else _product(outer, ctx.packed, 1)
            below = frozen.addmm_(inner, first).view(ctx.shape)
        return below, None, None, inner.t() @ rows, outer.t() @ reduced


def _product(rows: Tensor, packed: tuple[Tensor, Tensor] | None, direction: int) -> Tensor:
    """Rows times a packed weight: forward (0), or their gradients backward (1)."""
    assert packed is not None
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed[direction], None, "none", [], "")
    return product
