"""Train a judge to reason before its verdict with GRPO. Verdicts that are correct in both orders are rewarded.

    accelerate launch --config_file configs/accelerate/zero3.yaml train/grpo.py --config configs/train/grpo_7b.yaml

See `judgelm.training.grpo` for the reward. Rows are pairs labelled with `preference`, scores, or a winner. Accepts the
fields of `judgelm.training.grpo.GRPOArguments` and TRL's `GRPOConfig` and `ModelConfig`; see `train/sft.py`.
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

    # prompts for all epochs, with both orders of each pair adjacent, and pairs to judge at each evaluation
    rows = run.build_rows(JudgingPromptBuilder, reply_tokens=grpo.max_completion_length)
    run.rows, run.evaluation = in_both_orders(rows, step=prompts_of_a_generation(grpo)), None
    run.find_start()

    # the model, and a trainer that rewards correct verdicts in both orders
    model, peft_config = run.load_model()
    judged = {"eval_dataset": run.rows.dataset.select([0]) if run.validation else None}
    options = run.trainer_options() | judged
    return VerdictTrainer(model=model, peft_config=peft_config, window=run.rows.window, judge=judge, **options)


if __name__ == "__main__":
    run_training(build_trainer, GRPOArguments, JudgeGRPOConfig, facts=grpo_facts)
