"""Reward models in the transformers engine, against transformers' own forward pass."""

import json
import math
import shutil

import pytest
import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import EngineError, ModelError
from judgelm.records import Request, Sampling
from tests.support.driving import prompt_of, reward_requests, run
from tests.support.tiny_judges import make_reward_model

ANSWERS = ("paris", "a big red fox jumps over lazy dogs", "london " * 40, "paris because it can")


def load(folder, **options):
    return load_engine("transformers", EngineOptions(model=str(folder), dtype="float32", **options))


def rewards_of(folder, *answers, **options):
    engine = load(folder, **options)
    completions = run(engine, reward_requests(*answers))
    return [completions[str(index)].reward for index in range(len(answers))]


def plain_rewards(model, folder, answers, question="what is the capital of france"):
    """One forward pass per answer."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rewards = []
    for answer in answers:
        chat = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        ids = tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True)["input_ids"]
        with torch.no_grad():
            rewards.append(float(model(ids).logits[0, 0]))
    return rewards


def test_rewards_equal_transformers(tiny_reward_model):
    model = AutoModelForSequenceClassification.from_pretrained(tiny_reward_model).eval()
    expected = plain_rewards(model, tiny_reward_model, ANSWERS)
    assert rewards_of(tiny_reward_model, *ANSWERS) == pytest.approx(expected, abs=1e-4)
    assert max(expected) - min(expected) > 0.05  # else equality would prove nothing
    assert load(tiny_reward_model).describe()["head"] == "reward"


@pytest.mark.parametrize("options", [{"max_num_batched_tokens": 1}, {"max_num_seqs": 1}])
def test_batch_limits_do_not_change_rewards(tiny_reward_model, options):
    whole = rewards_of(tiny_reward_model, *ANSWERS)
    assert rewards_of(tiny_reward_model, *ANSWERS, **options) == pytest.approx(whole, abs=1e-5)


def test_trailing_padding_tokens_are_ignored(tiny_model, tiny_reward_model, tmp_path):
    # transformers uses the last token that is not padding; a template may end in padding tokens
    padded = make_reward_model(
        tiny_model,
        tmp_path / "padded",
        chat="{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }}{% endfor %}<pad><pad>",
    )
    model = AutoModelForSequenceClassification.from_pretrained(padded).eval()
    assert AutoTokenizer.from_pretrained(padded).convert_tokens_to_ids("<pad>") == model.config.pad_token_id
    assert rewards_of(padded, "paris", "london") == pytest.approx(
        plain_rewards(model, padded, ("paris", "london")), abs=1e-4
    )


def test_long_answer_is_truncated(tiny_reward_model):
    [completion] = run(load(tiny_reward_model), reward_requests("fox " * 600)).values()
    assert math.isfinite(completion.reward)
    [cut] = completion.truncations
    assert cut.tokens_after < cut.tokens_before
    assert completion.prompt_tokens <= 511


def test_adapter_with_a_reward_head(tiny_model, tmp_path):
    base = make_reward_model(tiny_model, tmp_path / "base")
    model = AutoModelForSequenceClassification.from_pretrained(base)
    adapted = get_peft_model(model, LoraConfig(r=4, task_type=TaskType.SEQ_CLS, init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    causal = tmp_path / "causal"  # the adapter brings the head
    shutil.copytree(tiny_model, causal)
    shutil.copy(base / "tokenizer_config.json", causal)
    for template in base.glob("chat_template*"):
        shutil.copy(template, causal)
    expected = plain_rewards(adapted.eval(), base, ANSWERS[:2])
    rewards = rewards_of(causal, *ANSWERS[:2], adapter=str(tmp_path / "adapter"))
    assert rewards == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["InternLM2ForRewardModel"]}, "InternLM2ForRewardModel is not a causal language model"),
        ({"architectures": ["X"], "auto_map": {"AutoModelForSequenceClassification": "m.X"}}, "X is not a causal"),
        ({"architectures": ["DebertaV2ForSequenceClassification"]}, "is not a causal language model"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, "has 3 outputs instead of one"),
        ({"id2label": None}, "has 2 outputs"),  # transformers' default
    ],
)
def test_unsupported_heads_are_rejected(tiny_reward_model, tmp_path, config, message):
    folder = shutil.copytree(tiny_reward_model, tmp_path / "model")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    with pytest.raises(ModelError, match=message):
        load(folder)


def test_missing_head_weights_are_rejected(tiny_model, tiny_reward_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    shutil.copy(tiny_reward_model / "config.json", folder)
    with pytest.raises(ModelError, match=r"1 weights are missing \(score.weight"):
        load(folder)


def test_rewards_and_replies_need_the_right_model(tiny_model, tiny_reward_model):
    with pytest.raises(EngineError, match="requires a reply, but the model only returns rewards"):
        load(tiny_reward_model).submit([Request(key="1", prompt=prompt_of("paris"), sampling=Sampling(max_tokens=1))])
    with pytest.raises(EngineError, match="requires a reward, but the model only generates text"):
        load(tiny_model).submit(reward_requests("paris"))
