"""Systems in processes of their own, one for each framework, that take timings at judging.

`load` and `measure` run in such a process; what they take and give can be sent there and back.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as hf_logging

from benchmarks.dummy_model import distinct
from benchmarks.throughput.baselines import (
    ORIGINAL_TOKENS,
    REASON_TOKENS,
    OriginalLoop,
    PaddedBatches,
    PlainModel,
    PlainVllm,
    System,
    Workload,
)
from benchmarks.throughput.engine import EngineSystem
from judgelm.doctor.probe import matmul_flops
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.records import Judgment, Label, Sample
from judgelm.studies.evaluation import evaluate

WORKLOADS: Mapping[str, tuple[Workload, ...]] = {
    "original": ("score",),
    "original, fast": ("score",),
    "original, reasons": ("reasons",),
    "original, padded": ("score",),
    "transformers": ("score", "distribution", "both", "reasons"),
    "transformers, one": ("reasons",),
    "vllm": ("score", "distribution", "both", "reasons"),
    "plain vllm": ("score", "reasons"),
}
"""What each system is asked for; those named alike before the comma share a process."""

ALONE = ("original, reasons", "transformers, one")
"""They write one reason at a time, so their rate is known from few pairs."""

_GPU_SHARE = 0.25  # vLLM takes most of a GPU unless told, and four processes stand on it at once
_PADDED_BATCH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Settings of every process: model, output folder, device, duration of the peak measurement."""

    folder: Path
    out: Path
    device: str
    dtype: str
    peak_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Measurements of a system in one round; seconds, tokens, and the peaks in FLOP/s before and after.

    `idle` is the share of the time that an engine was not at work, `metrics_s` the time the evaluation took; None for
    systems that have neither.
    """

    system: str
    workload: Workload
    round: int
    pairs: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    idle: float | None
    metrics_s: float | None
    peak_before: float
    peak_after: float


def process_of(name: str) -> str:
    """The process that a system lives in."""
    return name.split(",")[0]


_here: dict[str, System] = {}


def load(setting: Setting, names: Sequence[str]) -> dict[str, float]:
    """Load systems in this process and let each judge once; seconds until each was loaded."""
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    makers = _makers(setting, process_of(names[0]))
    taken = {}
    for name in names:
        began = time.perf_counter()
        _here[name] = makers[name]()
        taken[name] = time.perf_counter() - began
    return taken


def measure(setting: Setting, name: str, workload: Workload, samples: Sequence[Sample], round_index: int) -> Timing:
    """Time a system of this process.

    The pairs' first words differ in each timing, so a prefix cache knows only what all prompts have in common.

    Args:
        setting: as `load` had it.
        name: the system.
        workload: what to ask for.
        samples: what to judge.
        round_index: the round; negative to warm up.
    """
    pairs = distinct(samples, f"{workload} {round_index}")
    system, device, dtype = _here[name], torch.device(setting.device), getattr(torch, setting.dtype)
    before = matmul_flops(device, dtype, setting.peak_s)
    work = system.judge(pairs, workload)
    return Timing(
        system=name,
        workload=workload,
        round=round_index,
        pairs=work.pairs,
        prompt_tokens=work.prompt_tokens,
        completion_tokens=work.completion_tokens,
        seconds=work.seconds,
        idle=work.idle,
        metrics_s=_evaluated(system.judgments) if isinstance(system, EngineSystem) else None,
        peak_before=before,
        peak_after=matmul_flops(device, dtype, setting.peak_s),
    )


def _evaluated(judgments: Sequence[Judgment]) -> float:
    """Seconds of an evaluation with all its intervals; the labels are invented, the work is the same."""
    labels = {
        judgment.sample_id: Label(sample_id=judgment.sample_id, winner=(1, 2, "tie")[index % 3])
        for index, judgment in enumerate(judgments)
    }
    began = time.perf_counter()
    evaluate(judgments, labels)
    return time.perf_counter() - began


def _makers(setting: Setting, process: str) -> Mapping[str, Callable[[], System]]:
    """Constructors of the systems of a process."""
    arguments = {"gpu_memory_utilization": _GPU_SHARE} if setting.device == "cuda" else {}
    options = EngineOptions(model=str(setting.folder), dtype=setting.dtype, engine_args=arguments)
    if process == "vllm":
        return {"vllm": lambda: EngineSystem(load_engine("vllm", options))}
    if process == "plain vllm":
        return {"plain vllm": lambda: PlainVllm(options)}
    if process == "transformers":
        options = replace(options, device=setting.device, engine_args={})
        return {
            "transformers": lambda: EngineSystem(load_engine("transformers", options)),
            "transformers, one": lambda: EngineSystem(load_engine("transformers", replace(options, max_num_seqs=1))),
        }
    loaded = PlainModel.load(setting.folder, getattr(torch, setting.dtype), setting.device)
    original: Any = partial(OriginalLoop, loaded, setting.out / "original.jsonl")
    return {
        "original": lambda: original(fast=False, max_new_tokens=ORIGINAL_TOKENS),
        "original, fast": lambda: original(fast=True, max_new_tokens=ORIGINAL_TOKENS),
        "original, reasons": lambda: original(fast=False, max_new_tokens=REASON_TOKENS),
        "original, padded": lambda: PaddedBatches(loaded, batch=_PADDED_BATCH),
    }
