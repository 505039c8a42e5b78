"""Every command and Python snippet of README.md and docs/: run, in order, page by page; or parsed where it cannot be.

How blocks are marked is said in `tests/support/snippets.py`.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from batch_runs import write_pairs
from snippet_commands import check_python, check_shell, commands
from snippets import Snippet, snippets

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [README, *DOCS]

NEED_A_MODEL = {"judging.md", "security.md", "training.md"}
"""Pages whose snippets load torch: `my-judge` is the tests' tiny judge."""

NOT_RUN_OF_README = {
    "make": "minutes of training, or the tests themselves",
    "pip": "installs",
    "accelerate": "trains",
}
"""Programs of README.md's blocks, which carry no mark, and why they are only parsed."""

TIME_LIMIT_S = 300
"""Of one block, on a busy machine; it ends what hangs."""


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _to_run(page: Path) -> list[Snippet]:
    return [one for one in snippets(page) if one.kind == "run" and page != README]


RUN_PAGES = [
    pytest.param(page, id=_name(page), marks=[pytest.mark.slow] if page.name in NEED_A_MODEL else [])
    for page in DOCS
    if _to_run(page)
]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_command_and_option_and_file_exists(page):
    for one in snippets(page):
        try:
            if one.language == "bash":
                check_shell(one.text)
            elif one.language == "python":
                check_python(one.text)
            elif one.language in ("json", "yaml"):
                _parse_data(one)
        except (AssertionError, SyntaxError, ValueError, yaml.YAMLError) as error:
            raise AssertionError(f"{one.place}: {error}") from error


def _parse_data(one: Snippet) -> None:
    if one.language == "yaml":
        yaml.safe_load(one.text)
    elif one.title.endswith(".jsonl"):
        for line in one.text.splitlines():
            json.loads(line)
    else:
        json.loads(one.text)


@pytest.mark.parametrize("page", RUN_PAGES)
def test_a_page_can_be_followed(page, tmp_path, request):
    if page.name in NEED_A_MODEL:
        (tmp_path / "my-judge").symlink_to(request.getfixturevalue("tiny_judge"))
    for folder in ("configs", "data_tools", "serve", "train"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    follow(snippets(page), tmp_path)


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
        shell if one.language == "bash" else [sys.executable, "-c", one.text],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "100",
            "HF_HUB_OFFLINE": "1",
        },
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{one.place}: ends with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_readmes_commands_run_on_a_real_judge(tmp_path, tiny_judge):
    """Its blocks carry no mark: of a block, the commands are run that neither install nor train nor need GPUs."""
    for name in ("my-judge", "small-judge", "large-judge"):
        (tmp_path / name).symlink_to(tiny_judge)
    write_pairs(tmp_path / "pairs.jsonl", 6)
    labels = [{"id": str(place), "winner": 1 + place % 2} for place in range(6)]
    (tmp_path / "labelled.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in labels))
    for name, reply in (("a", "8 6"), ("b", "5 7"), ("c", "6 6")):
        shell = f"judgelm-batch pairs.jsonl -o {name}.jsonl --engine scripted --model '{reply}' --quiet"
        _run(Snippet(page=README, line=0, language="bash", title="", text=shell), tmp_path)
    ran = 0
    for one in snippets(README):
        text = one.text if one.language == "python" else _what_runs(one.text)
        if text:
            _run(replace(one, text=text), tmp_path)
            ran += 1
    assert ran >= 6


def _what_runs(text: str) -> str:
    lines = text.replace("\\\n", " ").splitlines()
    return "\n".join(line for line in lines if not any(map(_is_left_out, commands(line))))


def _is_left_out(words: list[str]) -> bool:
    return words[0] in NOT_RUN_OF_README or bool({"--gpus", "--ray", "--config"} & set(words))


def test_a_block_that_is_not_run_says_what_it_needs():
    unknown = [
        f"{one.place}: title {one.title!r}"
        for page in DOCS
        for one in snippets(page)
        if one.language in ("bash", "python") and one.title and one.kind not in ("parsed", "file")
    ]
    assert unknown == []
