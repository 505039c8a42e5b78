"""`judgelm study compare-judges` and `calibration`."""

import json

import pytest

from judgelm.records import Judgment, PairVerdict, Shown
from tests.support.jsonl_files import write_rows
from tests.support.judged_items import write_run


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two judges of eight pairs, with probabilities, and the labels: a is right on seven, b on five."""
    monkeypatch.chdir(tmp_path)
    shown = (Shown(order=(0, 1), text="8 6", scores=(8, 6)),)
    for name, winners in {"a": [1, 2, 1, 2, 1, 2, 1, 1], "b": [1, 2, 1, 2, 1, 1, 2, 1]}.items():
        judged = [
            Judgment(
                sample_id=str(place), mode="pair", verdict=PairVerdict(winner=winner), shown=shown,
                probability=0.5 + (0.3 + place / 100) * (1 if winner == 1 else -1),
            )
            for place, winner in enumerate(winners)
        ]  # fmt: skip
        write_run(tmp_path / f"{name}.jsonl", judged)
    rows = (
        {"id": str(place), "question": f"q{place}", "answer_1": "a", "answer_2": "b", "winner": 1 + place % 2,
         "category": "math" if place % 2 else "chat"}
        for place in range(8)
    )  # fmt: skip
    write_rows(tmp_path / "labels.jsonl", rows)
    return tmp_path


@pytest.fixture
def study(cli):
    return lambda *arguments: cli(
        "judgelm", "study", *arguments, "-l", "labels.jsonl", "-o", "out", "--bootstrap", "100"
    )


def test_compare_judges(study, files):
    code, out, err = study("compare-judges", "a.jsonl", "b.jsonl")
    assert (code, out) == (0, "")
    assert "a 87.5 % (95 % interval" in err
    assert "common pairs 8" in err
    assert "out/report.html" in err
    study_json = json.loads((files / "out" / "study.json").read_text())
    names = [table["name"] for table in study_json["tables"]]
    assert names == ["judges", "differences", "verdicts", "by-category", "flips"]
    assert (files / "out" / "tables" / "flips.csv").read_text().count("\n") == 3
    assert (files / "out" / "figures" / "agreement.png").is_file()
    code, _, err = study("compare-judges", "a.jsonl", "b.jsonl")
    assert (code, "already contains a study" in err) == (1, True)


@pytest.mark.parametrize(
    ("runs", "names", "finding"),
    [
        (["a.jsonl", "a.jsonl"], ["one", "two"], ""),
        (["a.jsonl", "a.jsonl"], [], "use --name to name each file"),
        (["a.jsonl", "a.jsonl"], ["one"], "got 1 names for 2 files"),
        (["a.jsonl"], [], "at least two"),
    ],
)
def test_judges_need_different_names(study, files, runs, names, finding):
    options = [part for name in names for part in ("--name", name)]
    code, out, err = study("compare-judges", *runs, *options, "--json", "-")
    assert (code, finding in err) == (1 if finding else 0, True)
    if not finding:
        assert [row["judge"] for row in json.loads(out)["tables"][0]["rows"]] == names


@pytest.mark.parametrize(
    "command", [("eval",), ("report", "-o", "page.html"), ("study", "compare-judges", "second.jsonl", "-o", "study")]
)
def test_labels_of_an_id_and_a_review_alone_are_read(cli, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        write_rows(f"{name}.jsonl", [{"question_id": "1", "pred_text": "8 6"}])
    write_rows("labels.jsonl", [{"id": "1", "text": "9 5\nBecause."}])
    code, out, _ = cli("judgelm", *command, "first.jsonl", "--labels", "labels.jsonl", "--json", "-")
    assert code == 0
    assert '"n": 1' in out


def test_scores_out_of_range_suggest_another_scale(study, files):
    for name in ("first", "second"):
        write_rows(f"{name}.jsonl", [{"question_id": "1", "pred_text": "80 60"}])
    code, _, err = study("compare-judges", "first.jsonl", "second.jsonl")
    assert code == 1
    assert "first.jsonl: 1 of 1 replies have scores outside the range 1-10; try --scale any" in err
    assert ": first: 1 of 1 (out of range 1); second: 1 of 1 (out of range 1)" in err
    assert study("compare-judges", "first.jsonl", "second.jsonl", "--scale", "any")[0] == 0


def test_calibration(study, files):
    code, _, err = study("calibration", "a.jsonl", "--json", "numbers.json", "--bins", "4")
    assert code == 0
    assert "expected calibration error" in err
    assert "only 8 pairs" in err
    assert json.loads((files / "numbers.json").read_text())["counts"]["measured"] == 8
