"""The model card."""

from dataclasses import replace

import pytest
import yaml

from judgelm.prompts.judge_card import Card, render_model_card

CARD = Card(
    template="judgelm-v1",
    template_sha="ab" * 32,
    step=0.5,
    window=2048,
    training={
        "base_model": "lmsys/vicuna-7b-v1.3",
        "data": [{"file": "train|1.jsonl", "sha": "cd" * 32}],
        "rows": 97,
        "rows_by_kind": {"pair": 96, "single": 1},
        "rows_with_reference": 40,
        "rows_with_reason": 90,
        "rows_left_out": {"too long": 3},
        "global_batch": 128,
        "learning_rate": 2e-5,
        "optimisation": {"schedule": "cosine", "betas": [0.9, 0.999]},
        "last_loss": 0.25,
        "lora": None,
        "quantization": None,
        "versions": {"trl": "1.16.0"},
    },
)
TEXT = render_model_card(CARD, name="my-judge")


def with_facts(**facts):
    return render_model_card(replace(CARD, training=CARD.training | facts), name="my-judge")


def metadata(text):
    return yaml.safe_load(text.split("---\n")[1])


@pytest.mark.parametrize(
    "part",
    [
        "a question with pairs of answers, single answers with a reference",
        "scores from 1 to 10 in steps of 0.5",
        f"`judgelm-v1` (sha256 `{'ab' * 32}`), given as plain text",
        "\njudgelm-batch pairs.jsonl -o judgments.jsonl --model my-judge --both-orders\n",
        f"\n| `train\\|1.jsonl` | `{'cd' * 32}` |\n",
        "\n| rows: pairs of answers | 96 |\n",
        "\n| left out: too long | 3 |\n",
        "\n| batch | 128 |\n",
        "\n| learning rate | 2e-05 |\n",
        "\n| optimisation: betas | [0.9, 0.999] |\n",
        "\n| versions: trl | 1.16.0 |\n",
        "\n- Answers that do not fit into 2,048 tokens are truncated",
    ],
)
def test_the_model_card_says_what_is_judged_how_and_how_it_was_trained(part):
    assert part in TEXT


def test_the_hubs_metadata_names_library_and_base():
    assert metadata(TEXT) == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["llm-as-a-judge", "judgelm"],
        "base_model": "lmsys/vicuna-7b-v1.3",
    }
    assert metadata(with_facts(lora={"r": 64, "alpha": 16}))["library_name"] == "peft"
    assert metadata(with_facts(lora={"r": 64}, merged={"base": "x"}))["library_name"] == "transformers"
    assert "base_model" not in metadata(with_facts(base_model="/models/mine"))


def test_limits_follow_from_how_it_was_trained():
    assert "format bias" not in TEXT
    assert "With one, it judges worse" in render_model_card(replace(CARD, reference="without"), name="x")
    assert "It was not trained to give reasons" in with_facts(rows_with_reason=0)
    assert "trained on a base quantised to 4bit" in with_facts(quantization="4bit")
    alone = render_model_card(replace(CARD, reading="yes-no"), name="x")
    assert "scored by the probabilities of its reply's first word (reading `yes-no`)" in alone
    assert "one line with scores" not in alone
    assert "shown first or last" not in alone
    bare = render_model_card(Card(template="t", template_sha="s", prompt_format="chat"), name="bare")
    assert "through the tokenizer's chat template" in bare
    assert "None" not in bare
