"""How fast are the engines, against the device's ceiling, the original's loop, padded batches and plain vLLM?

    python benchmarks/throughput.py --pairs PANDALM/testset-v1.json --price 1.5
    python benchmarks/throughput.py --quick
    python benchmarks/throughput.py --shape 7B --device cuda --only transformers,vllm

One model (random weights, but it writes score lines and reasons) and one set of pairs for all, taken from all over the
file so that they share no questions; without `--pairs` pairs of made-up words. Each framework has a process of its own;
the contenders take turns, several rounds, and a ratio is one round's. In each turn the ceiling, a plain matrix product,
is measured before and after, in the contender's process.

Contenders: the original's loop with 16 new tokens, where only `</s>` stops ("original"), and as its fast evaluation,
which stops at a line's end; batches of 8, padded; the two engines; vLLM's own `LLM.generate`. Rows: the score line, the
score line with its distribution, both orders, and the score line with a reason of 256 tokens.
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

from judgelm.data.samples import SampleStream
from judgelm.doctor.devices import look_at_devices
from judgelm.doctor.standings import plot, ratio_table, ratios, standings, table
from judgelm.doctor.turns import ALONE, ROWS, Setting, Turn, load, measure, process_of
from judgelm.doctor.yardstick import SHAPES, made_up_pairs, make_yardstick
from judgelm.engines.parameters import prefill_parameters
from judgelm.records import Sample

PROCESSES = tuple(dict.fromkeys(map(process_of, ROWS)))


def main() -> None:
    """Make the model, let the contenders take turns, write the page."""
    options = parsed()
    samples = spread(options.pairs, options.count) if options.pairs else list(made_up_pairs(options.count))
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(
            folder=Path(folder) / "judge", out=Path(folder), device=options.device, dtype=options.dtype,
            ceiling_s=options.ceiling,
        )  # fmt: skip
        dtype = getattr(torch, options.dtype)
        make_yardstick(samples, setting.folder, SHAPES[options.shape], dtype, options.device)
        config = AutoConfig.from_pretrained(setting.folder)
        loads, turns = take_turns(options, setting, samples)
    write_page(options, config, loads, turns)


def spread(file: Path, count: int) -> list[Sample]:
    """So many pairs from all over a file: neighbours are often of one question, and share much of their prompts."""
    every = list(SampleStream([str(file)]))
    return [every[place * len(every) // count] for place in range(min(count, len(every)))]


def parsed() -> argparse.Namespace:
    """The command line; `--quick` is a tiny model, few pairs, two rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, help="a file of pairs, in any form that judgelm-batch reads")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--reasons", type=int, default=32, help="of the pairs for the rows with reasons")
    parser.add_argument("--alone", type=int, default=2, help="of the pairs for those that write one reason at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", choices=SHAPES, default="214M")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--price", type=float, default=1.0, help="of the machine, an hour")
    parser.add_argument("--ceiling", type=float, default=1.0, help="seconds to measure the ceiling, twice a turn")
    parser.add_argument("--only", default=",".join(PROCESSES), help="which to run, of: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    parser.add_argument("--quick", action="store_true", help="a tiny model and 8 pairs, to see that all of it runs")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if options.quick:
        options.shape, options.count, options.reasons, options.alone = "tiny", 8, 4, 1
        options.rounds, options.ceiling = 2, 0.1
    if unknown := set(options.only) - set(PROCESSES):
        parser.error(f"--only: no such contender: {', '.join(sorted(unknown))}")
    return options


def take_turns(
    options: argparse.Namespace, setting: Setting, samples: list[Sample]
) -> tuple[dict[str, float], list[Turn]]:
    """Seconds to load each contender, and all turns; what is not at its turn waits, its model loaded."""
    chosen = [name for name in ROWS if process_of(name) in options.only]
    pools = {one: ProcessPoolExecutor(1, get_context("spawn")) for one in dict.fromkeys(map(process_of, chosen))}
    loads: dict[str, float] = {}
    for one, pool in pools.items():
        loads |= pool.submit(load, setting, [name for name in chosen if process_of(name) == one]).result()
    turns: list[Turn] = []
    for number in range(-1, options.rounds):  # the first warms up
        for row in ("score", "distribution", "both", "reasons"):
            for name in (name for name in chosen if row in ROWS[name]):
                most = len(samples) if row != "reasons" else options.alone if name in ALONE else options.reasons
                pairs = samples[: most if number >= 0 else 1]
                turn = pools[process_of(name)].submit(measure, setting, name, row, pairs, number).result()
                if number >= 0:
                    turns.append(turn)
                    print(f"round {number + 1}: {name}, {row}: {turn.pairs / turn.seconds:.3g} pairs/s", flush=True)
    for pool in pools.values():
        pool.shutdown()
    return loads, turns


def write_page(options: argparse.Namespace, config: Any, loads: dict[str, float], turns: list[Turn]) -> None:
    """The table, the plot, and all that was measured, with the machine; the table is shown, too."""
    with torch.device("meta"):
        every = AutoModelForCausalLM.from_config(config).num_parameters()
    found = standings(turns, parameters=every, price_per_hour=options.price)
    compared = ratios(turns)
    devices = look_at_devices()
    machine = devices.cuda[0].name if options.device == "cuda" else f"{devices.cpu.model}, {os.cpu_count()} cores"
    ceiling = max(max(turn.ceiling_before, turn.ceiling_after) for turn in turns)
    one_order = [turn for turn in turns if turn.row == "score"]
    tokens = sum(turn.prompt_tokens for turn in one_order) / max(1, sum(turn.pairs for turn in one_order))
    disturbed = sum(one.disturbed for one in found)
    heading = (
        f"# Throughput on {machine}\n\n{options.shape} {options.dtype} ({every / 1e6:.0f} million parameters, "
        f"{prefill_parameters(config) / 1e6:.0f} of them meet each prompt token), {options.count} pairs, {tokens:.0f} "
        f"tokens each, {options.rounds} rounds, torch {torch.__version__}, {torch.get_num_threads()} threads.\n"
        f"Ceiling {ceiling / 1e9:.0f} GFLOP/s at best; shares count 2 x all parameters x prompt tokens, against the "
        f"ceiling of their own turn. Prices at {options.price:g} an hour. Other work disturbed {disturbed} of "
        f"{len(turns)} turns.\n\n"
    )
    page = heading + table(found) + "\n" + ratio_table(compared) + "\n" + split(loads, turns)
    (options.out / "throughput.md").write_text(page, encoding="utf-8")
    plot(found, f"{options.shape} {options.dtype} on {machine}").savefig(options.out / "throughput.svg")
    record = {
        "devices": asdict(devices), "options": {name: str(value) for name, value in vars(options).items()},
        "parameters": every, "load_s": loads, "turns": [asdict(turn) for turn in turns],
        "standings": [asdict(one) for one in found],
        "ratios": {name: asdict(value) | {"aimed_at": aim} for name, (value, aim) in compared.items()},
    }  # fmt: skip
    (options.out / "throughput.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    print("\n" + page)


def split(loads: dict[str, float], turns: list[Turn]) -> str:
    """Seconds of loading, judging and metrics in the first round, as the paper's Table 3 adds them up."""
    lines = ["| contender | row | pairs | load s | judge s | metrics s |", "|---|---|---|---|---|---|"]
    for turn in turns:
        if turn.round == 0 and turn.metrics_s is not None:
            cells = (turn.contender, turn.row, turn.pairs, f"{loads[turn.contender]:.2f}", f"{turn.seconds:.2f}")
            lines.append("| " + " | ".join(map(str, cells)) + f" | {turn.metrics_s:.2f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
