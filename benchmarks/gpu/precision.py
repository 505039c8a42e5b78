"""Step `precision`: what bfloat16 and packing change in a judge's replies, verdicts and probabilities.

A judge is trained here, by `train/sft.py` on the synthetic world, so that replies depend on the answers and are not all
sure. It judges held-out pairs in both orders with the score distribution: in float32, in bfloat16, and in bfloat16 with
other batches. Then the packed pass is held against transformers' own eager attention over padded batches.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.gpu.step import Save, Setting
from benchmarks.synthetic.pairs import generate
from benchmarks.tiny_model import make_base
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.modes import Pairwise
from judgelm.prompts.catalog import get_template
from judgelm.records import Judgment, Request, Sample, Sampling
from judgelm.runs.runner import judge

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = "judgelm-compact"


def measure(setting: Setting, save: Save) -> None:
    """Train the judge, judge in every way, compare."""
    folder = trained(setting)
    rows = list(generate(16 if setting.tiny else 1000, seed=0, split="validation"))
    samples = [_sample(row) for row in rows]
    ways = {"float32": ("float32", None), "bfloat16": ("bfloat16", None), "bfloat16, small batches": ("bfloat16", 256)}
    judged = {name: judgments(folder, samples, setting.device, *way) for name, way in ways.items()}
    save({"pairs": len(samples), "float32_scored": sum(judgment.failure is None for judgment in judged["float32"])})
    for name, first, second in (
        ("bfloat16 against float32", "float32", "bfloat16"),
        ("bfloat16, small against large batches", "bfloat16", "bfloat16, small batches"),
    ):
        save({name: differences(judged[first], judged[second])})
    for dtype in ("float32", "bfloat16"):
        name = f"packed against eager, padded, {dtype}"
        save({name: against_eager(folder, samples, setting.device, getattr(torch, dtype))})


def trained(setting: Setting) -> Path:
    """A judge of 512 x 8 layers, by the recipe that users run."""
    base, data, out = (setting.scratch / name for name in ("base", "train.jsonl", "judge"))
    rows = list(generate(64 if setting.tiny else 9600, seed=0, split="train"))
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sizes = (
        {"hidden_size": 64, "layers": 2, "heads": 2} if setting.tiny else {"hidden_size": 512, "layers": 8, "heads": 8}
    )
    texts = [" ".join(str(value) for value in row.values()) for row in rows[:5000]]
    make_base(texts, base, **sizes, vocab_size=1280, max_positions=1024, seed=0)
    config = setting.scratch / "sft.json"
    options = {
        "model_name_or_path": str(base), "train_data": [str(data)], "output_dir": str(out), "template": TEMPLATE,
        "reason_prob": 0.0, "swap_prob": 0.0, "reference_drop_prob": 1.0, "loss_on": "all", "max_length": 1024,
        "per_device_train_batch_size": 16, "num_train_epochs": 1, "learning_rate": 5e-4, "warmup_steps": 0.05,
        "lr_scheduler_type": "cosine", "use_cpu": setting.device == "cpu", "bf16": setting.device == "cuda",
        "dtype": "float32", "save_strategy": "no", "report_to": "none", "gradient_checkpointing": False,
        "logging_steps": 50, "disable_tqdm": True, "train_sampling_strategy": "group_by_length",
    }  # fmt: skip
    config.write_text(json.dumps(options), encoding="utf-8")
    subprocess.run([sys.executable, "train/sft.py", "--config", str(config)], cwd=ROOT, env=os.environ, check=True)
    return out


def _sample(row: dict[str, Any]) -> Sample:
    answers = (str(row["answer1_body"]), str(row["answer2_body"]))
    return Sample(id=str(row["question_id"]), question=str(row["question_body"]), answers=answers)


def judgments(
    folder: Path, samples: Sequence[Sample], device: str, dtype: str, batch_tokens: int | None
) -> list[Judgment]:
    """Both orders with the score distribution, in the samples' order."""
    options = EngineOptions(model=str(folder), dtype=dtype, device=device, max_num_batched_tokens=batch_tokens)
    engine = load_engine("transformers", options)
    try:
        mode = Pairwise(template=TEMPLATE, both_orders=True, distribution=True)
        judgments = {judgment.sample_id: judgment for judgment in judge(samples, mode, engine)}
    finally:
        engine.close()
    return [judgments[sample.id] for sample in samples]


def differences(first: Sequence[Judgment], second: Sequence[Judgment]) -> dict[str, Any]:
    """Shares of replies and verdicts that differ, and how far P(first better) lies apart."""
    replies = [
        (a.text, b.text)
        for left, right in zip(first, second, strict=True)
        for a, b in zip(left.shown, right.shown, strict=True)
    ]
    verdicts = [(left.verdict, right.verdict) for left, right in zip(first, second, strict=True)]
    both = zip(first, second, strict=True)
    apart = sorted(
        abs(left.probability - right.probability)
        for left, right in both
        if left.probability is not None and right.probability is not None
    )
    return {
        "replies": len(replies),
        "replies_differ": sum(a != b for a, b in replies),
        "verdicts": len(verdicts),
        "verdicts_differ": sum(a != b for a, b in verdicts),
        "probabilities": len(apart),
        "probability_apart_mean": sum(apart) / len(apart) if apart else None,
        "probability_apart_p99": apart[math.ceil(0.99 * len(apart)) - 1] if apart else None,
        "probability_apart_most": apart[-1] if apart else None,
    }


def against_eager(folder: Path, samples: Sequence[Sample], device: str, dtype: torch.dtype) -> dict[str, Any]:
    """The probability of each digit as first token: the packed pass against eager attention over padded rows."""
    digits = tuple(f"{digit}" for digit in range(1, 10))
    template = get_template(TEMPLATE)
    prompts = [template.render(sample, (0, 1), None) for sample in islice(samples, 256)]
    requests = [
        Request(key=str(index), prompt=prompt, sampling=Sampling(max_tokens=1), candidates=digits)
        for index, prompt in enumerate(prompts)
    ]
    texts = ["".join(span.text for span in prompt.spans) for prompt in prompts]
    name = str(dtype).removeprefix("torch.")
    packed = _packed(load_engine("transformers", EngineOptions(model=str(folder), dtype=name, device=device)), requests)
    eager = _eager(folder, texts, digits, device, dtype)
    apart = (packed - eager).abs()
    return {
        "prompts": len(prompts),
        "likeliest_digit_differs": int((packed.argmax(1) != eager.argmax(1)).sum()),
        "probability_apart_mean": float(apart.mean()),
        "probability_apart_most": float(apart.max()),
    }


def _packed(engine: Any, requests: Sequence[Request]) -> torch.Tensor:
    engine.submit(requests)
    completions: dict[str, Any] = {}
    while len(completions) < len(requests):
        completions |= {done.key: done for done in engine.collect(1.0)}
    engine.close()
    return torch.tensor([completions[request.key].candidate_logprobs for request in requests]).exp()


@torch.inference_mode()
def _eager(
    folder: Path, texts: Sequence[str], digits: Sequence[str], device: str, dtype: torch.dtype, batch: int = 16
) -> torch.Tensor:
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").to(device).eval()
    ids = [tokenizer(digit, add_special_tokens=False)["input_ids"][0] for digit in digits]
    rows = []
    for start in range(0, len(texts), batch):
        inputs = tokenizer(list(texts[start : start + batch]), padding=True, return_tensors="pt").to(device)
        inputs.pop("token_type_ids", None)
        positions = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
        logits = model(**inputs, position_ids=positions, logits_to_keep=1).logits[:, -1].float()
        rows.append(logits.softmax(-1)[:, ids].cpu())
    return torch.cat(rows)
