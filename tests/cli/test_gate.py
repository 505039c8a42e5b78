"""judgelm gate: exit codes, what is compared, and what is refused."""

import json

import pytest

from judgelm.records import GradeVerdict, Judgment, LabelVerdict, PairVerdict, TextHashes, Unparsed
from judgelm.serialization import judgment_row


def write_run(path, verdicts, *, sha="1", scale=(1, 10)):
    rows = []
    for index, verdict in enumerate(verdicts):
        failure = Unparsed("engine", "x") if verdict is None else None
        hashes = TextHashes(question=f"q{index}", answers=("a",))
        rows.append(
            judgment_row(
                Judgment(sample_id=str(index), mode="m", verdict=verdict, shown=(), failure=failure, hashes=hashes)
            )
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    fingerprint = {"model": {"sha": sha}, "template": {"id": "t"}, "mode": {"name": "m", "scale": list(scale)}}
    manifest = {"fingerprint": {**fingerprint, "engine": {}, "input": []}, "sessions": [], "provenance": {}}
    path.with_suffix(".run.json").write_text(json.dumps(manifest), encoding="utf-8")
    return path


def labels(good, bad):
    return [LabelVerdict(label="yes")] * good + [LabelVerdict(label="no")] * bad


@pytest.mark.parametrize(
    ("after", "options", "code"),
    [
        (labels(400, 0), ["--max-drop", "3"], 0),
        (labels(320, 80), ["--max-drop", "3"], 3),
        (labels(384, 16), ["--max-drop", "3"], 4),
        (labels(384, 16), ["--max-drop", "3", "--undecided", "pass"], 0),
        (labels(384, 16), ["--max-drop", "3", "--undecided", "fail"], 3),
        (labels(384, 16), ["--max-flips", "15"], 3),
        (labels(384, 16), ["--max-flips", "16", "--max-failures", "0"], 0),
        ([*labels(398, 0), None], ["--max-failures", "1"], 3),  # one failed, one is missing
        ([PairVerdict(winner=2)] * 400, ["--max-drop", "3", "--answer", "2"], 0),
    ],
)
def test_the_exit_code_is_the_outcome(cli, tmp_path, after, options, code):
    before = [PairVerdict(winner="tie")] * 400 if isinstance(after[0], PairVerdict) else labels(400, 0)
    runs = [write_run(tmp_path / "old.jsonl", before), write_run(tmp_path / "new.jsonl", after)]
    assert cli("judgelm", "gate", *runs, *options)[0] == code


def test_the_drop_of_grades_is_in_points_and_also_written_as_json_and_markdown(cli, tmp_path):
    old = write_run(tmp_path / "old.jsonl", [GradeVerdict(score=8.0)] * 100)
    new = write_run(tmp_path / "new.jsonl", [GradeVerdict(score=7.5)] * 100)
    written = [tmp_path / "gate.json", tmp_path / "gate.md"]
    code, _, _ = cli("judgelm", "gate", old, new, "--max-drop", "2", "--json", written[0], "--markdown", written[1])
    [check] = json.loads(written[0].read_text(encoding="utf-8"))["checks"]
    assert (code, check["value"], check["outcome"], check["n"]) == (0, 0.5, "passed", 100)
    assert "| drop | 0.50 |" in written[1].read_text(encoding="utf-8")


def test_agreement_is_compared_with_labels(cli, tmp_path):
    pairs = tmp_path / "labelled.jsonl"
    rows = [{"id": str(n), "question": "q", "answer_1": "a", "answer_2": "b", "winner": 1} for n in range(100)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for path in ("old", "new"):
        judged = [
            Judgment(sample_id=str(n), mode="m", verdict=PairVerdict(winner=1 + (n < 10)), shown=()) for n in range(100)
        ]
        run = write_run(tmp_path / f"{path}.jsonl", [])
        run.write_text("".join(json.dumps(judgment_row(each)) + "\n" for each in judged), encoding="utf-8")
    runs = [tmp_path / "old.jsonl", tmp_path / "new.jsonl", "--labels", pairs]
    assert cli("judgelm", "gate", *runs, "--min-agreement", "0.7")[0] == 0  # 90 %
    assert cli("judgelm", "gate", *runs, "--min-agreement", "0.99")[0] == 3
    assert cli("judgelm", "gate", *runs, "--min-agreement", "0.9")[0] == 4


def test_runs_that_cannot_be_compared_are_refused(cli, tmp_path):
    old = write_run(tmp_path / "old.jsonl", labels(30, 0))
    cases = {
        "model.sha is": (write_run(tmp_path / "other.jsonl", labels(30, 0), sha="2"), "--max-drop", "3"),
        "no sample ID in common": (write_run(tmp_path / "none.jsonl", []), "--max-drop", "3"),
        "nothing to check": (old,),
        "--labels and --min-agreement require each other": (old, "--min-agreement", "0.7"),
        "the labels are no, yes; pass the one": (
            write_run(tmp_path / "b.jsonl", labels(29, 1)),
            "--max-drop",
            "3",
            "--positive",
            "good",
        ),
    }
    for finding, given in cases.items():
        code, _, errors = cli("judgelm", "gate", old, *given)
        assert (code, finding in errors) == (1, True), errors
    moved = write_run(tmp_path / "moved.jsonl", labels(30, 0))
    moved.write_text(moved.read_text(encoding="utf-8").replace('"q0"', '"q1"'), encoding="utf-8")
    code, _, errors = cli("judgelm", "gate", old, moved, "--max-drop", "3")
    assert (code, "sample 0 has another question than in the baseline" in errors) == (1, True)
