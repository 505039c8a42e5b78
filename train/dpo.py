"""Tune a judge by preference: what it should have written against what it wrote.

    judgelm-batch train.jsonl -o mistakes.jsonl --model runs/judge --both-orders
    accelerate launch --config_file configs/accelerate/cpu.yaml train/dpo.py --config configs/train/demo_dpo.yaml

The judge is one that `train/sft.py` made. Any field of `judgelm.training.preference.DpoArguments`, TRL's
`DPOConfig` and `ModelConfig` can stand in the YAML file or on the command line, which goes before the file; how rows
look that carry both judgments themselves, `judgelm.training.preference_pairs` says. The output folder, going on from a
checkpoint, and the exit codes are those of `train/sft.py`.
"""

import sys

from judgelm.errors import JudgelmError
from judgelm.training.cpu_processes import end_process, join_processes
from judgelm.training.preference import ARGUMENTS, prepare_preference
from judgelm.training.run import read_arguments, train_and_save


def main() -> None:
    """Read the configuration, build, train, write."""
    judge, dpo, model = read_arguments(*ARGUMENTS)
    join_processes(dpo, say=print)
    code = train_and_save(prepare_preference(judge, dpo, model), judge, model, say=print)
    end_process(dpo, code)
    if code:
        sys.exit(code)


if __name__ == "__main__":
    try:
        main()
    except JudgelmError as error:
        sys.exit(f"error: {error}")
