"""`judgelm study capabilities` on files."""

import json

import typer
from typer.testing import CliRunner

from judgelm.cli.commands import add_command
from judgelm.cli.study.answers import capabilities_command
from judgelm.jsonl import encode_line
from judgelm.records import GradeVerdict, Judgment
from judgelm.runs.serialization import judgment_row

APP = typer.Typer()
add_command(APP, capabilities_command, "study")


def test_a_run_and_mm_vets_file_become_a_study(tmp_path):
    questions = tmp_path / "mm-vet.json"
    names = ["v1_0", "v1_1", "v1_2"]
    questions.write_text(
        json.dumps({name: {"imagename": f"{name}.png", "capability": ["ocr", "math"]} for name in names})
    )
    run = tmp_path / "emu.jsonl"
    rows = [
        judgment_row(Judgment(sample_id=name, mode="multimodal", verdict=GradeVerdict(score=score), shown=()))
        for name, score in zip(names, (10, 1, 4), strict=True)
    ]
    run.write_bytes(b"".join(map(encode_line, rows)))
    manifest = {"fingerprint": {"mode": {"name": "multimodal", "scale": [0, 20]}}}
    (tmp_path / "emu.run.json").write_text(json.dumps(manifest))
    arguments = [run, "-q", questions, "-o", tmp_path / "study", "--bootstrap", 100, "--json", "-"]
    done = CliRunner().invoke(APP, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    [row] = [one for one in found["tables"][0]["rows"] if one["capabilities"] == "math"]
    assert (row["model"], row["mean"]["value"], row["rescaled"]["value"]) == ("emu", 5.0, 0.25)  # 15 / 3, of 0 to 20
    assert list((tmp_path / "study").glob("*.html"))
