"""`judgelm study panel`."""

import json

import pytest

from judgelm.runs.run_files import read_judgments


@pytest.fixture
def runs(batch, pairs, tmp_path):
    made = [tmp_path / f"{name}.jsonl" for name in ("one", "two", "three")]
    for out, reply in zip(made, ("9 2", "8 3", "1 9"), strict=True):
        assert batch(pairs(2, scores=[8, 6]), reply=reply, out=out)[0] == 0
    return made


def test_runs_become_a_run(cli, runs, pairs, tmp_path):
    out = tmp_path / "panel.jsonl"
    code, printed, errors = cli("judgelm", "study", "panel", *runs, "-o", out)
    assert (code, printed) == (0, "")
    assert "100.0% of 2" in errors
    assert "first / tie / second better" in errors
    assert {judgment.winner for judgment in read_judgments(out).values()} == {1}
    code, printed, errors = cli("judgelm", "study", "panel", *runs, "-o", out, "--quiet", "--json", "-")
    assert (code, errors) == (0, "")
    counts = json.loads(printed)
    assert (counts["unanimous"], counts["judges"]["one"]["verdicts"]) == (0, 2)
    code, printed, errors = cli("judgelm", "eval", out, "--labels", pairs(2, scores=[8, 6]), "--json", "-")
    assert code == 0, errors
    assert json.loads(printed)["counts"]["judged"] == 2


@pytest.mark.parametrize("text", ["big: [one, two]\n", "- one\n", "big: one\n", "big: [1]\n", "big: [one\n"])
def test_families_come_from_a_file(cli, runs, tmp_path, text):
    families, out = tmp_path / "families.yaml", tmp_path / "panel.jsonl"
    families.write_text(text)
    code, _, errors = cli("judgelm", "study", "panel", *runs, "-o", out, "--families", families)
    if text == "big: [one, two]\n":
        assert code == 0
        assert {judgment.winner for judgment in read_judgments(out).values()} == {"tie"}
    else:
        assert code == 1
        assert "families.yaml" in errors
