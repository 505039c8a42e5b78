"""Names from files, users and servers never reach the terminal as control characters, markup or escapes."""

import json
import logging
import sys
import threading
import unicodedata
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from judgelm.cli import console as console_module
from judgelm.cli.console import PlainConsole, echo, escaped_diagnostics, printable
from judgelm.runs.stats import RunStats

HOSTILE = (
    "\x1b]0;PWN\x07\x1b[2J\x9b31m\u202edrow\u202c\u200b\u2028\u2029\x85\r\u2066\ufeff\U000e0041[bold red]x[/]:smile:"
)


def is_dangerous(text):
    return any(
        unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp", "Cs") and letter not in "\n\t" for letter in text
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", r"\x1b[31m"),
        ("\x9b", r"\x9b"),
        ("a\u202eb", r"a\u202eb"),
        ("\u200b\u200d\ufeff\u2060\u00ad", r"\u200b\u200d\ufeff\u2060\xad"),
        ("\u2028\u2029\x85\x0b\x0c\r", r"\u2028\u2029\x85\x0b\x0c\r"),
        ("\U000e0041\ud800\ue000\u0378", r"\U000e0041\ud800\ue000\u0378"),
        ("\u3164\u115f\u034f", r"\u3164\u115f\u034f"),
        ("[red]x[/] :smile:", "[red]x[/] :smile:"),
        ("line\n\tnext", "line\n\tnext"),
        ("Übung 模型 نموذج 모델 ❤️ 🇫🇷 a\u00a0b\u3000c", "Übung 模型 نموذج 모델 ❤️ 🇫🇷 a\u00a0b\u3000c"),
    ],
)
def test_control_and_invisible_characters_are_escaped(text, shown):
    assert printable(text) == shown


@given(st.text())
def test_escaped_text_is_safe_and_stays_the_same(text):
    assert not is_dangerous(printable(text))
    assert printable(printable(text)) == printable(text)


def test_a_console_escapes_strings_cells_titles_and_texts_and_reads_no_markup(capsys):
    table = Table(title=HOSTILE, caption=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    table.add_row(Text(HOSTILE))
    out = PlainConsole()
    out.print(table)
    out.print(HOSTILE)
    out.message(HOSTILE, label="note:", style="bold")
    echo(HOSTILE)
    shown = capsys.readouterr().out
    assert not is_dangerous(shown)
    assert "[bold red]x[/]:smile:" in shown
    assert r"\x1b]0;PWN" in shown


def test_a_cell_is_as_wide_as_its_escaped_text(capsys):
    table = Table()
    table.add_column("name")
    table.add_row("\x1b[2J")
    table.add_row("plain")
    PlainConsole().print(table)
    assert len({len(line) for line in capsys.readouterr().out.splitlines()}) == 1


def test_a_name_cannot_start_a_new_line(capsys):
    PlainConsole().message("id a\nerror: all is lost", label="note:")
    assert capsys.readouterr().out == "note: id a\n  error: all is lost\n"


@pytest.fixture
def hostile(tmp_path):
    """A file with a hostile name, whose rows have hostile ids, categories and models."""
    name = HOSTILE.replace("/", "_")
    path = tmp_path / f"{name}.jsonl"
    rows = [
        {"id": f"{HOSTILE}{index}", "question": f"q{index}{HOSTILE}", "answer_1": "a", "answer_2": "b", "winner": 1,
         "category": HOSTILE, "model_1": HOSTILE, "model_2": f"other {HOSTILE}"}
        for index in range(3)
    ]  # fmt: skip
    path.write_text(
        "".join(json.dumps(row) + "\n" for row in [*rows, {"id": HOSTILE, "category": HOSTILE, HOSTILE: 1}])
    )
    return path


def test_commands_print_hostile_names_escaped(cli, tmp_path, hostile):
    out = tmp_path / f"out{hostile.name}"
    judged = ("--engine", "scripted", "--model", "8 6")
    for code, arguments in (
        (2, ("batch", hostile, "-o", out, *judged)),
        (1, ("batch", hostile, "-o", hostile.with_suffix(""), *judged)),
        (1, ("batch", f"missing{HOSTILE}", "-o", out, *judged)),
        (1, ("eval", out, "--labels", f"missing{HOSTILE}")),
        (1, ("eval", f"--{HOSTILE}")),
        (1, (HOSTILE,)),
        (1, ("batch", hostile, "-o", out, "--mode", HOSTILE)),
        (1, ("batch", hostile, "-o", out, "--config", f"missing{HOSTILE}")),
        (2, ("eval", out, "--labels", hostile)),  # one of four rows cannot be read
        (2, ("report", out, "--samples", hostile)),
        (2, ("report", out, "--labels", hostile, "-o", tmp_path / f"{HOSTILE.replace('/', '_')}.html")),
        (0, ("data", "sample", hostile, "--size", "2", "-o", tmp_path / f"s{hostile.name}")),
        (0, ("data", "sample", hostile, "--per", "category", "1", "-o", tmp_path / f"p{hostile.name}")),
        (0, ("study", "leaderboard", out, "--rows", hostile, "--bootstrap", "100", "-o", tmp_path / "study")),
        (1, ("study", "leaderboard", f"missing{HOSTILE}", "-o", tmp_path / "study2")),
        (1, ("judges", HOSTILE)),
    ):
        exit_code, *printed = cli("judgelm", *arguments)
        assert not is_dangerous("".join(printed)), (arguments[:2], printed)
        assert exit_code == code, (arguments[:2], printed)


def test_json_output_keeps_the_ids(cli, tmp_path, hostile):
    out = tmp_path / "out.jsonl"
    cli("judgelm", "batch", hostile, "-o", out, "--engine", "scripted", "--model", "8 6")
    _, shown, _ = cli("judgelm", "report", out, "--json", "-")
    assert [row["id"] for row in json.loads(shown)] == [f"{HOSTILE}{index}" for index in range(3)]


def test_tracebacks_warnings_and_log_messages_are_escaped(monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with escaped_diagnostics():
        try:
            raise ValueError(HOSTILE)
        except ValueError as error:
            sys.excepthook(ValueError, error, error.__traceback__)
            record = logging.getLogger("x").makeRecord("x", 40, "f", 1, HOSTILE, (), sys.exc_info())
        thread = threading.Thread(target=lambda: [][int(HOSTILE)])
        thread.start()
        thread.join()
        warning = warnings.formatwarning(HOSTILE, UserWarning, "f", 1)
    shown = capsys.readouterr().err + logging.Formatter().format(record) + warning
    assert not is_dangerous(shown)
    assert shown.count("Traceback") == 3


def judged(count, seconds):
    """Return the counts of a run after `count` judgments."""
    return RunStats(judged=count, judge_s=seconds, prompt_tokens=100 * count)


def test_no_speed_is_shown_before_three_batches():
    pace = console_module.Pace(30)
    pace.see(judged(1, 134.0))
    assert pace.shown(judged(1, 134.0)) == pace.shown(judged(29, 139.0)) == "0 failed"
    # 3 x 134 s are over: 12 judged in 402 s, so 18 more take 603 s
    assert pace.shown(judged(12, 402.0)).endswith("0 failed, ETA 603 s")


@pytest.mark.parametrize(("total", "eta"), [(None, False), (100, True)])
def test_a_fast_run_has_a_speed_after_three_seconds_and_an_eta_where_the_total_is_known(total, eta):
    pace = console_module.Pace(total)
    pace.see(judged(1, 0.01))
    pace.see(judged(20, 5.0))  # not the first one
    assert pace.shown(judged(8, 2.0)) == "0 failed"
    shown = pace.shown(judged(20, 4.0))  # 80 are left, at 5 a second
    assert ("ETA 16 s" in shown, "5.0 samples/s" in shown) == (eta, True)


def test_the_eta_excludes_rows_of_earlier_sessions():
    stats = judged(10, 10.0)
    stats.skipped = 85
    pace = console_module.Pace(100)
    pace.see(judged(1, 1.0))
    assert pace.shown(stats).endswith("ETA 5 s")
