"""Useful tokens and tokens per second of training: rows padded, padded by like length, and without padding.

    python -m benchmarks.padding_free [--data DATA] [--rounds 5]
    python -m benchmarks.padding_free --device cuda [--data DATA]
    python -m benchmarks.padding_free --device cuda --mfu full --layers 8    # or --mfu lora

A small Llama with random weights trains on the same rows in four layouts, which take turns; a ratio is one round's.
Rows are the synthetic world's, and with DATA also the prompts of `pandalm/testset-v1.json`. They are whole batches
spread evenly over the order that `train_sampling_strategy: group_by_length` gives all rows, so both kinds of padding
are those of a large run. Batches and loss are TRL's; bfloat16 is autocast over float32 weights, as `bf16: true` is.
Attention of padded rows is FlashAttention 2 on a GPU where flash-attn is installed, else torch's `sdpa`. Rows that are
not padded pass it with a mask of (tokens of a pass) squared, and judgelm's packed attention, the default, without one.
Preferences on the score lines of `train/preference.py` are measured on the world's pairs, with DATA on those of
`benchmarks.useful_tokens`, which are longer; both orders stand in a pass.

With --mfu: a model of 7B's shape (on the CPU a small one) with weights in bfloat16, checkpointed, without padding. MFU
is 6 (full training) or 4 (LoRA: no gradient of frozen weights) x parameters x tokens over time, over the bfloat16
matrix product's rate in the same run. Parameters are the layers' own: the head is applied to a reply's tokens only.
Recomputation is not counted. Full training of all 32 layers needs more than one GPU's memory: --layers says how many.
"""

import argparse
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import send_to_device
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import is_flash_attn_2_available
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling
from trl.trainer.utils import add_fused_lm_head

from benchmarks.row_preparation import judgelm_rows
from benchmarks.synthetic.pairs import generate
from benchmarks.tiny_model import make_tokenizer
from judgelm.data.samples import SampleStream
from judgelm.engines.transformers.attention import ATTENTION_NAME, add_segments
from judgelm.prompts.catalog import get_template
from judgelm.prompts.truncation import Truncator
from judgelm.records import Unparsed
from judgelm.training.rows.builder import IGNORED, RowOptions
from judgelm.training.rows.dataset import Schedule, training_order
from judgelm.training.rows.pairs import PairRowBuilder, PairRowOptions
from judgelm.training.rows.sft import SFTRowBuilder
from judgelm.training.score_line_loss import ScoreLineObjective, ScoreLineTrees

Row = dict[str, list[int]]
WINDOW, VOCABULARY, POPULATION, GLOBAL_BATCH = 1024, 4096, 3200, 128
SMALL = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 6}
SEVEN_B = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with pandalm/testset-v1.json")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows-per-pass", type=int, default=8)
    parser.add_argument("--passes", type=int, default=8, help="forward and backward passes of an optimiser step")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--mfu", choices=["lora", "full"])
    parser.add_argument("--layers", type=int, help="of 7B's shape, with --mfu; all 32 by default")
    options = parser.parse_args()
    print(f"{machine(options.device)}, torch {torch.__version__}, attention {attention(options.device)}\n")
    sets = {"world": world_rows()} | ({"PandaLM": pandalm_rows(options.data)} if options.data else {})
    if options.mfu:
        utilisation(options, sets)
        return
    print("| rows | dtype | layout | n | padding % | real tokens/s | against random |\n|---|---|---|---|---|---|---|")
    for name, rows in sets.items():
        layouts = layouts_of(rows, options.rows_per_pass, options.passes)
        for dtype in options.dtypes:
            compare(name, layouts, dtype, options)
    for dtype in options.dtypes:
        compare_preferences(dtype, options)


def machine(device: str) -> str:
    """The machine of the measurement."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"


def attention(device: str) -> str:
    """The attention that users get on this device by what is installed."""
    return "flash_attention_2" if device == "cuda" and is_flash_attn_2_available() else "sdpa"


def world_rows() -> list[Row]:
    """The synthetic world's rows, as training makes them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.jsonl"
        texts = [json.dumps(row) for row in generate(POPULATION, seed=0, split="train")]
        path.write_text("\n".join(texts), encoding="utf-8")
        tokenizer = make_tokenizer(texts[:1000], vocab_size=VOCABULARY, max_positions=WINDOW)
        options = RowOptions(template="judgelm-compact", window=WINDOW, swap_prob=0.5)
        built = list(SFTRowBuilder(tokenizer, options).read([str(path)]))
    return [{"input_ids": row.input_ids.tolist(), "labels": row.labels.tolist()} for row in built]


def pair_rows(data: Path | None) -> tuple[list[dict[str, Any]], Any]:
    """Pairs as rows of `train/preference.py`, in random order, and their tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.jsonl"
        source = judgelm_rows(data, 200) if data else generate(POPULATION // 4, seed=0, split="train")
        texts = [json.dumps(row) for row in source]
        path.write_text("\n".join(texts), encoding="utf-8")
        tokenizer = make_tokenizer(texts, vocab_size=VOCABULARY, max_positions=WINDOW)
        options = PairRowOptions(template="judgelm-compact", window=WINDOW, swap_prob=0.0)
        rows = list(PairRowBuilder(tokenizer, options).read([str(path)]))
    names = ("prompt_ids", "second_ids")
    pairs = [{name: getattr(row, name).tolist() for name in names} | {"preference": row.preference} for row in rows]
    return pairs, tokenizer


def pandalm_rows(data: Path) -> list[Row]:
    """PandaLM's prompts with a score line behind; the tokenizer is made of their own words."""
    template = get_template("judgelm-v1")
    prompts = [
        template.render(sample, (0, 1), None) for sample in SampleStream([str(data / "pandalm/testset-v1.json")])
    ]
    texts = ("".join(span.text for span in prompt.spans) for prompt in prompts)
    tokenizer = make_tokenizer(texts, vocab_size=VOCABULARY, max_positions=WINDOW)
    truncator, target = Truncator(tokenizer, WINDOW), tokenizer("8 6\n")["input_ids"]
    rows = []
    for prompt in prompts:
        tokenized = truncator.truncate(prompt, len(target))
        if not isinstance(tokenized, Unparsed):
            rows.append({"input_ids": tokenized.ids + target, "labels": [IGNORED] * len(tokenized.ids) + target})
    return rows


def layouts_of(rows: list[Row], size: int, passes: int) -> dict[str, list[Any]]:
    """Batches of the same rows: in random order, by like length, and in random order without padding."""
    lengths = np.array([len(row["input_ids"]) for row in rows])
    passage = Schedule(epochs=1, steps=None, batch=GLOBAL_BATCH, group_by_length=True, seed=0)
    order = training_order(lengths, [len(rows)], passage).tolist()
    batches = [order[begin : begin + size] for begin in range(0, len(order) - size + 1, size)]
    spread = np.linspace(0, len(batches) - 1, passes).round().astype(int)
    grouped = [[rows[index] for index in batches[batch]] for batch in spread]
    mixed = [row for batch in grouped for row in batch]
    random.Random(0).shuffle(mixed)
    shuffled = [mixed[begin : begin + size] for begin in range(0, len(mixed), size)]
    padded, free = (DataCollatorForLanguageModeling(0, padding_free=free) for free in (False, True))
    return {
        "random, padded": [padded(batch) for batch in shuffled],
        "by length, padded": [padded(batch) for batch in grouped],
        "random, not padded, with a mask": [free(batch) for batch in shuffled],
        "random, not padded": [free(batch) for batch in shuffled],
    }


def compare(name: str, layouts: dict[str, list[Any]], dtype: str, options: argparse.Namespace) -> None:
    """Train in each layout in turn; a line of the table for each."""
    model = make_model(SMALL, options.device, torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    autocast = partial(torch.autocast, options.device, torch.bfloat16) if dtype == "bfloat16" else nullcontext
    run = {layout: partial(step, model, optimizer, batches, autocast, layout) for layout, batches in layouts.items()}
    tokens = sum(batch["input_ids"].numel() for batch in layouts["random, not padded"])
    shown = {layout: sum(batch["input_ids"].numel() for batch in batches) for layout, batches in layouts.items()}
    take_turns(f"{name} | {dtype}", run, tokens, shown, options)


def take_turns(
    name: str, run: dict[str, Callable[[], None]], tokens: int, shown: dict[str, int], options: argparse.Namespace
) -> None:
    """Time each layout in turn; the first is the baseline. `shown` counts the tokens with those of padding."""
    for once in run.values():
        timed(once, options.device)
    seconds: dict[str, list[float]] = {layout: [] for layout in run}
    for round_index in range(options.rounds):
        for layout in rotated(list(run), round_index):
            seconds[layout].append(timed(run[layout], options.device))
    first = next(iter(run))
    for layout, taken in seconds.items():
        ratios = [base / own for base, own in zip(seconds[first], taken, strict=True)]
        print(
            f"| {name} | {layout} | {options.rounds} | {100 * (1 - tokens / shown[layout]):.1f} | "
            f"{spread_of([tokens / own for own in taken], '.0f')} | {spread_of(ratios, '.2f')} |"
        )


def compare_preferences(dtype: str, options: argparse.Namespace) -> None:
    """Train P(first better) of score lines, padded and not, in turn; both orders of a pair are rows of one pass."""
    model = make_model(SMALL, options.device, torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    pairs, tokenizer = pair_rows(options.data)
    size = options.rows_per_pass // 2
    examples = [pairs[begin : begin + size] for begin in range(0, options.passes * size, size)]
    trees = ScoreLineTrees(tokenizer, "judgelm-compact", (1, 10))
    objectives = {
        "random, padded": ScoreLineObjective(trees, 0.5, 0.1),
        "random, not padded": ScoreLineObjective(trees, 0.5, 0.1, padding_free=True),
    }
    autocast = partial(torch.autocast, options.device, torch.bfloat16) if dtype == "bfloat16" else nullcontext
    batches = {layout: [objective(pass_) for pass_ in examples] for layout, objective in objectives.items()}
    shown = {layout: sum(batch["input_ids"].numel() for batch in each) for layout, each in batches.items()}
    run = {
        layout: partial(preference_step, model, optimizer, objectives[layout], batches[layout], autocast, layout)
        for layout in objectives
    }
    take_turns(
        f"preferences, {'long' if options.data else 'world'} | {dtype}",
        run,
        shown["random, not padded"],
        shown,
        options,
    )


def preference_step(
    model: Any, optimizer: Any, objective: Any, batches: list[Any], autocast: Callable[[], Any], layout: str
) -> None:
    """One optimiser step over all batches of pairs."""
    model.config._attn_implementation = ATTENTION_NAME if layout == "random, not padded" else "sdpa"
    dtype = torch.bfloat16 if autocast is not nullcontext else torch.float32
    for batch in batches:
        batch = send_to_device(batch, model.device)
        with autocast():
            logits = model(**objective.model_inputs(batch, dtype), use_cache=False).logits
        (objective.losses(logits, batch)[0].mean() / len(batches)).backward()
    optimizer.step()
    optimizer.zero_grad()


def rotated(names: list[str], by: int) -> list[str]:
    """Another one first in each round, so that none always follows the same."""
    by %= len(names)
    return names[by:] + names[:by]


def spread_of(values: list[float], style: str) -> str:
    """Median, lowest and highest."""
    return f"{statistics.median(values):{style}} ({min(values):{style}} to {max(values):{style}})"


def make_model(shape: dict[str, int], device: str, dtype: torch.dtype) -> LlamaForCausalLM:
    """A Llama with random weights, whose loss is TRL's."""
    config = LlamaConfig(**shape, vocab_size=VOCABULARY, max_position_embeddings=WINDOW, pad_token_id=0)
    config._attn_implementation = attention(device)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    with torch.device(device):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(before)
    model.get_decoder().register_forward_pre_hook(add_segments, with_kwargs=True)
    add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    return model.train()


def step(model: Any, optimizer: Any, batches: list[Any], autocast: Callable[[], Any], layout: str = "") -> None:
    """One optimiser step over all batches."""
    model.config._attn_implementation = (
        ATTENTION_NAME if layout == "random, not padded" else attention(model.device.type)
    )
    for batch in batches:
        inputs = {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in batch.items()}
        with autocast():
            loss = model(**inputs, fused_lm_head=True, use_cache=False).loss
        (loss / len(batches)).backward()
    optimizer.step()
    optimizer.zero_grad()


def timed(run: Callable[[], None], device: str) -> float:
    """Seconds of a call, the device's work included."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    begin = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - begin


def multiply(matrix: torch.Tensor, times: int) -> None:
    """The product whose rate is the peak."""
    for _ in range(times):
        matrix @ matrix


def utilisation(options: argparse.Namespace, sets: dict[str, list[Row]]) -> None:
    """Model FLOP/s over the measured peak; matrix product and training take turns."""
    shape = SEVEN_B if options.device == "cuda" else SMALL
    shape = shape | ({"num_hidden_layers": options.layers} if options.layers else {})
    model: Any = make_model(shape, options.device, torch.bfloat16)
    parameters = sum(weight.numel() for weight in model.model.layers.parameters())
    model.gradient_checkpointing_enable()
    if options.mfu == "lora":
        model.enable_input_require_grads()
        model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear"))
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-5)
    side, times = (8192, 20) if options.device == "cuda" else (2048, 2)
    matrix = torch.randn(side, side, device=options.device, dtype=torch.bfloat16)
    print(f"{options.mfu}, {shape['num_hidden_layers']} layers, {parameters / 1e9:.2f}e9 parameters\n")
    print("| rows | n | real tokens/s | model TFLOP/s | peak TFLOP/s | MFU % |\n|---|---|---|---|---|---|")
    for name, rows in sets.items():
        batches = layouts_of(rows, options.rows_per_pass, options.passes)["random, not padded"]
        product = partial(multiply, matrix, times)
        work = partial(step, model, optimizer, batches, nullcontext)
        tokens = sum(batch["input_ids"].numel() for batch in batches)
        for once in (product, work):
            timed(once, options.device)
        measured = [(timed(product, options.device), timed(work, options.device)) for _ in range(options.rounds)]
        peaks = [2 * side**3 * times / alone / 1e12 for alone, _ in measured]
        done = [(6 if options.mfu == "full" else 4) * parameters * tokens / train / 1e12 for _, train in measured]
        shares = [100 * model_rate / peak for model_rate, peak in zip(done, peaks, strict=True)]
        rates = [tokens / train for _, train in measured]
        print(
            f"| {name} | {options.rounds} | {spread_of(rates, '.0f')} | {spread_of(done, '.3g')} | "
            f"{spread_of(peaks, '.3g')} | {spread_of(shares, '.1f')} |"
        )


if __name__ == "__main__":
    main()
