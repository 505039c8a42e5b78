"""Arguments of a recipe beside TRL's: their fields, parsing, and checks against each other."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from transformers.utils import is_liger_kernel_available  # type: ignore[attr-defined]  # re-exported implicitly

from judgelm.errors import ConfigError, MissingExtraError
from judgelm.prompts.catalog import get_template
from judgelm.training.rows.builder import RowOptions


def argument(description: str, **default: Any) -> Any:
    """A field of a recipe's arguments; the description is its text in `--help`."""
    return field(metadata={"help": description}, **default)


@dataclass(kw_only=True)
class JudgeArguments:
    """Data, template and target of a judge's fine-tuning.

    TRL's `SFTConfig` configures the optimisation, its `ModelConfig` the base model, LoRA and quantisation;
    `max_length` of the former is the judge's window.

    Attributes:
        trains_words: whether the recipe trains judges that are read off the first word of their reply.
    """

    trains_words: ClassVar[bool] = False

    train_data: list[str] = argument(
        "Files of labelled answers: JudgeLM rows, or plain rows with the scores of two answers, of three or more, or "
        "of one that has a reference; the number of answers decides what a row teaches."
    )
    eval_data: list[str] = argument(
        "The same for the evaluations, which compute the loss and let the model in training judge their pairs. "
        "Without an eval_strategy there is one evaluation, at the end.",
        default_factory=list,
    )
    eval_pairs: int = argument(
        "Pairs of eval_data, drawn by the seed, that the model in training judges in both orders at every evaluation "
        "(eval_agreement, eval_agreement_by_mean, eval_consistency, eval_delta_bias, eval_failed); 0 for the eval "
        "loss only.",
        default=200,
    )
    early_stopping_patience: int | None = argument(
        "Stop after this many evaluations without a better metric_for_best_model.", default=None
    )
    adapter: str | None = argument(
        "Folder of a LoRA judge to train further, on the base that it was trained on; needs use_peft: true. Its rank "
        "and layers count, the lora_ options do not.",
        default=None,
    )
    template: str = argument("Prompt template; written into the judge's card.", default="judgelm-v1")
    scale: list[float] = argument("Lowest and highest score.", default_factory=lambda: [1, 10])
    swap_prob: float = argument(
        "Probability that a pair is shown with its answers, scores and the names in its reason exchanged, drawn in "
        "every epoch; a pair with an ambiguous reason stays unchanged. (JudgeLM, section 5.1)",
        default=0.5,
    )
    reference_drop_prob: float = argument(
        "Probability that a row with a judgment made with a reference is shown without it, in prompt and target: 0 "
        "always shows references, 1 never; single answers keep theirs. (JudgeLM, section 5.3; 0.5 is the original "
        "script's value.)",
        default=0.5,
    )
    reason_prob: float = argument(
        "Share of rows whose target has the reason and EOS after the score line.", default=1.0
    )
    loss_on: str = argument(
        "completion: the loss counts the reply only; all: prompt and reply, to pre-train a base.", default="completion"
    )
    score_weight: float = argument(
        "Weight of a score line's token in the loss, where a token of the reason has 1.", default=1.0
    )
    loss_average: str = argument(
        "token: the loss of a step is the mean over all its tokens, so that a long reason weighs more than a short "
        "one. row: the mean over its rows, each with the mean over its own tokens, as in JudgeLM's script.",
        default="token",
    )
    overwrite_output_dir: bool = argument(
        "Overwrite output_dir: a finished judge, or checkpoints, which are removed. Without it a run resumes from "
        "its last whole checkpoint, and a finished judge is not overwritten; with it a run always starts from the "
        "beginning.",
        default=False,
    )
    save_dtype: str = argument(
        "Dtype of the finished judge's weights: auto (bfloat16 where training computed in it, else as trained), "
        "bfloat16, float16, float32. Checkpoints and adapters are written as they are trained.",
        default="auto",
    )
    global_batch: int | None = argument(
        "Rows of one optimiser step over all processes: per_device_train_batch_size x gradient_accumulation_steps x "
        "processes. Leave gradient_accumulation_steps out (or at 1) to have it computed, so that a config works on "
        "any number of GPUs; any other product is an error.",
        default=None,
    )


def accumulation_steps(global_batch: int | None, *, per_device: int, accumulation: int, processes: int) -> int:
    """Passes of an optimiser step, computed from the global batch where they are 1.

    Args:
        global_batch: rows of one optimiser step; None accepts any.
        per_device: rows of one process in one pass.
        accumulation: configured passes.
        processes: devices with separate rows, over all machines.

    Raises:
        ConfigError: the configured passes make another batch, or no number of passes makes this one.
    """
    one_pass = per_device * processes
    if global_batch is None or global_batch == one_pass * accumulation:
        return accumulation
    if global_batch < 1 or global_batch % one_pass:
        way_out = (
            f"no accumulation gives it, since {global_batch} is no multiple of {one_pass} rows a pass; "
            "change the others"
        )
    elif accumulation == 1:
        return global_batch // one_pass
    else:
        way_out = f"gradient_accumulation_steps: {global_batch // one_pass} would give it, or leave it out"
    raise ConfigError(
        f"global_batch is {global_batch}, but per_device_train_batch_size {per_device} x gradient_accumulation_steps "
        f"{accumulation} x {processes} processes make {one_pass * accumulation}; {way_out}"
    )


def processes(args: Any) -> int:
    """Devices with separate rows; with torch's DataParallel one process drives several."""
    return int(args.world_size) * max(1, int(args.n_gpu))


def rows_per_step(args: Any) -> int:
    """Rows of one optimiser step over all processes; GRPO draws several replies to each row."""
    sequences = int(args.per_device_train_batch_size * args.gradient_accumulation_steps) * processes(args)
    return sequences // getattr(args, "num_generations", 1)


def base_name(base: Any) -> str:
    """The base model's folder or hub id.

    Raises:
        ConfigError: it is missing.
    """
    if not base.model_name_or_path:
        raise ConfigError("model_name_or_path is missing; give the base model's folder or hub id")
    return str(base.model_name_or_path)


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


def check_arguments(judge: JudgeArguments, args: Any) -> None:
    """Check that the arguments fit each other, before anything is loaded.

    Args:
        judge: data and target.
        args: TRL's `SFTConfig` or `DPOConfig`; receives the accumulation that makes `global_batch`.

    Raises:
        ConfigError: they do not fit, or Liger kernels are not installed.
    """
    check_parallelism(args)
    check_template(judge)
    if not judge.train_data:
        raise ConfigError("train_data is empty; give it a file of labelled rows")
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
    _check_loss(judge, args)
    if args.use_liger_kernel and not is_liger_kernel_available():
        raise MissingExtraError(
            "use_liger_kernel needs liger-kernel and a GPU; run: pip install liger-kernel, or set it to false"
        )


_SPLITS = {"tp_size": "tensor", "cp_size": "context", "sp_size": "sequence"}


def check_parallelism(args: Any) -> None:
    """Refuse processes that share a row or a layer: batches, rows and losses count on rows of their own for each.

    Raises:
        ConfigError: accelerate's or DeepSpeed's configuration or the arguments split rows or layers.
    """
    launched = os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG", "").lower() == "true"
    own, load = args.parallelism_config or {}, args.model_init_kwargs
    own = own if isinstance(own, Mapping) else vars(own)
    deepspeed = args.deepspeed_plugin.deepspeed_config if args.deepspeed_plugin is not None else {}
    found: dict[str, Any] = {
        f"parallelism_config: {name} ({kind} parallelism)": own.get(name)
        or (launched and os.environ.get(f"PARALLELISM_CONFIG_{name.upper()}"))
        for name, kind in _SPLITS.items()
    }
    found["deepspeed_config: autotp_size"] = deepspeed.get("tensor_parallel", {}).get("autotp_size")
    found["deepspeed_config: sequence_parallel_size"] = deepspeed.get("sequence_parallel_size")
    for name in ("tp_plan", "tp_size", "device_mesh", "distributed_config") if isinstance(load, Mapping) else ():
        found[f"model_init_kwargs: {name}"] = load.get(name)
    for name, value in found.items():
        if value and str(value) != "1":
            raise ConfigError(
                f"{name} is {value}, but each process of a training takes whole rows of its own; leave it out, and "
                "split the weights with zero3 or fsdp2 (configs/accelerate)"
            )


def check_template(judge: JudgeArguments) -> None:
    """Check that the recipe trains the reading of the template.

    Raises:
        ConfigError: it does not, or there is no such template.
    """
    template = get_template(judge.template)
    if template.reads_words and not judge.trains_words:
        raise ConfigError(
            f"template {template.id}: the judge is read off one word (reading {template.reading}) and writes no "
            "target that this recipe trains; use train/preference.py, or another template"
        )


def _check_loss(judge: JudgeArguments, args: Any) -> None:
    if not 0 < judge.score_weight < float("inf"):
        raise ConfigError(f"score_weight is {judge.score_weight}; it is a number above 0, and 1 has no effect")
    if judge.loss_average not in ("token", "row"):
        raise ConfigError(f"loss_average {judge.loss_average!r} does not exist; available: token, row")
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
            raise ConfigError(f"{name} is {value}, which needs {needed}; leave it out, or set that")


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


SAVE_DTYPES = ("auto", "bfloat16", "float16", "float32")


def save_dtype_of(requested: str, args: Any) -> torch.dtype | None:
    """The dtype of a finished judge's weights; None leaves them as they were trained.

    Args:
        requested: `save_dtype`; `auto` is bfloat16 where training computed in it, else as trained.
        args: the trainer's arguments.

    Raises:
        ConfigError: no such dtype, or one that DeepSpeed cannot gather.
    """
    if requested not in SAVE_DTYPES:
        raise ConfigError(f"save_dtype {requested!r} does not exist; available: {', '.join(SAVE_DTYPES)}")
    if requested == "auto":
        return torch.bfloat16 if args.bf16 else None
    if requested == "float32" and args.deepspeed_plugin is not None and (args.bf16 or args.fp16):
        raise ConfigError(
            "save_dtype is float32, but DeepSpeed gathers the weights in 16 bits; leave it out, and convert a "
            "checkpoint to float32 with DeepSpeed's zero_to_fp32.py"
        )
    dtype: torch.dtype = getattr(torch, requested)
    return dtype


def optimizer_states(optim: str) -> tuple[int, int | None]:
    """Numbers that an optimiser keeps for each parameter, and bytes of each; None where they have the weight's dtype.

    An unknown name counts as a variant of Adam, as most are.
    """
    numbers = {"adafactor": 0, "lomo": 0, "sgd": 0, "lion": 1, "rmsprop": 1, "adagrad": 1, "ademamix": 3}
    states = next((states for name, states in numbers.items() if name in optim), 2)
    return states, 1 if "8bit" in optim else 4 if "paged" in optim or "32bit" in optim else None
