"""Batch runs in processes of their own, to be killed in their middle: their pairs, what they wrote, who still lives."""

import json
import sys
import time
from pathlib import Path

from judgelm.jsonl import read_jsonl
from tests.support.jsonl_files import write_rows
from tests.support.tiny_judges import word_sample

BATCH = Path(sys.executable).parent / "judgelm-batch"


def write_pairs(path, count):
    samples = (word_sample(i) for i in range(count))
    rows = ({"id": s.id, "question": s.question, "answer_1": s.answers[0], "answer_2": s.answers[1]} for s in samples)
    return write_rows(path, rows)


def judged_rows(out):
    rows = [row for _, row in read_jsonl(out)]
    assert len({row["id"] for row in rows}) == len(rows), "something was judged twice"
    return {row["id"]: row for row in rows}


def manifest(out):
    return json.loads(out.with_name(f"{out.stem}.run.json").read_text())


def wait_for_judgments(out, process, said, count):
    """Until so many are on the disk."""
    until = time.monotonic() + 240
    while time.monotonic() < until and process.poll() is None:
        if out.exists() and out.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.05)
    raise AssertionError(f"no judgments came: {said()}")


def still_alive(pids, grace_s=15):
    """Those of the processes that have not ended a little later."""
    until = time.monotonic() + grace_s
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
