"""`judgelm study qa` from the outside."""

import json

import pytest
import typer
from typer.testing import CliRunner

from judgelm.cli.commands import add_command
from judgelm.cli.study.answers import qa_command
from judgelm.errors import ConfigError, InputError
from judgelm.jsonl import encode_line
from judgelm.records import Judgment, LabelVerdict
from judgelm.runs.serialization import judgment_row

APP = typer.Typer()
add_command(APP, qa_command, "study")
LABELS = ["correct", "correct", "incorrect", "correct"]


@pytest.fixture
def files(tmp_path):
    rows = [
        {"id": f"q{i}", "question": "Who won?", "answer": text, "reference": "Ann", "answer_models": ["m"]}
        for i, text in enumerate(["ann", "Ann Lee", "Bob", "Ms Ann"])
    ]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with (tmp_path / "qwen.jsonl").open("wb") as out:
        for i, label in enumerate(LABELS):
            by = "exact_match" if i == 0 else "judge"
            made = Judgment(sample_id=f"q{i}", mode="qa", verdict=LabelVerdict(label=label), shown=(), decided_by=by)
            out.write(encode_line(judgment_row(made)))
    human = [{"id": f"q{i}", "label": label} for i, label in enumerate([1, "correct", False, "incorrect"])]
    (tmp_path / "people.jsonl").write_text("".join(json.dumps(row) + "\n" for row in human))
    return tmp_path


def run(files, *more):
    arguments = [files / "answers.jsonl", "-j", f"qwen={files / 'qwen.jsonl'}", "--bootstrap", "100", *more]
    return CliRunner().invoke(APP, [str(one) for one in arguments])


def test_the_study_is_written_and_its_numbers_printed(files):
    done = run(files, "--human", files / "people.jsonl", "-o", files / "out", "--json", "-")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    tables = {one["name"]: one["rows"] for one in found["tables"]}
    assert tables["scores"][0]["judge_qwen"]["value"] == 3 / 4
    # people 1100, judge 1101: both 2, judge alone 1, neither 1: phi = 2 / sqrt(2*2*3*1)
    assert tables["human-correlation"][0]["qwen"]["value"] == pytest.approx(2 / 12**0.5)
    assert (files / "out" / "study.json").exists()
    assert (files / "out" / "tables" / "scores.csv").exists()


def test_the_original_authors_rows_are_read_with_their_predictions(files):
    rows = [{"_id": f"q{i}", "question": "Who?", "answer": "Ann", "pred_answer": t} for i, t in enumerate("abcd")]
    (files / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run(files, "-o", files / "out", "--json", "-")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["counts"]["exact_matches"] == 0


@pytest.mark.parametrize(
    ("more", "finding"),
    [
        (["-j", "qwen"], "--judgments qwen: expected JUDGE=RUN"),
        (["--sibling", "m"], "--sibling m: expected MODEL=JUDGE"),
        (["--own", "m=a", "--own", "m=b"], "each model once"),
        (["--own", "m=other"], "no run of judge 'other'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(files, more, finding):
    done = run(files, *more, "-o", files / "out")
    assert isinstance(done.exception, ConfigError | InputError)
    assert finding in str(done.exception)


def test_a_label_that_is_none_is_refused(files):
    (files / "people.jsonl").write_text('{"id": "q0", "label": "maybe"}\n')
    done = run(files, "--human", files / "people.jsonl", "-o", files / "out")
    assert "people.jsonl:1: expected id and label" in str(done.exception)
