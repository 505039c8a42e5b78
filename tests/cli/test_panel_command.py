"""`judgelm panel`."""

import json

import pytest

from judgelm.runs.run_files import read_judgments


@pytest.fixture
def runs(cli, pairs, tmp_path):
    made = []
    for name, reply in (("one", "9 2"), ("two", "8 3"), ("three", "1 9")):
        out = tmp_path / f"{name}.jsonl"
        assert (
            cli("judgelm-batch", pairs(2, scores=[8, 6]), "-o", out, "--engine", "scripted", "--model", reply)[0] == 0
        )
        made.append(out)
    return made


def test_runs_become_a_run(cli, runs, pairs, tmp_path):
    out = tmp_path / "panel.jsonl"
    code, printed, said = cli("judgelm", "panel", *runs, "-o", out)
    assert (code, printed) == (0, "")
    assert "100.0% of 2" in said
    assert "first / tie / second better" in said
    assert {one.winner for one in read_judgments(out).values()} == {1}
    code, printed, said = cli("judgelm", "eval", out, "--labels", pairs(2, scores=[8, 6]), "--json", "-")
    assert code == 0, said
    assert json.loads(printed)["counts"]["judged"] == 2


def test_families_come_from_a_file(cli, runs, tmp_path):
    families = tmp_path / "families.yaml"
    families.write_text("big: [one, two]\n")
    out = tmp_path / "panel.jsonl"
    assert cli("judgelm", "panel", *runs, "-o", out, "--families", families)[0] == 0
    assert {one.winner for one in read_judgments(out).values()} == {"tie"}


@pytest.mark.parametrize("text", ["- one\n", "big: one\n", "big: [1]\n", "big: [one\n"])
def test_a_file_of_no_families_is_refused(cli, runs, tmp_path, text):
    (tmp_path / "families.yaml").write_text(text)
    code, _, said = cli("judgelm", "panel", *runs, "-o", tmp_path / "x.jsonl", "--families", tmp_path / "families.yaml")
    assert code == 1
    assert "families.yaml" in said
