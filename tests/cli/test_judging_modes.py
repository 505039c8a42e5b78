"""`judgelm-batch --mode` with modes other than pair; `judgelm judges modes`."""

import json
from pathlib import Path

import pytest
import yaml

from judgelm.runs.run_files import read_judgments
from tests.support.jsonl_files import rows_of, write_rows

OWN = {"tone": {"question": "Kind?", "levels": {"rude": {"score": 1}, "kind": {"score": 2}}}}


@pytest.fixture
def rows(tmp_path):
    """Write a file of rows."""

    return lambda rows: write_rows(
        tmp_path / "rows.jsonl", ({"id": f"s{i}", "question": f"q{i}"} | row for i, row in enumerate(rows))
    )


@pytest.fixture
def judged(cli, tmp_path):
    """Judge a file; return exit code, standard error and judgments."""
    out = tmp_path / "out.jsonl"

    def run(path, model, *options):
        command = ("judgelm-batch", path, "-o", out, "--engine", "scripted", "--model", model)
        code, _, err = cli(*command, *options)
        return code, err, read_judgments(out) if out.exists() else {}

    return run


@pytest.fixture
def script(tmp_path):
    def write(replies):
        (tmp_path / "script.json").write_text(json.dumps(replies))
        return tmp_path / "script.json"

    return write


def test_single_answers_are_graded(judged, rows, script):
    path = rows([{"answer": "a", "reference": "r"}, {"answer": "a", "anchor": "b"}, {"answer": "a"}])
    replies = script({"q0|r|a": " 7\n", "q1|b|a": "5 8\n", "q2|a": "9\n"})
    code, err, judgments = judged(path, replies, "--mode", "single")
    assert code == 0, err
    assert [judgments[key].scores for key in ("s0", "s1", "s2")] == [(7,), (8,), (9,)]
    assert judgments["s1"].shown[0].anchor == 5
    assert "3, 8.00" in err  # graded, mean


def test_rows_without_what_the_mode_needs_are_rejects_and_the_rest_is_judged(judged, rows, tmp_path):
    path = rows([{"answer": "a", "reference": "r"}, {"answer": "a"}, {"answers": ["5", "6"]}])
    options = ("--mode", "single", "--mode-arg", "against=reference", "--max-failure-rate", "1")
    code, _, judgments = judged(path, "7", *options)
    assert (code, list(judgments)) == (0, ["s0"])
    reasons = [reject["reason"] for reject in rows_of(tmp_path / "out.rejects.jsonl")]
    for reason, words in zip(reasons, ("no reference", "expected 1 answer"), strict=True):
        assert words in reason


def test_a_changed_rubric_in_the_config_is_another_run(judged, rows, tmp_path):
    config = tmp_path / "rubric.yaml"

    def write_config(levels):
        rubric = {"tone": OWN["tone"] | {"levels": levels}}
        config.write_text(yaml.safe_dump({"mode": "rubric", "mode_arg": {"rubric": rubric, "dimensions": ["tone"]}}))

    write_config(OWN["tone"]["levels"])
    arguments = (rows([{"answer": "a"}, {"answer": "b"}]), "Explanation: so, Answer: kind", "--config", config)
    code, err, judgments = judged(*arguments)
    assert code == 0, err
    assert {judgment.scores for judgment in judgments.values()} == {(1,)}
    assert judgments["s0"].shown[0].part == "tone"
    write_config(OWN["tone"]["levels"] | {"warm": {"score": 3}})
    code, err, _ = judged(*arguments)
    assert (code, "contains judgments from another run" in err) == (1, True)


def test_the_example_config_runs(judged, rows):
    config = Path(__file__).parents[2] / "configs" / "judge" / "rubric.yaml"
    options = ("--config", config, "--max-failure-rate", "1")
    code, err, judgments = judged(rows([{"answer": "a"}]), "Answer: friendly", *options)
    assert code == 0, err
    assert [(shown.part, shown.label) for shown in judgments["s0"].shown] == [
        ("tone", "friendly"), ("next_step", None), ("helpfulness", None),
    ]  # fmt: skip


def test_self_answers_can_be_reused(cli, rows, tmp_path):
    common = (rows([{"answers": ["It is 4", "It is 5"]}]), "--engine", "scripted", "--mode", "ssr", "--model")
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    assert cli("judgelm-batch", *common, "so it is A.\n[[1]]", "-o", first)[0] == 0
    [own] = rows_of(first)
    assert len(own["solves"]) == 5
    other = ("--mode-arg", "when=always", "--mode-arg", "tau=0.6", "--self-answers", first)
    assert cli("judgelm-batch", *common, "so it is A.\n[[1]]", "-o", second, *other)[0] == 0
    [again] = rows_of(second)
    assert again["solves"] == own["solves"]
    # two orders were judged and nothing was solved: the solves' tokens are missing
    assert again["completion_tokens"] < own["completion_tokens"]


def test_thinking_is_kept_apart_counted_and_shown(batch, cli, pairs, tmp_path):
    path, run, counted = pairs(3, winner=1), tmp_path / "out.jsonl", tmp_path / "run.json"
    reply = "<think>\\nHm.\\n</think>\\n\\n8 6"
    options = ("--thinking", "on", "--max-failure-rate", "1")
    code, printed, err = batch(path, *options, "--json", counted, reply=reply)
    assert code == 0, err
    assert [(row["shown"][0]["text"], row["shown"][0]["thinking"]) for row in rows_of(run)] == [("8 6", "Hm.")] * 3
    assert "3 of 3, 3 characters on average" in printed + err
    counts = json.loads(counted.read_text())
    assert (counts["thinking"], counts["shown"], counts["thinking_characters"]) == (3, 3, 9)
    command = (run, "--labels", path, "--bootstrap", "100")
    _, shown, _ = cli("judgelm", "eval", *command, "--json", tmp_path / "e")
    assert "3 of 3 judgments with thinking, 3 characters per prompt" in shown
    result = json.loads((tmp_path / "e").read_text())
    assert (result["counts"]["thinking"], result["mean_thinking_characters"]) == (3, 3.0)
    cli("judgelm", "report", *command, "-o", tmp_path / "report.html")
    assert '<th scope="row">With thinking</th><td class="number">3</td>' in (tmp_path / "report.html").read_text()
    code, _, err = batch(path, "--thinking", "off", reply=reply)
    assert (code, "thinking" in err) == (1, True)  # another run


def test_modes_are_listed_and_one_modes_options_shown(cli):
    code, out, _ = cli("judgelm", "judges", "modes")
    assert (code, "ssr" in out, "2 answers" in out) == (0, True, True)
    code, out, _ = cli("judgelm", "judges", "modes", "ssr")
    assert code == 0
    assert "agreement" in " ".join(out.split())
    assert "--mode-arg tau=" in out
    flat = " ".join(cli("judgelm", "judges", "modes", "chat")[1].split())
    assert "answers swapped" in flat  # an option of every mode of pairs
    assert "--both-orders" in flat
    assert not {"Raises", "Attributes"} & set(flat.split())
    code, _, err = cli("judgelm", "judges", "modes", "srr")
    assert (code, "did you mean ssr?" in err) == (1, True)
    _, out, _ = cli("judgelm", "judges", "modes", "ssr", "--json", "-")
    [tau] = [option for option in json.loads(out)["ssr"]["options"] if option["name"] == "tau"]
    assert (tau["flag"], tau["default"]) == ("--mode-arg tau=", 0.8)
