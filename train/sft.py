"""Fine-tune a judge.

    accelerate launch --config_file configs/accelerate/cpu.yaml train/sft.py --config configs/train/demo.yaml

Any field of `judgelm.training.config.JudgeArguments`, TRL's `SFTConfig` and `ModelConfig` can stand in the YAML file or
on the command line, which takes precedence. The output folder holds the model (or the LoRA adapter), its tokenizer and
`judge.json`, ready for `judgelm-batch --model`.

The same command again resumes from the last whole checkpoint, with the losses of an uninterrupted run. SIGTERM and
SIGUSR1 save a checkpoint at the next step's end and stop: exit code 143 and 138 (the launcher's own is 1).
"""

import sys

from transformers import TrainerCallback
from trl import ModelConfig

from judgelm.cli.console import echo, printable
from judgelm.engines.weights import check_pickled
from judgelm.errors import JudgelmError
from judgelm.training.arguments import check_arguments, parse_arguments, row_options
from judgelm.training.attention import choose_attention
from judgelm.training.base_model import check_adapter, load_base_model, load_tokenizer, with_adapter
from judgelm.training.checkpoints import CheckpointCallback
from judgelm.training.config import JudgeArguments, base_name
from judgelm.training.disk import check_disk_space, disk_full_as_error
from judgelm.training.distributed import connect_processes, end_processes
from judgelm.training.precision import JudgeSFTConfig, settle_precision
from judgelm.training.resume import find_start, refuse_finished, skip_if_done
from judgelm.training.rows.builder import SFTRowBuilder
from judgelm.training.rows.dataset import build_rows
from judgelm.training.safeguards import PreemptionCallback, out_of_memory_as_error
from judgelm.training.save import save_judge
from judgelm.training.trainer import JudgeTrainer, run_summary
from judgelm.training.validation.evaluator import load_validation


def build_trainer(
    judge: JudgeArguments, sft: JudgeSFTConfig, base: ModelConfig, *extra: TrainerCallback
) -> JudgeTrainer:
    """Check the arguments; build data, model and trainer."""
    refuse_finished(judge, sft)
    check_arguments(judge, sft)
    check_adapter(judge, base)

    # data: the token rows of all epochs, and pairs that the model judges at every evaluation
    tokenizer = load_tokenizer(base, trust_remote_code=sft.trust_remote_code)
    check_pickled(base_name(base), base.model_revision)
    notes = settle_precision(judge, sft, base)
    train, evaluation = build_rows(tokenizer, SFTRowBuilder, row_options(judge, sft), judge, sft)
    validation = load_validation(judge, sft, train)
    start = find_start(judge, sft, base, train)
    sft.resume_from_checkpoint = start.checkpoint

    # model
    attention = choose_attention(base, sft)
    model, peft_config = with_adapter(load_base_model(base, sft, attention), base, judge)

    # trainer: TRL's, which also judges the validation pairs and stops on NaN
    checkpoints = CheckpointCallback(start.settings)
    trainer = JudgeTrainer(
        model=model,
        args=sft,
        rows=train,
        eval_dataset=evaluation.dataset if evaluation else None,
        processing_class=tokenizer,
        peft_config=peft_config,
        score_weight=judge.score_weight,
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
    judge, sft, base = parse_arguments(JudgeArguments, JudgeSFTConfig, ModelConfig)
    connect_processes(sft, log=echo)
    preemption = PreemptionCallback()
    trainer = build_trainer(judge, sft, base, preemption)

    # train and save
    with preemption.handle_signals(), disk_full_as_error(sft.output_dir), out_of_memory_as_error(trainer):
        trainer.train(resume_from_checkpoint=sft.resume_from_checkpoint)
        if preemption.stopped_by is None:
            save_judge(trainer, judge, base)

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
