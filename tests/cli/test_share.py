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
    for line in (
        "-> me/my-judge, private",
        " MB  adapter_model.safetensors",
        "left out: __init__.py, no part of a judge",
        "licence: cc-by-nc-4.0",
        "# small-judge",
    ):
        assert line in out
    assert out.rstrip().endswith("nothing was sent; add --yes to upload")
    plan = json.loads(cli("judgelm", "share", SMALL_JUDGE, "--to", "me/my-judge", "--public", "--json", "-")[1])
    assert (plan["licence"], plan["url"]) == ("cc-by-nc-4.0", None)
