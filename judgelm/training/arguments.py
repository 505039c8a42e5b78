"""Reading and checking the arguments of a recipe: TRL's parser, and options that training on ready rows rules out."""

import math
import os
from typing import Any

from transformers.utils import is_liger_kernel_available  # type: ignore[attr-defined]  # re-exported implicitly
from trl import ModelConfig, TrlParser  # type: ignore[attr-defined]  # trl loads its names lazily, unseen by mypy

from judgelm.engines.gguf import gguf_checkpoint
from judgelm.errors import ConfigError, MissingExtraError
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import is_gguf
from judgelm.training.config import JudgeArguments, accumulation_steps, processes
from judgelm.training.rows.records import RowOptions
from judgelm.training.save import save_dtype_of

_CONFIG_HELP = "With --config FILE a YAML file sets the same options by name; those given here take precedence."
_OWN_TOKENIZER = "rows are made with the base's own tokenizer, in whose files it can be set"
UNSUPPORTED_ARGUMENTS = {
    "eos_token": _OWN_TOKENIZER,
    "chat_template_path": _OWN_TOKENIZER,
    "shuffle_dataset": "rows are shuffled in every epoch already, by the seed",
    "assistant_only_loss": "loss_on selects the tokens that the loss counts",
    "packing": "a step would have an unknown number of rows; padding_free: true saves as much and keeps the batch",
    "eval_packing": "rows of the evaluation are never packed",
    "ignore_data_skip": "a resumed run would train its first rows again",
    "auto_find_batch_size": "the rows of a step would change while training",
}
"""Arguments of TRL and transformers that would undo how rows are made and ordered, with the reason."""


def parse_arguments(*types: Any) -> tuple[Any, ...]:
    """Parse a recipe's arguments from `--config FILE` and flags; one object for each dataclass.

    A base that is a GGUF file becomes its checkpoint in the cache. A hub token is passed to the libraries through the
    environment: the trainer writes its arguments beside each checkpoint.

    Raises:
        ConfigError: no such file or field, or a format that this machine lacks (bf16, tf32).
        ModelError: a GGUF file that cannot be converted.
        RunError: the cache cannot be written.
    """
    try:
        parsed = tuple(TrlParser(types, description=_CONFIG_HELP).parse_args_and_config())
    except (OSError, ValueError) as error:
        raise ConfigError(str(error)) from error
    for arguments in parsed:
        if token := getattr(arguments, "hub_token", None):
            os.environ["HF_TOKEN"], arguments.hub_token = token, None
    for arguments in parsed:
        if isinstance(arguments, ModelConfig) and is_gguf(arguments.model_name_or_path or ""):
            arguments.model_name_or_path = gguf_checkpoint(arguments.model_name_or_path, arguments.model_revision)
    return parsed


def check_arguments(judge: JudgeArguments, args: Any) -> None:
    """Check that the arguments fit each other, before anything is loaded.

    Args:
        judge: data and target.
        args: TRL's `SFTConfig` or `DPOConfig`; receives the accumulation that makes `global_batch`.

    Raises:
        ConfigError: they do not fit, or Liger kernels are not installed.
    """
    if judge.loss_on not in ("completion", "all"):
        raise ConfigError(f"loss_on {judge.loss_on!r} does not exist; available: completion, all")
    if len(judge.scale) != 2 or not all(map(math.isfinite, judge.scale)) or judge.scale[0] >= judge.scale[1]:
        raise ConfigError(f"scale is {judge.scale}; it is the lowest and the highest score, such as [1, 10]")
    for name, reason in UNSUPPORTED_ARGUMENTS.items():
        if getattr(args, name, None):
            raise ConfigError(f"{name} is {getattr(args, name)!r}, but {reason}; leave {name} out")
    if args.max_length is None:
        raise ConfigError("max_length is missing; it is the judge's window in tokens (JudgeLM: 2048)")
    if args.train_sampling_strategy not in ("random", "group_by_length"):
        raise ConfigError(
            f"train_sampling_strategy {args.train_sampling_strategy!r} is not possible, since rows differ from epoch "
            "to epoch; available: random, group_by_length"
        )
    save_dtype_of(judge.save_dtype, args)
    args.gradient_accumulation_steps = accumulation_steps(
        judge.global_batch,
        per_device=args.per_device_train_batch_size,
        accumulation=args.gradient_accumulation_steps,
        processes=processes(args),
    )
    _check_score_weight(judge, args)
    if args.use_liger_kernel and not is_liger_kernel_available():
        raise MissingExtraError(
            "use_liger_kernel needs liger-kernel and a GPU; run: pip install liger-kernel, or set it to false"
        )


def _check_score_weight(judge: JudgeArguments, args: Any) -> None:
    if not 0 < judge.score_weight < float("inf"):
        raise ConfigError(f"score_weight is {judge.score_weight}; it is a number above 0, and 1 has no effect")
    if judge.score_weight == 1:
        return
    if get_template(judge.template).reasons_first:
        raise ConfigError(f"score_weight is {judge.score_weight}, but {judge.template} has no score line; leave it out")
    if judge.loss_on != "completion":
        raise ConfigError(f"score_weight needs loss_on: completion, as loss_on {judge.loss_on!r} has no score line")
    if args.loss_type != "nll" or args.label_smoothing_factor:
        raise ConfigError(
            f"score_weight needs the plain loss, but loss_type is {args.loss_type!r} and label_smoothing_factor "
            f"{args.label_smoothing_factor}; use nll and 0, or score_weight 1"
        )


def row_options(judge: JudgeArguments, args: Any) -> RowOptions:
    """Options of the rows; `max_length` of the trainer's arguments is their window."""
    return RowOptions(
        template=judge.template,
        window=args.max_length,
        scale=(judge.scale[0], judge.scale[1]),
        swap_prob=judge.swap_prob,
        reference_drop_prob=judge.reference_drop_prob,
        reason_prob=judge.reason_prob,
        loss_on_prompt=judge.loss_on == "all",
        seed=args.seed,
    )
