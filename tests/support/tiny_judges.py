"""A judge small enough to be trained within a test session: it scores an answer by how many words it has."""

import random
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import processors
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, write_card
from judgelm.records import Sample

TEMPLATE = "judgelm-compact"
_TEXT = "big red fox jumps over lazy dogs because it can see paris london capital france"
_WORDS = _TEXT.split()


def word_sample(seed):
    draw = random.Random(seed)
    answers = tuple(" ".join(draw.choices(_WORDS, k=draw.randint(1, 10))) for _ in range(2))
    return Sample(id=str(seed), question=f"what is {draw.choice(_WORDS)}", answers=answers)


def text_of(sample, order=(0, 1)):
    return "".join(span.text for span in get_template(TEMPLATE).render(sample, order, None).spans)


def reply_of(sample):
    first, second = (len(answer.split()) for answer in sample.answers)
    better = "both are alike" if first == second else f"answer {1 if first > second else 2} has more words"
    return f"{first} {second}\n{better}"


def train_judge(base: Path, folder: Path, *, steps: int = 300, rows: int = 16) -> Path:
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for step in range(steps):
        texts = [word_sample(f"train {step} {row}") for row in range(rows)]
        prompts = [tokenizer(text_of(sample))["input_ids"] for sample in texts]
        wholes = [tokenizer(text_of(sample) + reply_of(sample))["input_ids"] for sample in texts]
        longest = max(len(whole) for whole in wholes) + 1
        ids = torch.full((rows, longest), tokenizer.eos_token_id)
        labels = torch.full((rows, longest), -100)
        for row, (prompt, whole) in enumerate(zip(prompts, wholes, strict=True)):
            ids[row, : len(whole)] = torch.tensor(whole)
            labels[row, len(prompt) : len(whole) + 1] = ids[row, len(prompt) : len(whole) + 1]
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_card(folder, Card(template=TEMPLATE, template_sha=get_template(TEMPLATE).sha))
    return folder


def make_adapter(judge: Path, folder: Path, *, seed: int) -> Path:
    """A LoRA adapter of rank 4 whose weights are random, so that it changes replies."""
    torch.manual_seed(seed)
    config = LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(judge), config)
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.1)
    adapted.save_pretrained(folder)
    return folder


CHAT = (
    "{{ bos_token }}{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)
"""Writes the token that begins a text, as Llama 3's template does, which a tokenizer that adds it would double."""


def make_chat_model(base: Path, folder: Path) -> Path:
    """The weights of `base`, with a chat template."""
    AutoModelForCausalLM.from_pretrained(base).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return folder


def make_reward_model(base: Path, folder: Path, *, seed: int = 0, head: int = 1, chat: str = CHAT) -> Path:
    """A reward model on the weights of `base` with a random head, whose tokenizer begins every text with `</s>`."""
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.chat_template = chat
    tokenizer.bos_token = tokenizer.eos_token
    begins = processors.TemplateProcessing(
        single="</s> $A", special_tokens=[("</s>", tokenizer.convert_tokens_to_ids("</s>"))]
    )
    tokenizer.backend_tokenizer.post_processor = begins
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=head)
    torch.nn.init.normal_(model.score.weight, std=0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
