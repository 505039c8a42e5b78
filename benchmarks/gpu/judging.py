"""Step `judging-SHAPE`: pairs per second of random weights, drawn on the device in bfloat16 and never on a disk.

The transformers engine through the runner, one order, both, and reasons, against padded batches through `generate` and
the original's loop. One model serves all of them; only its attention is
exchanged, as each loads it. The systems are timed in turn, and each time the questions begin with other words, so that
no prefix cache knows them.
"""

import copy
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch

from benchmarks.dummy_model import SHAPES, build_dummy_model, distinct, made_up_pairs, prefill_parameters
from benchmarks.gpu.peak_flops import layer_flops, square_flops, synchronize
from benchmarks.gpu.step import Save, Setting
from benchmarks.throughput.baselines import (
    ORIGINAL_TOKENS,
    OriginalLoop,
    PaddedBatches,
    PlainModel,
    System,
    Work,
    Workload,
)
from benchmarks.throughput.engine import EngineSystem
from judgelm.engines.model_files import eos_ids
from judgelm.engines.transformers.attention import ATTENTION_NAME
from judgelm.engines.transformers.engine import TransformersEngine
from judgelm.engines.transformers.loaded_model import LoadedModel
from judgelm.records import Sample

ROUNDS = 3
_WINDOW = 2048
_PASS_TOKENS = 8192
_WORDS = 340  # of an answer at most: about 600 tokens a prompt


def measure(setting: Setting, save: Save) -> None:
    """Build the model, let the systems take measurements, note rates and shares of the peaks."""
    shape = SHAPES["tiny" if setting.tiny else setting.shape]
    pairs = list(made_up_pairs(64 if setting.tiny else 4096, most_words=_WORDS))
    model, tokenizer = build_dummy_model(pairs[:2000], shape, setting.dtype, setting.device)
    peaks = {
        "square_product_flops": square_flops(setting.device, setting.dtype, 0.05 if setting.tiny else 2),
        "layer_products_flops": layer_flops(
            shape, 256 if setting.tiny else _PASS_TOKENS, setting.device, setting.dtype, 0.01 if setting.tiny else 0.5
        ),
    }
    counted = {"all": model.num_parameters(), "prefill": prefill_parameters(model.config)}
    save({"parameters": counted, "dtype": str(setting.dtype).removeprefix("torch."), **peaks})
    engine = TransformersEngine(_loaded(model, tokenizer))
    systems = _systems(setting, engine, PlainModel(model, _left_padded(tokenizer)))
    budget_s = 0.2 if setting.tiny else 6.0
    measurements: dict[str, list[Work]] = {}
    first = 0
    counts: dict[str, int] = {}
    for round_index in range(-2, 1 if setting.tiny else ROUNDS):
        for name, (system, workload, least) in systems.items():
            model.set_attn_implementation(ATTENTION_NAME if isinstance(system, EngineSystem) else "sdpa")
            count = min(len(pairs), counts.get(name, least))
            chosen = [pairs[(first + offset) % len(pairs)] for offset in range(count)]
            first += count
            work = _judge(system, distinct(chosen, f"{name} {round_index}"), workload, setting.device)
            counts[name] = max(least, round(budget_s * work.pairs / work.seconds)) if round_index < 0 else count
            if round_index >= 0:
                measurements.setdefault(name, []).append(work)
                save({"measurements": {key: [asdict(work) for work in own] for key, own in measurements.items()}})
    peak = torch.cuda.max_memory_allocated() if setting.device == "cuda" else None
    save({"summary": summary(measurements, counted["prefill"], peaks), "engine": engine.stats(), "peak_bytes": peak})


def _loaded(model: Any, tokenizer: Any) -> LoadedModel:
    """The model as the engine takes it: what `engines.loading.load` makes of a folder."""
    model.set_attn_implementation(ATTENTION_NAME)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        window=_WINDOW,
        eos_ids=eos_ids(model.generation_config, tokenizer),
        quantization=None,
        identity={"path": "random weights"},
    )


def _left_padded(tokenizer: Any) -> Any:
    """A copy that pads as `generate` wants it."""
    copied = copy.deepcopy(tokenizer)
    copied.padding_side = "left"
    return copied


def _systems(
    setting: Setting, engine: TransformersEngine, loaded: PlainModel
) -> dict[str, tuple[System, Workload, int]]:
    """By name: who judges, what it is asked for, and the least number of pairs of a measurement."""
    runner = EngineSystem(engine)
    original = OriginalLoop(loaded, setting.scratch / "original.jsonl", fast=False, max_new_tokens=ORIGINAL_TOKENS)
    scale = 4 if setting.tiny else 1
    return {
        "engine, one order": (runner, "score", 128 // scale**2),
        "engine, both orders": (runner, "both", 128 // scale**2),
        "engine, reasons": (runner, "reasons", 64 // scale**2),
        "padded batches of 8": (PaddedBatches(loaded, batch=8), "score", 32 // scale),
        "padded batches of 32": (PaddedBatches(loaded, batch=32), "score", 64 // scale),
        "original's loop": (original, "score", 8 // scale),
    }


def _judge(system: System, samples: Sequence[Sample], workload: Workload, device: str) -> Work:
    synchronize(device)
    work = system.judge(samples, workload)
    synchronize(device)
    return work


def summary(
    measurements: dict[str, list[Work]], prefill: int, peaks: dict[str, float]
) -> dict[str, dict[str, float | list[float]]]:
    """Rates as median, least and most of the rounds; shares count 2 x prefill parameters x prompt tokens."""

    def of(own: Sequence[Work], rate: Callable[[Work], float]) -> list[float]:
        rates = [rate(work) for work in own]
        return [statistics.median(rates), min(rates), max(rates)]

    engine = measurements["engine, one order"]
    summaries: dict[str, dict[str, float | list[float]]] = {}
    for name, own in measurements.items():
        flops = [2 * prefill * work.prompt_tokens / work.seconds for work in own]
        ratios = [(e.pairs / e.seconds) / (w.pairs / w.seconds) for e, w in zip(engine, own, strict=True)]
        summaries[name] = {
            "pairs_per_turn": own[0].pairs,
            "tokens_per_prompt": own[0].prompt_tokens / own[0].pairs,
            "pairs_per_s": of(own, lambda work: work.pairs / work.seconds),
            "written_tokens_per_s": of(own, lambda work: work.completion_tokens / work.seconds),
            "written_tokens_per_pair": own[0].completion_tokens / own[0].pairs,
            "engine_one_order_against_it": [statistics.median(ratios), min(ratios), max(ratios)],
            **{f"share_of_{key}": statistics.median(flops) / peak for key, peak in peaks.items()},
        }
    return summaries
