"""Train a judge that reasons before its verdict with GRPO. Verdicts that are right in both orders are rewarded.

    accelerate launch --config_file configs/accelerate/zero3.yaml train/grpo.py --config configs/train/grpo_7b.yaml

The reward is described in `judgelm.training.grpo`. Rows are labelled pairs with a `preference`, scores, or a winner.
The
arguments are `judgelm.training.grpo.GRPOArguments` and TRL's `GRPOConfig` and `ModelConfig`; see also `train/sft.py`.
"""

from judgelm.cli.training import run_training
from judgelm.prompts.judge_card import find_card
from judgelm.training.arguments import base_name
from judgelm.training.grpo import (
    GRPOArguments,
    JudgeGRPOConfig,
    VerdictTrainer,
    check_grpo_arguments,
    grpo_facts,
    in_both_orders,
    prompts_of_a_generation,
)
from judgelm.training.rows.pairs import JudgingPromptBuilder
from judgelm.training.run import TrainingRun


def build_trainer(run: TrainingRun) -> VerdictTrainer:
    """Build the rows, model, and trainer."""
    judge, grpo, base = run.judge, run.args, run.base
    run.tuned_from = find_card(base_name(base), base.model_revision)
    check_grpo_arguments(judge, grpo)
    run.check()

    # prompts of all epochs, with both orders of a pair next to each other, and pairs to judge
    rows = run.build_rows(JudgingPromptBuilder, reply_tokens=grpo.max_completion_length)
    run.rows, run.evaluation = in_both_orders(rows, step=prompts_of_a_generation(grpo)), None
    run.find_start()

    # model, and trainer with a reward for both orders
    model, peft_config = run.load_model()
    judged = {"eval_dataset": run.rows.dataset.select([0]) if run.validation else None}
    options = run.trainer_options() | judged
    return VerdictTrainer(model=model, peft_config=peft_config, window=run.rows.window, judge=judge, **options)


if __name__ == "__main__":
    run_training(build_trainer, GRPOArguments, JudgeGRPOConfig, facts=grpo_facts)
