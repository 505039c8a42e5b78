"""The model card, and the files of a judge that are sent to the hub."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from judgelm.errors import ConfigError, JudgelmError
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, render_model_card, write_card, write_model_card
from judgelm.training.hub import prepare_share, upload_share

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
        "a question with pairs of answers, single answers beside a reference",
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
    assert "Asked with one, it judges worse" in render_model_card(replace(CARD, reference="without"), name="x")
    assert "It learned no reasons" in with_facts(rows_with_reason=0)
    assert "trained on a base quantised to 4bit" in with_facts(quantization="4bit")
    alone = render_model_card(replace(CARD, reading="yes-no"), name="x")
    assert "read off the probabilities of the first word of its reply (reading `yes-no`)" in alone
    assert "one line of scores" not in alone
    assert "shown first or last" not in alone
    bare = render_model_card(Card(template="t", template_sha="s", prompt_format="chat"), name="bare")
    assert "through the tokenizer's chat template" in bare
    assert "None" not in bare


APACHE = "                                 Apache License\n                           Version 2.0, January 2004\n"


@pytest.fixture
def judge(tmp_path):
    folder = tmp_path / "judge"
    folder.mkdir()
    template = get_template("judgelm-v1")
    card = Card(
        template=template.id, template_sha=template.sha, training={"base_model": "owner/base", "lora": {"r": 8}}
    )
    write_card(folder, card)
    write_model_card(folder, card)
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "owner/base"}')
    return folder


def prepare(folder, **options):
    return prepare_share(folder, name="me/my-judge", **options)


def test_only_the_parts_of_a_judge_are_sent_and_the_rest_is_listed(judge):
    texts = "training_args.bin optimizer.pt.bak notes.txt .env pytorch_model.bin LICENSE curve.png"
    for name in texts.split():
        (judge / name).write_text("x")
    (judge / "checkpoint-10").mkdir()
    share = prepare(judge)
    assert list(share.files) == [
        "LICENSE", "README.md", "adapter_config.json", "adapter_model.safetensors", "curve.png", "judge.json",
    ]  # fmt: skip
    assert share.left_out == {
        ".env": "a hidden file",
        "checkpoint-10/": "a checkpoint of the training",
        "notes.txt": "no part of a judge",
        "optimizer.pt.bak": "a state of the training",
        "pytorch_model.bin": "pickled; only safetensors are sent",
        "training_args.bin": "a state of the training",
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "judge.json").unlink(), "no judge.json, so no finished judge"),
        (lambda folder: write_card(folder, replace(CARD, model="some/model")), "a judge without weights of some/model"),
        (lambda folder: (folder / "adapter_model.safetensors").unlink(), "no weights as safetensors"),
        (lambda folder: (folder / "optimizer.pt").touch(), "a checkpoint with optimizer states"),
        (lambda folder: folder.rename(folder.with_name("checkpoint-100")), "a checkpoint with optimizer states"),
        (lambda folder: (folder / "LICENSE").symlink_to("/etc/hostname"), "a link to a file elsewhere"),
        (lambda folder: (folder / "adapter_config.json").write_text("{"), "not JSON"),
        (lambda folder: (folder / "eval.json").write_text("{}"), "not the output of judgelm eval --json"),
        (lambda folder: (folder / "README.md").write_text("---\n- a\n---\n"), "the metadata between"),
    ],
)
def test_what_is_no_finished_judge_is_refused(judge, change, message):
    changed = change(judge)
    with pytest.raises(JudgelmError, match=message):
        prepare(changed if isinstance(changed, Path) else judge)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("hf_" + "a" * 34, "a hub token"),
        ("key: sk-proj-0123456789abcdefghij", "an API key"),
        ("ghp_" + "a" * 36, "a GitHub token"),
        ("AKIA0123456789ABCDEF", "an AWS key"),
        ("-----BEGIN RSA PRIVATE KEY-----", "a private key"),
        ("see http://me:pa55word@host/v1", "an address with a password"),
        ("trained with 0123456789abcdef", "a key of this machine's environment"),
    ],
)
def test_a_secret_stops_it_and_is_not_shown(judge, monkeypatch, text, kind):
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    (judge / "LICENSE").write_text(f"Licence\n{text}\n")
    with pytest.raises(ConfigError, match=rf"LICENSE:2: looks like {kind}; remove it, nothing was sent") as raised:
        prepare(judge)
    assert text not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "licence"), [(APACHE, "apache-2.0"), ("MIT License\n", "mit"), ("Our own terms.\n", "other")]
)
def test_a_licence_file_goes_into_the_cards_metadata(judge, text, licence):
    (judge / "LICENSE").write_text(text)
    share = prepare(judge)
    assert share.licence == licence
    assert share.model_card.startswith(f"---\nlicense: {licence}\n")
    assert ("license_link: LICENSE\n" in share.model_card) == (licence == "other")


def test_without_a_licence_it_says_so_and_one_can_be_given_that_does_not_contradict_the_card(judge):
    assert prepare(judge).licence is None
    assert prepare(judge).notes[0].startswith("no licence is stated; give --license")
    assert prepare(judge, licence="llama2").model_card.startswith("---\nlicense: llama2\nlibrary_name: peft\n")
    (judge / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    assert prepare(judge).model_card == "---\nlicense: mit\n---\n# Mine\n"
    with pytest.raises(ConfigError, match=r"README\.md states license: mit, not apache-2\.0"):
        prepare(judge, licence="apache-2.0")


def test_figures_of_an_evaluation_stand_before_the_limits(judge):
    estimate = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 8}
    figures = {"accuracy": estimate, "f1": estimate, "majority": estimate, "position": {"consistency": estimate}}
    evaluation = {"protocol": "Both orders.", "failures": "excluded", "excluded": figures, "counts": {"failed": 1}}
    (judge / "eval.json").write_text(json.dumps(evaluation))
    text = prepare(judge).model_card
    section = text.partition("## Measured by judgelm eval\n")[2].partition("## Limits\n")[0]
    assert "Both orders." in section
    assert "| agreement with the labels | 0.500 (0.250 to 0.750, n = 8) |" in section
    assert "| failed judgments | 1 |" in section
    assert "## Measured" not in (judge / "README.md").read_text()


def test_the_card_of_a_training_is_sent_with_the_judges_name_on_the_hub(judge):
    assert "--model me/my-judge --both-orders" in prepare(judge).model_card
    (judge / "README.md").unlink()
    assert "--model me/my-judge --both-orders" in prepare(judge).model_card


def test_a_base_that_only_this_machine_has_is_noted(judge):
    (judge / "adapter_config.json").write_text('{"base_model_name_or_path": "/home/me/base"}')
    assert any("names its base by a local path, /home/me/base" in note for note in prepare(judge).notes)


def test_without_a_token_it_says_how_to_log_in(judge, monkeypatch):
    monkeypatch.setattr("judgelm.training.hub.get_token", lambda: None)
    with pytest.raises(ConfigError, match="no token of the hub; make one with write permission"):
        upload_share(prepare(judge), "me/my-judge", public=False)


@pytest.mark.parametrize("name", ["my-judge", "a/b/c", "a/", "https://hub/a/b"])
def test_a_name_of_the_hub_has_two_parts(judge, name):
    with pytest.raises(ConfigError, match="expected OWNER/NAME"):
        prepare_share(judge, name=name)
