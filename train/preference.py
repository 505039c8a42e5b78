"""Fine-tune a judge on preferences: by its distribution over score lines, or by the first word of its reply.

    accelerate launch --config_file configs/accelerate/cpu.yaml train/preference.py \
        --config configs/train/small_judge.yaml --model_name_or_path PATH

    accelerate launch --config_file configs/accelerate/gpu.yaml train/preference.py \
        --config configs/train/preference_reading.yaml

`judgelm.training.preference` and `judgelm.training.word_loss` state the losses. Rows are labelled pairs: with
`preference`, P(first answer is better), or with scores or a winner. Any field of
`judgelm.training.preference.PreferenceArguments`, TRL's `SFTConfig` and `ModelConfig` can stand in the YAML file or on
the command line, which takes precedence. The output folder, resuming from a checkpoint, and the exit codes are those of
`train/sft.py`.
"""

from judgelm.cli.training import run_training
from judgelm.training.preference import (
    DistributionTrainer,
    PreferenceArguments,
    check_preference_arguments,
    preference_attention,
    preference_facts,
)
from judgelm.training.rows.pairs import PairRowBuilder
from judgelm.training.run import TrainingRun
from judgelm.training.sft import JudgeSFTConfig


def build_trainer(run: TrainingRun) -> DistributionTrainer:
    """Check the arguments; build data, model and trainer."""
    check_preference_arguments(run.judge)
    run.check()

    # data: the prompts of all epochs, two for each pair, and pairs that the model judges at every evaluation
    run.build_rows(PairRowBuilder, both_orders=run.judge.both_orders)
    run.find_start()

    # model, and TRL's trainer with the loss on P(first better); judges the validation pairs, stops on NaN
    model, peft_config = run.load_model(preference_attention(run.judge, run.base, run.args))
    return DistributionTrainer(model=model, peft_config=peft_config, judge=run.judge, **run.trainer_options())


if __name__ == "__main__":
    run_training(build_trainer, PreferenceArguments, JudgeSFTConfig, facts=preference_facts)
