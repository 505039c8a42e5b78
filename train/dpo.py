"""Fine-tune a judge with DPO to prefer correct judgments over its own mistakes.

    judgelm-batch train.jsonl -o mistakes.jsonl --model runs/judge --both-orders
    accelerate launch --config_file configs/accelerate/cpu.yaml train/dpo.py --config configs/train/demo_dpo.yaml

Start from a judge trained with `train/sft.py`. See `judgelm.training.rows.dpo` for rows that contain both judgments.
Accepts the fields of `judgelm.training.dpo.DPOArguments` and TRL's `DPOConfig` and `ModelConfig`; see `train/sft.py`.
"""

from judgelm.cli.training import run_training
from judgelm.training.dpo import (
    DPOArguments,
    JudgeDPOConfig,
    PreferenceTrainer,
    check_dpo_arguments,
    dpo_facts,
    find_tuned_card,
    load_reference_model,
)
from judgelm.training.rows.dpo import PreferenceRowBuilder
from judgelm.training.run import TrainingRun


def build_trainer(run: TrainingRun) -> PreferenceTrainer:
    """Build the rows, models, and trainer."""
    judge, dpo, base = run.judge, run.args, run.base
    run.tuned_from = find_tuned_card(base, judge)
    check_dpo_arguments(judge, dpo)
    run.check()

    # tokenised rows for all epochs, and pairs to judge at each evaluation
    own = {"judgments": tuple(judge.judgments), "min_distance": judge.min_distance}
    run.build_rows(PreferenceRowBuilder, extra_files=judge.judgments, **own)
    run.find_start()

    # the judge, and a frozen copy as the reference model
    model, peft_config = run.load_model()
    reference = load_reference_model(base, dpo, run.attention)

    # a TRL trainer that also judges the validation pairs and stops on NaN
    return PreferenceTrainer(model=model, ref_model=reference, peft_config=peft_config, **run.trainer_options())


if __name__ == "__main__":
    run_training(build_trainer, DPOArguments, JudgeDPOConfig, facts=dpo_facts)
