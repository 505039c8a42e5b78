"""`judge.json`: impossible values are rejected with their place; the model card that is written from it."""

import json
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import yaml

from judgelm.errors import CardError
from judgelm.prompts import judge_card
from judgelm.prompts.judge_card import Card, find_card, render_model_card, write_card

FIELDS = {"template": "judgelm-v1", "template_sha": "ab" * 32}


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ('"scale": [10, 1]', "scale: 10 to 1"),
        ('"scale": [5, 5]', "scale: 5 to 5"),
        ('"scale": [NaN, 10]', "scale: nan to 10"),
        ('"scale": [1, Infinity]', "scale: 1 to inf"),
        ('"step": 0', "step: 0"),
        ('"step": -1', "step: -1"),
        ('"step": NaN', "step: nan"),
        ('"step": 50', "step: 50"),
        ('"window": 0', "window: 0; expected a token count"),
        ('"window": -2048', "window: -2048"),
        ('"training": {"max_completion_length": "long"}', "max_completion_length: 'long'; expected a token count"),
        ('"training": {"max_completion_length": NaN}', "max_completion_length: nan"),
        ('"reference": "sometimes"', "reference: 'sometimes'; expected without or with or both"),
        ('"prompt_format": "html"', "prompt_format: 'html'; expected text or chat"),
    ],
)
def test_an_impossible_card_is_rejected_with_its_field(tmp_path, fields, finding):
    (tmp_path / "judge.json").write_text(json.dumps(FIELDS)[:-1] + f", {fields}}}")
    with pytest.raises(CardError, match=rf"judge\.json: {finding}"):
        find_card(str(tmp_path))


def test_scales_of_any_kind_are_written_and_read(tmp_path):
    for scale, step in (((0, 1), 0.1), ((-1, 1), 2), ((1, 5), 1)):
        write_card(tmp_path, Card(**FIELDS, scale=scale, step=step))
        assert (find_card(str(tmp_path)).scale, find_card(str(tmp_path)).step) == (scale, step)
    with pytest.raises(CardError, match="scale: 5 to 1"):
        Card(**FIELDS, scale=(5, 1))


def test_a_hub_that_does_not_answer_is_distinguished_from_one_that_refuses():
    class Refusing(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_error(403)

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        assert judge_card._answers(address)
        server.shutdown()
    judge_card._answers.cache_clear()
    assert not judge_card._answers(address)


CARD = Card(
    **FIELDS,
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


def test_the_model_card_says_what_is_judged_how_and_how_it_was_trained():
    for part in (
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
    ):
        assert part in TEXT


def test_the_hubs_metadata_names_library_and_base():
    merged = {"lora": {"r": 64}, "merged": {"base": "x"}}
    facts = [{}, {"lora": {"r": 64, "alpha": 16}}, merged, {"base_model": "/models/mine"}]
    own, adapter, full, local = (yaml.safe_load(with_facts(**each).split("---\n")[1]) for each in facts)
    tags = ["llm-as-a-judge", "judgelm"]
    assert local == {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": tags}
    assert own == full == local | {"base_model": "lmsys/vicuna-7b-v1.3"}
    assert adapter == own | {"library_name": "peft"}


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
