"""Reinforce a judge that reasons first: a verdict counts if it is right in both orders.

    accelerate launch --config_file configs/accelerate/zero3.yaml train/grpo.py --config configs/train/grpo_7b.yaml

`judgelm.training.verdict_reward` states the reward. Rows are labelled pairs: with `preference`, scores or a winner.
Any field of `judgelm.training.grpo.GRPOArguments`, TRL's `GRPOConfig` and `ModelConfig` can stand in the YAML file or
on the command line, which takes precedence. The output folder, resuming from a checkpoint, and the exit codes are
those of `train/sft.py`.
"""

import sys

from transformers import TrainerCallback
from trl import ModelConfig

from judgelm.cli.console import echo, printable
from judgelm.engines.weights import check_pickled
from judgelm.errors import JudgelmError
from judgelm.prompts.judge_card import find_card
from judgelm.training.arguments import check_arguments, parse_arguments
from judgelm.training.attention import choose_attention
from judgelm.training.base_model import check_adapter, load_base_model, load_tokenizer, with_adapter
from judgelm.training.checkpoints import CheckpointCallback
from judgelm.training.config import base_name
from judgelm.training.disk import check_disk_space, disk_full_as_error
from judgelm.training.distributed import connect_processes, end_processes
from judgelm.training.grpo import (
    GRPOArguments,
    VerdictTrainer,
    check_grpo_arguments,
    grpo_facts,
    paired_prompts,
    prompt_options,
)
from judgelm.training.precision import JudgeGRPOConfig, settle_precision
from judgelm.training.resume import find_start, refuse_finished, skip_if_done
from judgelm.training.rows.dataset import build_rows
from judgelm.training.rows.judging_prompts import JudgingPromptBuilder
from judgelm.training.safeguards import PreemptionCallback, out_of_memory_as_error
from judgelm.training.save import save_judge
from judgelm.training.trainer import run_summary
from judgelm.training.validation.evaluator import load_validation


def build_trainer(
    judge: GRPOArguments, grpo: JudgeGRPOConfig, base: ModelConfig, *extra: TrainerCallback
) -> VerdictTrainer:
    """Check the arguments; build data, model and trainer."""
    refuse_finished(judge, grpo)
    check_grpo_arguments(judge, grpo)
    check_arguments(judge, grpo)
    check_adapter(judge, base)

    # data: the prompts of all epochs, both orders of a pair side by side, and pairs that the model judges
    tokenizer = load_tokenizer(base, trust_remote_code=grpo.trust_remote_code)
    check_pickled(base_name(base), base.model_revision)
    notes = settle_precision(judge, grpo, base)
    rows, _ = build_rows(tokenizer, JudgingPromptBuilder, prompt_options(judge, grpo), judge, grpo)
    train = paired_prompts(rows, grpo)
    validation = load_validation(judge, grpo, train)
    start = find_start(judge, grpo, base, train)
    grpo.resume_from_checkpoint = start.checkpoint

    # model
    attention = choose_attention(base, grpo)
    model, peft_config = with_adapter(load_base_model(base, grpo, attention), base, judge)

    # trainer: TRL's, with the reward of both orders; judges the validation pairs, stops on NaN
    checkpoints = CheckpointCallback(start.settings)
    trainer = VerdictTrainer(
        model=model,
        args=grpo,
        rows=train,
        window=train.window,
        eval_dataset=train.dataset.select([0]) if validation else None,
        processing_class=tokenizer,
        peft_config=peft_config,
        judge=judge,
        validation=validation,
        patience=judge.early_stopping_patience,
        callbacks=[checkpoints, *extra],
    )
    skip_if_done(trainer, start)
    check_disk_space(trainer, checkpoints.limit)
    if trainer.is_world_process_zero():
        echo("\n".join(run_summary(trainer, None, attention, [*notes, *start.notes])))
    return trainer


def main() -> int:
    """Build, train, save; the exit code."""
    judge, grpo, base = parse_arguments(GRPOArguments, JudgeGRPOConfig, ModelConfig)
    connect_processes(grpo, log=echo)
    card = find_card(base_name(base), base.model_revision)
    preemption = PreemptionCallback()
    trainer = build_trainer(judge, grpo, base, preemption)

    # train and save
    with preemption.handle_signals(), disk_full_as_error(grpo.output_dir), out_of_memory_as_error(trainer):
        trainer.train(resume_from_checkpoint=grpo.resume_from_checkpoint)
        if preemption.stopped_by is None:
            save_judge(trainer, judge, base, facts=grpo_facts(judge, grpo), tuned_from=card)

    if trainer.is_world_process_zero():
        echo(preemption.summary(trainer))
    end_processes(trainer, preemption.exit_code)
    return preemption.exit_code


if __name__ == "__main__":
    try:
        if code := main():
            sys.exit(code)
    except JudgelmError as error:
        sys.exit(printable(f"error: {error}"))
