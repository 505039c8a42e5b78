"""Load the base model, its tokenizer, and its adapter."""

from typing import Any

from transformers import AutoModelForSequenceClassification, AutoTokenizer, GenerationConfig, set_seed
from trl import ModelConfig, get_peft_config, get_quantization_config  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see
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
    """Load the tokenizer, and add a padding token if needed."""
    source = base_name(model)
    try:
        options = {"revision": model.model_revision, "trust_remote_code": trust_remote_code}
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
    except Exception as error:  # the tokenizers library raises bare exceptions
        raise ModelError(f"{source}: cannot load the tokenizer: {tokenizer_finding(source, error)}") from error
    if not tokenizer.is_fast or tokenizer.eos_token_id is None:
        raise ModelError(f"{source}: requires a fast tokenizer with an end-of-sequence token")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
    return tokenizer


def load_base_model(base: ModelConfig, args: Any, attention: Attention | None = None, *, rewards: bool = False) -> Any:
    """Load the model like TRL 1.16, but without running code from pickled weights.

    `args.model_init_kwargs` takes precedence over `base`. If `rewards` is set, the model gets a head with a single
    output.
    """
    own = args.model_init_kwargs if isinstance(args.model_init_kwargs, dict) else {}
    if own.get("weights_only", True) is not True:
        raise ConfigError("model_init_kwargs: weights_only: false allows code in the weights file to run; remove it")
    options = {"revision": base.model_revision, "dtype": base.dtype, "trust_remote_code": args.trust_remote_code, **own}
    options["attn_implementation"] = attention.implementation if attention else requested_attention(base, args)
    if (quantization := get_quantization_config(base)) is not None:
        options["quantization_config"] = quantization
    if args.distributed_state.distributed_type in ("MULTI_GPU", "DEEPSPEED"):
        options["device_map"] = None
    set_seed(args.seed)  # for weights that are not in the files
    name = base_name(base)
    options |= {"architecture": AutoModelForSequenceClassification, "num_labels": 1} if rewards else {}
    try:
        with safe_unpickling(name, base.model_revision):
            model = create_model_from_path(name, **options)
    except LOAD_ERRORS as error:
        raise ModelError(f"{name}: cannot load the base model: {first_line(error)}") from error
    check_config(name, model.config)
    if weight := first_not_finite(model.named_parameters()):
        raise ModelError(f"{name}: {weight} contains NaN or infinity; use a different copy or an earlier checkpoint")
    drop_sampling(model)
    return model


def check_adapter(judge: JudgeArguments, base: ModelConfig) -> None:
    """Check that the adapter matches the template and the base model."""
    if judge.adapter is None:
        return
    if not base.use_peft:
        raise ConfigError(f"adapter is {judge.adapter}, but use_peft is false; set it to true")
    card, gguf = find_card(judge.adapter), gguf_record(base_name(base))
    if card is not None and card.template != judge.template:
        raise ConfigError(f"{judge.adapter}: it was trained with template {card.template}, not {judge.template}")
    if card is not None and card.base is not None and (gguf is None or card.base.gguf_sha256 != gguf.sha256):
        file, sha = card.base.file, card.base.gguf_sha256
        raise CardError(
            f"{judge.adapter}: the adapter was trained on {file} (sha256 {sha}); set model_name_or_path to this file"
        )


def with_adapter(model: Any, base: ModelConfig, judge: JudgeArguments) -> tuple[Any, Any]:
    """Return the model, and the LoRA configuration for the trainer."""
    if judge.adapter is None:
        return model, get_peft_config(base)
    return attach_adapter(model, judge.adapter, trainable=True), None


def drop_sampling(model: Any) -> None:
    """If the generation config cannot be saved, use greedy decoding instead.

    Vicuna v1.5 sets a temperature without `do_sample`, which transformers 5.x accepts when loading but not when saving.
    """
    config = getattr(model, "generation_config", None)
    if config is None:
        return
    try:
        config.validate(strict=True)
    except ValueError:
        ids = {name: getattr(config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        model.generation_config = GenerationConfig(**ids)  # type: ignore[no-untyped-call]  # untyped in transformers
