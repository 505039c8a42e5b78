"""Time training steps with the vocabulary computed for labelled positions alone, and for all positions.

    python -m benchmarks.labelled_logits [--rows 2] [--tokens 550] [--labels 4] [--rounds 5] [--device cpu]

One process, random weights of SmolLM2-135M's shape (hidden 576, 30 layers, 9 heads and 3 of keys, MLP 1,536, vocabulary
49,152, tied), float32, or bfloat16 on CUDA. A step is forward and backward of one batch; the two ways take turns. The
peak is that of a process (resident, weights and gradients included) or of the device, each way in a process of its own.
On CUDA with Triton, TRL 1.16 computes labelled positions alone in either way.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from trl.kernels import chunked_logprob
from trl.trainer import utils as trl_utils

from judgelm.training.trainer import skip_unlabelled_logits

SHAPE = {
    "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
    "intermediate_size": 1536, "vocab_size": 49_152, "tie_word_embeddings": True,
}  # fmt: skip
WAYS = ("all", "labelled")


def main() -> None:
    """Both ways in turns, then each one's peak memory; their ratio."""
    options = parse_options()
    if options.peak_of:
        print(json.dumps(peak_of(options.peak_of, options)))
        return
    step = steps_of(options)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for way in WAYS:  # warm-up
        step(way)
    for _ in range(options.rounds):
        for way in WAYS:
            times[way].append(step(way))
    tokens = options.rows * options.tokens
    peaks = {way: peak_in_process(way) for way in WAYS}
    for way in WAYS:
        rates = [tokens / seconds for seconds in times[way]]
        print(
            f"{way}: {statistics.median(rates):,.0f} tokens/s ({min(rates):,.0f} to {max(rates):,.0f}, "
            f"{options.rounds} rounds), {peaks[way] / 1e6:,.0f} MB at the peak"
        )
    ratios = [before / after for before, after in zip(times["all"], times["labelled"], strict=True)]
    print(
        f"labelled positions alone: {statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to "
        f"{max(ratios):.2f}), {(peaks['all'] - peaks['labelled']) / 1e6:,.0f} MB less"
    )


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=550, help="of a row")
    parser.add_argument("--labels", type=int, default=4, help="of a row, at its end")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--peak-of", choices=WAYS, help=argparse.SUPPRESS)
    return parser.parse_args()


def steps_of(options: argparse.Namespace) -> Callable[[str], float]:
    """A function that makes one step in a way, and gives its seconds."""
    torch.manual_seed(0)
    device = torch.device(options.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = LlamaForCausalLM(LlamaConfig(**SHAPE)).to(device, dtype)
    trl_utils.add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    ids = torch.randint(0, SHAPE["vocab_size"], (options.rows, options.tokens), device=device)
    labels = ids.clone()
    labels[:, : -options.labels] = -100

    def step(way: str) -> float:
        skip_unlabelled_logits() if way == "labelled" else setattr(
            trl_utils, "_use_triton", chunked_logprob._use_triton
        )
        model.zero_grad()
        began = time.perf_counter()
        model(input_ids=ids, labels=labels, fused_lm_head=True).log_probs.sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    return step


def peak_of(way: str, options: argparse.Namespace) -> int:
    """Peak bytes of two steps in this process."""
    step = steps_of(options)
    step(way)
    step(way)
    if options.device == "cuda":
        return torch.cuda.max_memory_allocated()
    # not ru_maxrss, which begins at that of the process that started this one
    stated = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(stated["VmHWM"].split()[0]) * 1024


def peak_in_process(way: str) -> int:
    """`peak_of` in a process of its own, since a peak stays."""
    command = [sys.executable, __file__, *sys.argv[1:], "--peak-of", way]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
