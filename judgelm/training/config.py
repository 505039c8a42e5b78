"""Arguments of `train/sft.py` beside TRL's own, and the batch that they make."""

from dataclasses import dataclass, field
from typing import Any

from judgelm.errors import ConfigError


@dataclass(kw_only=True)
class JudgeArguments:
    """Data, template and target of a judge's fine-tuning.

    TRL's `SFTConfig` configures the optimisation, its `ModelConfig` the base model, LoRA and quantisation;
    `max_length` of the former is the judge's window.
    """

    train_data: list[str] = field(
        metadata={
            "help": "Files of labelled answers: JudgeLM rows, or plain rows with the scores of two answers, of three "
            "or more, or of one that has a reference; the number of answers decides what a row teaches."
        }
    )
    eval_data: list[str] = field(
        default_factory=list,
        metadata={
            "help": "The same for the evaluations, which compute the loss and let the model in training judge their "
            "pairs. Without an eval_strategy there is one evaluation, at the end."
        },
    )
    eval_pairs: int = field(
        default=200,
        metadata={
            "help": "Pairs of eval_data, drawn by the seed, that the model in training judges in both orders at every "
            "evaluation (eval_agreement, eval_agreement_by_mean, eval_consistency, eval_delta_bias, eval_failed); 0 "
            "for the eval loss only."
        },
    )
    early_stopping_patience: int | None = field(
        default=None,
        metadata={"help": "Stop after this many evaluations without a better metric_for_best_model."},
    )
    adapter: str | None = field(
        default=None,
        metadata={
            "help": "Folder of a LoRA judge to train further, on the base that it was trained on; needs use_peft: "
            "true. Its rank and layers count, the lora_ options do not."
        },
    )
    template: str = field(default="judgelm-v1", metadata={"help": "Prompt template; written into the judge's card."})
    scale: list[float] = field(default_factory=lambda: [1, 10], metadata={"help": "Lowest and highest score."})
    swap_prob: float = field(
        default=0.5,
        metadata={
            "help": "Probability that a pair is shown with its answers, scores and the names in its reason exchanged, "
            "drawn in every epoch; a pair with an ambiguous reason stays unchanged. (JudgeLM, section 5.1)"
        },
    )
    reference_drop_prob: float = field(
        default=0.5,
        metadata={
            "help": "Probability that a row with a judgment made with a reference is shown without it, in prompt and "
            "target: 0 always shows references, 1 never; single answers keep theirs. (JudgeLM, section 5.3; 0.5 is "
            "the original script's value.)"
        },
    )
    reason_prob: float = field(
        default=1.0, metadata={"help": "Share of rows whose target has the reason and EOS after the score line."}
    )
    loss_on: str = field(
        default="completion",
        metadata={"help": "completion: the loss counts the reply only; all: prompt and reply, to pre-train a base."},
    )
    score_weight: float = field(
        default=1.0,
        metadata={"help": "Weight of a score line's token in the loss, where a token of the reason has 1."},
    )
    overwrite_output_dir: bool = field(
        default=False,
        metadata={
            "help": "Overwrite output_dir: a finished judge, or checkpoints, which are removed. Without it a run "
            "resumes from its last whole checkpoint, and a finished judge is not overwritten; with it a run always "
            "starts from the beginning."
        },
    )
    save_dtype: str = field(
        default="auto",
        metadata={
            "help": "Dtype of the finished judge's weights: auto (bfloat16 where training computed in it, else as "
            "trained), bfloat16, float16, float32. Checkpoints and adapters are written as they are trained."
        },
    )
    global_batch: int | None = field(
        default=None,
        metadata={
            "help": "Rows of one optimiser step over all processes: per_device_train_batch_size x "
            "gradient_accumulation_steps x processes. Leave gradient_accumulation_steps out (or at 1) to have it "
            "computed, so that a config works on any number of GPUs; any other product is an error."
        },
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
