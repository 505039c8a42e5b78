"""Published judgments as run files: names, judges, rejects and reruns."""

import pytest

from judgelm.errors import ConfigError, InputError, RunError
from judgelm.runs.published import JudgmentImport, import_judgments
from judgelm.runs.run_files import read_judgments, read_manifest
from tests.support.jsonl_files import rows_of, write_rows


def annotation(preference, annotator="a", output="x"):
    return {"instruction": "q", "output_1": output, "output_2": "y", "preference": preference, "annotator": annotator}


def imported(tmp_path, published, **options):
    file = str(write_rows(tmp_path / "published.jsonl", published))
    return import_judgments(JudgmentImport(files=[file], out=tmp_path / "run.jsonl", **options))


def test_a_run_file_with_its_manifest(tmp_path):
    result = imported(tmp_path, [annotation(1.0), annotation(2.0, output="z")])
    assert (result.source.name, result.judge, result.stats.winners) == ("alpaca-eval", "a", {"1": 1, "2": 1})
    manifest = read_manifest(tmp_path / "run.jsonl")
    assert manifest["fingerprint"]["model"] == {"name": "a"}
    assert manifest["sessions"][0]["outcome"] == "finished"
    assert [each.winner for each in read_judgments(tmp_path / "run.jsonl").values()] == [1, 2]
    before = (tmp_path / "run.jsonl").read_bytes()
    imported(tmp_path, [annotation(1.0), annotation(2.0, output="z")])
    assert (tmp_path / "run.jsonl").read_bytes() == before
    with pytest.raises(RunError, match="contains judgments from another run"):
        imported(tmp_path, [annotation(2.0)])


def test_one_judge_is_taken_of_several(tmp_path):
    rows = [annotation(1.0), annotation(2.0, annotator="b")]
    with pytest.raises(ConfigError, match=r"2 judges: a \(1\), b \(1\); choose one with --judge"):
        imported(tmp_path, rows)
    assert imported(tmp_path, rows, judge="b").stats.winners == {"2": 1}
    with pytest.raises(ConfigError, match="--judge c"):
        imported(tmp_path, rows, judge="c")


def test_ids_may_be_made_of_fields_or_taken_from_rows(tmp_path):
    imported(tmp_path, [annotation(1.0)], id_template="ae/{instruction}")
    assert list(read_judgments(tmp_path / "run.jsonl")) == ["ae/q"]
    rows = write_rows(tmp_path / "rows.jsonl", [{"id": "mine", "question": "q", "answer_1": "x", "answer_2": "y"}])
    result = imported(tmp_path, [annotation(1.0), annotation(1.0, output="z")], rows=str(rows), overwrite=True)
    assert list(read_judgments(tmp_path / "run.jsonl")) == ["mine"]
    assert "has these texts" in result.rejects[0].reason
    for template, finding in (("{number}", "no field 'number'"), ("x", "expected a field in braces")):
        with pytest.raises(ConfigError, match=finding):
            imported(tmp_path, [annotation(1.0)], id_template=template)


def test_what_cannot_be_used_is_written_beside_the_run(tmp_path):
    result = imported(tmp_path, [annotation(1.0), annotation(7), annotation(1.0)])
    rejects = rows_of(tmp_path / "run.rejects.jsonl")
    assert len(result.rejects) == len(rejects) == 2
    assert "expected a number from 1 to 2" in rejects[0]["reason"]
    assert "was already judged" in rejects[1]["reason"]
    with pytest.raises(InputError, match="no usable row"):
        imported(tmp_path, [annotation(7)])
