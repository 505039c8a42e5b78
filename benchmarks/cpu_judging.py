"""The default judge on a CPU, read by yes-no, against vLLM's CPU build and llama.cpp on the same token ids.

    python -m benchmarks.cpu_judging --model FOLDER --pairs PANDALM/testset-v1.json [--count 100] [--rounds 3]

FOLDER is a Qwen2 or a Llama in safetensors. Each answer of each pair is one prompt, of which one token's probabilities
are wanted. The systems take turns; each has a process of its own in each round, whose load counts. The ceiling is the
rate of the layers' matrix products, between and around the systems. Results go to `--out` as JSON, a table to the
terminal. llama.cpp takes part where `llama-cpp-python` is installed; vLLM where `vllm` is.
"""

import argparse
import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch
from transformers import AutoConfig

from benchmarks.throughput.checkpoints import write_gguf
from benchmarks.throughput.layer_products import ceiling_process, ceiling_tokens_per_s, needed_tokens
from judgelm.data.samples import SampleStream
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.model_files import load_tokenizer
from judgelm.engines.preprocess import prepare_request
from judgelm.engines.vllm import quiet_imports
from judgelm.machine import look_at_devices
from judgelm.modes import Pairwise
from judgelm.modes.mode import Mode
from judgelm.prompts.truncation import Truncator
from judgelm.records import Completion, Sample
from judgelm.runs.runner import judge

_MODE = Pairwise(template="yes-no")
_WINDOW = 4096
_FORMATS = ("F16", "Q8_0")
Prompts = list[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A system's work in one round: seconds to load and to judge, and the prompt tokens that it computed if it says."""

    system: str
    round: int
    load_s: float
    judge_s: float
    computed: int | None
    ceiling: float


def main() -> None:
    """Time all systems in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", help="of judgelm, vLLM, llama.cpp-F16, llama.cpp-Q8_0")
    parser.add_argument("--out", type=Path, default=Path("runs/cpu_judging.json"))
    options = parser.parse_args()
    every = list(SampleStream([str(options.pairs)]))
    samples = [every[index * len(every) // options.count] for index in range(min(options.count, len(every)))]
    prompts = prompts_of(options.model, samples)
    with tempfile.TemporaryDirectory() as work:
        systems = systems_of(options.model, Path(work), samples, prompts, options.only)
        turns = measured(systems, options.rounds, AutoConfig.from_pretrained(options.model))
    devices = look_at_devices()
    facts: dict[str, Any] = {
        "machine": devices.cpu.model, "instruction_sets": devices.cpu.instruction_sets,
        "threads": torch.get_num_threads(), "date": datetime.now(UTC).date().isoformat(), "pairs": len(samples),
        "prompt_tokens": sum(map(len, prompts)), "needed_tokens": needed_tokens(prompts),
    }  # fmt: skip
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(facts | {"turns": [asdict(turn) for turn in turns]}, indent=1) + "\n")
    show(facts, turns)


def prompts_of(model: Path, samples: Sequence[Sample], mode: Mode = _MODE) -> Prompts:
    """The token ids of all prompts of a mode's first round, sample by sample."""
    truncator = Truncator(load_tokenizer(str(model), None, EngineOptions(model=str(model))), _WINDOW)
    prepared = [prepare_request(truncator, request) for sample in samples for request in next(mode(sample))]
    return [list(item[1].ids) for item in prepared if not isinstance(item, Completion)]


def systems_of(
    model: Path, work: Path, samples: Sequence[Sample], prompts: Prompts, only: Sequence[str] | None
) -> dict[str, tuple[Callable[..., tuple[float, float, int | None]], tuple[Any, ...]]]:
    """The systems that are installed, by name: a function for a new process, and its arguments."""
    systems: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {"judgelm": (run_judgelm, (model, samples))}
    if importlib.util.find_spec("vllm"):
        systems["vLLM"] = (run_vllm, (model, prompts))
    if importlib.util.find_spec("llama_cpp"):
        systems |= {f"llama.cpp-{kind}": (run_llama_cpp, (work / kind, prompts)) for kind in _FORMATS}
    chosen = {name: system for name, system in systems.items() if only is None or name in only}
    for kind in _FORMATS:
        if f"llama.cpp-{kind}" in chosen:
            write_gguf(model, work / kind, kind)
    return chosen


def measured(systems: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]], rounds: int, config: Any) -> list[Turn]:
    """All rounds; another system is first in each."""
    turns = []
    with ceiling_process() as apart:

        def ceiling() -> float:
            return apart.submit(ceiling_tokens_per_s, config, "bfloat16", "cpu", 0.2).result()

        names, before = list(systems), ceiling()
        for index in range(rounds):
            for name in names[index % len(names) :] + names[: index % len(names)]:
                function, arguments = systems[name]
                try:
                    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                        load_s, judge_s, computed = pool.submit(function, *arguments).result()
                except BrokenProcessPool:
                    print(f"{name}: its process ended in round {index + 1}", flush=True)
                    continue
                after = ceiling()
                turns.append(
                    Turn(
                        system=name, round=index, load_s=load_s, judge_s=judge_s, computed=computed,
                        ceiling=(before + after) / 2,
                    )
                )  # fmt: skip
                print(turns[-1], flush=True)
                before = after
    return turns


def run_judgelm(model: Path, samples: Sequence[Sample]) -> tuple[float, float, int | None]:
    """The transformers engine, driven by the runner."""
    began = time.perf_counter()
    engine = load_engine("transformers", EngineOptions(model=str(model)))
    loaded = time.perf_counter()
    judgments = list(judge(samples, _MODE, engine))
    judged = time.perf_counter()
    assert all(judgment.failure is None for judgment in judgments)
    read = sum(judgment.prompt_tokens for judgment in judgments)
    return loaded - began, judged - loaded, read - engine.stats()["reused_prompt_tokens"]


def run_vllm(model: Path, prompts: Prompts) -> tuple[float, float, int | None]:
    """Plain `LLM.generate` with prefix caching, all prompts at once."""
    began = time.perf_counter()
    with quiet_imports():
        from vllm import LLM, SamplingParams
    from judgelm.engines.vllm.arguments import engine_args
    from judgelm.engines.vllm.backends import quiet_start

    options = EngineOptions(model=str(model))
    with quiet_start(str(model), multiprocessing=False):
        llm = LLM.from_engine_args(engine_args(str(model), None, load_tokenizer(str(model), None, options), options))
    loaded = time.perf_counter()
    wanted = SamplingParams(temperature=0.0, max_tokens=1, logprobs=20)
    llm.generate([{"prompt_token_ids": ids} for ids in prompts], wanted, use_tqdm=False)
    return loaded - began, time.perf_counter() - loaded, None


def run_llama_cpp(gguf: Path, prompts: Prompts) -> tuple[float, float, int | None]:
    """llama.cpp, a prompt at a time; what a prompt shares with the one before is kept."""
    from llama_cpp import Llama

    threads = torch.get_num_threads()
    began = time.perf_counter()
    llama = Llama(
        str(gguf), n_ctx=_WINDOW, n_batch=512, n_ubatch=512, n_threads=threads, n_threads_batch=threads, verbose=False
    )
    loaded = time.perf_counter()
    for ids in prompts:
        next(iter(llama.generate(ids, temp=0.0)))
    return loaded - began, time.perf_counter() - loaded, None


def show(facts: dict[str, Any], turns: Sequence[Turn]) -> None:
    """A table: medians over the rounds, lowest and highest."""
    first = {turn.round: turn for turn in turns if turn.system == "judgelm"}
    print(f"\n{facts['pairs']} pairs, {facts['prompt_tokens']} prompt tokens, {facts['needed_tokens']} after sharing\n")
    print("| system | load, s | judge, s | share of the ceiling | judgelm, load included, times as fast |")
    print("|---|---|---|---|---|")
    for name in dict.fromkeys(turn.system for turn in turns):
        own = [turn for turn in turns if turn.system == name]
        shares = [facts["needed_tokens"] / turn.judge_s / turn.ceiling for turn in own]
        ratios = [
            (turn.load_s + turn.judge_s) / (first[turn.round].load_s + first[turn.round].judge_s)
            for turn in own
            if turn.round in first
        ]
        cells = [[turn.load_s for turn in own], [turn.judge_s for turn in own], shares, ratios]
        print(f"| {name} | {' | '.join(spread(values) for values in cells)} |")
    computed = {turn.computed for turn in first.values()}
    print(f"\njudgelm computed {computed} prompt tokens")


def spread(values: Sequence[float]) -> str:
    """Median, lowest and highest."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})" if values else ""


if __name__ == "__main__":
    main()
