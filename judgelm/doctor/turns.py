"""Contenders in processes of their own, one for each framework, that take turns at judging.

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

from judgelm.doctor.contenders import (
    ORIGINAL_TOKENS,
    REASON_TOKENS,
    Contender,
    Generating,
    OriginalLoop,
    PaddedBatches,
    PlainVllm,
    Row,
    Runner,
)
from judgelm.doctor.probe import matmul_ceiling
from judgelm.doctor.yardstick import distinct
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.records import Judgment, Label, Sample
from judgelm.studies.evaluation import evaluate

ROWS: Mapping[str, tuple[Row, ...]] = {
    "original": ("score",),
    "original, fast": ("score",),
    "original, reasons": ("reasons",),
    "original, padded": ("score",),
    "transformers": ("score", "distribution", "both", "reasons"),
    "transformers, one": ("reasons",),
    "vllm": ("score", "distribution", "both", "reasons"),
    "plain vllm": ("score", "reasons"),
}
"""What each contender is asked for; those named alike before the comma share a process."""

ALONE = ("original, reasons", "transformers, one")
"""They write one reason at a time, so their rate is known from few pairs."""

_GPU_SHARE = 0.25  # vLLM takes most of a GPU unless told, and four processes stand on it at once
_PADDED_BATCH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What every process must know: the model, where to write, on what to run, how long to measure the ceiling."""

    folder: Path
    out: Path
    device: str
    dtype: str
    ceiling_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What was measured of a contender in one round; seconds, tokens, and the ceilings in FLOP/s before and after.

    `idle` is the share of the time that an engine was not at work, `metrics_s` the time the evaluation took; None for
    contenders that have neither.
    """

    contender: str
    row: Row
    round: int
    pairs: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    idle: float | None
    metrics_s: float | None
    ceiling_before: float
    ceiling_after: float


def process_of(name: str) -> str:
    """The process that a contender lives in."""
    return name.split(",")[0]


_here: dict[str, Contender] = {}


def load(setting: Setting, names: Sequence[str]) -> dict[str, float]:
    """Load contenders in this process and let each judge once; seconds until each was loaded."""
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    makers = _makers(setting, process_of(names[0]))
    taken = {}
    for name in names:
        began = time.perf_counter()
        _here[name] = makers[name]()
        taken[name] = time.perf_counter() - began
    return taken


def measure(setting: Setting, name: str, row: Row, samples: Sequence[Sample], number: int) -> Turn:
    """One turn of a contender of this process; the same pairs get other first words in each turn.

    So no prefix cache knows them, but for what all prompts have in common.

    Args:
        setting: as `load` had it.
        name: the contender.
        row: what to ask for.
        samples: what to judge.
        number: the round; negative to warm up.
    """
    pairs = distinct(samples, f"{row} {number}")
    contender, device, dtype = _here[name], torch.device(setting.device), getattr(torch, setting.dtype)
    before = matmul_ceiling(device, dtype, setting.ceiling_s)
    work = contender.judge(pairs, row)
    return Turn(
        contender=name,
        row=row,
        round=number,
        pairs=work.pairs,
        prompt_tokens=work.prompt_tokens,
        completion_tokens=work.completion_tokens,
        seconds=work.seconds,
        idle=work.idle,
        metrics_s=_evaluated(contender.judgments) if isinstance(contender, Runner) else None,
        ceiling_before=before,
        ceiling_after=matmul_ceiling(device, dtype, setting.ceiling_s),
    )


def _evaluated(judgments: Sequence[Judgment]) -> float:
    """Seconds of an evaluation with all its intervals; the labels are invented, the work is the same."""
    labels = {
        one.sample_id: Label(sample_id=one.sample_id, winner=(1, 2, "tie")[place % 3])
        for place, one in enumerate(judgments)
    }
    began = time.perf_counter()
    evaluate(judgments, labels)
    return time.perf_counter() - began


def _makers(setting: Setting, process: str) -> Mapping[str, Callable[[], Contender]]:
    """How each contender of a process comes to be."""
    arguments = {"gpu_memory_utilization": _GPU_SHARE} if setting.device == "cuda" else {}
    options = EngineOptions(model=str(setting.folder), dtype=setting.dtype, engine_args=arguments)
    if process == "vllm":
        return {"vllm": lambda: Runner(load_engine("vllm", options))}
    if process == "plain vllm":
        return {"plain vllm": lambda: PlainVllm(options)}
    if process == "transformers":
        options = replace(options, device=setting.device, engine_args={})
        return {
            "transformers": lambda: Runner(load_engine("transformers", options)),
            "transformers, one": lambda: Runner(load_engine("transformers", replace(options, max_num_seqs=1))),
        }
    loaded = Generating.load(setting.folder, getattr(torch, setting.dtype), setting.device)
    original: Any = partial(OriginalLoop, loaded, setting.out / "original.jsonl")
    return {
        "original": lambda: original(fast=False, max_new_tokens=ORIGINAL_TOKENS),
        "original, fast": lambda: original(fast=True, max_new_tokens=ORIGINAL_TOKENS),
        "original, reasons": lambda: original(fast=False, max_new_tokens=REASON_TOKENS),
        "original, padded": lambda: PaddedBatches(loaded, batch=_PADDED_BATCH),
    }
