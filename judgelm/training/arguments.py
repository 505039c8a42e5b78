"""Arguments shared by the training recipes, and their consistency checks."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from transformers.utils import is_liger_kernel_available  # type: ignore[attr-defined]  # re-exported implicitly

from judgelm.errors import ConfigError, MissingExtraError, not_found
from judgelm.prompts.catalog import get_template
from judgelm.training.rows.builder import RowOptions


def argument(description: str, **default: Any) -> Any:
    """Return a dataclass field with its `--help` text."""
    return field(metadata={"help": description}, **default)


@dataclass(kw_only=True)
class JudgeArguments:
    """Data, template and target for fine-tuning a judge. TRL's `max_length` is the judge's window in tokens."""

    trains_words: ClassVar[bool] = False

    train_data: list[str] = argument(
        "Labelled files. Each row has scores for two or more answers, or for one answer with a reference."
    )
    eval_data: list[str] = argument(
        "Labelled files for computing the loss and judging pairs. By default, training is evaluated once, at the end.",
        default_factory=list,
    )
    eval_pairs: int = argument(
        "Number of eval_data pairs, sampled with the seed, to judge in both orders at every evaluation. 0: loss only.",
        default=200,
    )
    early_stopping_patience: int | None = argument(
        "Number of evaluations without a better metric_for_best_model before training stops.", default=None
    )
    adapter: str | None = argument(
        "LoRA judge to train further. Needs its base and use_peft: true. Keeps its rank and layers.", default=None
    )
    template: str = argument("Prompt template, which is saved in the judge's card.", default="judgelm-v1")
    scale: list[float] = argument("Lowest and highest score.", default_factory=lambda: [1, 10])
    swap_prob: float = argument(
        "Probability of swapping a pair's answers, scores, and answer names in the reason, drawn in every epoch. Pairs "
        "with an ambiguous reason are not swapped. (JudgeLM, section 5.1)",
        default=0.5,
    )
    reference_drop_prob: float = argument(
        "Probability of dropping the reference of rows with several answers. (JudgeLM, section 5.3)", default=0.5
    )
    reason_prob: float = argument(
        "Share of rows whose target includes the reason and EOS after the score line.", default=1.0
    )
    loss_on: str = argument(
        "completion: compute the loss on the reply only; all: also on the prompt (pre-training).", default="completion"
    )
    score_weight: float = argument("Loss weight of score line tokens. Reason tokens have weight 1.", default=1.0)
    loss_average: str = argument(
        "token: mean over all tokens in a step. row: mean over a row's tokens, then over rows, as in JudgeLM's script.",
        default="token",
    )
    overwrite_output_dir: bool = argument(
        "Remove the checkpoints and the judge in output_dir. By default, a run resumes from its last checkpoint and "
        "does not overwrite a judge.",
        default=False,
    )
    save_dtype: str = argument(
        "Dtype of a full judge: auto (bfloat16 with bf16, otherwise as trained), bfloat16, float16, or float32.",
        default="auto",
    )
    global_batch: int | None = argument(
        "Rows per optimizer step across all processes; sets gradient_accumulation_steps unless that is given.",
        default=None,
    )


def accumulation_steps(global_batch: int | None, *, per_device: int, accumulation: int, processes: int) -> int:
    """Return `accumulation`, or compute it from `global_batch` if it is 1."""
    one_pass = per_device * processes
    if global_batch is None or global_batch == one_pass * accumulation:
        return accumulation
    if global_batch > 0 and global_batch % one_pass == 0 and accumulation == 1:
        return global_batch // one_pass
    raise ConfigError(
        f"global_batch is {global_batch}, but per_device_train_batch_size {per_device} x gradient_accumulation_steps "
        f"{accumulation} x {processes} processes make {one_pass * accumulation}; set global_batch to a multiple of "
        f"{one_pass}, and remove gradient_accumulation_steps"
    )


def processes(args: Any) -> int:
    """Return the number of devices; with DataParallel, one process drives several."""
    return int(args.world_size) * max(1, int(args.n_gpu))


def rows_per_step(args: Any) -> int:
    """Return the rows per optimizer step; GRPO samples several replies per row."""
    sequences = int(args.per_device_train_batch_size * args.gradient_accumulation_steps) * processes(args)
    return sequences // getattr(args, "num_generations", 1)


def base_name(base: Any) -> str:
    """Return the base model's folder or hub ID."""
    if not base.model_name_or_path:
        raise ConfigError("model_name_or_path is missing; set it to the base model's folder or hub ID")
    return str(base.model_name_or_path)


_OWN_TOKENIZER = "rows use the base's tokenizer; edit the tokenizer files instead"
PLAIN_LOSS = {"loss_on": "completion", "score_weight": 1.0, "loss_average": "token"}
"""Loss options of recipes that do not train replies token by token."""

UNSUPPORTED_ARGUMENTS = {
    "eos_token": _OWN_TOKENIZER,
    "chat_template_path": _OWN_TOKENIZER,
    "shuffle_dataset": "rows are already shuffled in every epoch",
    "assistant_only_loss": "loss_on selects the tokens to train on",
    "packing": "it makes the number of rows per step unknown; padding_free: true saves as many tokens",
    "eval_packing": "evaluation rows are never packed",
    "ignore_data_skip": "a resumed run would repeat its first rows",
    "resume_from_checkpoint": "runs resume from the last complete checkpoint in output_dir",
    "auto_find_batch_size": "it changes the number of rows per step during training",
}
"""TRL and transformers arguments that conflict with how rows are built and ordered."""


def check_arguments(judge: JudgeArguments, args: Any) -> None:
    """Check that the arguments are consistent, and set the accumulation steps from `global_batch`."""
    check_parallelism(args)
    template = get_template(judge.template)
    if template.reads_words and not judge.trains_words:
        raise ConfigError(f"template {template.id} scores verdict words; use train/preference.py or another template")
    if not judge.train_data:
        raise ConfigError("train_data is empty; set it to a file of labelled rows")
    if judge.loss_on not in ("completion", "all"):
        raise not_found("loss_on", judge.loss_on, ("completion", "all"))
    if len(judge.scale) != 2 or not all(map(math.isfinite, judge.scale)) or judge.scale[0] >= judge.scale[1]:
        raise ConfigError(f"scale is {judge.scale}; expected the lowest and the highest score, such as [1, 10]")
    for name, reason in UNSUPPORTED_ARGUMENTS.items():
        if getattr(args, name, None):
            raise ConfigError(f"{name} is {getattr(args, name)!r}, but {reason}; remove {name}")
    if args.max_length is None:
        raise ConfigError("max_length is missing; set the judge's window in tokens (JudgeLM: 2048)")
    if args.train_sampling_strategy not in ("random", "group_by_length"):
        raise not_found("train_sampling_strategy", args.train_sampling_strategy, ("random", "group_by_length"))
    save_dtype_of(judge.save_dtype, args)
    args.gradient_accumulation_steps = accumulation_steps(
        judge.global_batch,
        per_device=args.per_device_train_batch_size,
        accumulation=args.gradient_accumulation_steps,
        processes=processes(args),
    )
    _check_loss(judge, args)
    if args.use_liger_kernel and not is_liger_kernel_available():
        raise MissingExtraError("use_liger_kernel needs a GPU and liger-kernel; run pip install liger-kernel")


def check_parallelism(args: Any) -> None:
    """Reject tensor, context and sequence parallelism; each process must train on whole rows."""
    launched = os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG", "").lower() == "true"
    own, load = args.parallelism_config or {}, args.model_init_kwargs
    own = own if isinstance(own, Mapping) else vars(own)
    deepspeed = args.deepspeed_plugin.deepspeed_config if args.deepspeed_plugin is not None else {}
    found: dict[str, Any] = {}
    for name in ("tp_size", "cp_size", "sp_size"):
        variable = launched and os.environ.get(f"PARALLELISM_CONFIG_{name.upper()}")
        found[f"parallelism_config: {name}"] = own.get(name) or variable
    found["deepspeed_config: autotp_size"] = deepspeed.get("tensor_parallel", {}).get("autotp_size")
    found["deepspeed_config: sequence_parallel_size"] = deepspeed.get("sequence_parallel_size")
    for name in ("tp_plan", "tp_size", "device_mesh", "distributed_config") if isinstance(load, Mapping) else ():
        found[f"model_init_kwargs: {name}"] = load.get(name)
    for name, value in found.items():
        if value and str(value) != "1":
            raise ConfigError(f"{name} is {value}, but each process must train on whole rows; use zero3 or fsdp2")


def check_fixed(judge: JudgeArguments, values: Mapping[str, Any], reason: str) -> None:
    """Reject other values, because the recipe does not support them."""
    for name, only in values.items():
        if (value := getattr(judge, name)) != only:
            raise ConfigError(f"{name} is {value!r}, but {reason}; remove {name}")


def check_not_negative(judge: JudgeArguments, *names: str) -> None:
    """Reject negative, infinite, and NaN weights."""
    for name in names:
        if not 0 <= (value := getattr(judge, name)) < math.inf:
            raise ConfigError(f"{name} is {value}; expected 0 or more")


def _check_loss(judge: JudgeArguments, args: Any) -> None:
    if not 0 < judge.score_weight < float("inf"):
        raise ConfigError(f"score_weight is {judge.score_weight}; expected a number above 0")
    if judge.loss_average not in ("token", "row"):
        raise not_found("loss_average", judge.loss_average, ("token", "row"))
    plain = getattr(args, "loss_type", "nll") == "nll" and not args.label_smoothing_factor
    reading = get_template(judge.template).reading
    for name, fits, needed in (
        ("score_weight", reading == "score-line", "a template that begins with a score line"),
        ("score_weight", judge.loss_on == "completion", "loss_on: completion"),
        ("score_weight", plain, "loss_type: nll and label_smoothing_factor: 0"),
        ("loss_average", plain, "loss_type: nll and label_smoothing_factor: 0"),
    ):
        value = getattr(judge, name)
        if value not in (1, "token") and not fits:
            raise ConfigError(f"{name} is {value}, which needs {needed}; set that, or remove {name}")


def row_options(judge: JudgeArguments, args: Any) -> RowOptions:
    """Use `args.max_length` as the window."""
    scale, on_prompt = (judge.scale[0], judge.scale[1]), judge.loss_on == "all"
    same = {name: getattr(judge, name) for name in ("template", "swap_prob", "reference_drop_prob", "reason_prob")}
    return RowOptions(window=args.max_length, scale=scale, loss_on_prompt=on_prompt, seed=args.seed, **same)


SAVE_DTYPES = ("auto", "bfloat16", "float16", "float32")


def save_dtype_of(requested: str, args: Any) -> torch.dtype | None:
    """Return None to keep the training dtype."""
    if requested not in SAVE_DTYPES:
        raise not_found("save_dtype", requested, SAVE_DTYPES)
    if requested == "auto":
        return torch.bfloat16 if args.bf16 else None
    if requested == "float32" and args.deepspeed_plugin is not None and (args.bf16 or args.fp16):
        way_out = "use its zero_to_fp32.py instead"
        raise ConfigError(f"save_dtype is float32, but DeepSpeed gathers 16-bit weights; {way_out}")
    dtype: torch.dtype = getattr(torch, requested)
    return dtype


def optimizer_states(optim: str) -> tuple[int, int | None]:
    """Return an optimizer's values per parameter and bytes per value (None: same as the weight)."""
    numbers = {"adafactor": 0, "lomo": 0, "sgd": 0, "lion": 1, "rmsprop": 1, "adagrad": 1, "ademamix": 3}
    states = next((states for name, states in numbers.items() if name in optim), 2)
    return states, 1 if "8bit" in optim else 4 if "paged" in optim or "32bit" in optim else None
