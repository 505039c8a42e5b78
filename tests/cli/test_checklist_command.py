"""`judgelm-batch --mode checklist`."""

import json

import pytest

from tests.support.jsonl_files import rows_of, write_rows


@pytest.fixture
def rows(tmp_path):
    """Two pairs; the second has its own criterion."""
    pair = {"question": "q", "answer_1": "a", "answer_2": "b", "winner": "tie"}
    return write_rows(tmp_path / "rows.jsonl", [pair | {"id": "1"}, pair | {"id": "2", "criteria": ["It is mine."]}])


def test_criteria_of_a_file_and_of_the_row(batch, cli, rows, tmp_path):
    (tmp_path / "criteria.yaml").write_text("- {text: It is kind., weight: 3}\n- {text: It is long., weight: -1}\n")
    code, _, _ = batch(rows, "--mode", "checklist", "--criteria", tmp_path / "criteria.yaml", reply="Yes")
    first, second = rows_of(tmp_path / "out.jsonl")
    assert code == 0
    # (3 - 1) / 3 for a yes to both, and 1 for a yes to the row's criterion
    assert (first["scores"], second["scores"]) == (pytest.approx([2 / 3] * 2), pytest.approx([1, 1]))
    assert [shown["part"] for shown in second["shown"]] == ["It is mine."] * 2
    code, printed, _ = cli("judgelm", "eval", tmp_path / "out.jsonl", "--labels", rows)
    assert (code, "against a checklist" in " ".join(printed.split())) == (0, True)


def test_a_row_without_criteria_is_a_reject(batch, rows, tmp_path):
    _, _, stderr = batch(rows, "--mode", "checklist", reply="Yes")
    assert "rows.jsonl:1: sample 1: no criteria" in stderr
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == ["2"]


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (("--mode", "checklist", "--criteria", "gone.yaml"), "gone.yaml: cannot read"),
        (("--mode", "checklist", "--criteria", "c.json", "--mode-arg", "criteria=[a]"), "set the same option"),
        (("--criteria", "c.json"), "mode pair: unknown option criteria"),
    ],
)
def test_criteria_that_cannot_be_used(batch, rows, tmp_path, monkeypatch, options, finding):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.json").write_text(json.dumps(["It is kind."]))
    code, _, stderr = batch(rows, *options)
    assert (code, finding in stderr) == (1, True)
