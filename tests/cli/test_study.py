"""`judgelm study` from the outside."""

import json
from pathlib import Path

import pytest

from judgelm.records import Judgment, PairVerdict, Shown
from judgelm.runs.serialization import judgment_row


@pytest.fixture
def files(tmp_path):
    """Two judges of eight pairs, with probabilities, and the labels: a is right on seven, b on five."""
    labels = [1, 2, 1, 2, 1, 2, 1, 2]
    said = {"a": [1, 2, 1, 2, 1, 2, 1, 1], "b": [1, 2, 1, 2, 1, 1, 2, 1]}
    for name, winners in said.items():
        with (tmp_path / f"{name}.jsonl").open("w") as file:
            for place, winner in enumerate(winners):
                shown = (Shown(order=(0, 1), text="8 6", scores=(8, 6)),)
                probability = 0.5 + (0.3 + place / 100) * (1 if winner == 1 else -1)
                judgment = Judgment(
                    sample_id=str(place), mode="pair", verdict=PairVerdict(winner=winner), shown=shown,
                    probability=probability,
                )  # fmt: skip
                file.write(json.dumps(judgment_row(judgment)) + "\n")
    with (tmp_path / "labels.jsonl").open("w") as file:
        for place, winner in enumerate(labels):
            row = {"id": str(place), "question": f"q{place}", "answer_1": "a", "answer_2": "b", "winner": winner}
            file.write(json.dumps(row | {"category": "math" if place % 2 else "chat"}) + "\n")
    return tmp_path


def study(cli, name, *arguments):
    return cli("judgelm", "study", name, *arguments, "--bootstrap", "100")


def test_compare_judges(cli, files):
    code, out, err = study(
        cli, "compare-judges", files / "a.jsonl", files / "b.jsonl", "--labels", files / "labels.jsonl",
        "-o", files / "out",
    )  # fmt: skip
    assert (code, out) == (0, "")
    assert "a 87.5 % (95 % interval" in err
    assert "common pairs 8" in err
    assert str(files / "out" / "report.html") in err
    found = json.loads((files / "out" / "study.json").read_text())
    assert [table["name"] for table in found["tables"]] == ["judges", "differences", "verdicts", "by-category", "flips"]
    assert (files / "out" / "tables" / "flips.csv").read_text().count("\n") == 3
    assert (files / "out" / "figures" / "agreement.png").is_file()


@pytest.mark.parametrize(
    "command", [("eval",), ("report", "-o", "page.html"), ("study", "compare-judges", "second.jsonl", "-o", "study")]
)
def test_labels_of_an_id_and_a_review_alone_are_read(cli, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        Path(f"{name}.jsonl").write_text('{"question_id": "1", "pred_text": "8 6"}\n')
    Path("labels.jsonl").write_text('{"id": "1", "text": "9 5\\nBecause."}\n')
    code, out, _ = cli("judgelm", *command, "first.jsonl", "--labels", "labels.jsonl", "--json", "-")
    assert code == 0
    assert '"n": 1' in out


def test_scores_beyond_the_scale_are_said_to_be_with_the_way_out(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        Path(f"{name}.jsonl").write_text('{"question_id": "1", "pred_text": "80 60"}\n')
    Path("labels.jsonl").write_text('{"id": "1", "winner": 1}\n')
    command = ("judgelm", "study", "compare-judges", "first.jsonl", "second.jsonl", "-l", "labels.jsonl", "-o", "study")
    code, _, err = cli(*command)
    assert code == 1
    assert "first.jsonl: 1 of 1 replies have scores out of range (1-10); try --scale any" in err
    assert "(failed: first: 1 of 1 (out of range 1); second: 1 of 1 (out of range 1))" in err
    code, _, err = cli(*command, "--scale", "any")
    assert (code, "first 100.0 %" in err) == (0, True)


def test_judges_can_be_named(cli, files):
    code, out, _ = study(
        cli, "compare-judges", files / "a.jsonl", files / "a.jsonl", "-l", files / "labels.jsonl",
        "-o", files / "out", "--name", "one", "--name", "two", "--json", "-",
    )  # fmt: skip
    assert code == 0
    assert [row["judge"] for row in json.loads(out)["tables"][0]["rows"]] == ["one", "two"]


@pytest.mark.parametrize(
    ("names", "finding"),
    [([], "give each a name with --name"), (["--name", "one"], "1 given for 2 files")],
)
def test_names_that_do_not_tell_judges_apart(cli, files, names, finding):
    code, _, err = study(
        cli, "compare-judges", files / "a.jsonl", files / "a.jsonl", "-l", files / "labels.jsonl", "-o", files / "out",
        *names,
    )  # fmt: skip
    assert code == 1
    assert finding in err


def test_one_judge_is_not_compared(cli, files):
    code, _, err = study(cli, "compare-judges", files / "a.jsonl", "-l", files / "labels.jsonl", "-o", files / "out")
    assert code == 1
    assert "two or more are compared" in err


def test_calibration(cli, files):
    code, _, err = study(
        cli, "calibration", files / "a.jsonl", "--labels", files / "labels.jsonl", "-o", files / "out",
        "--json", files / "numbers.json", "--bins", "4",
    )  # fmt: skip
    assert code == 0
    assert "expected calibration error" in err
    assert "note: With only 8 pairs" in err
    found = json.loads((files / "numbers.json").read_text())
    # squares: (0.2 - 0.01 i)^2 for i = 0 to 6, the pairs it is right on, and 0.87^2 for the last
    brier = (sum((0.2 - place / 100) ** 2 for place in range(7)) + 0.87**2) / 8
    assert found["tables"][0]["rows"][0]["brier"]["value"] == pytest.approx(brier)
    assert found["counts"]["measured"] == 8


def test_a_study_is_kept_unless_overwrite_is_said(cli, files):
    arguments = [
        "calibration",
        files / "a.jsonl",
        "-l",
        files / "labels.jsonl",
        "-o",
        files / "out",
        "--fit-share",
        "0",
    ]
    assert study(cli, *arguments)[0] == 0
    code, _, err = study(cli, *arguments)
    assert code == 1
    assert "holds a study" in err
    assert study(cli, *arguments, "--overwrite")[0] == 0


def test_judgments_without_probability(cli, files):
    text = (files / "a.jsonl").read_text()
    rows = [json.loads(line) | {"probability": None} for line in text.splitlines()]
    (files / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, _, err = study(cli, "calibration", files / "a.jsonl", "-l", files / "labels.jsonl", "-o", files / "out")
    assert code == 1
    assert "judge again with --distribution" in err
    assert not (files / "out").exists()
