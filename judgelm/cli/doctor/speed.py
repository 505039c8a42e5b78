"""`judgelm doctor --speed`: the speed of a judge by engine and numeric format, and what a format changes."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich import box
from rich.table import Table

from judgelm.cli.console import EXIT_USAGE, PlainConsole, console, write_json
from judgelm.doctor.devices import look_at_devices
from judgelm.doctor.speed import (
    FormatChange,
    VariantSpeed,
    change_between,
    measure,
    read_pairs,
    tokens_per_pair,
    variants_of,
)
from judgelm.engines.catalog import choose_engine
from judgelm.engines.measured_speed import write_speeds
from judgelm.errors import JudgelmError
from judgelm.everyday_pairs import EVERYDAY_PAIRS
from judgelm.judges.installed import named_judge

_FILE_OF = 1000


def measure_speed(model: str, pairs: Path | None, *, seconds: float, out: PlainConsole, json_out: Path | None) -> None:
    """Measure, print and keep the speeds of a judge; exit code 1 where a variant failed.

    Args:
        model: a judge's name, folder, file or hub id.
        pairs: file to draw pairs from; None takes the everyday pairs.
        seconds: how long each variant judges, about.
        out: where findings are printed.
        json_out: where all of them are written.
    """
    named = named_judge(model)
    location = str(named.adapter) if named else model
    samples, total = read_pairs(pairs or EVERYDAY_PAIRS)
    variants, remarks = variants_of(location)
    cpu = look_at_devices().cpu
    machine = f"{cpu.model}, {cpu.usable_cores} cores, {' '.join(cpu.instruction_sets)}"
    _print_line(out, f"judging pairs of {pairs or 'everyday questions'} in both orders: {machine}")
    speeds, broken = [], []
    for variant in variants:
        with console.activity(f"{variant.engine} {variant.format}"):
            try:
                speeds.append(measure(location, variant, samples, seconds))
            except (JudgelmError, RuntimeError, OSError) as error:
                broken.append(f"{variant.engine} {variant.format} failed: {error}")
    changes = [change_between(speeds[0], speed) for speed in speeds]
    file_of = total if pairs else _FILE_OF
    if speeds:
        out.print(_table(speeds, changes, file_of))
        speeds_file = write_speeds(location, None, [speed.to_measured() for speed in speeds])
        remarks += _choice(speeds, location, speeds_file)
    remarks += [f"by the judge's card {change.sentence}" for change in (named.card.changed_verdicts if named else ())]
    remarks += [_failed(speed) for speed in speeds if speed.failures]
    for line in (*remarks, *broken):
        _print_line(out, line)
    rows = [_row(speed, change) for speed, change in zip(speeds, changes, strict=True)]
    write_json(json_out, {"model": model, "machine": machine, "pairs": total, "speeds": rows, "failed": broken})
    if broken:
        raise typer.Exit(EXIT_USAGE)


def _print_line(out: PlainConsole, line: str) -> None:
    out.print(line, markup=False, highlight=False, soft_wrap=True)


def _table(speeds: Sequence[VariantSpeed], changes: Sequence[FormatChange | None], file_of: int) -> Table:
    first = speeds[0]
    per_pair = tokens_per_pair(speeds)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("engine", "format"):
        table.add_column(name, no_wrap=True)
    for name in ("pairs/s", f"x {first.variant.format}", f"{file_of:,}", "changed"):
        table.add_column(name, justify="right", no_wrap=True)
    for speed, change in zip(speeds, changes, strict=True):
        rate = speed.prompt_tokens_per_s / per_pair
        table.add_row(
            speed.variant.engine,
            speed.variant.format,
            f"{rate:,.2f}",
            f"{speed.prompt_tokens_per_s / first.prompt_tokens_per_s:.2f}",
            _duration(speed.load_s + file_of / rate),
            "" if speed is first else _changed(change),
        )
    table.caption = (
        f"{file_of:,}: time for so many pairs, loading included. Changed against {first.variant.format}, with 95 % "
        "intervals"
    )
    table.caption_justify = "left"
    return table


def _changed(change: FormatChange | None) -> str:
    if change is None:
        return "no pair in common"
    return f"{change.changed} of {change.n} ({100 * change.low:.0f} to {100 * change.high:.0f} %)"


def _duration(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def _failed(speed: VariantSpeed) -> str:
    codes = ", ".join(f"{count} {code}" for code, count in speed.failures.items())
    return f"{speed.variant.engine} {speed.variant.format}: of {len(speed.verdicts)} pairs failed {codes}"


def _choice(speeds: Sequence[VariantSpeed], location: str, speeds_file: Path) -> list[str]:
    """The fastest variant, and what `auto` makes of the speeds."""
    fastest = max(speeds, key=lambda speed: speed.prompt_tokens_per_s).variant
    option = f"--quantization {fastest.quantization}" if fastest.quantization else f"--dtype {fastest.dtype}"
    engine, why = choose_engine(location)
    return [
        f"fastest: {fastest.engine} {fastest.format} (--engine {fastest.engine} {option})",
        f"--engine auto takes {engine} ({why}); --dtype auto takes the faster of float32 and the checkpoint's format,",
        f"by these figures in {speeds_file}",
    ]


def _row(speed: VariantSpeed, change: FormatChange | None) -> dict[str, object]:
    """A variant, as `--json` writes it."""
    return asdict(speed.variant) | {
        "pairs": speed.pairs,
        "seconds": speed.seconds,
        "prompt_tokens": speed.prompt_tokens,
        "prompt_tokens_per_s": speed.prompt_tokens_per_s,
        "load_s": speed.load_s,
        "failures": speed.failures,
        "change": None if change is None else asdict(change),
    }
