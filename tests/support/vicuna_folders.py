"""Tiny folders of the shape that vicuna-7b and the judges trained from it are published in."""

import json
import os
import shutil
from pathlib import Path

import sentencepiece
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from judgelm.prompts.catalog import get_template
from tests.support.tiny_judges import reply_of, word_sample

TEMPLATE = "judgelm-v1"
_SHARD = "pytorch_model-{:05d}-of-00002.bin"
_TOKEN = {"__type": "AddedToken", "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}


def prompt_of(sample, template=TEMPLATE):
    return "".join(span.text for span in get_template(template).render(sample, (0, 1), None).spans)


def make_vicuna(folder: Path, *, hidden_size=64, layers=2, heads=2) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    vocab_size = _train_sentencepiece(folder)
    config = {
        "_name_or_path": "vicuna-7b-v1.3", "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "hidden_size": hidden_size, "initializer_range": 0.02,
        "intermediate_size": hidden_size * 8 // 3, "max_position_embeddings": 2048, "max_sequence_length": 2048,
        "model_type": "llama", "num_attention_heads": heads, "num_hidden_layers": layers, "pad_token_id": 0,
        "rms_norm_eps": 1e-06, "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.28.1",
        "use_cache": False, "vocab_size": vocab_size,
    }  # fmt: skip
    generation = {"_from_model_config": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
                  "temperature": 0.9, "top_p": 0.6, "transformers_version": "4.28.1"}  # fmt: skip
    special = {name: {**_TOKEN, "content": text} for name, text in
               {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}.items()}  # fmt: skip
    tokenizer = {"add_bos_token": True, "add_eos_token": False, "clean_up_tokenization_spaces": False,
                 "model_max_length": 2048, "pad_token": None, "padding_side": "right", "sp_model_kwargs": {},
                 "tokenizer_class": "LlamaTokenizer", **special}  # fmt: skip
    plain = {name: {key: value for key, value in token.items() if key != "__type"} for name, token in special.items()}
    for name, content in {
        "config.json": config,
        "generation_config.json": generation,
        "tokenizer_config.json": tokenizer,
        "special_tokens_map.json": plain | {"pad_token": "<unk>"},
    }.items():
        (folder / name).write_text(json.dumps(content, indent=2))
    _pickle_shards(folder, layers)
    return folder


def _train_sentencepiece(folder):
    samples = [word_sample(f"vicuna {number}") for number in range(200)]
    lines = [line for one in samples for line in (prompt_of(one) + reply_of(one)).splitlines() if line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(folder / "tokenizer"), model_type="bpe", vocab_size=700,
        byte_fallback=True, split_digits=True, allow_whitespace_only_pieces=True, add_dummy_prefix=True,
        remove_extra_whitespaces=False, normalization_rule_name="identity", character_coverage=1.0, num_threads=1,
        minloglevel=2,
    )  # fmt: skip
    (folder / "tokenizer.vocab").unlink()
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model")).vocab_size()


def _pickle_shards(folder, layers):
    config = LlamaConfig.from_pretrained(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        weights = dict(LlamaForCausalLM(config).to(torch.float16).state_dict())
    width = config.hidden_size // config.num_attention_heads
    for layer in range(layers):
        frequencies = 1.0 / (10000 ** (torch.arange(0, width, 2).float() / width))
        weights[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = frequencies
    places = {name: _SHARD.format(1 + (number >= len(weights) // 2)) for number, name in enumerate(weights)}
    for shard in sorted(set(places.values())):
        torch.save({name: weights[name].clone() for name, place in places.items() if place == shard}, folder / shard)
    size = sum(weight.nbytes for weight in weights.values())
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2))


def pickle_weights(source: Path, folder: Path, *, extra=None) -> Path:
    shutil.copytree(source, folder)
    for path in folder.glob("*.safetensors"):
        weights = load_file(path) | ({} if extra is None else {"extra": extra})
        torch.save(weights, folder / {"model": "pytorch_model.bin", "adapter_model": "adapter_model.bin"}[path.stem])
        path.unlink()
    return folder


class Executed:
    """What a pickle runs when it is read without care: it makes a folder."""

    def __init__(self, evidence: Path) -> None:
        self.evidence = evidence

    def __reduce__(self):
        return os.mkdir, (str(self.evidence),)
