"""Fine-tune a judge.

    accelerate launch --config_file configs/accelerate/cpu.yaml train/sft.py --config configs/train/demo.yaml

The YAML file and the command line accept all fields of `judgelm.training.arguments.JudgeArguments` and TRL's
`SFTConfig` and `ModelConfig`. The command line takes precedence. The output folder contains the model or LoRA adapter,
the tokenizer, and `judge.json`, ready for `judgelm-batch --model`.

To resume from the last complete checkpoint, run the same command again. On SIGTERM or SIGUSR1, the recipe saves a
checkpoint and exits with code 143 or 138 (the launcher exits with 1).
"""

from judgelm.cli.training import run_training
from judgelm.training.arguments import JudgeArguments
from judgelm.training.rows.sft import SFTRowBuilder
from judgelm.training.run import TrainingRun
from judgelm.training.sft import JudgeSFTConfig, JudgeTrainer


def build_trainer(run: TrainingRun) -> JudgeTrainer:
    """Build the rows, model, and trainer."""
    run.check()

    # tokenised rows for all epochs, and pairs to judge at each evaluation
    run.build_rows(SFTRowBuilder)
    run.find_start()

    # the model, and a trainer that also judges the validation pairs and stops on NaN
    model, peft_config = run.load_model()
    loss = {"score_weight": run.judge.score_weight, "loss_average": run.judge.loss_average}
    return JudgeTrainer(model=model, peft_config=peft_config, **loss, **run.trainer_options())


if __name__ == "__main__":
    run_training(build_trainer, JudgeArguments, JudgeSFTConfig)
