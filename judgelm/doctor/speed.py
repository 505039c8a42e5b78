"""Speed of an engine on this machine, relative to the device's peak.

The work of a judge is the prefill: two operations for each weight a prompt token is multiplied with. So an engine's
prompt tokens per second, times twice the weights, are compared with the best rate that a plain matrix product reaches
on the same device in the same numeric format.
"""

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig
from transformers.utils import logging as hf_logging

from judgelm.doctor.machine import Devices
from judgelm.engines.base import Engine, EngineOptions
from judgelm.engines.catalog import load_engine, resolve_options
from judgelm.engines.model_files import split_adapter
from judgelm.engines.weights import prefill_parameters
from judgelm.errors import ConfigError, EngineError, ModelError, first_line
from judgelm.prompts.catalog import get_template
from judgelm.records import Request, Sample, Sampling
from judgelm.training.tiny_model import make_base

MAX_TOKENS = 4  # a score line, "8 7" and its end
_ANSWER_WORDS, _QUESTION_WORDS = 220, 40
_CEILING_S, _BLOCK_S = 2.0, 0.25
_LEAST_PROMPTS, _MOST_GROWTH = 4, 10.0
_PATIENCE_S = 600.0
_STEADY = 0.85
_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Measurements in SI units: operations and tokens per second.

    Attributes:
        parameters: weights a prompt token is multiplied with, see `prefill_parameters`.
        ceiling_before: FLOP/s of a plain matrix product before the engine was loaded.
        ceiling_after: the same after it was closed; the larger of the two is the ceiling.
        prompts: judged in the `seconds` measured, warm-up excluded.
        prompt_tokens: of all of them together, as the model read them.
        notes: lines on what the engine chose by itself, the numeric format among it.
    """

    engine: str
    model: str
    dtype: str
    device: str
    threads: int
    parameters: int
    ceiling_before: float
    ceiling_after: float
    prompts: int
    prompt_tokens: int
    seconds: float
    load_seconds: float
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The fields and what follows from them."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        derived = (
            "pairs_per_s",
            "prompt_tokens_per_s",
            "tokens_per_prompt",
            "flops",
            "share_of_ceiling",
            "is_disturbed",
        )
        return fields | {name: getattr(self, name) for name in derived}

    @property
    def pairs_per_s(self) -> float:
        """Pairs judged in one order."""
        return self.prompts / self.seconds

    @property
    def prompt_tokens_per_s(self) -> float:
        """The rate that the ceiling bounds."""
        return self.prompt_tokens / self.seconds

    @property
    def tokens_per_prompt(self) -> float:
        """Mean length."""
        return self.prompt_tokens / self.prompts

    @property
    def flops(self) -> float:
        """2 x parameters x prompt tokens per second."""
        return 2 * self.parameters * self.prompt_tokens_per_s

    @property
    def is_disturbed(self) -> bool:
        """True if the two ceilings differ so much that other work must have slowed the engine too."""
        ceilings = (self.ceiling_before, self.ceiling_after)
        return min(ceilings) < _STEADY * max(ceilings)

    @property
    def share_of_ceiling(self) -> float:
        """`flops` over the larger ceiling; somewhat above 1 where the machine was busy with other work."""
        return self.flops / max(self.ceiling_before, self.ceiling_after)


def run_probe(engine: str, options: EngineOptions, *, seconds: float) -> Probe:
    """Measure the ceiling, the engine for about `seconds`, and the ceiling again.

    Args:
        engine: an engine that runs the model on this machine.
        options: what it is loaded with; `auto` dtype is what the engine takes on this machine.
        seconds: how long to judge; loading, warm-up and the ceilings come on top.

    Raises:
        ConfigError: an engine that has no model here.
        ModelError: the model cannot be loaded.
        EngineError: the engine broke, or a prompt failed.
    """
    if engine in {"scripted", "openai"}:
        raise ConfigError(f"the {engine} engine runs no model on this machine; probe transformers or vllm")
    options, note = resolve_options(engine, options)
    parameters, dtype = _look_at_model(options)
    device = torch.device("cuda" if torch.cuda.is_available() and options.device != "cpu" else "cpu")
    before = matmul_flops(device, dtype)
    began = time.monotonic()
    loaded = load_engine(engine, options)
    load_seconds = time.monotonic() - began
    try:
        prompts, tokens, measured = _measure(loaded, seconds)
        described, stats = loaded.describe(), loaded.stats()
    finally:
        loaded.close()
    return Probe(
        engine=engine,
        model=options.model,
        dtype=str(described["dtype"]).removeprefix("torch."),
        device=str(described["device"]),
        threads=torch.get_num_threads(),
        parameters=parameters,
        ceiling_before=before,
        ceiling_after=matmul_flops(device, dtype),
        prompts=prompts,
        prompt_tokens=tokens,
        seconds=measured,
        load_seconds=load_seconds,
        notes=tuple(line for line in (note, *stats.get("notes", ())) if line),
    )


def make_probe_model(folder: Path, devices: Devices) -> EngineOptions:
    """Write a random model of which this machine judges a few prompts a second, and say how to load it.

    It is saved in bfloat16, as most judges are, so that the probe shows what `--dtype auto` makes of those.
    From here on transformers draws no progress bars in this process.
    """
    hidden, layers = (2048, 8) if devices.cuda else (768, 12)
    if not devices.cuda:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # saving loads deepspeed, which else warns that there is no GPU
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    texts = (span.text for request in islice(_requests(), 50) for span in request.prompt.spans)
    make_base(
        texts,
        folder,
        hidden_size=hidden,
        layers=layers,
        heads=hidden // 64,
        vocab_size=4096,
        max_positions=2048,
        seed=0,
        dtype=torch.bfloat16,
    )
    return EngineOptions(model=str(folder))


def matmul_flops(device: torch.device, dtype: torch.dtype, seconds: float = _CEILING_S) -> float:
    """FLOP/s of a product of two large square matrices, the best quarter second out of about `seconds`."""
    side = 8192 if device.type == "cuda" else 2048
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)

    def timed(products: int) -> float:
        began = time.perf_counter()
        for _ in range(products):
            torch.mm(left, right, out=out)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    timed(2)
    products = max(1, round(_BLOCK_S / timed(1)))
    blocks = [timed(products) for _ in range(max(3, round(seconds / _BLOCK_S)))]
    return float(2 * side**3 * products / min(blocks))


def _look_at_model(options: EngineOptions) -> tuple[int, torch.dtype]:
    """Parameters of the model, and the numeric format it will run in."""
    base, _ = split_adapter(options)
    try:
        config = AutoConfig.from_pretrained(
            base, revision=options.revision, trust_remote_code=options.trust_remote_code
        )
        parameters = prefill_parameters(config)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{base}: cannot read the model's config: {first_line(error)}; give a local folder") from error
    stated = {name: dtype for dtype, name in _DTYPES.items()}.get(options.dtype, config.dtype)
    return parameters, stated if stated in _DTYPES else torch.float32


def _measure(engine: Engine, seconds: float) -> tuple[int, int, float]:
    """Prompts, prompt tokens and seconds of the last round; each round is longer, until one is long enough."""
    requests = _requests()
    prompts = _LEAST_PROMPTS
    _judge(engine, islice(requests, prompts))
    while True:
        began = time.perf_counter()
        tokens = _judge(engine, islice(requests, prompts))
        measured = time.perf_counter() - began
        if measured >= 0.6 * seconds:
            return prompts, tokens, measured
        prompts = max(prompts + 1, round(prompts * min(_MOST_GROWTH, seconds / measured)))


def _judge(engine: Engine, requests: Iterator[Request]) -> int:
    """Have all requests answered, the engine's window always full; prompt tokens of them all."""
    in_hand = tokens = 0
    answered = time.monotonic()
    while True:
        fresh = list(islice(requests, engine.max_in_flight - in_hand))
        engine.submit(fresh)
        in_hand += len(fresh)
        if not in_hand:
            return tokens
        completions = engine.collect(1.0)
        in_hand -= len(completions)
        for completion in completions:
            if not completion.texts:
                raise EngineError(f"a prompt failed ({completion.finish_reasons[0]}): {completion.error}")
            tokens += completion.prompt_tokens
            answered = time.monotonic()
        if time.monotonic() - answered > _PATIENCE_S:
            raise EngineError(f"no reply within {_PATIENCE_S:.0f} s; the engine hangs, or is far too slow")


def _requests() -> Iterator[Request]:
    """Endless pair prompts of made-up words, no two alike, so that no engine finds one in its cache."""
    template = get_template("judgelm-compact")
    words = [first + second for first in _SYLLABLES for second in _SYLLABLES]
    sampling = Sampling(max_tokens=MAX_TOKENS)
    for index in count():
        draw = random.Random(index)
        question, *answers = (
            " ".join(draw.choices(words, k=length)) for length in (_QUESTION_WORDS, _ANSWER_WORDS, _ANSWER_WORDS)
        )
        sample = Sample(id=str(index), question=question, answers=tuple(answers))
        yield Request(key=str(index), prompt=template.render(sample, (0, 1), None), sampling=sampling)


_SYLLABLES = ("ba", "den", "fo", "gi", "ha", "ker", "lu", "ma", "no", "per", "ri", "so", "ta", "ven", "wi", "zu")
