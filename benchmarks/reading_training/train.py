"""Readings untrained, linear probes of the frozen base, and LoRA, evaluated on the same development pairs.

    python -m benchmarks.reading_training.train --model FOLDER --data FOLDER --out FOLDER untrained probes
    python -m benchmarks.reading_training.train --model FOLDER --data FOLDER --out FOLDER lora:letters:all \
        lora:yes-no:permissive:seed=1,epochs=2

`--data` holds `train_all.jsonl`, `train_permissive.jsonl` and `dev.jsonl`. Each step writes its log-odds to
OUT/NAME.jsonl, one pair a line, and LoRA its adapter to OUT/NAME/; `report.py` makes the figures. Needs torch,
transformers and peft alone. Steps run one after another with one loaded model; a step that fails does not end the rest,
and the exit code says how many failed.

The loss of a pair with the label p is, for `letters`, the cross entropy of p and sigmoid(mean log-odds of both orders)
plus `consistency` x the squared difference of both orders' P(first better); for `yes-no` the Bradley-Terry loss, the
cross entropy of p and sigmoid(log-odds of the first answer - log-odds of the second).
"""

import argparse
import json
import math
import random
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.reading_training.pairs import Pair, read_pairs, uniform
from benchmarks.reading_training.readings import READINGS, Reading, Words, batches, encode, read, read_all, word_ids

SETS = ("all", "permissive")
_PROBE_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
_WINDOW = 8
"""Batches among which pairs are sorted by length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of a LoRA run."""

    learning_rate: float = 1e-4
    epochs: float = 1.0
    batch: int = 32
    rank: int = 16
    alpha: int = 32
    consistency: float = 1.0
    warm_up: float = 0.05
    seed: int = 0
    limit_s: float = 300.0


@dataclass(slots=True)
class Bench:
    """What all steps share; prompts are encoded once.

    Attributes:
        most_tokens: of a forward pass in evaluation, padding counted.
        train_tokens: of a forward and backward pass.
    """

    model: Any
    tokenizer: Any
    data: Path
    out: Path
    most_tokens: int
    train_tokens: int
    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    prompts: dict[tuple[str, str], list[tuple[list[int], list[int]]]] = field(default_factory=dict)

    def pairs_of(self, name: str) -> list[Pair]:
        """`dev`, `train_all` or `train_permissive`."""
        if name not in self.pairs:
            self.pairs[name] = read_pairs(self.data / f"{name}.jsonl")
        return self.pairs[name]

    def prompts_of(self, name: str, reading: Reading) -> list[tuple[list[int], list[int]]]:
        """Token ids of the pairs' two prompts each."""
        if (name, reading.name) not in self.prompts:
            self.prompts[name, reading.name] = encode(self.tokenizer, reading, self.pairs_of(name))
        return self.prompts[name, reading.name]


def main() -> int:
    """Run the steps that the command line names; how many failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="+", help="untrained, probes, lora:READING:SET[:NAME=VALUE,...]")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--most-tokens", type=int, default=65536)
    parser.add_argument("--train-tokens", type=int, default=16384)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    model: Any = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16, attn_implementation="sdpa")
    bench = Bench(
        model=model.to(options.device).eval(), tokenizer=AutoTokenizer.from_pretrained(options.model),
        data=options.data, out=options.out, most_tokens=options.most_tokens, train_tokens=options.train_tokens,
    )  # fmt: skip
    failed = 0
    for step in options.steps:
        began = time.monotonic()
        print(f"== {step}", flush=True)
        try:
            run(step, bench)
        except Exception:  # time on a GPU is dear, and the next step may still succeed
            failed += 1
            traceback.print_exc()
        print(f"-- {step}: {time.monotonic() - began:.0f} s", flush=True)
    return failed


def run(step: str, bench: Bench) -> None:
    """One step."""
    if step == "untrained":
        for reading in READINGS.values():
            evaluate(bench, reading, f"untrained-{reading.name}", "dev")
    elif step == "probes":
        probes(bench)
    else:
        _, reading_name, set_name, *rest = step.split(":")
        changes = dict(change.split("=") for part in rest for change in part.split(","))
        types = {name: type(value) for name, value in asdict(Settings()).items()}
        settings = replace(Settings(), **{name: types[name](value) for name, value in changes.items()})
        run_name = "-".join([reading_name, set_name, *(f"{name}{value}" for name, value in changes.items())])
        lora(bench, READINGS[reading_name], set_name, settings, run_name)


def evaluate(bench: Bench, reading: Reading, name: str, pairs_name: str, *, keep_states: bool = False) -> Tensor | None:
    """Read the pairs, write their log-odds, print agreement by kind; the states' differences if asked for."""
    pairs, words = bench.pairs_of(pairs_name), word_ids(bench.tokenizer, reading)
    log_odds, mass, states = read_all(
        bench.model, words, bench.prompts_of(pairs_name, reading), bench.most_tokens, keep_states=keep_states
    )
    path = bench.out / (f"{name}.jsonl" if pairs_name == "dev" else f"{name}-{pairs_name}.jsonl")
    rows = [
        {"id": pair.id, "prompts": [round(value, 4) for value in both], "log_odds": round(
            reading.weight * (both[0] - both[1]), 4), "mass": round(min(masses), 6)}
        for pair, both, masses in zip(pairs, log_odds.tolist(), mass.tolist(), strict=True)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if pairs_name == "dev":
        print(name, agreement(pairs, [row["log_odds"] for row in rows]), flush=True)
    return states


def agreement(pairs: Sequence[Pair], log_odds: Sequence[float]) -> str:
    """Percent of decided pairs whose better answer is named, by kind; kinds of `everyday` together."""
    hits: dict[str, list[bool]] = defaultdict(list)
    for pair, value in zip(pairs, log_odds, strict=True):
        if pair.label != 0.5:
            kind = pair.family if pair.family in ("everyday", "limits") and "capitals" not in pair.kind else pair.kind
            hits[kind].append((value > 0) == (pair.label > 0.5))
    return ", ".join(f"{kind} {100 * sum(own) / len(own):.1f} ({len(own)})" for kind, own in sorted(hits.items()))


def probes(bench: Bench) -> None:
    """Linear probes of the frozen states, and the log-odds of the training pairs that a logistic of both needs."""
    for reading in READINGS.values():
        dev = evaluate(bench, reading, f"untrained-{reading.name}", "dev", keep_states=True)
        train = evaluate(bench, reading, f"untrained-{reading.name}", "train_all", keep_states=True)
        assert dev is not None
        assert train is not None
        for name in SETS:
            pairs = bench.pairs_of("train_all")
            used = [i for i, pair in enumerate(pairs) if name == "all" or pair.licence == "permissive"]
            chosen = [pairs[index] for index in used]
            log_odds = probe(train[used].to(bench.model.device), chosen, dev.to(bench.model.device))
            rows = zip(bench.pairs_of("dev"), log_odds, strict=True)
            path = bench.out / f"probe-{reading.name}-{name}.jsonl"
            path.write_text("".join(json.dumps({"id": p.id, "log_odds": round(v, 4)}) + "\n" for p, v in rows))
            print(f"probe-{reading.name}-{name}", agreement(bench.pairs_of("dev"), log_odds), flush=True)


def probe(features: Tensor, pairs: Sequence[Pair], dev: Tensor) -> list[float]:
    """Log-odds of the development pairs by a logistic without intercept, so that swapping a pair swaps its sign.

    Args:
        features: shape (n, hidden), differences of the states of both prompts.
        pairs: n pairs; a fifth of the questions chooses the penalty.
        dev: shape (m, hidden).
    """
    labels = torch.tensor([pair.label for pair in pairs], device=features.device)
    scale = features.std(0) + 1e-6
    features, dev = features / scale, dev / scale
    held_out = torch.tensor([uniform(f"probe {pair.question}") < 0.2 for pair in pairs], device=features.device)
    losses = {}
    for penalty in _PROBE_PENALTIES:
        weights = _logistic(features[~held_out], labels[~held_out], penalty)
        losses[penalty] = float(binary_cross_entropy_with_logits(features[held_out] @ weights, labels[held_out]))
    best = min(losses, key=lambda penalty: losses[penalty])
    print(f"penalty {best}: held-out losses {losses}", flush=True)
    return (dev @ _logistic(features, labels, best)).tolist()


def _logistic(features: Tensor, labels: Tensor, penalty: float) -> Tensor:
    weights = torch.zeros(features.shape[1], device=features.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = binary_cross_entropy_with_logits(features @ weights, labels) + penalty * weights.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach()


def lora(bench: Bench, reading: Reading, set_name: str, settings: Settings, run_name: str) -> None:
    """Train an adapter, save it in bfloat16, evaluate it, and take it off the model again."""
    torch.manual_seed(settings.seed)
    config = LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    )  # fmt: skip
    base = bench.model
    adapted = get_peft_model(base, config)
    try:
        base.train()
        log = _train(bench, reading, f"train_{set_name}", settings)
        base.eval()
        for weight in base.parameters():  # evaluated as saved
            weight.data = weight.data.to(torch.bfloat16)
        folder = bench.out / run_name
        adapted.save_pretrained(str(folder))
        (folder / "training_log.json").write_text(json.dumps({"settings": asdict(settings), **log}, indent=1))
        evaluate(bench, reading, run_name, "dev")
    finally:
        bench.model = adapted.unload().eval()


def _train(bench: Bench, reading: Reading, pairs_name: str, settings: Settings) -> dict[str, Any]:
    """The steps, with a linear warm-up and a cosine; losses and seconds."""
    pairs, prompts = bench.pairs_of(pairs_name), bench.prompts_of(pairs_name, reading)
    words = word_ids(bench.tokenizer, reading)
    order = [batch for epoch in range(math.ceil(settings.epochs)) for batch in epoch_batches(prompts, settings, epoch)]
    order = order[: round(settings.epochs * len(pairs) / settings.batch)]
    weights = [weight for weight in bench.model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
    warm_up = max(1, round(settings.warm_up * len(order)))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / warm_up, 0.5 * (1 + math.cos(math.pi * min(1.0, step / max(1, len(order)))))),
    )
    losses: list[float] = []
    began, tokens = time.monotonic(), 0
    for step, batch in enumerate(order):
        loss = 0.0
        lengths = [max(len(prompts[index][0]), len(prompts[index][1])) for index in batch]
        for micro in batches(lengths, bench.train_tokens // 2):
            chosen = [batch[index] for index in micro]
            part = pair_loss(bench, words, reading, pairs, prompts, chosen, settings.consistency) / len(batch)
            part.backward()  # type: ignore[no-untyped-call]
            loss += float(part.detach())
            tokens += sum(len(prompt) for index in chosen for prompt in prompts[index])
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss)
        seconds = time.monotonic() - began
        if step % 20 == 0 or step == len(order) - 1:
            recent = sum(losses[-20:]) / len(losses[-20:])
            rate = f"{seconds:.0f} s, {tokens / seconds:.0f} tokens/s"
            print(f"step {step + 1} of {len(order)}: loss {recent:.4f}, {rate}", flush=True)
        if seconds > settings.limit_s:
            print(f"stopped after {step + 1} steps of {len(order)}: time is up", flush=True)
            break
    peak = torch.cuda.max_memory_allocated() if bench.model.device.type == "cuda" else None
    trained = sum(weight.numel() for weight in weights)
    return {
        "pairs": len(pairs), "steps": len(losses), "planned_steps": len(order), "seconds": time.monotonic() - began,
        "tokens": tokens, "trained_parameters": trained, "peak_bytes": peak, "losses": losses,
    }  # fmt: skip


def epoch_batches(prompts: Sequence[tuple[list[int], list[int]]], settings: Settings, epoch: int) -> list[list[int]]:
    """Batches of pairs of similar length, in random order."""
    draw = random.Random(1000 * settings.seed + epoch)
    indices = draw.sample(range(len(prompts)), len(prompts))
    window = _WINDOW * settings.batch
    batched: list[list[int]] = []
    for start in range(0, len(indices), window):
        part = sorted(indices[start : start + window], key=lambda index: len(prompts[index][0]))
        batched += [part[first : first + settings.batch] for first in range(0, len(part), settings.batch)]
    draw.shuffle(batched)
    return batched


def pair_loss(
    bench: Bench, words: Words, reading: Reading, pairs: Sequence[Pair],
    prompts: Sequence[tuple[list[int], list[int]]], chosen: Sequence[int], consistency: float,
) -> Tensor:  # fmt: skip
    """Sum of the losses of the chosen pairs."""
    device = bench.model.device
    with torch.autocast(device.type, torch.bfloat16):
        result = read(bench.model, words, [prompts[index][side] for index in chosen for side in (0, 1)])
    both = result.log_odds.view(-1, 2)
    labels = torch.tensor([pairs[index].label for index in chosen], device=device)
    log_odds = reading.weight * (both[:, 0] - both[:, 1])
    loss = binary_cross_entropy_with_logits(log_odds, labels, reduction="sum")
    if reading.name == "letters":
        loss = loss + consistency * (both[:, 0].sigmoid() - (-both[:, 1]).sigmoid()).square().sum()
    return loss


if __name__ == "__main__":
    sys.exit(main())
