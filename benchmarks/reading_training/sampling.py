"""Solutions and answers of the base itself, sampled on the GPU: what pairs of right and wrong answers are made of.

    python -m benchmarks.reading_training.sampling --model FOLDER --questions questions.jsonl --out solutions.jsonl

`questions.jsonl`: {question, prompt} a line; each line is answered once. Needs torch and transformers alone.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.reading_training.pairs import json_lines
from benchmarks.reading_training.readings import chat_texts


def main() -> None:
    """Sample in batches of similar prompts; writes as it goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--max-new-tokens", type=int, default=300)
    parser.add_argument("--limit-s", type=float, default=140.0, help="no batch begins after this time")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    began = time.monotonic()
    tokenizer = AutoTokenizer.from_pretrained(options.model, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model: Any = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16)
    model = model.to(options.device).eval()
    torch.manual_seed(0)
    rows = list(json_lines(options.questions))
    with options.out.open("w", encoding="utf-8") as out:
        for start in range(0, len(rows), options.batch):
            if time.monotonic() - began > options.limit_s:
                break
            chosen = rows[start : start + options.batch]
            answers = sample(model, tokenizer, [row["prompt"] for row in chosen], options.max_new_tokens)
            for row, (answer, finished) in zip(chosen, answers, strict=True):
                entry = row | {"answer": answer, "finished": finished}
                out.write(json.dumps(entry, ensure_ascii=False) + "\n")
            out.flush()
            print(f"{start + len(chosen)} of {len(rows)}, {time.monotonic() - began:.0f} s", flush=True)


@torch.inference_mode()
def sample(model: Any, tokenizer: Any, prompts: list[str], max_new_tokens: int) -> list[tuple[str, bool]]:
    """One answer a prompt, and whether it ended by itself."""
    inputs = tokenizer(
        chat_texts(tokenizer, prompts), add_special_tokens=False, padding=True, return_tensors="pt"
    ).to(model.device)  # fmt: skip
    inputs.pop("token_type_ids", None)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    ids = model.generate(
        **inputs, do_sample=True, temperature=0.8, top_k=0, top_p=1.0, repetition_penalty=1.0,
        max_new_tokens=max_new_tokens, eos_token_id=[end, tokenizer.eos_token_id], pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    written = ids[:, inputs["input_ids"].shape[1] :]
    finished = (torch.isin(written, torch.tensor([end, tokenizer.eos_token_id], device=written.device))).any(1)
    texts = tokenizer.batch_decode(written, skip_special_tokens=True)
    return [(text.strip(), bool(done)) for text, done in zip(texts, finished.tolist(), strict=True)]


if __name__ == "__main__":
    main()
