"""The commands in a shell snippet, and whether each could be run: options and files are looked up, nothing starts."""

import ast
import importlib
import os
import re
import runpy
import shlex
import sys
import tomllib
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import typer.main

from judgelm.cli.batch import app as batch_app
from judgelm.cli.main import app as judgelm_app
from judgelm.cli.options import parse_pairs
from judgelm.errors import ConfigError
from judgelm.modes import make_mode

ROOT = Path(__file__).parents[2]
FOLDERS = ("configs/", "train/", "serve/", "data_tools/", "benchmarks/")
FOREIGN = {
    "cat", "curl", "echo", "export", "inspect", "kill", "promptfoo", "sbatch", "alpaca_eval", "hf", "lm_eval", "docker",
    "kubectl", "sky", "git", "openssl",
}  # fmt: skip
"""Other projects' programs and the shell's own; what is neither here nor ours is a mistake."""


_LAUNCHERS = ("accelerate", "bash", "python", "pip")
_INCOMPLETE = {"MissingParameter", "BadParameter", "BadOptionUsage"}
"""Errors of commands that a sentence names without all of their values."""


class SnippetError(AssertionError):
    """What is wrong with a command, in words."""


def commands(text: str) -> list[list[str]]:
    """The simple commands of a script, as words."""
    found: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars="|;&<>()")
        words.whitespace_split = True
        words.commenters = "#"
        current: list[str] = []
        redirected = False
        for word in [*words, ";"]:
            if set(word) <= set("|;&()"):
                if current:
                    found.append(current)
                current = []
            elif set(word) <= set("<>"):
                redirected = True
                if current[-1:] in (["1"], ["2"]):  # the stream that is redirected
                    current.pop()
            elif redirected:
                redirected = False
            elif current or not re.fullmatch(r"[A-Za-z_]\w*=.*", word):
                current.append(word)
    return found


def check_shell(text: str, *, mentioned: bool = False) -> None:
    """See that every command of a script names programs, options and files that there are."""
    for words in commands(text):
        try:
            _check(words, mentioned)
        except SnippetError as error:
            raise SnippetError(f"{shlex.join(words)}: {error}") from error


def check_python(text: str) -> None:
    """See that a script is Python, and that what it takes from judgelm is there."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "judgelm":
            module = importlib.import_module(node.module)
            missing = [one.name for one in node.names if not hasattr(module, one.name)]
            if missing:
                raise SnippetError(f"{node.module} has no {', '.join(missing)}")


def _check(words: list[str], mentioned: bool) -> None:
    _check_files(words)
    program, *arguments = words
    if mentioned and not any(word.startswith("-") or "." in word for word in arguments) and program in _LAUNCHERS:
        return
    if program in ("judgelm", "judgelm-batch"):
        _check_ours(judgelm_app if program == "judgelm" else batch_app, program, arguments, mentioned)
    elif program in ("python", "python3", ".venv/bin/python"):
        _check_python_program(arguments)
    elif program == "accelerate":
        script = next((place for place, word in enumerate(arguments) if word.endswith(".py")), None)
        if arguments[:1] != ["launch"] or script is None:
            raise SnippetError("expected accelerate launch [...] SCRIPT.py")
        _check_recipe(arguments[script], arguments[script + 1 :])
    elif program == "make":
        _check_make(arguments)
    elif program == "bash":
        if len(arguments) != 1 or not (ROOT / arguments[0]).is_file():
            raise SnippetError("expected bash SCRIPT.sh")
    elif program == "pip" or words[:2] == ["uv", "pip"]:
        _check_extras(arguments)
    elif program == "mkdocs":
        if arguments[:1] not in (["build"], ["serve"]):
            raise SnippetError("expected mkdocs build or mkdocs serve")
    elif program not in FOREIGN:
        raise SnippetError("no program that this documentation knows of")


def _check_files(words: list[str]) -> None:
    for word in words:
        path = word.split("=", 1)[-1]
        if path.startswith(FOLDERS) and "*" not in path and not (ROOT / path).exists():
            raise SnippetError(f"{path} is not in the repository")


def _check_ours(app: typer.Typer, program: str, arguments: list[str], mentioned: bool) -> None:
    """With the command's own parser, which checks names, types and ranges of options."""
    command = typer.main.get_command(app)
    name = program
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        known = command.commands
        if arguments[0] not in known:
            raise SnippetError(f"{name} has no command {arguments[0]}; there are: {', '.join(known)}")
        command, name, arguments = known[arguments[0]], arguments[0], arguments[1:]
    here = Path.cwd()
    os.chdir(ROOT)  # --config is read as it is parsed
    try:
        context = command.make_context(name, list(arguments), resilient_parsing=hasattr(command, "commands"))
        if {"mode", "mode_arg"} <= context.params.keys():
            make_mode(context.params["mode"], parse_pairs(context.params["mode_arg"] or (), "--mode-arg"))
    except ConfigError as error:
        raise SnippetError(str(error)) from error
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if kinds & {"Exit", "NoArgsIsHelpError"} or (mentioned and kinds & _INCOMPLETE):
            return
        if "ClickException" in kinds:
            raise SnippetError(error.format_message()) from error
        raise
    finally:
        os.chdir(here)


def _check_python_program(arguments: list[str]) -> None:
    if arguments[:1] == ["-c"]:
        return check_python(arguments[1])
    if arguments[:1] == ["-m"] and arguments[1:2] in (["http.server"], ["judgelm"], ["pytest"]):
        return
    if arguments[:1] == ["-m"] and arguments[1:] and arguments[1].startswith("benchmarks."):
        module = arguments[1].replace(".", "/")
        _check_recipe(module if (ROOT / module).is_dir() else f"{module}.py", arguments[2:])
        return
    if not arguments or not (arguments[0].endswith(".py") or Path(ROOT, arguments[0], "__main__.py").is_file()):
        raise SnippetError("expected a script")
    if arguments[0].startswith(FOLDERS):
        _check_recipe(arguments[0], arguments[1:])


def _check_recipe(script: str, arguments: list[str]) -> None:
    given = {word.split("=")[0] for word in arguments if re.match(r"--?[a-zA-Z]", word)}
    text = _help(script)
    commands = re.search(r"\{([a-z][\w,-]*)\}\s+\.\.\.", text)  # as argparse writes them
    if arguments and re.fullmatch(r"[a-z][a-z-]*", arguments[0]):
        if commands and arguments[0] not in commands[1].split(","):
            raise SnippetError(f"{script} has no command {arguments[0]}; there are: {commands[1].replace(',', ', ')}")
        text += _help(script, arguments[0])
    unknown = sorted(given - set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", text)))
    if unknown:
        raise SnippetError(f"{script} has no option {', '.join(unknown)}")


@cache
def _help(script: str, *command: str) -> str:
    if not any(ROOT.joinpath(script, name).is_file() for name in ("", "__main__.py")):
        raise SnippetError(f"{script} is no recipe or benchmark")
    arguments, sys.argv = sys.argv, [script, *command, "--help"]
    try:
        with redirect_stdout(StringIO()) as printed:
            runpy.run_path(str(ROOT / script), run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise SnippetError(f"{script} --help ends with {ended.code}") from ended
    finally:
        sys.argv = arguments
    return printed.getvalue()


def _check_make(arguments: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.M))
    for word in arguments:
        name, is_set, _ = word.partition("=")
        if is_set and f"$({name}" not in makefile and not re.search(rf"if(n?def)? \(?\$?\(?{name}\b", makefile):
            raise SnippetError(f"the Makefile does not use {name}")
        if not is_set and name not in targets:
            raise SnippetError(f"the Makefile has no target {name}")


def _check_extras(arguments: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for word in arguments:
        for extras in re.findall(r"^(?:\.|judgelm)\[([\w,]+)\]", word):
            if unknown := set(extras.split(",")) - project["optional-dependencies"].keys():
                raise SnippetError(f"there is no extra {', '.join(sorted(unknown))}")
