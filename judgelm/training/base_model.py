"""The base model of a fine-tuning: which one, its tokenizer, and how its weights are to be loaded."""

from typing import Any

from transformers import AutoTokenizer, GenerationConfig
from trl import ModelConfig  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see

from judgelm.engines.model_files import tokenizer_finding
from judgelm.errors import ConfigError, ModelError


def base_name(model: ModelConfig) -> str:
    """The base model's folder or hub id.

    Raises:
        ConfigError: none is given.
    """
    if not model.model_name_or_path:
        raise ConfigError("model_name_or_path is missing; give the base model's folder or hub id")
    return str(model.model_name_or_path)


def load_tokenizer(model: ModelConfig, *, trust_remote_code: bool) -> Any:
    """The base model's tokenizer, with a padding token.

    Raises:
        ModelError: it cannot be loaded, is no fast one, or has no end-of-sequence token.
    """
    source = base_name(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source, revision=model.model_revision, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"{source}: cannot load the tokenizer: {tokenizer_finding(source, error)}") from error
    if not tokenizer.is_fast or tokenizer.eos_token_id is None:
        raise ModelError(f"{source}: needs a fast tokenizer with an end-of-sequence token")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
    return tokenizer


def init_kwargs(model: ModelConfig, given: dict[str, Any] | str | None) -> dict[str, Any]:
    """What the base model's weights are loaded with; what the user gives goes before the model's configuration.

    Raises:
        ConfigError: pickled weights would be read as more than tensors.
    """
    own = given if isinstance(given, dict) else {}
    if own.get("weights_only", True) is not True:
        raise ConfigError("model_init_kwargs: weights_only: false would run code that the weights bring; leave it out")
    return {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **own,
    }


def drop_sampling(model: Any) -> None:
    """Make the base's generation config one that can be saved: greedy, as a judge's replies are.

    Vicuna v1.5 states a temperature without `do_sample`. transformers loads that and refuses to save it, which would be
    at the first checkpoint.
    """
    config = model.generation_config
    if config is None:
        return
    try:
        config.validate(strict=True)
    except ValueError:
        ids = {name: getattr(config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        model.generation_config = GenerationConfig(**ids)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
