"""`judgelm data import`, and a run over the imported rows."""

import json

import pytest

from judgelm.data.sources.registry import benchmarks

ROW = {
    "idx": 7, "motivation_app": "Gmail", "cmp_key": "a_b", "instruction": "Sum up.", "input": "A long text.",
    "response1": "x", "response2": "y", "annotator1": 1, "annotator2": 1, "annotator3": 2,
}  # fmt: skip


def written(tmp_path):
    path = tmp_path / "testset-v1.json"
    path.write_text(json.dumps([ROW, ROW | {"idx": 8, "annotator1": 0, "annotator2": 0}]))
    return path


def test_an_import_prints_counts_and_the_metric(cli, tmp_path):
    code, out, err = cli("judgelm", "data", "import", "pandalm", written(tmp_path), "-o", tmp_path / "out.jsonl")
    assert (code, out) == (0, "")
    assert "pandalm: 2 rows, labels 1: 1, tie: 1, 1 category" in err
    assert "protocol: Accuracy, and macro precision" in err
    assert "to judge: judgelm-batch --both-orders --order-rule tie" in err
    assert "out.protocol.json" in err


def test_without_a_name_it_lists_the_benchmarks(cli):
    code, out, _ = cli("judgelm", "data", "import")
    assert (code, "rewardbench-2" in out) == (0, True)
    assert "mt-bench" in json.loads(cli("judgelm", "data", "import", "--json", "-")[1])


def test_missing_files_and_output_are_refused(cli, tmp_path):
    code, _, err = cli("judgelm", "data", "import", "pandalm")
    assert (code, "expected testset-v1.json" in err) == (1, True)
    code, _, err = cli("judgelm", "data", "import", "pandalm", written(tmp_path))
    assert (code, "-o is missing" in err) == (1, True)


def test_a_released_judge_judges_imported_rows(cli, tmp_path):
    cli("judgelm", "data", "import", "pandalm", written(tmp_path), "-o", tmp_path / "pairs.jsonl", "-q")
    command = ("judgelm-batch", tmp_path / "pairs.jsonl", "-o", tmp_path / "run.jsonl", "--engine", "scripted")
    code, _, err = cli(*command, "--model", "1\\n\\n### Reason: x", "--card", "pandalm", "--both-orders")
    assert code == 0
    assert "mode released, template pandalm-pair, both_orders True" in err
    rows = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    # always "1": the first answer as given, the second one swapped
    assert [row["verdict"]["winner"] for row in rows] == ["tie", "tie"]
    manifest = json.loads((tmp_path / "run.run.json").read_text())
    assert manifest["fingerprint"]["template"]["id"] == "pandalm-pair"
    code, _, err = cli(*command, "--model", "1\\n\\n### Reason: x", "--card", "prometheus-2")
    assert code == 1
    assert "contains judgments from another run" in err


@pytest.mark.parametrize("name", benchmarks())
def test_a_file_in_another_format_is_refused(cli, tmp_path, name):
    path = tmp_path / "other.json"
    path.write_text(json.dumps([{"colour": "red", "weight": 3}, {"colour": "blue", "weight": 4}]))
    files = [path]
    if name == "faireval":
        files.append(tmp_path / "human.txt")
        files[-1].write_text("TIE\nTIE\n")
    code, _, err = cli("judgelm", "data", "import", name, *files, "-o", tmp_path / "out.jsonl")
    assert (code, (tmp_path / "out.jsonl").exists()) == (1, False)
    assert str(path) in err
    assert "colour, weight" in err


def test_an_import_shows_and_keeps_how_many_rows_each_reason_cost(cli, tmp_path):
    good = {"scenario": "s", "label": 0, "prompt": "p", "response 1": "a", "response 2": "b"}
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(good | change) + "\n" for change in ({}, {"label": 7}, {"label": 8})))
    code, _, err = cli("judgelm", "data", "import", "auto-j", path, "-o", tmp_path / "out.jsonl")
    reason = 'field "label": expected one of N, N, N, got the number N; correct the row'
    assert code == 0
    assert f"2 rows: {reason} (first: {path}:2)" in err
    assert json.loads((tmp_path / "out.protocol.json").read_text())["rejected_by_reason"] == {reason: 2}
    assert len((tmp_path / "out.rejects.jsonl").read_text().splitlines()) == 2
