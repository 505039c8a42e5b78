"""`judgelm doctor --train CONFIG`: memory, operations and time of a fine-tuning, without weights."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from judgelm.cli.console import EXIT_USAGE
from judgelm.cli.doctor.output import escaped, facts_table
from judgelm.cli.output import write_json
from judgelm.doctor.training_plan.configs import clusters_of, read_launch, read_training
from judgelm.doctor.training_plan.estimate import USABLE_SHARE, ModelFacts, Operations, Recipe
from judgelm.doctor.training_plan.plan import Plan, plan

_GIB = 1 << 30
_MOST_WAYS = 12


def plan_training(
    files: tuple[Path, Path | None, str],
    cluster: tuple[int | None, float | None],
    *,
    speed: dict[str, float],
    out: Console,
    json_out: Path | None,
) -> None:
    """Print what a fine-tuning needs, and what would make it fit; exit code 1 where no cluster can hold it.

    Args:
        files: the training's YAML, accelerate's file, and the name of a known model shape.
        cluster: GPUs, and GiB of one.
        speed: `mfu` and `gpu_flops`.
        out: where it is shown.
        json_out: where all findings are written.
    """
    train, accelerate, shape = files
    configured = read_training(train)
    clusters = clusters_of(read_launch(accelerate), gpus=cluster[0], gpu_memory_gib=cluster[1])
    from judgelm.doctor.training_plan.model import look_at_data, look_at_model, training_of  # loads torch

    with out.status("building the model on the meta device, counting the rows"):
        model, configured = look_at_model(configured, shape=shape)
        data = look_at_data(configured)
    out.print(_training_facts(model, configured.recipe, data))
    plans = [plan(model, configured.on(one), one, **speed) for one in clusters]
    trainings = [training_of(model, configured.on(one), data, one) for one in clusters]
    out.print(_memory_table(plans))
    out.print(_time_table(plans, trainings, speed))
    if refused := [one.cluster.name for one in plans if configured.global_batch not in (None, one.global_batch)]:
        out.print(f"[bold red]global_batch {configured.global_batch} is refused[/] on {', '.join(refused)}")
    for one in plans:
        _print_ways(one, out)
    if json_out is not None:
        found: dict[str, Any] = {
            "model": asdict(model),
            "recipe": asdict(configured.recipe),
            "data": asdict(data),
        } | speed
        found["plans"] = [
            asdict(one) | {"total_bytes": one.memory.total, "training": asdict(training) if training else None}
            for one, training in zip(plans, trainings, strict=True)
        ]
        write_json(json_out, found)
    if not any(one.fits for one in plans):
        raise typer.Exit(EXIT_USAGE)


def _training_facts(model: ModelFacts, recipe: Recipe, data: Any) -> Table:
    trained = model.adapter if recipe.lora else model.total
    facts = facts_table(f"fine-tuning of {escaped(model.name)}")
    facts.add_row("sizes from", escaped(model.source))
    facts.add_row("parameters", f"{model.total:,}, of which trained {trained:,}{' (LoRA)' if recipe.lora else ''}")
    facts.add_row("rows", f"{data.rows:,}" if data.rows is not None else f"unknown: {escaped(data.why)}")
    if data.rows is not None:
        left_out = ", ".join(f"{count} {reason}" for reason, count in data.left_out.items()) or "none"
        facts.add_row("tokens", f"{data.tokens:,}, longest row {data.longest:,} of {recipe.window:,}")
        facts.add_row("cut", f"{data.cut:,} rows; left out: {left_out}")
    head = "a tile at a time (TRL's fused head)" if recipe.fused_head else "whole"
    facts.add_row("logits", f"{head}, vocabulary of {model.vocab:,}")
    return facts


def _memory_table(plans: list[Plan]) -> Table:
    table = Table(title="GiB of one GPU", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for one in plans:
        offload = "" if one.cluster.offload == "none" else f", offload: {one.cluster.offload}"
        table.add_column(f"{one.cluster.name}\n{one.cluster.sharding}{offload}", justify="right", overflow="fold")
    rows = {
        "weights": "weights", "gradients": "gradients", "optimizer": "optimizer states", "gathered": "gathered or cast",
        "communication": "communication", "activations": "activations", "recomputed": "a block recomputed, or",
        "logits": "logits and loss", "reserve": "CUDA, NCCL", "total": "[bold]total at the peak[/]",
    }  # fmt: skip
    for field_, name in rows.items():
        table.add_row(name, *(f"{getattr(one.memory, field_) / _GIB:,.1f}" for one in plans))
    table.add_row("there is", *(f"{one.cluster.gpu_memory_bytes / _GIB:,.1f}" for one in plans))
    usable = (USABLE_SHARE * one.cluster.gpu_memory_bytes / _GIB for one in plans)
    table.add_row(f"of that usable, {USABLE_SHARE:.0%}", *(f"{one:,.1f}" for one in usable))
    table.add_row("", *("[green]fits[/]" if one.fits else "[red]does not fit[/]" for one in plans))
    table.add_row("host memory of a machine", *(f"{one.memory.host / _GIB:,.0f}" for one in plans))
    return table


def _time_table(plans: list[Plan], trainings: list[Any], speed: dict[str, float]) -> Table:
    title = (
        f"work, at {speed['mfu']:.0%} of {speed['gpu_flops'] / 1e12:,.0f} TFLOP/s a GPU, offload's own time not counted"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for one in plans:
        table.add_column(one.cluster.name, justify="right", overflow="fold")
    table.add_row("rows a step", *(f"{one.global_batch:,}" for one in plans))
    table.add_row("tokens a step, all rows full", *(f"{one.step_tokens:,}" for one in plans))
    table.add_row("PFLOP a step: model + attention", *(_pflop(one.step) for one in plans))
    table.add_row("recomputation on top", *(f"{one.step.recomputation / 1e15:,.1f}" for one in plans))
    table.add_row("seconds a step", *(f"{one.step_seconds:,.1f}" for one in plans))
    known = [one for one in trainings if one is not None]
    if known:
        table.add_row("steps in all", *(f"{one.steps:,}" for one in known))
        hours = (
            one.operations.seconds(gpus=two.cluster.gpus, **speed) / 3600 for one, two in zip(known, plans, strict=True)
        )
        table.add_row("hours in all, without padding", *(f"{one:,.2f}" for one in hours))
    return table


def _pflop(work: Operations) -> str:
    return f"{work.model / 1e15:,.1f} + {work.attention / 1e15:,.1f}"


def _print_ways(one: Plan, out: Console) -> None:
    if one.fits:
        return
    need, there = (size / _GIB for size in (one.memory.total, one.cluster.gpu_memory_bytes))
    out.print(f"[bold red]{one.cluster.name}: does not fit[/], {need:,.1f} GiB of {there:,.1f}; what would:")
    for way in one.ways[:_MOST_WAYS]:
        mark = "[green]fits[/]" if way.fits else "[red]does not[/]"
        out.print(f"  {way.total_bytes / _GIB:7,.1f} GiB  {mark}  {way.change}", highlight=False, soft_wrap=True)
    if not any(way.fits for way in one.ways):
        out.print("  none of these fits: take more or larger GPUs, or a smaller window")
