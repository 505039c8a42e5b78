"""What scripts read: `--json`, `--quiet`, colours, and a terminal that is none."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
MODEL = ("--engine", "scripted", "--model", "8 6")


@pytest.fixture
def judged(cli, pairs, tmp_path):
    """A run over four pairs, and labels for them."""
    out = tmp_path / "out.jsonl"
    code, _, err = cli("judgelm-batch", pairs(4), "-o", out, *MODEL)
    assert code == 0, err
    return out, pairs(4, name="labels.jsonl", winner=1)


def test_a_batch_run_gives_its_counts(cli, pairs, tmp_path):
    out, found = tmp_path / "out.jsonl", tmp_path / "found.json"
    code, printed, err = cli("judgelm-batch", pairs(3), "-o", out, *MODEL, "--quiet", "--json", found)
    assert (code, printed, err) == (0, "", "")
    counts = json.loads(found.read_text())
    assert (counts["judged"], counts["winners"], counts["failure_rate"]) == (3, {"1": 3}, 0.0)
    code, printed, _ = cli("judgelm-batch", pairs(3), "-o", out, *MODEL, "--json", "-")
    assert json.loads(printed)["skipped"] == 3


def test_counts_and_judgments_do_not_share_standard_output(cli, pairs):
    code, printed, err = cli("judgelm-batch", pairs(1), "-o", "-", *MODEL, "--json", "-")
    assert (code, printed) == (1, "")
    assert "give --json a file" in " ".join(err.split())


def test_eval_and_report_give_the_same_numbers(cli, judged, tmp_path):
    run, labels = judged
    page, found = tmp_path / "report.html", tmp_path / "report.json"
    code, printed, _ = cli("judgelm", "eval", run, "-l", labels, "--bootstrap", "100", "--json", "-")
    assert code == 0
    again = cli("judgelm", "report", run, "-l", labels, "--bootstrap", "100", "-o", page, "--json", found, "-q")
    assert again == (0, "", "")
    assert json.loads(found.read_text()) == json.loads(printed)
    assert cli("judgelm", "eval", run, "-l", labels, "--bootstrap", "100", "--quiet") == (0, "", "")


def test_a_panel_gives_its_counts(cli, judged, tmp_path):
    run, _ = judged
    other = tmp_path / "other.jsonl"
    other.write_text(run.read_text())
    (tmp_path / "other.run.json").write_text((tmp_path / "out.run.json").read_text())
    command = ("judgelm", "panel", run, other, "-o", tmp_path / "panel.jsonl", "--quiet", "--json", "-")
    code, printed, err = cli(*command)
    assert (code, err) == (0, "")
    found = json.loads(printed)
    assert (found["unanimous"], found["judges"]["out"]["verdicts"]) == (4, 4)


def test_lists_are_had_as_json(cli):
    code, printed, _ = cli("judgelm", "modes", "ssr", "--json", "-")
    assert code == 0
    [tau] = [one for one in json.loads(printed)["ssr"]["options"] if one["name"] == "tau"]
    assert (tau["flag"], tau["default"]) == ("--mode-arg tau=", 0.8)
    code, printed, _ = cli("judgelm", "data", "import", "--json", "-")
    assert "mt-bench" in json.loads(printed)


def in_a_terminal(command, **environment):
    """What a command writes where standard output and standard error are a terminal."""
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


def test_an_error_has_no_colour_without_a_terminal(cli, tmp_path):
    code, _, err = cli("judgelm-batch", tmp_path / "absent.jsonl", "-o", tmp_path / "o.jsonl", *MODEL)
    assert code == 1
    assert "\x1b" not in err
