"""Merge a LoRA or QLoRA adapter into its base model, and save the result as a standalone judge.

    python train/merge_lora.py runs/judge-lora -o runs/judge
    python train/merge_lora.py runs/judge-lora -o runs/judge --base lmsys/vicuna-7b-v1.3 --dtype float32

The base model is loaded on the CPU in `--dtype`, without quantisation. If the adapter was trained on a 4-bit base, the
merged judge differs slightly from the trained judge.
"""

import argparse
import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from judgelm.cli.console import echo, printable
from judgelm.data.training_questions import read_hashes, write_hashes
from judgelm.engines.base import EngineOptions
from judgelm.engines.gguf.checkpoint import gguf_checkpoint, gguf_record
from judgelm.engines.model_files import LOAD_ERRORS, cached_base, check_vocabulary, load_tokenizer
from judgelm.engines.transformers.loaded_model import attach_adapter
from judgelm.engines.weights import safe_unpickling, weights_file
from judgelm.errors import JudgelmError, ModelError, RunError, first_line
from judgelm.prompts.judge_card import find_card, is_gguf, write_card, write_model_card
from judgelm.training.base_model import drop_sampling


def main() -> None:
    """Merge the adapter and save the judge."""
    options = parse_options()
    adapter, out = Path(options.adapter), Path(options.out)
    config = adapter_config(adapter)
    card = find_card(str(adapter))
    base = options.base or config["base_model_name_or_path"]
    if not options.base and card is not None and card.base is not None:
        base = cached_base(card.base, str(adapter))
    if base and is_gguf(base):
        base = gguf_checkpoint(base, options.revision)
    if not base:
        raise ModelError(f"{adapter}: no base model in adapter_config.json; pass it with --base")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out}: already exists; choose a different folder, or empty this one")
    facts = card.training if card else {}
    if facts.get("quantization"):
        echo(f"the adapter was trained on a {facts['quantization']} base; merging it into the {options.dtype} base")
    model = merge(load_base(base, options, rewards=config["task_type"] == "SEQ_CLS"), adapter)
    tokenizer = load_tokenizer(base, str(adapter), EngineOptions(model=base, revision=options.revision))
    check_vocabulary(str(adapter), tokenizer, model)
    drop_sampling(model)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    if card is None:
        echo(f"{adapter} has no judge.json, so {out} has none either; pass --template when you use the judge", err=True)
    else:
        gguf = gguf_record(base)
        shown = {"base": gguf.file, "base_gguf_sha256": gguf.sha256} if gguf else {"base": base}
        merged = {"adapter": adapter.name, "adapter_sha": sha_of(adapter), **shown, "dtype": options.dtype}
        card = replace(card, name=None, base=None, training=facts | {"dtype": options.dtype, "merged": merged})
        write_card(out, card)
        write_model_card(out, card)
        if (hashes := read_hashes(adapter)) is not None:
            write_hashes(out, hashes)
    echo(f"saved the judge in {out}")


def parse_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", metavar="ADAPTER", help="adapter folder saved by a training recipe")
    parser.add_argument("-o", "--out", required=True, metavar="FOLDER", help="output folder; must be new or empty")
    parser.add_argument(
        "--base", help="base model: folder, GGUF file, or hub id (default: the base in the adapter's config)"
    )
    parser.add_argument("--revision", help="hub revision of the base model")
    parser.add_argument(
        "--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="dtype of the merged weights"
    )
    return parser.parse_args()


def adapter_config(adapter: Path) -> dict[str, Any]:
    """Load the adapter's config, and check that it can be merged."""
    path = adapter / "adapter_config.json"
    if not path.is_file():
        raise ModelError(f"{adapter}: adapter_config.json not found; expected an adapter saved by PEFT")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        kind, task = config["peft_type"], config.get("task_type") or "CAUSAL_LM"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: invalid PEFT config: {error!r}") from error
    if kind != "LORA" or task not in ("CAUSAL_LM", "SEQ_CLS"):
        raise ModelError(f"{adapter}: {kind} for {task} cannot be merged; expected LORA for CAUSAL_LM or SEQ_CLS")
    return {"base_model_name_or_path": None} | config | {"task_type": task}


def load_base(base: str, options: argparse.Namespace, *, rewards: bool) -> Any:
    """Load the base model without quantisation, adding a head for reward models."""
    kind: Any = AutoModelForSequenceClassification if rewards else AutoModelForCausalLM
    labels = {"num_labels": 1} if rewards else {}
    try:
        quantised = getattr(AutoConfig.from_pretrained(base, revision=options.revision), "quantization_config", None)
        if quantised:
            raise ModelError(f"{base}: the weights are quantised; pass the unquantised base model as --base")
        with safe_unpickling(base, options.revision):
            return kind.from_pretrained(base, revision=options.revision, dtype=getattr(torch, options.dtype), **labels)
    except LOAD_ERRORS as error:
        raise ModelError(f"{base}: cannot load the base model: {first_line(error)}; check --base") from error


def merge(model: Any, adapter: Path) -> Any:
    """Add the adapter's weights to the base model."""
    adapted = attach_adapter(model, str(adapter))
    try:
        return adapted.merge_and_unload(safe_merge=True)
    except ValueError as error:
        raise ModelError(f"{adapter}: cannot be merged: {first_line(error)}") from error


def sha_of(adapter: Path) -> str:
    """Return the SHA-256 hash of the adapter's weights."""
    path = weights_file(adapter)
    assert path is not None  # the adapter has already been merged
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    try:
        main()
    except JudgelmError as error:
        sys.exit(printable(f"error: {error}"))
