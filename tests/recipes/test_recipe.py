"""A recipe file is read strictly, and its variables are filled in word by word."""

import re
import shlex
from pathlib import Path

import pytest

from judgelm.errors import ConfigError
from judgelm.recipes import read_recipe
from tests.support.snippet_commands import check_shell

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "configs/recipes").glob("*.yaml"))
GOOD = """
variables: {out: runs/a, rows: "${out}/rows.jsonl", count: 3}
folder: ${out}
steps:
  - name: make
    run: python make.py --out "${rows}" --count ${count}
    outputs: ["${rows}"]
  - name: use
    run: [python, use.py, "a b", 0.5]
    inputs: ["${rows}"]
    overwrite: --overwrite
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_variables_are_filled_in_and_numbers_become_words(write):
    make, use = read_recipe(write(GOOD), {}).steps
    assert make.command == ("python", "make.py", "--out", "runs/a/rows.jsonl", "--count", "3")
    assert (make.outputs, use.inputs) == (("runs/a/rows.jsonl",), ("runs/a/rows.jsonl",))
    assert (use.command, use.overwrite) == (("python", "use.py", "a b", "0.5"), ("--overwrite",))


def test_a_value_with_spaces_stays_one_word(write):
    recipe = read_recipe(write(GOOD), {"out": "my runs"})
    assert recipe.steps[0].command[3] == "my runs/rows.jsonl"
    assert recipe.state_path == Path("my runs/mine.state.jsonl")
    assert recipe.log_path(recipe.steps[0]) == Path("my runs/mine.logs/make.log")


def test_every_recipe_has_the_folder_of_the_cache(write, monkeypatch):
    monkeypatch.setenv("JUDGELM_CACHE", "/somewhere")
    recipe = read_recipe(write("folder: a\nsteps: [{name: b, run: 'echo ${judgelm_cache}/gguf'}]"), {})
    assert recipe.steps[0].command == ("echo", "/somewhere/gguf")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("folder: ${out}", "", "folder: missing; add it"),
        ("folder: ${out}", "folder: ${no}", "folder: variable 'no' does not exist; available: judgelm_cache, out"),
        ("variables: {", "variables: {x: [1], ", "variables.x: expected a text or a number"),
        ("variables: {", "variables: {judgelm_cache: a, ", "variables.judgelm_cache: every recipe has this one"),
        ("steps:", "step:", "step: unknown field; available: variables, folder, extras, steps"),
        ("inputs:", "input:", "step use.input: unknown field; available: name, run, inputs, outputs, overwrite"),
        ("name: use", "name: make", "two steps are named make; give each its own name"),
        ("name: use", "name: Use it", "step Use it.name: 'Use it': a name is lower-case letters"),
        ("0.5]", "true]", "step use.run: expected a command, as a text or a list of words; quote words"),
        ('"${rows}" --count', '"${rows} --count', "step make: run: no closing quotation; close the quotation mark"),
        ("--count ${count}", "| tee log", "step make: run: | is for a shell, and a command is run without one"),
        ("--count ${count}", "2>&1", "step make: run: 2>&1 is for a shell"),
        ("--count ${count}", "&& true", "step make: run: && is for a shell"),
        ('[python, use.py, "a b", 0.5]', "[]", "step use: run is empty; give a command"),
    ],
)
def test_mistakes_are_refused_by_their_place(write, old, new, message):
    assert old in GOOD
    path = write(GOOD.replace(old, new))
    with pytest.raises(ConfigError) as raised:
        read_recipe(path, {})
    assert str(raised.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a mapping with folder and steps"),
        ("- a", "expected a mapping with folder and steps"),
        ("steps: []\nfolder: a", "steps: empty; add a step"),
        ("folder: a\nsteps: [a]", "steps[0]: expected a mapping with name and run"),
        ("folder: a\nsteps: a", "steps: input should be a valid list"),
        ("folder: 1\nsteps: [{name: b, run: a}]", "folder: input should be a valid string"),
        ("a: [", "not YAML in UTF-8: "),
    ],
)
def test_what_is_no_recipe_is_refused(write, text, message):
    with pytest.raises(ConfigError, match=rf"mine\.yaml: {re.escape(message)}"):
        read_recipe(write(text), {})


def test_an_unknown_variable_of_the_command_line_is_refused_with_the_closest(write):
    with pytest.raises(ConfigError, match="--set ous: variable 'ous' does not exist; did you mean out"):
        read_recipe(write(GOOD), {"ous": "b"})


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_recipes_of_the_repository_name_files_and_commands_that_exist(path):
    for step in read_recipe(path, {}).steps:
        check_shell(shlex.join(step.command))
        for name in step.inputs:
            assert not name.startswith(("configs/", "examples/")) or (ROOT / name).is_file()
