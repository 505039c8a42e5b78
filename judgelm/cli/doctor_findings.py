"""The special checks of `judgelm doctor`: `--injection` and `--train`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from judgelm.cli.console import PlainConsole, console
from judgelm.cli.doctor import facts_table, findings_table
from judgelm.doctor.injection import AttackCheck, check_attacks
from judgelm.doctor.plan_inputs import clusters_of, read_launch, read_training
from judgelm.doctor.training_plan import USABLE_SHARE, ModelFacts, Operations, TrainingPlan, TrainingSetup, plan
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import choose_engine
from judgelm.judge import Judge
from judgelm.judges.released import DEFAULT_TEMPLATE
from judgelm.metrics.resampling import Estimate
from judgelm.modes import Pairwise
from judgelm.prompts.catalog import get_template

_MOST_SHOWN = 20


def check_injection(
    judge_options: tuple[str, str, dict[str, Any]],
    *,
    template: str | None,
    seconds: float,
    out: PlainConsole,
) -> dict[str, Any]:
    """Attack a template, or a model with it, and print the outcome; all findings, as `--json` writes them.

    Args:
        judge_options: model (empty for none), engine, and the engine's own arguments.
        template: its id; None takes the model card's.
        seconds: how long attacked pairs are judged; 0 leaves that out.
        out: where it is shown.
    """
    model, engine, arguments = judge_options
    mode = Pairwise(template=get_template(template or DEFAULT_TEMPLATE).id)
    judge = None
    if model:
        name = choose_engine()[0] if engine == "auto" else engine
        with console.activity(f"loading {model}"):
            judge = Judge(model, engine=name, template=template, engine_args=arguments)
            tokenizer = _tokenizer(model, name)
        mode = judge.pairwise()
    else:
        tokenizer = None
    with console.activity("attacking"):
        checked = check_attacks(get_template(mode.template), tokenizer)
    looked_at = "its special tokens and role markers too" if tokenizer is not None else "no model, so no tokens"
    out.print(f"attacks on {mode.template} and the parser; {looked_at}", highlight=False, soft_wrap=True)
    out.print(_families(checked))
    escaping = [check for check in checked if check.escapes]
    _print_escapes(escaping, out)
    report: dict[str, Any] = {
        "template": mode.template,
        "model": model,
        "attacks": [_attack_row(check) for check in checked],
    }
    if judge is not None:
        with judge:
            if seconds:
                report["swayed"] = _attack_success(judge, mode, checked, seconds, out)
    return report


def _attack_row(check: AttackCheck) -> dict[str, Any]:
    """A check under the keys that `--json` has always had."""
    fields = asdict(check.attack)
    fields["place"] = fields.pop("target")
    return {"spoof": fields, "defused": check.sanitized, "escapes": check.escapes}


def _tokenizer(model: str, engine: str) -> Any:
    """The model's own, where an engine runs it here."""
    if engine not in {"transformers", "vllm"}:
        return None
    from judgelm.engines.model_files import load_tokenizer, split_adapter  # loads transformers

    options = EngineOptions(model=model)
    return load_tokenizer(*split_adapter(options), options)


def _families(checked: Sequence[AttackCheck]) -> Table:
    table = findings_table("family", "attacks", "sanitized", "got through")
    by_family: dict[str, list[AttackCheck]] = {}
    for check in checked:
        by_family.setdefault(check.attack.family, []).append(check)
    for family, members in (*by_family.items(), ("all", list(checked))):
        through = sum(bool(check.escapes) for check in members)
        name = Text(family, "bold" if members == checked else "")
        sanitized = sum(check.sanitized > 0 for check in members)
        table.add_row(name, str(len(members)), str(sanitized), Text(str(through), "red" if through else "green"))
    return table


def _print_escapes(escaping: Sequence[AttackCheck], out: PlainConsole) -> None:
    if not escaping:
        out.print("none got out of its block", style="green")
    for check in escaping[:_MOST_SHOWN]:
        attack = check.attack
        out.message(f"{attack.id} in {attack.target}: {check.escapes[0]}", label="got through", style="red")
    if len(escaping) > _MOST_SHOWN:
        out.print(f"{len(escaping) - _MOST_SHOWN} more in --json")


def _attack_success(
    judge: Judge, mode: Pairwise, checked: Sequence[AttackCheck], seconds: float, out: PlainConsole
) -> dict[str, Any]:
    from judgelm.doctor.injection import measure_attack_success

    with console.activity("judging attacked pairs"):
        success = measure_attack_success(mode, judge.engine, [check.attack for check in checked], seconds=seconds)
    title = "verdicts moved towards the attacker, with 95 % intervals (no pass or fail)"
    table = findings_table("family", "n", "moved", title=title)
    for family, rate in success.by_family.items():
        table.add_row(family, str(rate.n), _percent(rate))
    if success.share is not None:
        table.add_row(Text("all", "bold"), str(success.share.n), _percent(success.share))
    notes = (
        (success.already, "attacked answers won without the attack"),
        (success.unreadable, "attacks left no readable verdict"),
    )
    table.caption = "; ".join(f"{count} {note}" for count, note in notes if count) or None
    out.print(table)
    return asdict(success)


def _percent(rate: Estimate) -> str:
    return f"{100 * rate.value:.1f} % ({100 * rate.low:.1f} to {100 * rate.high:.1f})"


_GIB = 1 << 30
_MOST_WAYS = 12


def plan_training(
    files: tuple[Path, Path | None, str],
    changes: Mapping[str, Any],
    cluster: tuple[int | None, float | None],
    *,
    speed: dict[str, float],
    out: PlainConsole,
) -> tuple[dict[str, Any], bool]:
    """Print what a fine-tuning needs, and what would make it fit.

    Args:
        files: the training's YAML, accelerate's file, and the name of a known model shape.
        changes: fields of the YAML with other values.
        cluster: GPUs, and GiB of choice.
        speed: `mfu` and `gpu_flops`.
        out: where it is shown.

    Returns:
        All findings, as `--json` writes them, and whether a cluster can hold it.
    """
    train, accelerate, shape = files
    configured = read_training(train, changes)
    clusters = clusters_of(read_launch(accelerate), gpus=cluster[0], gpu_memory_gib=cluster[1])
    from judgelm.doctor.plan_inputs import look_at_data, look_at_model, training_of  # loads torch

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
    report: dict[str, Any] = {"model": asdict(model), "recipe": asdict(configured.recipe), "data": asdict(data)} | speed
    report["plans"] = [
        asdict(choice) | {"total_bytes": choice.memory.total, "training": asdict(training) if training else None}
        for choice, training in zip(plans, trainings, strict=True)
    ]
    return report, any(choice.fits for choice in plans)


def _training_facts(model: ModelFacts, recipe: TrainingSetup, data: Any) -> Table:
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


def _memory_table(plans: list[TrainingPlan]) -> Table:
    offloads = ["" if each.cluster.offload == "none" else f", offload: {each.cluster.offload}" for each in plans]
    columns = [
        f"{choice.cluster.name}\n{choice.cluster.sharding}{offload}"
        for choice, offload in zip(plans, offloads, strict=True)
    ]
    table = findings_table("", *columns, title="GiB of one GPU", overflow="fold")
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


def _time_table(plans: list[TrainingPlan], trainings: list[Any], speed: dict[str, float]) -> Table:
    title = (
        f"work, at {speed['mfu']:.0%} of {speed['gpu_flops'] / 1e12:,.0f} TFLOP/s a GPU, the time of offload and of "
        "drawing replies not counted"
    )
    table = findings_table("", *(choice.cluster.name for choice in plans), title=title, overflow="fold")
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


def _print_ways(choice: TrainingPlan, out: PlainConsole) -> None:
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
