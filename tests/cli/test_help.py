"""`--help` of every command: examples that parse, exit codes, and two lengths."""

import inspect
import re

import pytest
import typer.main

from judgelm.cli.batch import app as batch_app
from judgelm.cli.main import app
from tests.support.snippet_commands import check_shell

ROOT = typer.main.get_command(app)
LEAVES = {
    **{name: command for name, command in ROOT.commands.items() if not hasattr(command, "commands")},
    **{f"data {name}": command for name, command in ROOT.commands["data"].commands.items()},
    "judges": ROOT.commands["judges"],
    **{f"judges {name}": command for name, command in ROOT.commands["judges"].commands.items()},
    **{f"study {name}": command for name, command in ROOT.commands["study"].commands.items()},
}
WIDTH = 78


def help_text(command):
    return inspect.cleandoc(command.help or "") + "\n\n" + (command.epilog or "")


def examples(text):
    """Return the commands in a help text."""
    lines = [re.sub(r"^\s*Example:\s*", "", line).strip() for line in text.splitlines()]
    return [re.sub(r"\s{2,}\(.*\)$", "", line) for line in lines if re.match(r"judgelm", line)]


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_examples_that_parse(name):
    lines = examples(help_text(LEAVES[name]))
    assert lines, f"judgelm {name} --help has no example"
    for line in lines:
        check_shell(line)


def test_the_programs_own_examples_parse():
    for text in (help_text(ROOT), help_text(typer.main.get_command(batch_app))):
        for line in examples(text):
            check_shell(line)


@pytest.mark.parametrize(
    "name", [name for name in LEAVES if not name.startswith("study") and name not in ("serve", "web")]
)
def test_examples_fit_80_columns_and_exit_codes_are_listed(name):
    text = help_text(LEAVES[name])
    assert all(len(line) <= WIDTH - 2 for line in examples(text)), "a terminal of 80 columns would break the line"
    assert "Exit codes: 0" in " ".join(text.split())


@pytest.mark.parametrize("name", [name for name, command in LEAVES.items() if len(command.params) > 17])
def test_long_help_shows_the_essential_options_and_help_all_every_option(cli, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    short, full = (cli("judgelm", *name.split(), option)[1] for option in ("--help", "--help-all"))
    assert len(short.splitlines()) < 75
    assert max(map(len, full.splitlines())) <= 80
    options = [each for each in LEAVES[name].params if each.param_type_name == "option" and not each.secondary_opts]
    assert [flag for option in options for flag in option.opts if flag not in full] == []
    assert "Show all" in short
