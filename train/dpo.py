"""Tune a judge by preference: what it should have written against what it wrote.

    judgelm-batch train.jsonl -o mistakes.jsonl --model runs/judge --both-orders
    accelerate launch --config_file configs/accelerate/cpu.yaml train/dpo.py --config configs/train/demo_dpo.yaml

The judge is one that `train/sft.py` made. Any field of `judgelm.training.preference_tuning.DpoArguments`, TRL's
`DPOConfig` and `ModelConfig` can stand in the YAML file or on the command line, which goes before the file; how rows
look that carry both judgments themselves, `judgelm.training.judgment_pairs` says. The output folder, going on from a
checkpoint, and the exit codes are those of `train/sft.py`.
"""

import sys

from trl import DPOConfig, ModelConfig, TrlParser

from judgelm.errors import JudgelmError
from judgelm.training.preference_tuning import DpoArguments, prepare_preference
from judgelm.training.saving import save


def main() -> None:
    """Read the configuration, build, train, write."""
    judge, dpo, model = TrlParser((DpoArguments, DPOConfig, ModelConfig)).parse_args_and_config()
    tuning = prepare_preference(judge, dpo, model)
    if tuning.trainer.is_world_process_zero():
        print(f"train: {tuning.train.counts}")
        if tuning.eval_counts is not None:
            print(f"eval: {tuning.eval_counts}")
        if tuning.judging is not None:
            print(f"eval: {tuning.judging.pairs}")
        for note in tuning.guards.start.notes:
            print(note)
    with tuning.guards.watching():
        tuning.trainer.train(resume_from_checkpoint=tuning.guards.start.checkpoint)
        stopped_by = tuning.guards.preemption.stopped_by
        if stopped_by is None:
            save(tuning, judge, model)
    if tuning.trainer.is_world_process_zero():
        print(f"judge in {dpo.output_dir}" if stopped_by is None else tuning.guards.stopped(tuning.trainer))
    if stopped_by is not None:
        sys.exit(128 + stopped_by)


if __name__ == "__main__":
    try:
        main()
    except JudgelmError as error:
        sys.exit(f"error: {error}")
