"""Arguments shared by all training recipes, and their consistency checks."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from transformers.utils import is_liger_kernel_available  # type: ignore[attr-defined]  # re-exported implicitly

from judgelm.errors import ConfigError, MissingExtraError, not_found
from judgelm.prompts.catalog import Template
from judgelm.prompts.judge_card import PromptSource, template_of
from judgelm.prompts.prompt_file import read_prompt
from judgelm.training.rows.builder import RowOptions


def argument(description: str, **default: Any) -> Any:
    """Return a dataclass field with `description` as its `--help` text."""
    return field(metadata={"help": description}, **default)


@dataclass(kw_only=True)
class JudgeArguments:
    """Data, template, and loss arguments for fine-tuning a judge.

    TRL's `max_length` is the judge's context window in tokens.
    """

    trains_words: ClassVar[bool] = False
    trains_prompts: ClassVar[bool] = False

    train_data: list[str] = argument(
        "Files of labelled rows. Each row must contain scores for two or more answers, or for one answer and a "
        "reference."
    )
    eval_data: list[str] = argument(
        "Files of labelled rows for computing the eval loss and judging pairs. By default, evaluation runs once, "
        "after training.",
        default_factory=list,
    )
    eval_pairs: int = argument(
        "Number of eval_data pairs to judge in both orders at each evaluation, sampled using the seed. Use 0 to "
        "compute only the loss.",
        default=200,
    )
    early_stopping_patience: int | None = argument(
        "Stop training after this many evaluations without an improvement in metric_for_best_model.", default=None
    )
    adapter: str | None = argument(
        "LoRA judge to fine-tune further. Requires its base model and use_peft: true. Keeps its rank and layers.",
        default=None,
    )
    template: str = argument("Prompt template. Its ID is saved in the judge's card.", default="judgelm-v1")
    prompt: str | None = argument(
        "Your own judge prompt instead of template: a YAML or text file (see judgelm prompts new). Only for "
        "train/preference.py.",
        default=None,
    )
    scale: list[float] = argument("Lowest and highest possible scores.", default_factory=lambda: [1, 10])
    swap_prob: float = argument(
        "Probability of swapping a pair's answers, their scores, and the answer names in the reason. The swap is "
        "redrawn every epoch. Pairs with an ambiguous reason are never swapped. (JudgeLM, section 5.1)",
        default=0.5,
    )
    reference_drop_prob: float = argument(
        "Probability of dropping the reference from a row with several answers. (JudgeLM, section 5.3)", default=0.5
    )
    reason_prob: float = argument(
        "Fraction of rows whose target includes the reason and the EOS token after the score line.", default=1.0
    )
    loss_on: str = argument(
        "completion computes the loss on the reply only; all also includes the prompt, as in pre-training.",
        default="completion",
    )
    score_weight: float = argument(
        "Loss weight for score-line tokens. Reason tokens always have weight 1.", default=1.0
    )
    loss_average: str = argument(
        "token averages the loss over all tokens in a step. row averages over the tokens of each row, then over rows, "
        "as in JudgeLM's script.",
        default="token",
    )
    overwrite_output_dir: bool = argument(
        "Delete the checkpoints and the judge in output_dir before training. By default, training resumes from the "
        "last checkpoint and never overwrites a finished judge.",
        default=False,
    )
    save_dtype: str = argument(
        "Dtype for saving a full judge: auto, bfloat16, float16, or float32. auto is bfloat16 if bf16 is set, and the "
        "training dtype otherwise.",
        default="auto",
    )
    global_batch: int | None = argument(
        "Number of rows per optimizer step across all processes. It determines gradient_accumulation_steps unless you "
        "set that as well.",
        default=None,
    )

    @cached_property
    def prompt_source(self) -> PromptSource | None:
        """The prompt file, which is read only once."""
        return None if self.prompt is None else PromptSource.of(read_prompt(self.prompt))

    @cached_property
    def chosen(self) -> Template:
        """The prompt file's template, or the built-in template."""
        return template_of(self.template, self.prompt_source)


def accumulation_steps(global_batch: int | None, *, per_device: int, accumulation: int, processes: int) -> int:
    """Return the number of accumulation steps, computed from `global_batch` if `accumulation` is 1."""
    one_pass = per_device * processes
    if global_batch is None or global_batch == one_pass * accumulation:
        return accumulation
    if global_batch > 0 and global_batch % one_pass == 0 and accumulation == 1:
        return global_batch // one_pass
    raise ConfigError(
        f"global_batch is {global_batch}, but per_device_train_batch_size {per_device} x gradient_accumulation_steps "
        f"{accumulation} x {processes} processes is {one_pass * accumulation}; set global_batch to a multiple of "
        f"{one_pass} and remove gradient_accumulation_steps"
    )


def processes(args: Any) -> int:
    """Return the number of devices. With DataParallel, a process uses several devices."""
    return int(args.world_size) * max(1, int(args.n_gpu))


def rows_per_step(args: Any) -> int:
    """Return the number of rows per optimizer step; GRPO samples several replies per row."""
    sequences = int(args.per_device_train_batch_size * args.gradient_accumulation_steps) * processes(args)
    return sequences // getattr(args, "num_generations", 1)


def base_name(base: Any) -> str:
    """Return the base model's folder or hub ID."""
    if not base.model_name_or_path:
        raise ConfigError("model_name_or_path is missing; set it to the base model's folder or hub ID")
    return str(base.model_name_or_path)


_OWN_TOKENIZER = "the base model's tokenizer is used unchanged; edit the tokenizer files instead"
PLAIN_LOSS = {"loss_on": "completion", "score_weight": 1.0, "loss_average": "token"}

UNSUPPORTED_ARGUMENTS = {
    "eos_token": _OWN_TOKENIZER,
    "chat_template_path": _OWN_TOKENIZER,
    "shuffle_dataset": "rows are already reshuffled every epoch",
    "assistant_only_loss": "loss_on controls which tokens contribute to the loss",
    "packing": "the number of rows per step would be unknown; use padding_free: true, which saves just as many tokens",
    "eval_packing": "evaluation rows are never packed",
    "ignore_data_skip": "a resumed run would train on the first rows again",
    "resume_from_checkpoint": "training always resumes from the last complete checkpoint in output_dir",
    "auto_find_batch_size": "it would change the number of rows per step during training",
}
"""TRL and transformers arguments that conflict with how rows are built and ordered."""


def check_arguments(judge: JudgeArguments, args: Any) -> None:
    """Check that the arguments are consistent, and set the accumulation steps from `global_batch`."""
    check_parallelism(args)
    if judge.prompt is not None and not judge.trains_prompts:
        raise ConfigError(f"prompt is {judge.prompt}, which requires train/preference.py; remove it for this recipe")
    template = judge.chosen
    if template.reads_words and not judge.trains_words:
        raise ConfigError(
            f"template {template.id} is scored by verdict words; use train/preference.py or a different template"
        )
    if not judge.train_data:
        raise ConfigError("train_data is empty; set it to at least one file of labelled rows")
    if judge.loss_on not in ("completion", "all"):
        raise not_found("loss_on", judge.loss_on, ("completion", "all"))
    if len(judge.scale) != 2 or not all(map(math.isfinite, judge.scale)) or judge.scale[0] >= judge.scale[1]:
        raise ConfigError(f"scale is {judge.scale}; expected the lowest and highest scores, such as [1, 10]")
    for name, reason in UNSUPPORTED_ARGUMENTS.items():
        if getattr(args, name, None):
            raise ConfigError(f"{name} is {getattr(args, name)!r}, but {reason}; remove {name}")
    if args.max_length is None:
        raise ConfigError("max_length is missing; set it to the judge's context window in tokens (JudgeLM: 2048)")
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
        raise MissingExtraError("use_liger_kernel requires a GPU and liger-kernel; run: pip install liger-kernel")


def check_parallelism(args: Any) -> None:
    """Reject tensor, context, and sequence parallelism, because each process must train on whole rows."""
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
            raise ConfigError(f"{name} is {value}, but each process needs whole rows; use zero3 or fsdp2 instead")


def check_fixed(judge: JudgeArguments, values: Mapping[str, Any], reason: str) -> None:
    """Reject arguments that the recipe does not support."""
    for name, only in values.items():
        if (value := getattr(judge, name)) != only:
            raise ConfigError(f"{name} is {value!r}, but {reason}; remove {name}")


def check_not_negative(judge: JudgeArguments, *names: str) -> None:
    """Reject negative, infinite, and NaN weights."""
    for name in names:
        if not 0 <= (value := getattr(judge, name)) < math.inf:
            raise ConfigError(f"{name} is {value}; expected a finite number of at least 0")


def _check_loss(judge: JudgeArguments, args: Any) -> None:
    if not 0 < judge.score_weight < float("inf"):
        raise ConfigError(f"score_weight is {judge.score_weight}; expected a finite number above 0")
    if judge.loss_average not in ("token", "row"):
        raise not_found("loss_average", judge.loss_average, ("token", "row"))
    plain = getattr(args, "loss_type", "nll") == "nll" and not args.label_smoothing_factor
    reading = judge.chosen.reading
    for name, fits, needed in (
        ("score_weight", reading == "score-line", "a template whose replies begin with a score line"),
        ("score_weight", judge.loss_on == "completion", "loss_on: completion"),
        ("score_weight", plain, "loss_type: nll and label_smoothing_factor: 0"),
        ("loss_average", plain, "loss_type: nll and label_smoothing_factor: 0"),
    ):
        value = getattr(judge, name)
        if value not in (1, "token") and not fits:
            raise ConfigError(f"{name} is {value}, which requires {needed}; otherwise, remove {name}")


def row_options(judge: JudgeArguments, args: Any) -> RowOptions:
    """Return the row options, with `args.max_length` as the context window."""
    scale, on_prompt = (judge.scale[0], judge.scale[1]), judge.loss_on == "all"
    same = {name: getattr(judge, name) for name in ("template", "swap_prob", "reference_drop_prob", "reason_prob")}
    same |= {"window": args.max_length, "seed": args.seed, "prompt": judge.prompt_source}
    return RowOptions(scale=scale, loss_on_prompt=on_prompt, **same)


SAVE_DTYPES = ("auto", "bfloat16", "float16", "float32")


def save_dtype_of(requested: str, args: Any) -> torch.dtype | None:
    """Return the dtype in which to save, or None to keep the training dtype."""
    if requested not in SAVE_DTYPES:
        raise not_found("save_dtype", requested, SAVE_DTYPES)
    if requested == "auto":
        return torch.bfloat16 if args.bf16 else None
    if requested == "float32" and args.deepspeed_plugin is not None and (args.bf16 or args.fp16):
        way_out = "use DeepSpeed's zero_to_fp32.py instead"
        raise ConfigError(f"save_dtype is float32, but DeepSpeed gathers 16-bit weights; {way_out}")
    dtype: torch.dtype = getattr(torch, requested)
    return dtype


def optimizer_states(optim: str) -> tuple[int, int | None]:
    """Return the number of optimizer states per parameter and the bytes per state (None: same as the weight)."""
    numbers = {"adafactor": 0, "lomo": 0, "sgd": 0, "lion": 1, "rmsprop": 1, "adagrad": 1, "ademamix": 3}
    states = next((states for name, states in numbers.items() if name in optim), 2)
    return states, 1 if "8bit" in optim else 4 if "paged" in optim or "32bit" in optim else None
