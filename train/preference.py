"""Fine-tune a judge on preferences, by its distribution over score lines.

    accelerate launch --config_file configs/accelerate/cpu.yaml train/preference.py \
        --config configs/train/small_judge.yaml --model_name_or_path PATH

`judgelm.training.preference` states the loss. Rows are labelled pairs: with `preference`, P(first answer is better),
or with scores or a winner. Any field of `judgelm.training.preference.PreferenceArguments`, TRL's `SFTConfig` and
`ModelConfig` can stand in the YAML file or on the command line, which takes precedence. The output folder, resuming
from a checkpoint, and the exit codes are those of `train/sft.py`.
"""

import sys

from transformers import TrainerCallback
from trl import ModelConfig

from judgelm.cli.console import echo, printable
from judgelm.engines.weights import check_pickled
from judgelm.errors import JudgelmError
from judgelm.training.arguments import check_arguments, parse_arguments
from judgelm.training.base_model import check_adapter, load_base_model, load_tokenizer, with_adapter
from judgelm.training.checkpoints import CheckpointCallback
from judgelm.training.config import base_name
from judgelm.training.disk import check_disk_space, disk_full_as_error
from judgelm.training.distributed import connect_processes, end_processes
from judgelm.training.precision import JudgeSFTConfig, settle_precision
from judgelm.training.preference import (
    DistributionTrainer,
    PreferenceArguments,
    check_preference_arguments,
    masked_attention,
    pair_row_options,
    preference_facts,
)
from judgelm.training.resume import find_start, refuse_finished, skip_if_done
from judgelm.training.rows.dataset import build_rows
from judgelm.training.rows.pair_prompts import PairRowBuilder
from judgelm.training.safeguards import PreemptionCallback, out_of_memory_as_error
from judgelm.training.save import save_judge
from judgelm.training.trainer import run_summary
from judgelm.training.validation.evaluator import load_validation


def build_trainer(
    judge: PreferenceArguments, sft: JudgeSFTConfig, base: ModelConfig, *extra: TrainerCallback
) -> DistributionTrainer:
    """Check the arguments; build data, model and trainer."""
    refuse_finished(judge, sft)
    check_preference_arguments(judge)
    check_arguments(judge, sft)
    check_adapter(judge, base)

    # data: the prompts of all epochs in both orders, and pairs that the model judges at every evaluation
    tokenizer = load_tokenizer(base, trust_remote_code=sft.trust_remote_code)
    check_pickled(base_name(base), base.model_revision)
    notes = settle_precision(judge, sft, base)
    train, evaluation = build_rows(tokenizer, PairRowBuilder, pair_row_options(judge, sft), judge, sft)
    validation = load_validation(judge, sft, train)
    start = find_start(judge, sft, base, train)
    sft.resume_from_checkpoint = start.checkpoint

    # model
    attention = masked_attention(base, sft)
    model, peft_config = with_adapter(load_base_model(base, sft, attention), base, judge)

    # trainer: TRL's, with the loss on P(first better); judges the validation pairs, stops on NaN
    checkpoints = CheckpointCallback(start.settings)
    trainer = DistributionTrainer(
        model=model,
        args=sft,
        rows=train,
        eval_dataset=evaluation.dataset if evaluation else None,
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
        echo("\n".join(run_summary(trainer, evaluation, attention, [*notes, *start.notes])))
    return trainer


def main() -> int:
    """Build, train, save; the exit code."""
    judge, sft, base = parse_arguments(PreferenceArguments, JudgeSFTConfig, ModelConfig)
    connect_processes(sft, log=echo)
    preemption = PreemptionCallback()
    trainer = build_trainer(judge, sft, base, preemption)

    # train and save
    with preemption.handle_signals(), disk_full_as_error(sft.output_dir), out_of_memory_as_error(trainer):
        trainer.train(resume_from_checkpoint=sft.resume_from_checkpoint)
        if preemption.stopped_by is None:
            save_judge(trainer, judge, base, facts=preference_facts(judge))

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
