"""Throughput of the engines against peak FLOP/s, the original's loop, padded batches and plain vLLM.

    python -m benchmarks.throughput --pairs PANDALM/testset-v1.json --price 1.5
    python -m benchmarks.throughput --quick
    python -m benchmarks.throughput --shape 7B --device cuda --only transformers,vllm

All systems use one model (random weights, but it writes score lines and reasons) and one set of pairs, taken from all
over the file so that they share no questions; without `--pairs`, pairs of made-up words. Each framework has a process
of its own. The systems are timed in turn, in several rounds, and a ratio is one round's. Before and after each timing
the peak, a plain matrix product, is measured in the system's process.

Systems: the original's loop with 16 new tokens, where only `</s>` stops ("original"), and as its fast evaluation,
which stops at a line's end; batches of 8, padded; the two engines; vLLM's own `LLM.generate`. Workloads: the score
line, the score line with its distribution, both orders, and the score line with a reason of 256 tokens.
"""

import argparse
import json
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # saving a model loads deepspeed, which else warns of a missing GPU

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.dummy_model import SHAPES, made_up_pairs, make_dummy_model
from benchmarks.throughput.results import plot, ratio_table, ratios, results_of, table
from benchmarks.throughput.rounds import ALONE, WORKLOADS, Setting, Timing, load, measure, process_of
from judgelm.data.samples import SampleStream
from judgelm.doctor.devices import look_at_devices
from judgelm.engines.parameters import prefill_parameters
from judgelm.records import Sample

PROCESSES = tuple(dict.fromkeys(map(process_of, WORKLOADS)))


def main() -> None:
    """Make the model, time the systems, write the page."""
    options = parsed()
    samples = spread(options.pairs, options.count) if options.pairs else list(made_up_pairs(options.count))
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(
            folder=Path(folder) / "judge", out=Path(folder), device=options.device, dtype=options.dtype,
            peak_s=options.peak,
        )  # fmt: skip
        dtype = getattr(torch, options.dtype)
        make_dummy_model(samples, setting.folder, SHAPES[options.shape], dtype, options.device)
        config = AutoConfig.from_pretrained(setting.folder)
        loads, timings = measure_rounds(options, setting, samples)
    write_page(options, config, loads, timings)


def spread(file: Path, count: int) -> list[Sample]:
    """So many pairs from all over a file: neighbours are often of one question, and share much of their prompts."""
    every = list(SampleStream([str(file)]))
    return [every[index * len(every) // count] for index in range(min(count, len(every)))]


def parsed() -> argparse.Namespace:
    """The command line; `--quick` is a tiny model, few pairs, two rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, help="a file of pairs, in any form that judgelm-batch reads")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--reasons", type=int, default=32, help="of the pairs for the rows with reasons")
    parser.add_argument("--alone", type=int, default=2, help="of the pairs for systems that write one reason at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", choices=SHAPES, default="214M")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--price", type=float, default=1.0, help="of the machine, an hour")
    parser.add_argument(
        "--peak", type=float, default=1.0, help="seconds of each measurement of peak FLOP/s, two a timing"
    )
    parser.add_argument("--only", default=",".join(PROCESSES), help="which to run, of: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    parser.add_argument("--quick", action="store_true", help="a tiny model and 8 pairs, to see that all of it runs")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if options.quick:
        options.shape, options.count, options.reasons, options.alone = "tiny", 8, 4, 1
        options.rounds, options.peak = 2, 0.1
    if unknown := set(options.only) - set(PROCESSES):
        parser.error(f"--only: not found: {', '.join(sorted(unknown))}; available: {', '.join(PROCESSES)}")
    return options


def measure_rounds(
    options: argparse.Namespace, setting: Setting, samples: list[Sample]
) -> tuple[dict[str, float], list[Timing]]:
    """Seconds to load each system, and all timings; a system that waits keeps its model loaded."""
    chosen = [name for name in WORKLOADS if process_of(name) in options.only]
    pools = {
        process: ProcessPoolExecutor(1, get_context("spawn")) for process in dict.fromkeys(map(process_of, chosen))
    }
    loads: dict[str, float] = {}
    for process, pool in pools.items():
        loads |= pool.submit(load, setting, [name for name in chosen if process_of(name) == process]).result()
    timings: list[Timing] = []
    for round_index in range(-1, options.rounds):  # the first warms up
        for workload in ("score", "distribution", "both", "reasons"):
            for name in (name for name in chosen if workload in WORKLOADS[name]):
                most = len(samples) if workload != "reasons" else options.alone if name in ALONE else options.reasons
                pairs = samples[: most if round_index >= 0 else 1]
                timing = pools[process_of(name)].submit(measure, setting, name, workload, pairs, round_index).result()
                if round_index >= 0:
                    timings.append(timing)
                    print(
                        f"round {round_index + 1}: {name}, {workload}: {timing.pairs / timing.seconds:.3g} pairs/s",
                        flush=True,
                    )
    for pool in pools.values():
        pool.shutdown()
    return loads, timings


def write_page(options: argparse.Namespace, config: Any, loads: dict[str, float], timings: list[Timing]) -> None:
    """The table, the plot, and all that was measured, with the machine; the table is shown, too."""
    with torch.device("meta"):
        every = AutoModelForCausalLM.from_config(config).num_parameters()
    results = results_of(timings, parameters=every, price_per_hour=options.price)
    compared = ratios(timings)
    devices = look_at_devices()
    machine = devices.cuda[0].name if options.device == "cuda" else f"{devices.cpu.model}, {os.cpu_count()} cores"
    peak = max(max(timing.peak_before, timing.peak_after) for timing in timings)
    one_order = [timing for timing in timings if timing.workload == "score"]
    tokens = sum(timing.prompt_tokens for timing in one_order) / max(1, sum(timing.pairs for timing in one_order))
    disturbed = sum(result.disturbed for result in results)
    heading = (
        f"# Throughput on {machine}\n\n{options.shape} {options.dtype} ({every / 1e6:.0f} million parameters, "
        f"{prefill_parameters(config) / 1e6:.0f} of them meet each prompt token), {options.count} pairs, {tokens:.0f} "
        f"tokens each, {options.rounds} rounds, torch {torch.__version__}, {torch.get_num_threads()} threads.\n"
        f"Peak {peak / 1e9:.0f} GFLOP/s at best; shares count 2 x all parameters x prompt tokens, against the "
        f"peak of their own timing. Prices at {options.price:g} an hour. Other work disturbed {disturbed} of "
        f"{len(timings)} timings.\n\n"
    )
    page = heading + table(results) + "\n" + ratio_table(compared) + "\n" + split(loads, timings)
    (options.out / "throughput.md").write_text(page, encoding="utf-8")
    plot(results, f"{options.shape} {options.dtype} on {machine}").savefig(options.out / "throughput.svg")
    record = {
        "devices": asdict(devices), "options": {name: str(value) for name, value in vars(options).items()},
        "parameters": every, "load_s": loads, "timings": [asdict(timing) for timing in timings],
        "results": [asdict(result) for result in results],
        "ratios": {name: asdict(value) | {"aimed_at": aim} for name, (value, aim) in compared.items()},
    }  # fmt: skip
    (options.out / "throughput.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    print("\n" + page)


def split(loads: dict[str, float], timings: list[Timing]) -> str:
    """Seconds of loading, judging and metrics in the first round, as the paper's Table 3 adds them up."""
    lines = ["| system | workload | pairs | load s | judge s | metrics s |", "|---|---|---|---|---|---|"]
    for timing in timings:
        if timing.round == 0 and timing.metrics_s is not None:
            cells = (
                timing.system,
                timing.workload,
                timing.pairs,
                f"{loads[timing.system]:.2f}",
                f"{timing.seconds:.2f}",
            )
            lines.append("| " + " | ".join(map(str, cells)) + f" | {timing.metrics_s:.2f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
