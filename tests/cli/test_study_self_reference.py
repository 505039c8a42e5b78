import json

import pytest
import typer
from typer.testing import CliRunner

from judgelm.cli.commands import add_command
from judgelm.cli.study.answers import _by_judge, self_reference_command
from judgelm.errors import ConfigError, InputError
from judgelm.jsonl import encode_line
from judgelm.records import Judgment, LabelVerdict, SelfAnswer
from judgelm.runs.serialization import judgment_row

APP = typer.Typer()
add_command(APP, self_reference_command, "study")


def invoke(*arguments):
    return CliRunner().invoke(APP, [*map(str, arguments), "--bootstrap", "100"])


def write_run(path, labels, answers):
    path.write_bytes(
        b"".join(
            encode_line(
                judgment_row(
                    Judgment(sample_id=str(key), mode="correctness", verdict=LabelVerdict(label=label), shown=(),
                             self_answers=(SelfAnswer(text="", answer=answer),))
                )
            )
            for key, (label, answer) in enumerate(zip(labels, answers, strict=True))
        )
    )  # fmt: skip
    return path


@pytest.fixture
def files(tmp_path):
    cot = write_run(tmp_path / "cot.jsonl", ["correct", "correct", "correct", "incorrect"], "GGBB")
    guided = write_run(tmp_path / "guided.jsonl", ["correct", "incorrect", "incorrect", "correct"], "GGBB")
    truth = tmp_path / "truth.jsonl"
    rows = [{"id": str(key), "agent": "a", "dataset": "X", "truth": key in (0, 2), "answer": "G"} for key in range(4)]
    truth.write_bytes(b"".join(map(encode_line, rows)))
    return cot, guided, truth


def test_runs_and_truth_become_a_folder_and_json(files, tmp_path):
    cot, guided, truth = files
    out = tmp_path / "study"
    found = invoke(
        "--cot", f"big={cot}", "--guided", f"big={guided}", "-t", truth, "-o", out, "--json", tmp_path / "n.json"
    )
    assert found.exit_code == 0, found.output
    numbers = json.loads((tmp_path / "n.json").read_text())
    [table] = [one for one in numbers["tables"] if one["name"] == "f1-by-own-answer"]
    # own answers G, G are right. CoT on D_J+: TP 1, FP 1; guided: TP 1 alone
    assert [row["f1_right"]["value"] for row in table["rows"]] == [pytest.approx(2 / 3), 1.0]
    assert (out / "report.html").is_file()
    assert "partial correlation" in found.output


def test_judges_are_named_or_have_their_files_names(files):
    cot, guided, _ = files
    assert _by_judge("--cot", [str(cot), f"big={guided}"]) == {"cot": cot, "big": guided}


def test_no_run_two_runs_of_one_judge_and_bad_lines_are_errors(files, tmp_path):
    cot, guided, truth = files
    out = tmp_path / "study"
    assert isinstance(invoke("-t", truth, "-o", out).exception, ConfigError)
    twice = invoke("--cot", f"a={cot}", "--cot", f"a={guided}", "-t", truth, "-o", out).exception
    assert "'a' has a run already" in str(twice)
    truth.write_text('{"id": "1"}\n')
    bad = invoke("--cot", cot, "-t", truth, "-o", out).exception
    assert isinstance(bad, InputError)
    assert "truth.jsonl:1" in str(bad)
