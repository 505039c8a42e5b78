import json

import pytest
import typer
from typer.testing import CliRunner

from judgelm.cli.commands import add_command
from judgelm.cli.study.answers import ssr_command
from judgelm.jsonl import encode_line
from judgelm.records import Judgment, PairVerdict, SelfAnswer, Shown
from judgelm.runs.serialization import judgment_row

APP = typer.Typer()
add_command(APP, ssr_command, "study")


def write_run(path, winners):
    """The judge names the same response in both orders; its five solves are G, G, G, G, B."""

    def judged(key, winner):
        labels = ("1", "2") if winner == 1 else ("2", "1")
        shown = tuple(
            Shown(order=order, text="", label=label) for order, label in zip(((0, 1), (1, 0)), labels, strict=True)
        )
        solves = tuple(SelfAnswer(text="", answer=answer) for answer in "GGGGB")
        return Judgment(
            sample_id=str(key), mode="ssr", verdict=PairVerdict(winner=winner), shown=shown, self_answers=solves
        )

    path.write_bytes(b"".join(encode_line(judgment_row(judged(*pair))) for pair in enumerate(winners)))
    return path


@pytest.fixture
def arguments(tmp_path):
    truth = tmp_path / "truth.jsonl"
    rows = [{"id": str(key), "winner": 1, "answer": "G", "category": "math"} for key in range(4)]
    truth.write_bytes(b"".join(map(encode_line, rows)))
    never = write_run(tmp_path / "never.jsonl", [1, 2, 2, 2])
    always = write_run(tmp_path / "always.jsonl", [1, 1, 1, 2])
    return ["--never", never, "--always", always, "-t", truth, "-o", tmp_path / "study", "--bootstrap", 100]


def invoke(arguments):
    return CliRunner().invoke(APP, list(map(str, arguments)))


def test_two_runs_and_truth_become_a_folder_and_json(arguments, tmp_path):
    found = invoke([*arguments, "--json", tmp_path / "n.json"])
    assert found.exit_code == 0, found.output
    tables = {one["name"]: one["rows"] for one in json.loads((tmp_path / "n.json").read_text())["tables"]}
    # agreement 4/5 passes tau = 0.8, so selective is always: 3 of 4 against 1 of 4
    assert [row["accuracy"]["value"] for row in tables["comparison"][:3]] == [0.25, 0.75, 0.75]
    assert (tmp_path / "study" / "report.html").is_file()


def test_a_tau_out_of_range_ends_before_anything_is_written(arguments, tmp_path):
    assert "tau is 4" in str(invoke([*arguments, "--tau", 4]).exception)
    assert not (tmp_path / "study").exists()
