"""Speeds of a judge on this machine, by engine and numeric format, and the verdicts that a format changes."""

import importlib.util
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path

import torch
from statsmodels.stats.proportion import proportion_confint

from judgelm.data.samples import SampleStream
from judgelm.engines.base import INT8, EngineOptions
from judgelm.engines.dtype import available_bytes, stored_dtype
from judgelm.engines.model_cache import MeasuredSpeed
from judgelm.engines.model_files import load_config, split_adapter
from judgelm.engines.transformers.layers import runs_int8
from judgelm.engines.weights import all_parameters
from judgelm.errors import EngineError, InputError
from judgelm.judge import Judge
from judgelm.modes import Pairwise
from judgelm.records import Judgment, Sample, Verdict
from judgelm.runs.runner import judge as run_judge

SAMPLED_PAIRS = 256
_GROWTH = 8
_WEIGHTS_SHARE = 0.8
"""Of the free memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """An engine with a numeric format and a quantization."""

    engine: str
    dtype: str
    quantization: str | None = None

    @property
    def format(self) -> str:
        """The format in a word."""
        return self.quantization or self.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSpeed:
    """The speed of a variant, in its largest round; fast variants judge more pairs, so tokens are what compares.

    Attributes:
        variant: with the format that the engine resolved.
        pairs: judged in both orders in `seconds`.
        seconds: that they took.
        prompt_tokens: of those pairs in both orders.
        load_s: seconds until the engine was loaded.
        verdicts: id -> verdict by both orders, of all rounds; None where a pair failed.
        failures: code -> pairs of all rounds that failed.
    """

    variant: Variant
    pairs: int
    seconds: float
    prompt_tokens: int
    load_s: float
    verdicts: dict[str, Verdict | None]
    failures: dict[str, int] = field(default_factory=dict)

    @property
    def prompt_tokens_per_s(self) -> float:
        """The rate that compares variants."""
        return self.prompt_tokens / self.seconds

    def to_measured(self) -> MeasuredSpeed:
        """The part by which `auto` chooses."""
        return MeasuredSpeed(**asdict(self.variant), prompt_tokens_per_s=self.prompt_tokens_per_s)


def tokens_per_pair(speeds: Sequence[VariantSpeed]) -> float:
    """Mean prompt tokens of a pair in both orders, over the largest round of all variants."""
    largest = max(speeds, key=lambda speed: speed.pairs)
    return largest.prompt_tokens / largest.pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatChange:
    """Verdicts in a format beside those in another, on the same pairs.

    Attributes:
        n: pairs with a verdict in both.
        changed: pairs whose verdict differs.
        low: of Wilson's 95 % interval of the changed share.
        high: of that interval.
    """

    n: int
    changed: int
    low: float
    high: float


def read_pairs(path: Path) -> tuple[list[Sample], int]:
    """At most `SAMPLED_PAIRS` pairs of a file, drawn with a fixed seed, and the number of all its pairs.

    Raises:
        InputError: it cannot be read, or holds no pair.
    """
    draw, drawn, total = random.Random(0), list[Sample](), 0
    for sample in SampleStream([str(path)], on_reject=lambda reject: None, reference="ignore"):
        total += 1
        if len(drawn) < SAMPLED_PAIRS:
            drawn.append(sample)
        elif (index := draw.randrange(total)) < SAMPLED_PAIRS:
            drawn[index] = sample
    if not drawn:
        raise InputError(f"{path}: holds no pair to measure with")
    return drawn, total


def variants_of(model: str) -> tuple[list[Variant], list[str]]:
    """The variants that this machine can run, vLLM last, and those left out with the reason.

    Raises:
        ModelError: the model cannot be read.
    """
    options = EngineOptions(model=model)
    base, _ = split_adapter(options)
    config = load_config(base, options)
    stored, left_out = stored_dtype(base, config) or "auto", []
    variants = [Variant(engine="transformers", dtype=stored)]
    if not torch.cuda.is_available() and getattr(config, "quantization_config", None) is None:
        formats = dict.fromkeys(("float32", "bfloat16", stored))
        variants = [Variant(engine="transformers", dtype=dtype) for dtype in formats]
        weights = all_parameters(config)
        if weights is not None and 4 * weights > _WEIGHTS_SHARE * available_bytes():
            left_out.append(f"transformers float32: its {4 * weights / 1e9:.1f} GB do not fit into the free memory")
            variants = variants[1:]
        if runs_int8():
            variants.append(Variant(engine="transformers", dtype="auto", quantization=INT8))
    if importlib.util.find_spec("vllm") is None:
        left_out.append("vllm: not installed")
    else:
        variants.append(Variant(engine="vllm", dtype=stored))
    return variants, left_out


def measure(model: str, variant: Variant, samples: Sequence[Sample], seconds: float) -> VariantSpeed:
    """Load a variant, warm it up with one pair, and judge for about `seconds`, at most all pairs once.

    Args:
        model: a judge's folder, file or hub id.
        variant: how to load it.
        samples: the pairs.
        seconds: how long it judges.

    Raises:
        JudgelmError: it cannot be loaded, or broke.
        EngineError: it could read none of the pairs.
    """
    with Judge(model, engine=variant.engine, dtype=variant.dtype, quantization=variant.quantization) as judge:
        mode = judge.pairwise(both_orders=True)
        warm_up, *rounds = _rounds(judge, mode, samples, seconds)
        dtype = str(judge.engine.describe()["dtype"]).removeprefix("torch.")
    largest = max(rounds or [warm_up], key=lambda done: len(done.judgments))
    judgments = [judgment for done in (warm_up, *rounds) for judgment in done.judgments]
    failures: Counter[str] = Counter(judgment.failure.code for judgment in judgments if judgment.failure is not None)
    prompt_tokens = sum(judgment.prompt_tokens for judgment in largest.judgments)
    if not prompt_tokens:
        codes = ", ".join(f"{code}: {count}" for code, count in failures.items())
        raise EngineError(f"it could read none of {len(judgments)} pairs ({codes}); measure with --pairs that it can")
    return VariantSpeed(
        variant=replace(variant, dtype=dtype),
        pairs=len(largest.judgments),
        seconds=largest.seconds,
        prompt_tokens=prompt_tokens,
        load_s=judge.load_s,
        verdicts={judgment.sample_id: judgment.verdict for judgment in judgments},
        failures=dict(failures),
    )


@dataclass(frozen=True, slots=True)
class _Round:
    """Pairs judged together."""

    judgments: list[Judgment]
    seconds: float


def _rounds(judge: Judge, mode: Pairwise, samples: Sequence[Sample], seconds: float) -> Iterator[_Round]:
    """Rounds that grow to what is left of the time; the first, of one pair, does not count into it."""
    pending, size, left = iter(samples), 1, seconds
    warm = False
    while left > 0 and (pairs := list(islice(pending, size))):
        began = time.perf_counter()
        judgments = list(run_judge(pairs, mode, judge.engine))
        taken = time.perf_counter() - began
        yield _Round(judgments, taken)
        if warm:
            left -= taken
        size = max(1, min(_GROWTH * size, round(size * left / taken))) if warm else _GROWTH // 2
        warm = True


def change_between(first: VariantSpeed, second: VariantSpeed) -> FormatChange | None:
    """Verdicts of the second beside those of the first; None without a pair that has a verdict in both."""
    both = [
        (before, after)
        for name, before in first.verdicts.items()
        if before is not None and (after := second.verdicts.get(name)) is not None
    ]
    if not both:
        return None
    changed = sum(before != after for before, after in both)
    low, high = proportion_confint(changed, len(both), method="wilson")
    return FormatChange(n=len(both), changed=changed, low=float(low), high=float(high))
