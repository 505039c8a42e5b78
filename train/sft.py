"""Fine-tune a judge.

    accelerate launch --config_file configs/accelerate/cpu.yaml train/sft.py --config configs/train/demo.yaml

Any field of `judgelm.training.config.JudgeArguments`, TRL's `SFTConfig` and `ModelConfig` can stand in the YAML file or
on the command line, which goes before the file. The output folder holds the model (or the LoRA adapter), its tokenizer
and `judge.json`, ready for `judgelm-batch --model`.
"""

import sys

from trl import ModelConfig, SFTConfig, TrlParser

from judgelm.errors import JudgelmError
from judgelm.training.config import JudgeArguments
from judgelm.training.finetune import prepare
from judgelm.training.rows import RowCounts
from judgelm.training.saving import save


def main() -> None:
    """Read the configuration, build, train, write."""
    judge, sft, model = TrlParser((JudgeArguments, SFTConfig, ModelConfig)).parse_args_and_config()
    tuning = prepare(judge, sft, model)
    if tuning.trainer.is_world_process_zero():
        print_counts("train", tuning.train.counts)
        if tuning.eval_counts is not None:
            print_counts("eval", tuning.eval_counts)
    tuning.trainer.train(resume_from_checkpoint=sft.resume_from_checkpoint)
    save(tuning, judge, model)
    if tuning.trainer.is_world_process_zero():
        print(f"judge in {sft.output_dir}")


def print_counts(name: str, counts: RowCounts) -> None:
    """Say what became of the data, since a judge is no better than what it was shown."""
    left_out = ", ".join(f"{count} {reason}" for reason, count in counts.left_out.most_common()) or "none"
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.kinds.most_common())
    print(
        f"{name}: {counts.made} rows ({kinds}), {counts.swapped} swapped, {counts.with_reference} with reference, "
        f"{counts.with_reason} with reason, {counts.cut} with an answer cut; left out: {left_out}"
    )


if __name__ == "__main__":
    try:
        main()
    except JudgelmError as error:
        sys.exit(f"error: {error}")
