"""Every command and Python snippet of README.md and docs/: run, in order, page by page; or parsed where it cannot be.

How blocks are marked is said in `tests/support/snippets.py`. Blocks of a client's page are run in that client's own
environment by `tests/conformance/test_integrations.py`.
"""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.support.batch_runs import write_pairs
from tests.support.processes import serving
from tests.support.snippet_commands import SnippetError, check_python, check_shell, commands
from tests.support.snippets import Snippet, named_commands, snippets

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PROGRAM = Path(sys.executable).with_name("judgelm")
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [README, *DOCS]

NEED_A_MODEL = {"data.md", "judging.md", "modes.md", "python.md", "rewards.md", "security.md", "training.md"}
"""Pages whose snippets load torch: `my-judge` is the tests' tiny judge."""

MANY_COMMANDS = {"command-line.md", "quick-start.md", "reports.md", "studies.md"}
"""Pages that start a dozen processes and more."""

NOT_RUN_OF_README = {
    "make": "minutes of training", "pip": "installs", "install": "downloads a judge",
    "accelerate": "trains a model of seven billion parameters", "train": "minutes of training",
    "OPENAI_API_KEY=unused": "is for the client that follows", "--gpus": "needs GPUs",
    "my-model": "needs a model with a chat template", "my-reward-model": "needs a reward model",
    "answers.jsonl": "needs criteria", "agents.jsonl": "needs trajectories",
    "--votes": "needs a judge that reasons first",
}  # fmt: skip
"""Words of README.md's commands, whose blocks carry no mark, and why they are only parsed."""

PANDALM = ROOT.parent / "shared/data/pandalm/testset-v1.json"
ADDRESS = re.compile(r"http://(?:127\.0\.0\.1|localhost):8000/v1")

TIME_LIMIT_S = 300
"""Of one block, on a busy machine; it ends what hangs."""


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


RUN_PAGES = [
    pytest.param(page, id=_name(page), marks=[pytest.mark.slow] if page.name in NEED_A_MODEL | MANY_COMMANDS else [])
    for page in DOCS
    if any(snippet.kind in ("run", "provided") for snippet in snippets(page))
]


@pytest.fixture(scope="session")
def served():
    """The address of a real server whose judge writes `8 6` whatever it is asked."""
    command = (PROGRAM, "serve", "8 6", "--engine", "scripted", "--port", 0)
    with serving(*command, cwd=ROOT, env=_environment()) as address:
        yield address


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_command_and_option_and_file_exists(page):
    for one in snippets(page):
        try:
            if one.language == "bash":
                check_shell(one.text)
            elif one.language == "python":
                check_python(one.text)
            elif one.language == "yaml":
                yaml.safe_load(one.text)
            elif one.language == "json":
                for text in one.text.splitlines() if one.title.endswith(".jsonl") else [one.text]:
                    json.loads(text)
        except (AssertionError, SyntaxError, ValueError, yaml.YAMLError) as error:
            raise AssertionError(f"{one.place}: {error}") from error


SCRIPTS = ("train", "serve", "data_tools", "benchmarks")
NAMING = {
    "pages": [*PAGES, *(ROOT / name for name in ("PAPERS.md", "CONTRIBUTING.md", "benchmarks/README.md"))],
    "configurations": [path for path in (ROOT / "configs").rglob("*") if path.is_file()],
    "scripts": [path for name in SCRIPTS for path in (ROOT / name).rglob("*.py")],
    "help": [*(ROOT / "judgelm/cli").rglob("*.py")],
}


@pytest.mark.parametrize("kind", ["pages", "configurations", "help", pytest.param("scripts", marks=pytest.mark.slow)])
def test_every_command_that_is_named_exists(kind):
    log = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
    paragraph = re.search(r"Commands of benchmarks that are no longer .*?\n\n", log, re.DOTALL)
    deleted = re.findall(r"`([a-z_.]+)`", paragraph[0])
    assert not [name for name in deleted if (ROOT / "benchmarks" / f"{name.replace('.', '/')}.py").exists()]
    calls = [
        (path, call)
        for path in sorted(NAMING[kind])
        for call in named_commands(path)
        if not any(call.startswith(f"python -m benchmarks.{name}") for name in deleted)
    ]
    assert len(calls) > 60
    errors = []
    for path, call in calls:
        try:
            check_shell(call, mentioned=True)
        except (SnippetError, ValueError) as error:
            errors.append(f"{path.relative_to(ROOT)}: {error}")
    assert errors == []


def test_what_measured_the_figures_can_be_called_so():
    page = ROOT / "docs/benchmarks.md"
    calls = re.findall(r"(?<!`)`((?:make|python|bash|pytest) [^`]+)`", page.read_text(encoding="utf-8"))
    assert len(calls) > 15
    for call in calls:
        if call.startswith("pytest"):
            assert (ROOT / call.split()[1]).is_file(), call
        else:
            check_shell(call)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", RUN_PAGES)
def test_a_page_can_be_followed(page, tmp_path, request):
    if page.name in NEED_A_MODEL:
        (tmp_path / "my-judge").symlink_to(request.getfixturevalue("tiny_judge"))
    for folder in ("configs", "data_tools", "serve", "train"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    follow([_provided(one, tmp_path, request) for one in snippets(page)], tmp_path)


def _provided(one: Snippet, folder: Path, request: pytest.FixtureRequest) -> Snippet:
    """The block with what it needs, where the tests have it; its title is then no reason any more."""
    if one.kind != "provided":
        return one
    if "PandaLM" in one.title:
        if not PANDALM.is_file():
            return one
        (folder / PANDALM.name).symlink_to(PANDALM)
        return replace(one, title="")
    return replace(one, title="", text=ADDRESS.sub(request.getfixturevalue("served"), one.text))


def follow(blocks: list[Snippet], folder: Path) -> None:
    """Write the files, run the commands, compare what they print where the page says it."""
    printed = None
    for one in blocks:
        if one.kind == "file":
            (folder / one.title).write_text(one.text, encoding="utf-8")
        elif one.kind == "run":
            printed = _run(one, folder)
        elif one.kind == "output":
            assert printed is not None, f"{one.place}: no block before it was run"
            assert printed.strip() == one.text.strip(), f"{one.place}: the block before it prints something else"


def _run(one: Snippet, folder: Path) -> str:
    shell = ["bash", "-euo", "pipefail", "-c", one.text]
    done = subprocess.run(
        shell if one.language == "bash" else [sys.executable, "-c", one.text], cwd=folder, env=_environment(),
        capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{one.place}: ends with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "COLUMNS": "100", "HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "unused"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_readmes_commands_run_on_a_real_judge(tmp_path, tiny_judge):
    """Its blocks carry no mark: run are the Python code, and all commands but those of NOT_RUN_OF_README."""
    (tmp_path / "my-judge").symlink_to(tiny_judge)
    rows = [json.loads(line) for line in write_pairs(tmp_path / "pairs.jsonl", 6).read_text().splitlines()]
    labels = [{"id": row["id"], "winner": 1 + place % 2} for place, row in enumerate(rows)]
    for name, table in (("pairs.csv", rows), ("labelled.csv", labels)):
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, table[0])
            writer.writeheader()
            writer.writerows(table)
    programs = []
    for one in snippets(README):
        if one.language == "python":
            _run(replace(one, text=one.text.replace("Judge()", 'Judge("my-judge")')), tmp_path)
            programs.append("python")
            continue
        for words in commands(one.text):
            if not NOT_RUN_OF_README.keys().isdisjoint(words):
                continue
            if words[:2] == ["judgelm", "serve"]:
                with serving(PROGRAM, *words[1:], "--port", 0, cwd=tmp_path, env=_environment()) as address:
                    _run(replace(one, text=f"curl -sf {address}/models | grep -q judgelm"), tmp_path)
            else:
                _run(replace(one, text=shlex.join(words)), tmp_path)
            programs.append(" ".join(words[:2]))
    assert programs == ["python", "judgelm-batch pairs.csv", "judgelm report", "judgelm serve"]
    assert (tmp_path / "report.html").is_file()


def test_a_block_that_is_not_run_says_what_it_needs():
    code = [one for page in DOCS for one in snippets(page) if one.language in ("bash", "python") and one.title]
    unknown = [f"{one.place}: title {one.title!r}" for one in code if one.kind not in ("parsed", "provided", "file")]
    assert unknown == []
