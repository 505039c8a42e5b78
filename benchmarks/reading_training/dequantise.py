"""Join the parts of a Qwen2 GGUF file, check the file, and write it as a bfloat16 checkpoint.

    python -m benchmarks.reading_training.dequantise --parts FOLDER --sha256 HASH --model FOLDER

FOLDER of the model holds config and tokenizer already, as judgelm's own conversion writes them. That conversion
(`judgelm.engines.gguf`) needs a function that transformers 5.17 does not have, hence this. Weights go through float16,
as in that conversion when the figures were measured; it now rounds weights of this size to bfloat16 directly. Needs
torch, safetensors and gguf.
"""

import argparse
import hashlib
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize
from safetensors.torch import save_file

_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
_TENSOR = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)")


def main() -> None:
    """Wait for all parts, named `part-NN-of-NN`, then join, check and convert them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=Path, required=True)
    parser.add_argument("--sha256", required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    while not (parts := sorted(options.parts.glob("part-*-of-*"))) or len(parts) < int(parts[0].name[-2:]):
        time.sleep(1)
    whole, digest = options.parts / "model.gguf", hashlib.sha256()
    with whole.open("wb") as out:
        for part in parts:
            content = part.read_bytes()
            digest.update(content)
            out.write(content)
    if digest.hexdigest() != options.sha256:
        sys.exit(f"error: the joined file has sha256 {digest.hexdigest()}")
    began = time.monotonic()
    with ThreadPoolExecutor(options.workers) as pool:
        weights = dict(pool.map(converted, GGUFReader(whole).tensors))
    save_file(weights, options.model / "model.safetensors", {"format": "pt"})
    print(f"sha256 as stated; {len(weights)} tensors in {time.monotonic() - began:.0f} s", flush=True)


def converted(tensor: ReaderTensor) -> tuple[str, torch.Tensor]:
    """A tensor by transformers' name."""
    match = _TENSOR.fullmatch(tensor.name)
    if match is None:
        sys.exit(f"error: unknown tensor {tensor.name}")
    layer, name, kind = match.groups()
    values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type)).to(torch.float16).to(torch.bfloat16)
    prefix = f"model.layers.{layer}." if layer else ""
    return f"{prefix}{_NAMES[name]}.{kind}", values.contiguous()


if __name__ == "__main__":
    main()
