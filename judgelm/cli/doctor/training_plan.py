"""`judgelm doctor --train CONFIG`: memory, operations and time of a fine-tuning, without weights."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from judgelm.cli.console import EXIT_USAGE, PlainConsole, write_json
from judgelm.cli.doctor.output import facts_table
from judgelm.doctor.training_plan.configs import clusters_of, read_launch, read_training
from judgelm.doctor.training_plan.estimate import USABLE_SHARE, ModelFacts, Recipe
from judgelm.doctor.training_plan.operations import Operations
from judgelm.doctor.training_plan.plan import Plan, plan

_GIB = 1 << 30
_MOST_WAYS = 12


def plan_training(
    files: tuple[Path, Path | None, str],
    changes: Mapping[str, Any],
    cluster: tuple[int | None, float | None],
    *,
    speed: dict[str, float],
    out: PlainConsole,
    json_out: Path | None,
) -> None:
    """Print what a fine-tuning needs, and what would make it fit; exit code 1 where no cluster can hold it.

    Args:
        files: the training's YAML, accelerate's file, and the name of a known model shape.
        changes: fields of the YAML with other values.
        cluster: GPUs, and GiB of choice.
        speed: `mfu` and `gpu_flops`.
        out: where it is shown.
        json_out: where all findings are written.
    """
    train, accelerate, shape = files
    configured = read_training(train, changes)
    clusters = clusters_of(read_launch(accelerate), gpus=cluster[0], gpu_memory_gib=cluster[1])
    from judgelm.doctor.training_plan.model import look_at_data, look_at_model, training_of  # loads torch

    with out.status("building the model on the meta device, counting the rows"):
        model, configured = look_at_model(configured, shape=shape)
        data = look_at_data(configured)
    out.print(_training_facts(model, configured.recipe, data))
    plans = [plan(model, configured.on(target), target, **speed) for target in clusters]
    trainings = [training_of(model, configured.on(target), data, target) for target in clusters]
    out.print(_memory_table(plans))
    out.print(_time_table(plans, trainings, speed))
    if refused := [
        choice.cluster.name for choice in plans if configured.global_batch not in (None, choice.global_batch)
    ]:
        out.message(
            f"on {', '.join(refused)}", label=f"global_batch {configured.global_batch} is refused", style="bold red"
        )
    for choice in plans:
        _print_ways(choice, out)
    if json_out is not None:
        report: dict[str, Any] = {
            "model": asdict(model),
            "recipe": asdict(configured.recipe),
            "data": asdict(data),
        } | speed
        report["plans"] = [
            asdict(choice) | {"total_bytes": choice.memory.total, "training": asdict(training) if training else None}
            for choice, training in zip(plans, trainings, strict=True)
        ]
        write_json(json_out, report)
    if not any(choice.fits for choice in plans):
        raise typer.Exit(EXIT_USAGE)


def _training_facts(model: ModelFacts, recipe: Recipe, data: Any) -> Table:
    trained = model.adapter if recipe.lora else model.total
    facts = facts_table(f"fine-tuning of {model.name}")
    facts.add_row("sizes from", model.source)
    facts.add_row("parameters", f"{model.total:,}, of which trained {trained:,}{' (LoRA)' if recipe.lora else ''}")
    facts.add_row("rows", f"{data.rows:,}" if data.rows is not None else f"unknown: {data.why}")
    if data.rows is not None:
        left_out = ", ".join(f"{count} {reason}" for reason, count in data.left_out.items()) or "none"
        facts.add_row("tokens", f"{data.tokens:,}, longest row {data.longest:,} of {recipe.window:,}")
        facts.add_row("cut", f"{data.cut:,} rows; left out: {left_out}")
    if (drawn := recipe.generation) is not None:
        by = f"vLLM, {drawn.share:.0%} of each GPU{', asleep while training' if drawn.sleeps else ''}"
        facts.add_row("replies", f"{drawn.replies} to each prompt, by {by if drawn.vllm else 'transformers'}")
    head = "a tile at a time (TRL's fused head)" if recipe.fused_head else "whole"
    facts.add_row("logits", f"{head}, vocabulary of {model.vocab:,}")
    return facts


def _memory_table(plans: list[Plan]) -> Table:
    table = Table(title="GiB of one GPU", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for choice in plans:
        offload = "" if choice.cluster.offload == "none" else f", offload: {choice.cluster.offload}"
        table.add_column(f"{choice.cluster.name}\n{choice.cluster.sharding}{offload}", justify="right", overflow="fold")
    rows = {
        "weights": "weights", "gradients": "gradients", "optimizer": "optimizer states", "gathered": "gathered or cast",
        "communication": "communication", "activations": "activations", "recomputed": "a block recomputed, or",
        "logits": "logits and loss", "reserve": "CUDA, NCCL", "reference": "reference model",
        "generation": "drawing replies", "total": "total at the peak",
    }  # fmt: skip
    for field_, name in rows.items():
        if field_ in ("reference", "generation") and not any(getattr(choice.memory, field_) for choice in plans):
            continue
        table.add_row(name, *(f"{getattr(choice.memory, field_) / _GIB:,.1f}" for choice in plans))
    table.add_row("there is", *(f"{choice.cluster.gpu_memory_bytes / _GIB:,.1f}" for choice in plans))
    usable = (USABLE_SHARE * choice.cluster.gpu_memory_bytes / _GIB for choice in plans)
    table.add_row(f"of that usable, {USABLE_SHARE:.0%}", *(f"{size:,.1f}" for size in usable))
    table.add_row("", *(Text("fits", "green") if choice.fits else Text("does not fit", "red") for choice in plans))
    table.add_row("host memory of a machine", *(f"{choice.memory.host / _GIB:,.0f}" for choice in plans))
    return table


def _time_table(plans: list[Plan], trainings: list[Any], speed: dict[str, float]) -> Table:
    title = (
        f"work, at {speed['mfu']:.0%} of {speed['gpu_flops'] / 1e12:,.0f} TFLOP/s a GPU, the time of offload and of "
        "drawing replies not counted"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for choice in plans:
        table.add_column(choice.cluster.name, justify="right", overflow="fold")
    table.add_row("rows a step", *(f"{choice.global_batch:,}" for choice in plans))
    table.add_row("tokens a step, all rows full", *(f"{choice.step_tokens:,}" for choice in plans))
    table.add_row("PFLOP a step: model + attention", *(_pflop(choice.step) for choice in plans))
    table.add_row("recomputation on top", *(f"{choice.step.recomputation / 1e15:,.1f}" for choice in plans))
    table.add_row("seconds a step", *(f"{choice.step_seconds:,.1f}" for choice in plans))
    known = [training for training in trainings if training is not None]
    if known:
        table.add_row("steps in all", *(f"{training.steps:,}" for training in known))
        hours = (
            training.operations.seconds(gpus=choice.cluster.gpus, **speed) / 3600
            for training, choice in zip(known, plans, strict=True)
        )
        table.add_row("hours in all, without padding", *(f"{duration:,.2f}" for duration in hours))
    return table


def _pflop(work: Operations) -> str:
    return f"{work.model / 1e15:,.1f} + {work.attention / 1e15:,.1f}"


def _print_ways(choice: Plan, out: PlainConsole) -> None:
    if choice.fits:
        return
    need, there = (size / _GIB for size in (choice.memory.total, choice.cluster.gpu_memory_bytes))
    refusal = f"{choice.cluster.name}: does not fit,"
    out.message(f"{need:,.1f} GiB of {there:,.1f}; what would:", label=refusal, style="bold red")
    for way in choice.ways[:_MOST_WAYS]:
        mark, style = ("fits", "green") if way.fits else ("does not", "red")
        out.message(f" {way.change}", label=f"  {way.total_bytes / _GIB:7,.1f} GiB  {mark}", style=style)
    if not any(way.fits for way in choice.ways):
        out.print("  none of these fits: take more or larger GPUs, or a smaller window")
