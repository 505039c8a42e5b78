"""Fine-tune a judge.

    accelerate launch --config_file configs/accelerate/cpu.yaml train/sft.py --config configs/train/demo.yaml

Any field of `judgelm.training.config.JudgeArguments`, TRL's `SFTConfig` and `ModelConfig` can stand in the YAML file or
on the command line, which goes before the file. The output folder holds the model (or the LoRA adapter), its tokenizer
and `judge.json`, ready for `judgelm-batch --model`.

The same command again goes on from the last whole checkpoint, with the losses of a run that was never stopped. SIGTERM
and SIGUSR1 save one at the next step's end and stop: exit code 143 and 138 (the launcher's own is 1).
"""

import sys

from trl import ModelConfig, SFTConfig, TrlParser

from judgelm.errors import JudgelmError
from judgelm.training.config import JudgeArguments
from judgelm.training.cpu_processes import join_processes
from judgelm.training.finetune import prepare
from judgelm.training.saving import save


def main() -> None:
    """Read the configuration, build, train, write."""
    judge, sft, model = TrlParser((JudgeArguments, SFTConfig, ModelConfig)).parse_args_and_config()
    join_processes(sft)
    tuning = prepare(judge, sft, model)
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
        print(f"judge in {sft.output_dir}" if stopped_by is None else tuning.guards.stopped(tuning.trainer))
    tuning.trainer.accelerator.end_training()  # with connections left open, a process now and then ends in abort()
    if stopped_by is not None:
        sys.exit(128 + stopped_by)


if __name__ == "__main__":
    try:
        main()
    except JudgelmError as error:
        sys.exit(f"error: {error}")
