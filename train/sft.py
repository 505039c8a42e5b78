"""Fine-tune a judge.

    accelerate launch --config_file configs/accelerate/cpu.yaml train/sft.py --config configs/train/demo.yaml

Any field of `judgelm.training.arguments.JudgeArguments`, TRL's `SFTConfig` and `ModelConfig` can stand in the YAML
file or on the command line, which takes precedence. The output folder holds the model (or LoRA adapter), tokenizer and
`judge.json`, ready for `judgelm-batch --model`.

The same command again resumes from the last whole checkpoint, with the losses of an uninterrupted run. SIGTERM and
SIGUSR1 save a checkpoint at the next step's end and stop: exit code 143 and 138 (the launcher's own is 1).
"""

from judgelm.cli.training import run_training
from judgelm.training.arguments import JudgeArguments
from judgelm.training.rows.sft import SFTRowBuilder
from judgelm.training.run import TrainingRun
from judgelm.training.sft import JudgeSFTConfig, JudgeTrainer


def build_trainer(run: TrainingRun) -> JudgeTrainer:
    """Check the arguments; build data, model and trainer."""
    run.check()

    # data: the token rows of all epochs, and pairs that the model judges at every evaluation
    run.build_rows(SFTRowBuilder)
    run.find_start()

    # model, and TRL's trainer, which also judges the validation pairs and stops on NaN
    model, peft_config = run.load_model()
    loss = {"score_weight": run.judge.score_weight, "loss_average": run.judge.loss_average}
    return JudgeTrainer(model=model, peft_config=peft_config, **loss, **run.trainer_options())


if __name__ == "__main__":
    run_training(build_trainer, JudgeArguments, JudgeSFTConfig)
