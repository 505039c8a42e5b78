"""GGUF files of tiny Llamas, as llama.cpp writes them."""

import json

import gguf
import numpy as np
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoTokenizer

Q4_1 = gguf.GGMLQuantizationType.Q4_1
Q8_0 = gguf.GGMLQuantizationType.Q8_0
F16 = gguf.GGMLQuantizationType.F16
F32 = gguf.GGMLQuantizationType.F32
_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def weights_of(folder, kind=Q8_0):
    weights = load_file(folder / "model.safetensors")
    return {
        name: gguf.quants.dequantize(_packed(weight, _kind(weight, kind)), _kind(weight, kind))
        for name, weight in weights.items()
    }


def write_gguf(folder, path, *, kind=Q8_0, extra=None, tensors=None, tokenizer="gpt2"):
    config, own = AutoConfig.from_pretrained(folder), load_file(folder / "model.safetensors")
    writer = gguf.GGUFWriter(path, "llama")
    metadata = {
        "llama.context_length": config.max_position_embeddings, "llama.embedding_length": config.hidden_size,
        "llama.block_count": config.num_hidden_layers, "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.rope.dimension_count": config.hidden_size // config.num_attention_heads,
        "llama.vocab_size": config.vocab_size, "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.eos_token_id": config.eos_token_id, "tokenizer.ggml.padding_token_id": config.pad_token_id,
    } | (extra or {})  # fmt: skip
    add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
    for key, value in metadata.items():
        if value is not None:
            add[type(value)](key, value)
    writer.add_float32("llama.rope.freq_base", config.rope_parameters["rope_theta"])
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    if tokenizer == "gpt2":
        _add_byte_level(writer, AutoTokenizer.from_pretrained(folder))
    if tokenizer == "llama":
        _add_sentencepiece(writer)
    for name, weight in own.items():
        _add(writer, config, name, weight, kind)
    for name, weight in (tensors or {}).items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _kind(weight, kind):
    """As llama.cpp: norms in float32, and rows that are no whole blocks in float16."""
    return F32 if weight.ndim == 1 or kind == F32 else F16 if weight.shape[1] % 32 else kind


def _packed(weight, kind):
    return gguf.quants.quantize(np.ascontiguousarray(weight, dtype=np.float32), kind)


def _add(writer, config, name, weight, kind):
    part, _, layer_part = name.removesuffix(".weight").partition("model.layers.")
    layer, _, inner = layer_part.partition(".")
    new = f"blk.{layer}.{_NAMES[inner]}" if layer_part else _NAMES[part]
    if inner in ("self_attn.q_proj", "self_attn.k_proj"):  # llama.cpp rotates neighbours, transformers halves
        heads = config.num_attention_heads if "q_proj" in inner else config.num_key_value_heads
        weight = weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
    kind = _kind(weight, kind)
    writer.add_tensor(f"{new}.weight", _packed(weight, kind), raw_dtype=kind)


def _add_byte_level(writer, tokenizer):
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.get)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in tokenizer.all_special_tokens else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])


def _add_sentencepiece(writer):
    pieces = ["\u2581", "a", "b", "1", "\u2581a", "ab", "\u2581ab"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(place) for place in range(len(tokens))])
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * len(pieces)])
