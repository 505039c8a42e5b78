"""Vision-language judges of some hundred thousand weights, and images to show them."""

from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image

from benchmarks.tiny_model import make_tokenizer

SIDE, PATCH = 32, 8
LLAVA_TOKENS = (SIDE // PATCH) ** 2
"""Patches of an image, the class token left out, as LLaVA 1.5 does."""

_POSITIONS = 4096
_EYE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": SIDE,
    "patch_size": PATCH,
}  # fmt: skip

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: "
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>\n{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ '\\n' }}{% endfor %}assistant: "
)


def make_llava(folder: Path, texts: list[str], *, seed: int = 0) -> Path:
    """Write a random LLaVA of two layers on either side, with its processor."""
    tokenizer = _tokenizer(texts, ["<image>"])
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**_EYE, projection_dim=32), text_config=_text_config(tokenizer),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"), vision_feature_layer=-1,
        image_seq_length=LLAVA_TOKENS, tie_word_embeddings=False,
    )  # fmt: skip
    size = {"height": SIDE, "width": SIDE}
    processor = transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessorPil(size=size, crop_size=size), tokenizer=tokenizer,
        patch_size=PATCH, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )  # fmt: skip
    return _write(folder, transformers.LlavaForConditionalGeneration, config, processor, seed)


def make_idefics(folder: Path, texts: list[str], *, seed: int = 0) -> Path:
    marks = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"]
    tokenizer = _tokenizer(texts, marks)
    config = transformers.Idefics3Config(
        vision_config=_EYE, text_config=_text_config(tokenizer),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"), scale_factor=2, pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )  # fmt: skip
    size = {"longest_edge": SIDE}
    images = transformers.Idefics3ImageProcessorPil(size=size, max_image_size=size, do_image_splitting=False)
    length = (SIDE // PATCH // 2) ** 2
    processor = transformers.Idefics3Processor(
        image_processor=images, tokenizer=tokenizer, image_seq_len=length, chat_template=CHAT_TEMPLATE
    )
    return _write(folder, transformers.Idefics3ForConditionalGeneration, config, processor, seed)


def _tokenizer(texts, marks):
    tokenizer = make_tokenizer(texts, vocab_size=400, max_positions=_POSITIONS)
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _text_config(tokenizer):
    return transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=_POSITIONS, initializer_range=0.125, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip


def _write(folder, kind, config, processor, seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind(config)
        for name, weight in model.named_parameters():
            if "projector" in name or "connector" in name:
                torch.nn.init.normal_(weight, std=0.3)  # so that the image is heard beside the text
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def write_image(path: Path, seed: int) -> Path:
    pixels = np.random.default_rng(seed).integers(0, 256, size=(24, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def replies_of_transformers(folder: Path, prompts, *, max_tokens: int) -> list[str]:
    """Greedy replies as transformers itself gives them, one prompt at a time: (text with <image> marks, images)."""
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="sdpa").eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    replies = []
    for text, images in prompts:
        pictures = [Image.open(image) for image in images]
        given = processor(images=pictures or None, text=[text], return_tensors="pt", add_special_tokens=True)
        ids = model.generate(**given, max_new_tokens=max_tokens, do_sample=False)[0, given["input_ids"].shape[1] :]
        replies.append(processor.tokenizer.decode(ids, skip_special_tokens=True))
    return replies
