"""Training speed of LoRA on this CPU: peft's layers as they are, the trainer's, and their share of the ceiling.

    python -m benchmarks.lora_speed --base runs/base [--rows 2] [--tokens 550] [--rounds 3] [--dtype float32]
    python -m benchmarks.lora_speed --base runs/base --ways judgelm --profile [--checkpoint]

A step is forward and backward of one batch, labels at the last 4 tokens of a row, with adapters of rank 16 on all
linear layers; the ways take turns in one process. The ceiling is the products with the frozen matrices alone, one each
way, at as many rows. `--profile` adds the operators of one more step by their own time; the peak is the process's, so
that of one way alone is had with `--ways`.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from trl.trainer import utils as trl_utils

from benchmarks.gpu.peak_flops import seconds_of
from benchmarks.throughput.layer_products import layer_sizes
from judgelm.engines.transformers.layers import PackedLinear, is_packable
from judgelm.training.lora_on_cpu import speed_up_layers
from judgelm.training.trainer import skip_unlabelled_logits

_LABELS, _RANK = 4, 16


def main() -> None:
    """Time both ways in turns, and print rates, ratios and shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True, help="folder of a model in safetensors")
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=550, help="of a row")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--ways", nargs="+", choices=("peft", "judgelm"), default=("peft", "judgelm"))
    parser.add_argument("--checkpoint", action="store_true", help="compute activations again for the backward pass")
    parser.add_argument("--profile", action="store_true", help="of the last of the ways")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    skip_unlabelled_logits()
    ways = {way: stepper(options, dtype, fast=way == "judgelm") for way in options.ways}
    tokens = options.rows * options.tokens
    rates: dict[str, list[float]] = {way: [] for way in ways}
    ceilings = []
    for step in ways.values():
        step()
    for _ in range(options.rounds):
        ceilings.append(ceiling(options.base, dtype, tokens))
        for way, step in ways.items():
            rates[way].append(tokens / step())
    for way, own in rates.items():
        shares = [rate / limit for rate, limit in zip(own, ceilings, strict=True)]
        print(f"{way}: {spread(own, ',.0f')} tokens/s, {spread(shares, '.2f')} of the ceiling")
    if len(rates) == 2:
        ratios = [fast / plain for fast, plain in zip(rates["judgelm"], rates["peft"], strict=True)]
        print(f"judgelm / peft: {spread(ratios, '.2f')}")
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(f"ceiling: {spread(ceilings, ',.0f')} tokens/s; peak {peak_gb:.1f} GB")
    if options.profile:
        with torch.profiler.profile() as profile:
            ways[options.ways[-1]]()
        print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=20, max_name_column_width=40))


def stepper(options: argparse.Namespace, dtype: torch.dtype, *, fast: bool) -> Callable[[], float]:
    """A function that makes a step, and returns its seconds."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(options.base, dtype=dtype)
    trl_utils.add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    adapted = get_peft_model(model, LoraConfig(r=_RANK, target_modules="all-linear", task_type="CAUSAL_LM"))
    if options.checkpoint:
        adapted.gradient_checkpointing_enable({"use_reentrant": False})
    if fast:
        speed_up_layers(adapted)
    ids = torch.randint(0, model.config.vocab_size, (options.rows, options.tokens))
    labels = ids.clone()
    labels[:, :-_LABELS] = -100

    def step() -> float:
        adapted.zero_grad()
        began = time.perf_counter()
        adapted(input_ids=ids, labels=labels, fused_lm_head=True).log_probs.sum().backward()
        return time.perf_counter() - began

    return step


def ceiling(base: Path, dtype: torch.dtype, rows: int) -> float:
    """Tokens per second if only the products with the frozen matrices took time."""
    config = AutoConfig.from_pretrained(base)
    products = []
    for features, outputs in layer_sizes(config):
        for inputs, results in ((features, outputs), (outputs, features)):
            plain = nn.Linear(inputs, results, bias=False, dtype=dtype)
            layer = PackedLinear(plain) if is_packable(plain.weight) else plain
            products.append(partial(layer, torch.randn(rows, inputs, dtype=dtype)))

    def both_ways() -> None:
        for product in products:
            product()

    with torch.inference_mode():
        return rows / (seconds_of(both_ways, "cpu", 0.2) * config.num_hidden_layers)


def spread(values: list[float], form: str) -> str:
    """Median and range."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


if __name__ == "__main__":
    main()
