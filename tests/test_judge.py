"""The Python door, and where a judge's card is found."""

import os
import subprocess
import sys
import textwrap

import pytest

from judgelm import Judge
from judgelm.card import Card, find_card, write_card
from judgelm.errors import CardError, ConfigError, ModelError
from judgelm.prompts.catalog import get_template
from judgelm.records import PairVerdict

COMPACT = Card(template="judgelm-compact", template_sha=get_template("judgelm-compact").sha, scale=(0, 5))


def test_compare_asks_in_both_orders():
    with Judge("8 6", engine="scripted") as judge:
        judgment = judge.compare("q", "a", "b")
    assert [shown.order for shown in judgment.shown] == [(0, 1), (1, 0)]
    assert judgment.verdict == PairVerdict(winner="tie")


def test_judge_file_writes_what_the_command_writes(tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"id": "1", "question": "q", "answer_1": "a", "answer_2": "b"}\n')
    with Judge("8 6", engine="scripted") as judge:
        tally = judge.judge_file(str(pairs), out=str(tmp_path / "out.jsonl"))
    assert (tally.judged, tally.winners) == (1, {"1": 1})
    assert (tmp_path / "out.run.json").exists()


def test_an_option_no_engine_knows_is_named():
    with pytest.raises(ConfigError, match="unknown option batchsize; the engines know: model, adapter"):
        Judge("8 6", engine="scripted", batchsize=3)


def test_the_card_gives_template_and_scale(tiny_model, tmp_path):
    for path in tiny_model.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    write_card(tmp_path, COMPACT)
    with Judge(str(tmp_path)) as judge:
        assert (judge.format.template, judge.format.scale, judge.format.source) == ("judgelm-compact", (0, 5), "card")


def test_without_a_card_the_default_is_said_to_be_one(tiny_model):
    with Judge(str(tiny_model)) as judge:
        assert (judge.format.template, judge.format.source) == ("judgelm-v1", "default")


def test_a_card_that_is_none_is_an_error(tmp_path):
    (tmp_path / "judge.json").write_text("not json")
    with pytest.raises(CardError, match=r"judge\.json: file: Invalid JSON"):
        find_card(str(tmp_path))


def test_a_judge_on_the_hub_is_asked_as_its_card_says(tiny_model, tmp_path):
    # a hub cache as huggingface_hub lays it out, used offline
    snapshot = tmp_path / "hub" / "models--lab--judge" / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (tmp_path / "hub" / "models--lab--judge" / "refs").mkdir()
    (tmp_path / "hub" / "models--lab--judge" / "refs" / "main").write_text("a" * 40)
    for path in tiny_model.iterdir():
        (snapshot / path.name).write_bytes(path.read_bytes())
    write_card(snapshot, COMPACT)
    script = textwrap.dedent(
        """
        from judgelm import Judge
        judge = Judge("lab/judge")
        print(judge.format.template, judge.format.source, judge.engine.describe()["model"]["commit"])
        try:
            Judge("lab/nothing")
        except Exception as error:
            print(type(error).__name__, error)
        """
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    first, second = done.stdout.splitlines()
    assert first == f"judgelm-compact card {'a' * 40}"
    assert second.startswith("ModelError lab/nothing: no such folder here, and the hub cannot be reached")


@pytest.mark.parametrize("model", ["./nowhere", "nowhere", "a/b/c"])
def test_a_folder_that_is_not_there(model):
    with pytest.raises(ModelError, match="no such folder"):
        Judge(model)
