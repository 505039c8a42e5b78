"""A disk that fills up and an input that is still being written: nothing lost, nothing doubled, by real processes."""

import json
import subprocess
import threading
import time

import pytest

from batch_runs import BATCH, judged_rows
from judgelm.runfile import read_judgments

PAIRS = 3_000


def rows(count):
    text = "it can jump over the lazy dog because "
    return [
        {"id": f"p{i}", "question": f"question {i}", "answer_1": text * (i % 5), "answer_2": f"answer {i}"}
        for i in range(count)
    ]


def lines(some):
    return "".join(json.dumps(row) + "\n" for row in some)


def command(path, out):
    script = out.parent / "script.json"
    if not script.exists():
        known = {
            f"question {i}|{row['answer_1']}|{row['answer_2']}": f"{i % 9 + 1} 5\n" for i, row in enumerate(rows(PAIRS))
        }
        script.write_text(json.dumps(known))
    return [str(BATCH), str(path), "-o", str(out), "--engine", "scripted", "--model", str(script), "--quiet"]


def content(out):
    return {name: (one.scores, one.winner, one.shown, one.failure) for name, one in read_judgments(out).items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "in.jsonl").write_text(lines(rows(PAIRS)))
    subprocess.run(command(folder / "in.jsonl", folder / "out.jsonl"), check=True, timeout=120)
    found = content(folder / "out.jsonl")
    assert len(found) == PAIRS
    assert len({scores for scores, *_ in found.values()}) == 9
    return found


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
    path, out = tmp_path / "in.jsonl", place / "out.jsonl"
    path.write_text(lines(rows(PAIRS)))
    run = command(path, tmp_path / "elsewhere.jsonl")
    run[run.index("-o") + 1] = str(out)
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


def test_an_input_that_grows_while_it_is_read_is_judged_once_and_whole(undisturbed, tmp_path):
    """The writer stops in the middle of lines; what the first run sees of it is judged, the rest by a rerun."""
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    text = lines(rows(PAIRS)).encode()
    begun, third = threading.Event(), len(text) // 3

    def write():
        with open(path, "ab", buffering=0) as file:
            file.write(text[:third])
            begun.set()
            for start in range(third, len(text), 4_999):  # which is not where lines end
                file.write(text[start : start + 4_999])
                time.sleep(0.005)

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait()
    first = subprocess.run(command(path, out), capture_output=True, text=True, check=False, timeout=120)
    assert first.returncode in (0, 1, 2), first.stderr
    writer.join()
    seen = set(judged_rows(out)) if out.exists() else set()
    again = subprocess.run(command(path, out), capture_output=True, text=True, check=False, timeout=120)
    assert again.returncode == 0, again.stderr
    assert seen <= set(judged_rows(out))
    assert content(out) == undisturbed
    assert path.read_bytes() == text
