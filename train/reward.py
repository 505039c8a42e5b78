"""Train a reward model on preferences: one number for an answer, by the Bradley-Terry loss.

    accelerate launch --config_file configs/accelerate/gpu.yaml train/reward.py --config configs/train/reward_8b.yaml
    judgelm-batch pairs.jsonl -o judgments.jsonl --mode reward --model runs/reward_8b

Rows are labelled pairs, those of `train/preference.py`: with `preference`, P(first answer is better), or with scores or
a winner. Any field of `judgelm.training.reward.RewardArguments`, TRL's `RewardConfig` and `ModelConfig` can stand in
the YAML file or on the command line, which takes precedence. The output folder, resuming from a checkpoint, and the
exit codes are those of `train/sft.py`.
"""

from judgelm.cli.training import run_training
from judgelm.training.reward import (
    BradleyTerryTrainer,
    JudgeRewardConfig,
    RewardArguments,
    check_reward_arguments,
    load_reward_model,
    reward_facts,
)
from judgelm.training.rows.pairs import RewardRowBuilder
from judgelm.training.run import TrainingRun


def build_trainer(run: TrainingRun) -> BradleyTerryTrainer:
    """Check the arguments; build data, model and trainer."""
    check_reward_arguments(run.judge)
    run.check()

    # data: the chats of the better and the worse answer, and pairs that the model judges at every evaluation
    run.build_rows(RewardRowBuilder, margin_weight=run.judge.margin_weight)
    run.find_start()

    # the base with a head of one number, and TRL's trainer; judges the validation pairs, stops on NaN
    model, peft_config = load_reward_model(run)
    return BradleyTerryTrainer(model=model, peft_config=peft_config, **run.trainer_options())


if __name__ == "__main__":
    run_training(build_trainer, RewardArguments, JudgeRewardConfig, facts=reward_facts)
