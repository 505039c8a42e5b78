"""The same input gives the same judgments: whatever the batch, the order, and however often the run was killed.

The transformers engine in float32, compared by id; what is killed is a real process.
"""

import json
import os
import random
import signal
import subprocess
import time

import pytest

from judgelm.runs.run_files import read_judgments
from tests.support.batch_runs import BATCH
from tests.support.in_process import exit_code
from tests.support.jsonl_files import write_rows

PAIRS = 80
WORDS = ["a", "big", "red", "fox", "jumps", "over", "the", "lazy", "dog", "because", "it", "can"]


@pytest.fixture(scope="module")
def input_rows():
    rng = random.Random(0)
    text = lambda most: " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))  # noqa: E731
    return [{"id": f"p{i}", "question": text(12), "answer_1": text(60), "answer_2": text(60)} for i in range(PAIRS)]


def arguments(model, path, out, *options):
    return [
        str(path), "-o", str(out), "--model", str(model),
        "--template", "judgelm-compact", "--both-orders", "--max-failure-rate", "1", "--quiet", *options,
    ]  # fmt: skip


def run(model, path, out, *options):
    """What must not depend on how a run went: everything but the session's own provenance."""
    assert exit_code("judgelm-batch", *arguments(model, path, out, *options)) == 0
    return {
        name: [(shown.order, shown.text, shown.scores, shown.failure) for shown in judgment.shown]
        for name, judgment in read_judgments(out).items()
    }


@pytest.fixture(scope="module")
def undisturbed(tiny_model, input_rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    judgments = run(tiny_model, write_rows(folder / "in.jsonl", input_rows), folder / "out.jsonl")
    assert len({text for prompts in judgments.values() for _, text, *_ in prompts}) > PAIRS // 2
    return judgments


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--max-num-batched-tokens", "1"), marks=pytest.mark.slow),
        ("--max-num-batched-tokens", "5000", "--max-num-seqs", "7"),
        (),
    ],
)
def test_neither_the_order_of_the_input_nor_the_batch_budget_matters(
    tiny_model, input_rows, undisturbed, tmp_path, options
):
    rows = input_rows if options else random.Random(1).sample(input_rows, len(input_rows))
    assert run(tiny_model, write_rows(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl", *options) == undisturbed


STOPPED = [pytest.param(each, marks=pytest.mark.distributed) for each in (signal.SIGTERM, signal.SIGINT)]


@pytest.mark.parametrize("how", [signal.SIGKILL, *STOPPED])
def test_a_killed_run_goes_on_where_it_was(tiny_model, input_rows, undisturbed, tmp_path, how):
    path, out = write_rows(tmp_path / "in.jsonl", input_rows), tmp_path / "out.jsonl"
    slow = ("--max-num-batched-tokens", "1", "--max-num-seqs", "1")  # there must be time to hit it in its middle
    command = [BATCH, *arguments(tiny_model, path, out, *slow)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    until = time.monotonic() + 100
    while time.monotonic() < until and (not out.exists() or out.read_bytes().count(b"\n") < PAIRS // 4):
        time.sleep(0.005)
    os.kill(process.pid, how)
    _, err = process.communicate(timeout=60)
    done_before = out.read_bytes().count(b"\n")
    assert PAIRS // 4 <= done_before < PAIRS, "the run was not killed in its middle"
    if how != signal.SIGKILL:
        assert process.returncode == 130
        assert b"run the same command again to resume" in err
    assert run(tiny_model, path, out) == undisturbed
    lines = out.read_bytes().splitlines()
    assert len({json.loads(line)["id"] for line in lines}) == len(lines) == PAIRS, "something was judged twice"
    outcomes = [session["outcome"] for session in json.loads((tmp_path / "out.run.json").read_text())["sessions"]]
    assert outcomes == ["running" if how == signal.SIGKILL else "interrupted", "finished"]
