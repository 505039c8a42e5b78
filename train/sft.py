"""Fine-tune a judge.

    accelerate launch --config_file configs/accelerate/cpu.yaml train/sft.py --config configs/train/demo.yaml

Any field of `judgelm.training.config.JudgeArguments`, TRL's `SFTConfig` and `ModelConfig` can stand in the YAML file or
on the command line, which goes before the file. The output folder holds the model (or the LoRA adapter), its tokenizer
and `judge.json`, ready for `judgelm-batch --model`.

The same command again goes on from the last whole checkpoint, with the losses of a run that was never stopped. SIGTERM
and SIGUSR1 save one at the next step's end and stop: exit code 143 and 138 (the launcher's own is 1).
"""

import sys

from judgelm.errors import JudgelmError
from judgelm.training.cpu_processes import end_process, join_processes
from judgelm.training.run import read_arguments, train_and_save
from judgelm.training.sft import ARGUMENTS, prepare


def main() -> None:
    """Read the configuration, build, train, write."""
    judge, sft, model = read_arguments(*ARGUMENTS)
    join_processes(sft, say=print)
    code = train_and_save(prepare(judge, sft, model), judge, model, say=print)
    end_process(sft, code)
    if code:
        sys.exit(code)


if __name__ == "__main__":
    try:
        main()
    except JudgelmError as error:
        sys.exit(f"error: {error}")
