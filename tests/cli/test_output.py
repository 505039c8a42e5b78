"""`--json`, `--quiet` and colours; the frozen heap during a run."""

import gc
import json
import os
import pty
import re
import subprocess
import sys

from judgelm.cli.run import run
from judgelm.judge import Judge
from judgelm.runs.batch import BatchJob

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9]m")


def test_a_batch_run_gives_its_counts_and_a_quiet_one_says_nothing_else(batch, pairs, tmp_path):
    counts_file = tmp_path / "found.json"
    code, printed, err = batch(pairs(3), "--quiet", "--json", counts_file)
    assert (code, printed, err) == (0, "", "")
    counts = json.loads(counts_file.read_text())
    assert (counts["judged"], counts["winners"], counts["failure_rate"]) == (3, {"1": 3}, 0.0)
    code, printed, err = batch(pairs(3), "--quiet", "--json", "-")
    assert (json.loads(printed)["skipped"], err) == (3, "")


def in_a_terminal(command, **environment):
    """Return the output of a command in a terminal."""
    ours, theirs = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", **environment}
    with subprocess.Popen([sys.executable, *command], stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the terminal is closed at its other end
                break
            if not piece:
                break
            written += piece
        process.wait()
    os.close(ours)
    return written.decode()


def test_colours_are_a_terminals_and_go_with_no_color():
    help_ = ("-m", "judgelm", "--help")
    assert COLOUR.search(in_a_terminal(help_))
    assert not COLOUR.search(in_a_terminal(help_, NO_COLOR="1"))
    assert "\x1b" not in in_a_terminal(help_, TERM="dumb")
    assert "\x1b" not in subprocess.run([sys.executable, *help_], capture_output=True, text=True, check=True).stdout


def test_a_run_searches_nothing_of_the_start_up_for_garbage(pairs, tmp_path):
    frozen = []
    job = BatchJob(inputs=(str(pairs(3)),), out=str(tmp_path / "out.jsonl"))
    with Judge("8 6", engine="scripted") as judge:
        run(job, judge, judge.mode("pair"), quiet=True, look=lambda judgment: frozen.append(gc.get_freeze_count()))
    assert len(frozen) == 3
    assert min(frozen) > 10_000
    assert gc.get_freeze_count() == 0
