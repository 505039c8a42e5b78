"""`judgelm study estimate`, and the win rate in `eval` and `report`."""

import json

import pytest

from judgelm.records import Judgment, PairVerdict, Shown
from judgelm.serialization import judgment_row


@pytest.fixture
def files(tmp_path):
    """A run of 120 pairs of models a and b, and labels on 40 of them."""
    pairs, labelled, run = [], [], []
    for index in range(120):
        row = {
            "id": str(index), "question": f"q{index}", "answer_1": "w " * (1 + index % 7), "answer_2": "w " * 4,
            "model_1": "a", "model_2": "b",
        }  # fmt: skip
        winner = 1 if index % 3 else 2
        shown = (Shown(order=(0, 1), text="8 3" if winner == 1 else "3 8", scores=(8, 3) if winner == 1 else (3, 8)),)
        judged = Judgment(sample_id=str(index), mode="pair", verdict=PairVerdict(winner=winner), shown=shown)
        run.append(judgment_row(judged))
        pairs.append(row)
        if index % 3 == index % 9 // 3:
            labelled.append({**row, "winner": winner if index % 4 else 3 - winner})
    for name, rows in (("pairs", pairs), ("labelled", labelled), ("run", run)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_the_estimates_are_printed_with_their_intervals(cli, files):
    labels = ("-l", files / "labelled.jsonl", "-s", files / "pairs.jsonl")
    command = ("judgelm", "study", "estimate", files / "run.jsonl", *labels, "--width", "0.2", "--control", "length")
    code, out, err = cli(*command)
    assert code == 0, err
    for text in ("win rate of a against b", "Rogan-Gladen", "PPI++", "labels alone", "20 points wide requires about"):
        assert text in " ".join(out.split()), text
    assert "judged pairs used: 120, of which 40 have a label" in out
    claim = json.loads(cli(*command, "--json", "-")[1])
    assert (claim["estimates"]["ppi"]["n"], claim["counts"]["labels"]) == (40, 40)
    assert set(claim["control"]["terms"]) == {"length"}


def test_eval_and_report_control_and_estimate(cli, files):
    arguments = [files / "run.jsonl", "-l", files / "labelled.jsonl", "--control", "length,style", "--bootstrap", "100"]
    code, out, err = cli("judgelm", "eval", *arguments)
    assert code == 0, err
    assert "controlled for length,style" in " ".join(out.split())
    code, _, err = cli("judgelm", "report", *arguments, "-o", files / "report.html", "--json", files / "r.json")
    assert code == 0, err
    page = (files / "report.html").read_text()
    assert 'id="claim"' in page
    assert 'id="control"' in page
    assert "Win rate of a against b" in page
    written = json.loads((files / "r.json").read_text())
    assert written["win_rate"]["estimates"]["labels"]["n"] == 40
    assert written["control"]["constant"] == ["headers", "list items", "bold"]
