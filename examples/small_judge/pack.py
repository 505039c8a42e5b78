"""Put a trained adapter into the distribution: weights in bfloat16, and a card that names judge and base.

    python examples/small_judge/pack.py RUN_FOLDER [--out examples/small_judge/judgelm_small_judge]

RUN_FOLDER is the output of `train/preference.py` or `train/sft.py` on the base that the card of small-judge names.
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
from judgelm.judges.cards import check_adapter, judge_card
from judgelm.prompts.judge_card import GgufBase, find_card, write_card

NAME = "small-judge"


def main() -> None:
    """Read, convert, write, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN_FOLDER", help="the trained adapter")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "judgelm_small_judge", help="the module")
    options = parser.parse_args()
    judge = judge_card(NAME)
    card = find_card(str(options.run))
    if card is None or card.template != judge.template:
        template = None if card is None else card.template
        raise ModelError(f"{options.run}: trained with template {template}, and {NAME} has {judge.template}")
    base = GgufBase(gguf_sha256=judge.base.gguf_sha256, file=Path(judge.base.file).name)
    if card.base is None or card.base.gguf_sha256 != base.gguf_sha256:
        raise ModelError(f"{options.run}: trained on {card.training.get('base_model')}, and {NAME} has {base.file}")
    options.out.mkdir(parents=True, exist_ok=True)
    weights = load_file(options.run / "adapter_model.safetensors")
    packed = {name: weight.to(torch.bfloat16).contiguous() for name, weight in weights.items()}
    path = options.out / "adapter_model.safetensors"
    save_file(packed, path, metadata={"format": "pt"})
    config = json.loads((options.run / "adapter_config.json").read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = base.file
    (options.out / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    write_card(options.out, replace(card, name=NAME, base=base))
    if (questions := read_hashes(options.run)) is None:
        raise ModelError(
            f"{options.run}: has no {QUESTIONS_NAME}; evaluations need the hashes of its training questions"
        )
    write_hashes(options.out, questions)
    check_adapter(judge, options.out)
    megabytes = path.stat().st_size / 1e6
    if megabytes > judge.adapter.megabytes:
        raise ModelError(f"{path}: {megabytes:.1f} MB, and the card allows {judge.adapter.megabytes:g}; lower the rank")
    print(f"{path}: {megabytes:.1f} MB, {sum(weight.numel() for weight in packed.values()):,} parameters")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    if sha256 != judge.adapter.weights_sha256:
        print(f"write weights_sha256: {sha256} into the card of {NAME}")


if __name__ == "__main__":
    main()
