"""`judgelm doctor`: check packages and devices and suggest fixes; estimate the memory for fine-tuning."""

import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from judgelm.cli.console import EXIT_USAGE, JsonOut, PlainConsole, Quiet, console, is_stdout, printable, write_json
from judgelm.cli.options import parse_pairs
from judgelm.engines.catalog import choose_engine
from judgelm.errors import ConfigError, MissingExtraError, ModelError
from judgelm.judges.resolve import resolve
from judgelm.machine import Devices, Package, declared_packages, findings, look_at_devices, with_imports_tried
from judgelm.package import VERSION, install_hint


def facts_table(title: str) -> Table:
    """Create an empty table of names and values."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


_STATES = {
    "ok": Text("ok", "green"),
    "out_of_range": Text("out of range, see below", "red"),
    "broken": Text("import fails, see below", "red"),
    "missing": Text("missing, see below", "red"),
}
_GIB = 1 << 30


@dataclass(slots=True, kw_only=True)
class _Report:
    judgelm: str = VERSION
    python: str = field(default_factory=platform.python_version)
    system: str = field(default_factory=platform.platform)
    packages: list[Package] = field(default_factory=list)
    devices: Devices | None = None
    engine: dict[str, str] = field(default_factory=dict)
    judge: str = ""
    fixes: list[str] = field(default_factory=list)

    def is_broken(self, name: str) -> bool:
        return any(package.name == name and package.state in {"broken", "missing"} for package in self.packages)


def doctor(
    json_out: JsonOut = None,
    quiet: Quiet = False,
    train: Path | None = None,
    changes: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    shape: str = "",
    gpus: Annotated[int, typer.Option(min=1)] = 1,
    sharding: Literal["ddp", "zero2", "zero3", "fsdp"] = "ddp",
    gpu_memory: Annotated[float | None, typer.Option(min=0.1)] = None,
) -> None:
    """Check packages and devices, and suggest fixes.

    With `--train`, estimate the memory needed for fine-tuning instead.

    Options:
        quiet: Print only the fixes.

    Memory for fine-tuning:
        train: Estimate the memory for the training run in this YAML file, without loading weights.
        changes: Override a field of the YAML file. Repeatable.
        shape: Use the dimensions of a known model: llama-7b, llama-13b, or llama-33b.
        gpus: Total number of GPUs across all machines.
        sharding: Sharding strategy from the accelerate config; ddp does not shard.
        gpu_memory: Memory per GPU in GiB.

    Examples:
        judgelm doctor
        judgelm doctor --quiet --json doctor.json
        judgelm doctor --train configs/train/judgelm_7b.yaml --gpus 8

    Exit codes: 0 no problems, 1 problems found, not enough GPU memory, or a usage or input error.
    """
    out = PlainConsole(stderr=is_stdout(json_out))
    out.quiet = quiet
    if train is not None:
        from judgelm.training.memory import memory_of, read_setup, sizes_of  # loads torch

        values, setup = read_setup(train, parse_pairs(changes or (), "--set"))
        with out.status("building the model on the meta device"):
            model = sizes_of(values, shape)
        memory = memory_of(model, setup, gpus=gpus, sharding=sharding)
        report = {"model": asdict(model), "setup": asdict(setup), "bytes": memory._asdict()}
        _finish(*_print_memory(report, f"{gpus} GPUs, {sharding}", gpu_memory, out), json_out)
        return
    if shape or gpus > 1 or gpu_memory or changes:
        raise ConfigError("--shape, --gpus, --gpu-memory, and --set require --train FILE")
    machine = _Report()
    out.print(f"judgelm {machine.judgelm}, Python {machine.python}, {machine.system}", soft_wrap=True)
    _examine_packages(machine, out)
    _examine_devices(machine, out)
    _examine_engine(machine, out)
    _examine_judge(machine, out)
    _print_findings(machine, out)
    _finish(asdict(machine), bool(machine.fixes), json_out)


def _print_memory(
    report: dict[str, Any], name: str, gpu_memory: float | None, out: PlainConsole
) -> tuple[dict[str, Any], bool]:
    from judgelm.training.memory import USABLE_SHARE

    model, total = report["model"], sum(report["bytes"].values())
    trained = model["adapter"] if report["setup"]["lora"] else model["total"]
    table = facts_table(f"GiB per GPU ({name})")
    table.add_row("parameters", f"{model['total']:,}, of which {trained:,} are trained")
    for row, size in (report["bytes"] | {"peak total": total}).items():
        table.add_row(row, f"{size / _GIB:,.1f}")
    fits = None if gpu_memory is None else total <= USABLE_SHARE * gpu_memory * _GIB
    if gpu_memory is not None:
        usable = f"{USABLE_SHARE * gpu_memory:,.1f} of {gpu_memory:,.1f} usable:"
        table.add_row(usable, Text("fits", "green") if fits else Text("does not fit", "red"))
    out.print(table)
    return report | {"total_bytes": total, "fits": fits}, fits is False


def _finish(report: dict[str, Any], failed: bool, json_out: Path | None) -> None:
    write_json(json_out, report)
    if failed:
        raise typer.Exit(EXIT_USAGE)


def _examine_packages(report: _Report, out: PlainConsole) -> None:
    try:
        declared = declared_packages()
    except PackageNotFoundError:
        report.fixes.append("judgelm itself is not installed; in your checkout, run: pip install -e .")
        return
    with console.activity("importing all packages"):
        report.packages = with_imports_tried(declared)
    report.fixes += findings(report.packages)
    table = Table(title="packages", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("package", "installed", "required", ""):
        table.add_column(column, overflow="fold")
    for package in report.packages:
        other_name = f"{package.distribution} " if package.distribution not in {None, package.name} else ""
        is_shown = package.is_finding or package.state == "ok"
        state = _STATES[package.state] if is_shown else Text(printable(package.way_out), "dim")
        table.add_row(package.name, f"{other_name}{package.installed or '-'}", package.wanted, state)
    out.print(table)


def _examine_devices(report: _Report, out: PlainConsole) -> None:
    report.devices = devices = look_at_devices(with_torch=not report.is_broken("torch"))
    if devices.finding and not report.is_broken("torch"):
        report.fixes.append(devices.finding)
    cpu = devices.cpu
    table = facts_table("devices")
    table.add_row("CPU", cpu.model)
    table.add_row("cores", f"{cpu.physical_cores} physical, {cpu.logical_cores} logical, {cpu.usable_cores} usable")
    table.add_row("instruction sets", " ".join(cpu.instruction_sets) or "none relevant")
    table.add_row("memory", _memory(cpu.memory_free_bytes, cpu.memory_total_bytes))
    for index, gpu in enumerate(devices.cuda):
        memory = _memory(gpu.memory_free_bytes, gpu.memory_total_bytes)
        table.add_row(f"cuda:{index}", f"{gpu.name}, {memory}, compute capability {gpu.compute_capability}")
    table.add_row("NVIDIA driver", devices.driver or "none")
    table.add_row("torch build", f"CUDA {devices.cuda_build}" if devices.cuda_build else "CPU")
    out.print(table)


def _memory(free: int, total: int) -> str:
    return f"{free / _GIB:.1f} GiB free of {total / _GIB:.1f} GiB"


def _examine_engine(report: _Report, out: PlainConsole) -> None:
    if report.is_broken("torch") or report.is_broken("transformers"):
        finding = "without torch and transformers, only openai works"
        out.print(f"engine: {finding}; run: {install_hint('local')}\n", soft_wrap=True)
        return
    name, why = choose_engine()
    report.engine = {"auto": name, "why": why}
    out.print(f"engine: auto uses {name}: {why}\n")


def _examine_judge(report: _Report, out: PlainConsole) -> None:
    try:
        named = resolve().named
        report.judge = named.notice if named else ""
    except (ModelError, MissingExtraError) as error:
        report.judge = str(error)
    out.print(f"default judge: {report.judge}\n")


def _print_findings(report: _Report, out: PlainConsole) -> None:
    if not report.fixes:
        out.print("no problems found", style="green")
        return
    out = PlainConsole(stderr=True) if out.quiet else out
    out.print("to fix", style="bold red")
    for index, finding in enumerate(report.fixes, 1):
        out.print(f"{index}. {finding}", soft_wrap=True)
