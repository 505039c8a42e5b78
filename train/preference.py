r"""Fine-tune a judge on preference labels.

    accelerate launch --config_file configs/accelerate/cpu.yaml train/preference.py \
        --config configs/train/small_judge.yaml --model_name_or_path PATH

    accelerate launch --config_file configs/accelerate/gpu.yaml train/preference.py \
        --config configs/train/preference_reading.yaml

See `judgelm.training.score_line_loss` and `judgelm.training.word_loss` for the losses. Rows are pairs labelled with
`preference` (the probability that the first answer is better), scores, or a winner. Accepts the fields of
`judgelm.training.preference.PreferenceArguments` and TRL's `SFTConfig` and `ModelConfig`. Everything else works as in
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
    """Build the rows, model, and trainer."""
    check_preference_arguments(run.judge)
    run.check()

    # prompts for all epochs, two per pair, and pairs to judge at each evaluation
    run.build_rows(PairRowBuilder, both_orders=run.judge.both_orders)
    run.find_start()

    # the model, and a trainer with a loss on the probability that the first answer is better
    model, peft_config = run.load_model(preference_attention(run.judge, run.base, run.args))
    return DistributionTrainer(model=model, peft_config=peft_config, judge=run.judge, **run.trainer_options())


if __name__ == "__main__":
    run_training(build_trainer, PreferenceArguments, JudgeSFTConfig, facts=preference_facts)
