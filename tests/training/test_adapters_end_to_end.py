"""Judges from training to judging: whole, LoRA and QLoRA; on its base and merged; in both engines.

The base is 192 wide with six heads: vLLM's CPU build runs heads of 32, and the 4-bit layers of bitsandbytes need widths
that 64 divides, as 192 and its MLP's 512. An answer's score is its number of words; adapters are taught 11 less that.
"""

import importlib.util

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.tiny_model import make_base
from judgelm.judge import Judge
from judgelm.prompts.judge_card import find_card
from tests.support.recipe_runs import LORA, merge_here, train, write_rows
from tests.support.tiny_judges import reply_of, text_of, word_sample

pytestmark = pytest.mark.distributed  # there, no other test's vLLM runs in this process, which can hold only one
PAIRS = [word_sample(f"asked {number}") for number in range(30)]
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "use_bnb_nested_quant": True}


def judged(folder, *, distribution=True, **options):
    """Scores of all pairs in both orders, None where the judge wrote none, and P(first is better)."""
    with Judge(str(folder), **({"engine": "transformers", "dtype": "float32"} | options)) as judge:
        judged = [judge.compare(pair.question, *pair.answers, distribution=distribution) for pair in PAIRS]
    assert sum(each.failure is not None for each in judged) <= 3  # trained for seconds, it may write 100 for a 10
    return [each.scores for each in judged], [each.probability for each in judged]


def train_on_words(folder, name, *, opposite=False, **options):
    """Run the recipe on word counts, or on their opposite; the output folder."""
    rows = []
    for sample in (word_sample(f"{name} {number}") for number in range(256)):
        counts = [len(answer.split()) for answer in sample.answers]
        scores = [11 - count for count in counts] if opposite else counts
        rows.append({"id": sample.id, "question": sample.question, "answers": list(sample.answers), "scores": scores})
    shape = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "warmup_steps": 0.1}
    data = {"train_data": [write_rows(folder / "rows.jsonl", rows)], "dtype": "float32", "save_strategy": "no"}
    return train(folder, **(data | shape | options))


@pytest.fixture(scope="module")
def whole_judge(tmp_path_factory):
    """A judge whose weights were all trained."""
    base, folder = tmp_path_factory.mktemp("base"), tmp_path_factory.mktemp("whole")
    texts = [text_of(sample) + reply_of(sample) for sample in map(word_sample, range(300))]
    make_base(texts, base, hidden_size=192, layers=2, heads=6, vocab_size=400, max_positions=512, seed=0)
    return train_on_words(folder, "whole", model_name_or_path=str(base), num_train_epochs=12, learning_rate=0.005)


@pytest.fixture(scope="module")
def adapters(whole_judge, tmp_path_factory):
    """Adapter and merged judge, by LoRA and by QLoRA."""
    folders = {}
    for name, quantised in {"lora": {}, "qlora": NF4}.items():
        lora = LORA | {"lora_r": 8, "lora_alpha": 32, "num_train_epochs": 4} | quantised
        folder = tmp_path_factory.mktemp(name)
        adapter = train_on_words(folder, name, opposite=True, model_name_or_path=str(whole_judge), **lora)
        assert merge_here(adapter, folder / "merged", "--dtype", "float32") is None
        folders[name] = adapter, folder / "merged"
    return folders


def of_both(some, others):
    return [(one, other) for one, other in zip(some, others, strict=True) if one is not None and other is not None]


def agreeing(some, others):
    """The share of pairs in which both find the same answer better, or neither."""
    scores = of_both(some, others)
    return sum((a > b) - (a < b) == (c > d) - (c < d) for (a, b), (c, d) in scores) / len(scores)


@pytest.mark.parametrize(("name", "quantization"), [("lora", None), ("qlora", "4bit")])
def test_an_adapter_gives_the_same_scores_on_its_unrounded_base_and_merged(adapters, whole_judge, name, quantization):
    adapter, merged = adapters[name]
    scores, probabilities = judged(merged)
    on_base_scores, on_base = judged(adapter)
    assert scores == on_base_scores
    assert max(abs(one - other) for one, other in of_both(probabilities, on_base)) < 1e-5
    assert agreeing(scores, judged(whole_judge)[0]) < 0.5  # it was taught the opposite, and learned it
    facts = find_card(str(merged)).training
    assert (facts["lora"], facts["quantization"]) == ({"r": 8, "alpha": 32}, quantization)
    assert {weight.dtype for weight in load_file(merged / "model.safetensors").values()} == {torch.float32}


def test_a_qlora_judge_on_the_rounded_base_it_was_trained_on_judges_nearly_as_the_merged_one(adapters):
    adapter, merged = adapters["qlora"]
    scores, probabilities = judged(adapter, quantization="4bit")
    merged_scores, merged_probabilities = judged(merged)
    gaps = [abs(one - other) for one, other in of_both(probabilities, merged_probabilities)]
    # measured: 0.007 on average and 0.06 at most, by the base's rounding; the untuned judge is 0.27 away on average
    assert sum(gaps) / len(gaps) < 0.02
    assert 1e-3 < max(gaps) < 0.15
    assert agreeing(scores, merged_scores) > 0.8


@pytest.mark.parametrize("kind", ["whole", "merged"])
def test_a_trained_judge_gives_the_same_scores_in_both_engines(whole_judge, adapters, kind):
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed: `make test` installs it")
    folder = whole_judge if kind == "whole" else adapters["lora"][1]
    small = {"kv_cache_memory_bytes": 1 << 27, "enforce_eager": True}
    scores, _ = judged(folder, distribution=False, engine="vllm", engine_args=small)
    assert scores == judged(folder, distribution=False)[0]  # 30 pairs in both orders, float32
    assert len(set(scores)) > 10, "the scores say nothing"
