"""`judgelm share` without `--yes`: what it shows, and that it sends nothing."""

import json
from pathlib import Path

import pytest

SMALL_JUDGE = Path(__file__).parents[2] / "examples/small_judge/judgelm_small_judge"


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


def test_files_sizes_licence_and_card_are_shown_and_nothing_is_sent(cli):
    code, out, _ = cli("judgelm", "share", SMALL_JUDGE, "--to", "me/my-judge")
    assert code == 0
    assert "-> me/my-judge, private" in out
    assert " MB  adapter_model.safetensors" in out
    assert "left out: __init__.py, no part of a judge" in out
    assert "licence: cc-by-nc-4.0" in out
    assert "# small-judge" in out
    assert out.rstrip().endswith("nothing was sent; add --yes to upload")


def test_json_has_the_plan(cli):
    code, out, _ = cli("judgelm", "share", SMALL_JUDGE, "--to", "me/my-judge", "--public", "--json", "-")
    assert code == 0
    plan = json.loads(out)
    assert (plan["licence"], plan["url"]) == ("cc-by-nc-4.0", None)
    assert "judge.json" in plan["files"]


def test_what_is_no_judge_ends_with_1(cli, tmp_path):
    code, _, errors = cli("judgelm", "share", tmp_path, "--to", "me/my-judge")
    assert code == 1
    assert "no judge.json, so no finished judge" in errors
