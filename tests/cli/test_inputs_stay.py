"""No command overwrites its inputs, under any name."""

import json
import os

import pytest

ROWS = [{"id": str(i), "question": f"q{i}", "answer_1": "a", "answer_2": "b", "winner": 1, "category": "c",
         "model_1": "m", "model_2": "n"} for i in range(3)]  # fmt: skip


@pytest.fixture
def work(cli, tmp_path, monkeypatch):
    """A folder with pairs and a run over them, and hard links of both under `link-*`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    cli("judgelm-batch", "pairs.jsonl", "-o", "run.jsonl", "--engine", "scripted", "--model", "8 6", "-q")
    for name in ("pairs.jsonl", "run.jsonl", "run.run.json"):
        os.link(name, f"link-{name}")
    os.link("pairs.jsonl", "o.run.json")
    os.link("pairs.jsonl", "p.rejects.jsonl")
    (tmp_path / "soft.jsonl").symlink_to("pairs.jsonl")
    return tmp_path


JUDGE = ("--engine", "scripted", "--model", "8 6")


@pytest.mark.parametrize(
    "command",
    [
        ("batch", "pairs.jsonl", "-o", "link-pairs.jsonl", "--overwrite", *JUDGE),
        ("batch", "pairs.jsonl", "-o", "soft.jsonl", "--overwrite", *JUDGE),
        ("batch", "pairs.jsonl", "-o", "o.jsonl", "--overwrite", *JUDGE),
        ("batch", "pairs.jsonl", "-o", "p.jsonl", "--overwrite", *JUDGE),
        ("batch", "pairs.jsonl", "-o", "new.jsonl", "--json", "link-pairs.jsonl", *JUDGE),
        ("batch", "pairs.jsonl", "-o", "new.jsonl", "--json", "new.jsonl", *JUDGE),
        ("eval", "run.jsonl", "--labels", "pairs.jsonl", "--json", "link-run.run.json"),
        ("report", "run.jsonl", "--labels", "pairs.jsonl", "-o", "r.html", "--json", "r.html"),
        ("report", "run.jsonl", "--samples", "pairs.jsonl", "-o", "link-pairs.jsonl"),
        ("study", "panel", "run.jsonl", "link-pairs.jsonl", "-o", "link-run.jsonl", "--overwrite"),
        ("data", "sample", "pairs.jsonl", "--size", "2", "-o", "link-pairs.jsonl", "--overwrite"),
        ("data", "overlap", "pairs.jsonl", "run.jsonl", "--json", "link-pairs.jsonl"),
        ("data", "answers", "rows", "pairs.jsonl", "--answers", "run.jsonl", "-o", "link-run.jsonl"),
        ("study", "leaderboard", "m=run.jsonl", "--rows", "pairs.jsonl", "-o", "lb", "--json", "link-run.jsonl"),
        ("serve", *JUDGE[:2], "8 6", "--api-key-file", "pairs.jsonl", "--request-log", "link-pairs.jsonl"),
    ],
    ids=" ".join,
)
def test_commands_refuse_to_overwrite_their_inputs(cli, work, command):
    before = {path.name: path.read_bytes() for path in work.iterdir() if path.is_file()}
    code, _, err = cli("judgelm", *command)
    assert (code, "overwrite the input" in err) == (1, True), err
    assert {path.name: path.read_bytes() for path in work.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("name", ["train.jsonl", "left_out.jsonl", "README.md", "build.json"])
def test_a_build_replaces_none_of_its_inputs(cli, work, name):
    (work / "set").mkdir()
    os.link("pairs.jsonl", work / "set" / name)
    (work / "build.yaml").write_text(
        "inputs: [{path: pairs.jsonl, winner_scores: [8, 3, 5]}]\nout: set\nvalidation: 0\n"
    )
    before = (work / "pairs.jsonl").read_bytes()
    code, _, err = cli("judgelm", "data", "build", "--config", "build.yaml")
    assert (code, "overwrite the input" in err) == (1, True), err
    assert (work / "pairs.jsonl").read_bytes() == (work / "set" / name).read_bytes() == before


def test_an_output_may_have_the_name_of_a_run_without_its_ending(cli, work):
    evaluated = ("run.jsonl", "--labels", "pairs.jsonl", "--json", "numbers.json")
    assert cli("judgelm", "eval", *evaluated, "--bootstrap", "100")[0] == 0
    assert cli("judgelm", "report", "run.jsonl", "--labels", "pairs.jsonl", "-o", "run", "--bootstrap", "100")[0] == 0
    code, _, err = cli("judgelm", "report", "run.jsonl", "--labels", "pairs.jsonl", "-o", "run.run.json")
    assert (code, "overwrite the input" in err) == (1, True)
