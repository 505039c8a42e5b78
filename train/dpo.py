"""Tune a judge by preference: the correct judgment against the one that it wrote.

    judgelm-batch train.jsonl -o mistakes.jsonl --model runs/judge --both-orders
    accelerate launch --config_file configs/accelerate/cpu.yaml train/dpo.py --config configs/train/demo_dpo.yaml

The judge is one that `train/sft.py` made. Any field of `judgelm.training.dpo.DPOArguments`, TRL's `DPOConfig` and
`ModelConfig` can stand in the YAML file or on the command line, which takes precedence;
`judgelm.training.rows.preference` describes rows that carry both judgments themselves. The output folder, resuming
from a checkpoint, and the exit codes are those of `train/sft.py`.
"""

import sys

from transformers import TrainerCallback
from trl import ModelConfig, get_peft_config

from judgelm.cli.console import echo, printable
from judgelm.engines.weights import check_pickled
from judgelm.errors import JudgelmError
from judgelm.training.arguments import check_arguments, parse_arguments
from judgelm.training.attention import choose_attention
from judgelm.training.base_model import load_base_model, load_tokenizer
from judgelm.training.checkpoints import CheckpointCallback
from judgelm.training.config import base_name
from judgelm.training.disk import check_disk_space, disk_full_as_error
from judgelm.training.distributed import connect_processes, end_processes
from judgelm.training.dpo import (
    DPOArguments,
    PreferenceTrainer,
    check_dpo_arguments,
    dpo_facts,
    find_tuned_card,
    load_reference_model,
    preference_row_options,
)
from judgelm.training.precision import JudgeDPOConfig, settle_precision
from judgelm.training.resume import find_start, refuse_finished, skip_if_done
from judgelm.training.rows.dataset import build_rows
from judgelm.training.rows.preference import PreferenceRowBuilder
from judgelm.training.safeguards import PreemptionCallback, out_of_memory_as_error
from judgelm.training.save import save_judge
from judgelm.training.trainer import run_summary
from judgelm.training.validation.evaluator import load_validation


def build_trainer(
    judge: DPOArguments, dpo: JudgeDPOConfig, base: ModelConfig, *extra: TrainerCallback
) -> PreferenceTrainer:
    """Check the arguments; build data, models and trainer."""
    refuse_finished(judge, dpo)
    check_dpo_arguments(judge, dpo)
    check_arguments(judge, dpo)

    # data: the token rows of all epochs, and pairs that the model judges at every evaluation
    tokenizer = load_tokenizer(base, trust_remote_code=dpo.trust_remote_code)
    check_pickled(base_name(base), base.model_revision)
    notes = settle_precision(judge, dpo, base)
    train, evaluation = build_rows(
        tokenizer, PreferenceRowBuilder, preference_row_options(judge, dpo), judge, dpo, extra_files=judge.judgments
    )
    validation = load_validation(judge, dpo, train)
    start = find_start(judge, dpo, base, train)
    dpo.resume_from_checkpoint = start.checkpoint

    # the judge, and its frozen copy that log-probabilities are measured against
    attention = choose_attention(base, dpo)
    model = load_base_model(base, dpo, attention)
    reference = load_reference_model(base, dpo, attention)

    # trainer: TRL's, which also judges the validation pairs and stops on NaN
    checkpoints = CheckpointCallback(start.settings)
    trainer = PreferenceTrainer(
        model=model,
        ref_model=reference,
        args=dpo,
        rows=train,
        eval_dataset=evaluation.dataset if evaluation else None,
        processing_class=tokenizer,
        peft_config=get_peft_config(base),
        validation=validation,
        patience=judge.early_stopping_patience,
        callbacks=[checkpoints, *extra],
    )
    skip_if_done(trainer, start)
    check_disk_space(trainer, checkpoints.limit)
    if trainer.is_world_process_zero():
        echo("\n".join(run_summary(trainer, evaluation, attention, [*notes, *start.notes])))
    return trainer


def main() -> int:
    """Build, train, save; the exit code."""
    judge, dpo, base = parse_arguments(DPOArguments, JudgeDPOConfig, ModelConfig)
    connect_processes(dpo, log=echo)
    card = find_tuned_card(base, judge)
    preemption = PreemptionCallback()
    trainer = build_trainer(judge, dpo, base, preemption)

    # train and save
    with preemption.handle_signals(), disk_full_as_error(dpo.output_dir), out_of_memory_as_error(trainer):
        trainer.train(resume_from_checkpoint=dpo.resume_from_checkpoint)
        if preemption.stopped_by is None:
            save_judge(trainer, judge, base, facts=dpo_facts(judge, dpo, base, card), tuned_from=card)

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
