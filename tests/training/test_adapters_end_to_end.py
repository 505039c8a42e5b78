"""LoRA and QLoRA from training to judging: the adapter on its base and the merged judge give the same scores."""

import pytest
import torch
from safetensors.torch import load_file

from judgelm.prompts.judge_card import find_card

NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "use_bnb_nested_quant": True}


@pytest.fixture(scope="module")
def qlora(adapted, merged_with):
    adapter = adapted("qlora", **NF4)
    return adapter, merged_with(adapter)


def of_both(some, others):
    return [(one, other) for one, other in zip(some, others, strict=True) if one is not None and other is not None]


def furthest(some, others):
    return max(abs(one - other) for one, other in of_both(some, others))


def agreeing(some, others):
    """The share of pairs in which both find the same answer better, or neither."""
    found = of_both(some, others)
    return sum((a > b) - (a < b) == (c > d) - (c < d) for (a, b), (c, d) in found) / len(found)


def test_a_lora_judge_gives_the_same_scores_on_its_base_and_merged(lora, judged, whole_judge):
    adapter, merged = lora
    scores, probabilities = judged(merged)
    on_base_scores, on_base = judged(adapter)
    assert scores == on_base_scores
    assert furthest(probabilities, on_base) < 1e-5
    assert agreeing(scores, judged(whole_judge)[0]) < 0.5  # it was taught the opposite, and learned it
    assert find_card(str(merged)).training["lora"] == {"r": 8, "alpha": 32}


def test_a_qlora_judge_gives_the_same_scores_on_its_unrounded_base_and_merged(qlora, judged, whole_judge):
    adapter, merged = qlora
    scores, probabilities = judged(merged)
    on_base_scores, on_base = judged(adapter)
    assert scores == on_base_scores
    assert furthest(probabilities, on_base) < 1e-5
    assert agreeing(scores, judged(whole_judge)[0]) < 0.5
    assert find_card(str(merged)).training["quantization"] == "4bit"
    assert {weight.dtype for weight in load_file(merged / "model.safetensors").values()} == {torch.float32}


def test_a_qlora_judge_on_the_rounded_base_it_was_trained_on_judges_nearly_as_the_merged_one(qlora, judged):
    adapter, merged = qlora
    scores, probabilities = judged(adapter, quantization="4bit")
    merged_scores, merged_probabilities = judged(merged)
    gaps = [abs(one - other) for one, other in of_both(probabilities, merged_probabilities)]
    # measured: 0.007 on average and 0.06 at most, by the base's rounding; the untuned judge is 0.27 away on average
    assert sum(gaps) / len(gaps) < 0.02
    assert 1e-3 < max(gaps) < 0.15
    assert agreeing(scores, merged_scores) > 0.8
