"""Put a trained adapter into a judge's distribution: weights in bfloat16, and a card that names judge and base.

    python examples/pack_judge.py RUN_FOLDER --judge small-judge [--out examples/small_judge/judgelm_small_judge]

RUN_FOLDER is the output of `train/preference.py` or `train/sft.py` on the base that the judge's card names.
"""

import argparse
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from judgelm.data.training_questions import QUESTIONS_NAME, read_hashes, write_hashes
from judgelm.errors import ModelError
from judgelm.judges.cards import adapter_package, check_adapter, judge_card
from judgelm.prompts.judge_card import GgufBase, find_card, write_card


def main() -> None:
    """Read, convert, write, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN_FOLDER", help="the trained adapter")
    parser.add_argument("--judge", required=True, help="its name")
    parser.add_argument("--out", type=Path, help="the module")
    options = parser.parse_args()
    name = options.judge
    judge = judge_card(name)
    package = adapter_package(judge)
    out = options.out or Path(__file__).parent / name.replace("-", "_") / package.distribution.replace("-", "_")
    card = find_card(str(options.run))
    if card is None or card.template != judge.template:
        template = None if card is None else card.template
        raise ModelError(f"{options.run}: trained with template {template}, and {name} has {judge.template}")
    base = GgufBase(gguf_sha256=judge.base.gguf_sha256, file=Path(judge.base.file).name)
    if card.base is None or card.base.gguf_sha256 != base.gguf_sha256:
        raise ModelError(f"{options.run}: trained on {card.training.get('base_model')}, and {name} has {base.file}")
    out.mkdir(parents=True, exist_ok=True)
    weights = load_file(options.run / "adapter_model.safetensors")
    packed = {key: weight.to(torch.bfloat16).contiguous() for key, weight in weights.items()}
    path = out / "adapter_model.safetensors"
    save_file(packed, path, metadata={"format": "pt"})
    config = json.loads((options.run / "adapter_config.json").read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = base.file
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    write_card(out, replace(card, name=name, base=base))
    if (questions := read_hashes(options.run)) is None:
        raise ModelError(
            f"{options.run}: has no {QUESTIONS_NAME}; evaluations need the hashes of its training questions"
        )
    write_hashes(out, questions)
    check_adapter(judge, out)
    megabytes = path.stat().st_size / 1e6
    if megabytes > package.megabytes:
        raise ModelError(f"{path}: {megabytes:.1f} MB, and the card allows {package.megabytes:g}; lower the rank")
    print(f"{path}: {megabytes:.1f} MB, {sum(weight.numel() for weight in packed.values()):,} parameters")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    if sha256 != package.weights_sha256:
        print(f"write weights_sha256: {sha256} into the card of {name}")


if __name__ == "__main__":
    main()
