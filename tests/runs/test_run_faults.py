"""Disks that fill up, inputs still being written, files torn or damaged: nothing lost, nothing doubled, all said."""

import json
import subprocess

import pytest

from judgelm.errors import InputError, RunError
from judgelm.records import Judgment, PairVerdict
from judgelm.reports.study import write_study
from judgelm.runs.run_files import RunFiles, iter_judgments, latest_judgments, read_judgments
from judgelm.studies.result import Column, StudyResult, Table
from tests.support.batch_runs import BATCH, judged_rows
from tests.support.jsonl_files import write_rows

PAIRS = 3_000


def rows(count):
    text = "it can jump over the lazy dog because "
    return [
        {"id": f"p{i}", "question": f"question {i}", "answer_1": text * (i % 5), "answer_2": f"answer {i}"}
        for i in range(count)
    ]


def command(path, out, folder):
    script = folder / "script.json"
    if not script.exists():
        known = (f"question {i}|{row['answer_1']}|{row['answer_2']}" for i, row in enumerate(rows(PAIRS)))
        script.write_text(json.dumps({pair: f"{i % 9 + 1} 5\n" for i, pair in enumerate(known)}))
    return [str(BATCH), str(path), "-o", str(out), "--engine", "scripted", "--model", str(script), "--quiet"]


def content(out):
    return {
        name: (judgment.scores, judgment.winner, judgment.shown, judgment.failure)
        for name, judgment in read_judgments(out).items()
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    write_rows(folder / "in.jsonl", rows(PAIRS))
    subprocess.run(command(folder / "in.jsonl", folder / "out.jsonl", folder), check=True, timeout=120)
    judgments = content(folder / "out.jsonl")
    assert len(judgments) == PAIRS
    assert len({scores for scores, *_ in judgments.values()}) == 9
    return judgments


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 400 KB, and a way to make it larger."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a small file system")
    yield place, lambda: subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_up_in_the_middle_loses_nothing(small_disk, undisturbed, tmp_path):
    place, enlarge = small_disk
    path, out = write_rows(tmp_path / "in.jsonl", rows(PAIRS)), place / "out.jsonl"
    run = command(path, out, tmp_path)
    full = subprocess.run(run, capture_output=True, text=True, check=False, timeout=120)
    assert full.returncode == 1
    assert "No space left on device" in full.stderr
    assert "run the same command again" in full.stderr
    written = out.read_bytes().count(b"\n")
    assert 100 < written < PAIRS, "it was to fill up in the middle"
    enlarge()
    again = subprocess.run(run, capture_output=True, text=True, check=False, timeout=120)
    assert again.returncode == 0, again.stderr
    assert len(judged_rows(out)) == PAIRS
    assert content(out) == undisturbed


RUN = {"fingerprint": {"model": "m"}, "provenance": {"model": "m"}, "inputs": []}


@pytest.fixture
def finished(tmp_path):
    """A run of two judgments."""
    files = RunFiles(tmp_path / "out.jsonl", **RUN)
    files.start_session({})
    for name in ("1", "2"):
        files.write(Judgment(sample_id=name, mode="pair", verdict=PairVerdict(winner=1), shown=()))
    files.close()
    return files.out


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ('{"failure": null}', "is missing"),
        ('{"id": ["1"], "failure": null}', "is missing"),
        ('{"id": "1"}', "is missing"),
        ('{"id": "1", "failure', "not valid JSON"),
        ("[]", "expected a JSON object"),
    ],
)
def test_damage_in_a_run_is_refused_with_its_place_and_the_file_stays_free(finished, line, finding):
    whole = finished.read_text()
    finished.write_text(line + "\n" + whole)
    with pytest.raises(InputError, match=rf"out\.jsonl:1: .*{finding}"):
        RunFiles(finished, **RUN)
    finished.write_text(whole)  # mended by hand
    again = RunFiles(finished, **RUN)
    assert len(again.finished) == 2
    again.close()


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": ["pair"]},
        {"verdict": {"kind": "pair"}},
        {"verdict": {"kind": ["pair"], "winner": 1}},
        {"shown": [{"order": [0], "text": "", "scores": None, "failure": None, "cut": [], "distribution": 3}]},
        {"shown": "text"},
        {"failure": "engine"},
        {"id": 1},
    ],
)
def test_a_line_that_is_no_judgment_is_refused_with_its_place(finished, change):
    lines = finished.read_text().splitlines()
    finished.write_text(lines[0] + "\n" + json.dumps(json.loads(lines[1]) | change) + "\n")
    for read in (iter_judgments, latest_judgments):
        with pytest.raises(InputError, match=r"out\.jsonl:2: "):
            list(read(finished))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"fingerprint": [], "provenance": {}, "sessions": []}',
        '{"fingerprint": {"input": [1]}, "provenance": {}, "sessions": []}',
        '{"fingerprint": {}, "provenance": {}, "sessions": 3}',
    ],
)
def test_a_manifest_that_is_none_is_refused_and_no_judgment_touched(finished, text):
    judged = finished.read_bytes()
    finished.with_name("out.run.json").write_text(text)
    with pytest.raises(RunError, match=r"out\.run\.json: not a valid judgelm manifest .*restore it"):
        RunFiles(finished, **RUN)
    assert finished.read_bytes() == judged


def test_a_study_on_a_full_disk_is_said_and_written_whole_later(small_disk):
    place, enlarge = small_disk
    rows = tuple((str(number), "x" * 400) for number in range(2_000))
    columns = (Column(key="n", heading="N"), Column(key="text", heading="Text"))
    table = Table(name="t", title="T", columns=columns, rows=rows)
    result = StudyResult(study="s", title="S", protocol="P.", tables=(table,))
    with pytest.raises(RunError, match="study: cannot write the study: No space left on device"):
        write_study(result, place / "study")
    assert not [path for path in (place / "study").rglob("*") if path.is_file()], "half a study"
    enlarge()
    written = write_study(result, place / "study")
    assert (place / "study/tables/t.csv").read_text().count("\n") == 2_001
    assert all(path.stat().st_size for path in written)
