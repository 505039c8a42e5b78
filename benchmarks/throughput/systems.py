"""Systems by engine and numeric format, and their timings; each is loaded and timed in a process of its own."""

import importlib.util
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer
from transformers.utils import logging as hf_logging

from benchmarks.dummy_model import distinct, prompt_of
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
from benchmarks.throughput.checkpoints import write_gguf, write_w8a8
from benchmarks.throughput.engine import EngineSystem
from benchmarks.throughput.layer_products import needed_tokens
from benchmarks.throughput.llama import LlamaCpp
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.records import Sample

ORIGINAL, ORIGINAL_FAST, ORIGINAL_REASONS = "original loop", "original loop, fast", "original loop, reasons"
PADDED, JUDGELM, JUDGELM_ALONE, JUDGELM_VLLM = "padded batches", "judgelm", "judgelm, one", "judgelm on vLLM"
VLLM, LLAMA_CPP = "vLLM", "llama.cpp"
W8A8, Q8_0, F16 = "W8A8", "Q8_0", "F16"

_PADDED_BATCH = 8
_WARM_UP_PAIRS = 60
_GROUND = {W8A8: "int8", Q8_0: "int8", F16: "float32"}
"""The format of the ceiling that a peer's format stands against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemKind:
    """A system in a numeric format, and what it is asked for."""

    name: str
    format: str
    workloads: tuple[Workload, ...]

    @property
    def ceiling_format(self) -> str:
        """The format whose ceiling it stands against."""
        return _GROUND.get(self.format, self.format)

    @property
    def is_alone(self) -> bool:
        """True if it writes one reason at a time, so that few pairs tell its rate."""
        return self.name in {ORIGINAL_REASONS, JUDGELM_ALONE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Settings of every process.

    Attributes:
        folder: of the judge, in safetensors.
        work: folder of its other forms and of outputs.
        template: of its prompts.
        device: `cpu` or `cuda`.
    """

    folder: Path
    work: Path
    template: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Measurements of a system in one round.

    Attributes:
        needed_tokens: prompt tokens that must be computed, shared beginnings once.
        idle: share of the time that the engine was not at work; None where that is not known.
        load_s: seconds until the system was loaded.
    """

    system: str
    format: str
    workload: Workload
    round: int
    pairs: int
    prompt_tokens: int
    needed_tokens: int
    completion_tokens: int
    seconds: float
    idle: float | None
    load_s: float


def systems_of(dtype: str, device: str, *, writes_reasons: bool) -> tuple[list[SystemKind], list[str]]:
    """The systems that this machine can run, in the order of their timings, and those left out, with the reason.

    Args:
        dtype: the format that judgelm takes by itself here; other formats give the score line alone.
        device: `cpu` or `cuda`.
        writes_reasons: False for a judge that ends behind its score line.
    """
    rest: tuple[Workload, ...] = ("reasons",) if writes_reasons else ()
    every: tuple[Workload, ...] = ("score", "distribution", "both", *rest)
    systems = [
        SystemKind(name=ORIGINAL, format=dtype, workloads=("score",)),
        SystemKind(name=ORIGINAL_FAST, format=dtype, workloads=("score",)),
        SystemKind(name=PADDED, format=dtype, workloads=("score",)),
        SystemKind(name=JUDGELM, format=dtype, workloads=every),
        SystemKind(name=JUDGELM_VLLM, format=dtype, workloads=every),
        SystemKind(name=VLLM, format=dtype, workloads=("score", *rest)),
    ]
    if writes_reasons:
        systems += [SystemKind(name=name, format=dtype, workloads=rest) for name in (ORIGINAL_REASONS, JUDGELM_ALONE)]
    if device == "cpu":
        other = "float32" if dtype != "float32" else "bfloat16"
        formats = [(JUDGELM, other), (VLLM, other), (VLLM, W8A8), (LLAMA_CPP, Q8_0), (LLAMA_CPP, F16)]
        systems += [SystemKind(name=name, format=format, workloads=("score",)) for name, format in formats]
    missing = {
        JUDGELM_VLLM: _missing("vllm"), VLLM: _missing("vllm"), LLAMA_CPP: _missing("llama_cpp"),
    }  # fmt: skip
    left_out = {name: reason for name, reason in missing.items() if reason}
    return [system for system in systems if system.name not in left_out], [
        f"{name}: {reason}" for name, reason in left_out.items()
    ]


def _missing(module: str) -> str | None:
    return None if importlib.util.find_spec(module) else f"{module} is not installed"


def write_checkpoints(setting: Setting, systems: Sequence[SystemKind]) -> None:
    """Write the forms of the judge that these systems read."""
    for system in systems:
        if system.name == LLAMA_CPP:
            write_gguf(setting.folder, setting.work / f"{system.format}.gguf", system.format)
        elif system.format == W8A8:
            write_w8a8(setting.folder, setting.work / W8A8)


def measure_system(
    setting: Setting, kind: SystemKind, samples: Sequence[Sample], reasons: int, round_index: int
) -> list[Timing]:
    """Load a system in this process, let it judge as many pairs as are timed, and time each of its workloads.

    The pairs' first words differ in each timing, so a prefix cache knows only what all prompts have in common.

    Args:
        setting: of the run.
        kind: the system.
        samples: what to judge.
        reasons: how many of them where reasons are written.
        round_index: from 0.
    """
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    tokenizer: Any = AutoTokenizer.from_pretrained(setting.folder)
    began = time.perf_counter()
    system = _load(setting, kind)
    load_s = time.perf_counter() - began
    timings = []
    for workload in kind.workloads:
        warm_up = samples[: 1 if kind.is_alone else _WARM_UP_PAIRS]
        system.judge(distinct(warm_up, f"warm up {workload}"), workload)
        pairs = distinct(samples[: reasons if workload == "reasons" else None], f"{workload} {round_index}")
        work = system.judge(pairs, workload)
        orders = ((0, 1), (1, 0)) if workload == "both" else ((0, 1),)
        prompts = [prompt_of(pair, setting.template, order) for pair in pairs for order in orders]
        timings.append(
            Timing(
                system=kind.name,
                format=kind.format,
                workload=workload,
                round=round_index,
                pairs=work.pairs,
                prompt_tokens=work.prompt_tokens,
                needed_tokens=needed_tokens(tokenizer(prompts).input_ids),
                completion_tokens=work.completion_tokens,
                seconds=work.seconds,
                idle=work.idle,
                load_s=load_s,
            )
        )
    return timings


def _load(setting: Setting, kind: SystemKind) -> System:
    """The system, its judge loaded."""
    if kind.name == LLAMA_CPP:
        return LlamaCpp(setting.work / f"{kind.format}.gguf", setting.folder, setting.template)
    if kind.name == VLLM and kind.format == W8A8:
        return PlainVllm(EngineOptions(model=str(setting.work / W8A8)), setting.template)
    options = EngineOptions(model=str(setting.folder), dtype=kind.format)
    if kind.name == VLLM:
        return PlainVllm(options, setting.template)
    if kind.name == JUDGELM_VLLM:
        return EngineSystem(load_engine("vllm", options), setting.template)
    if kind.name in {JUDGELM, JUDGELM_ALONE}:
        options = EngineOptions(model=str(setting.folder), device=setting.device, dtype=kind.format)
        if kind.name == JUDGELM_ALONE:
            options = replace(options, max_num_seqs=1)
        return EngineSystem(load_engine("transformers", options), setting.template)
    loaded = PlainModel.load(setting.folder, getattr(torch, kind.format), setting.device, setting.template)
    if kind.name == PADDED:
        return PaddedBatches(loaded, batch=_PADDED_BATCH)
    return OriginalLoop(
        loaded,
        setting.work / "original.jsonl",
        fast=kind.name == ORIGINAL_FAST,
        max_new_tokens=REASON_TOKENS if kind.name == ORIGINAL_REASONS else ORIGINAL_TOKENS,
    )
