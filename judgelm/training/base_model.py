"""The base model of a training: its tokenizer, weights, attention, numeric formats, and LoRA on a CPU.

Attention: where the config names none, FlashAttention if a package of it is installed. With and without it, rows stand
one behind another without padding (`judgelm.training.padding.settle_padding`). Kernels of the hub
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

from typing import Any

from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GenerationConfig,
    set_seed,
)
from trl import (  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see
    ModelConfig,
    get_peft_config,
    get_quantization_config,
)
from trl.trainer.utils import create_model_from_path

from judgelm.engines.gguf.checkpoint import gguf_record
from judgelm.engines.model_files import LOAD_ERRORS, check_config, tokenizer_finding
from judgelm.engines.transformers.loaded_model import attach_adapter
from judgelm.engines.weights import first_not_finite, safe_unpickling
from judgelm.errors import CardError, ConfigError, ModelError, first_line
from judgelm.prompts.judge_card import find_card
from judgelm.training.arguments import JudgeArguments, base_name
from judgelm.training.attention import Attention, requested_attention


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
