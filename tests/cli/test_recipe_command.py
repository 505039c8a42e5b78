"""`judgelm recipe run`: what it prints, and how it ends."""

import pytest

RECIPE = """
variables: {word: hello}
folder: out
steps:
  - {name: first, run: [bash, -c, 'echo "$0" > first.txt; echo said', "${word}"], outputs: [first.txt]}
  - {name: second, run: [bash, -c, 'exit 6'], inputs: [first.txt]}
"""


@pytest.fixture(autouse=True)
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(RECIPE)


def test_a_failure_ends_with_the_steps_code_and_the_next_run_skips_what_is_finished(cli):
    code, out, errors = cli("judgelm", "recipe", "run", "mine.yaml")
    assert (code, out) == (6, "said\n")
    assert "step 1 of 2, first: bash -c" in errors
    assert "error: step second failed with exit code 6" in errors
    code, out, errors = cli("judgelm", "recipe", "run", "mine.yaml")
    assert (code, out) == (6, "")
    assert "step 1 of 2, first: skipped, it is finished" in errors
    assert "step 2 of 2, second: bash -c 'exit 6' (it did not finish)" in errors


def test_a_dry_run_prints_a_script_and_runs_nothing(cli, tmp_path):
    assert cli("judgelm", "recipe", "run", "mine.yaml", "--dry-run", "--set", "word=a b")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]
    cli("judgelm", "recipe", "run", "mine.yaml")
    (tmp_path / "first.txt").write_text("hello\n")
    code, out, _ = cli("judgelm", "recipe", "run", "mine.yaml", "--dry-run")
    assert code == 0
    first, skipped, second, command = out.splitlines()
    assert first == "# first: skipped, it is finished"
    assert skipped.startswith("# bash -c ")
    assert (second, command) == ("# second: resume, it did not finish", "bash -c 'exit 6'")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "word"], "--set word: expected KEY=VALUE, such as out=runs/second"),
        (["--set", "word=a", "--set", "word=b"], "--set word=...: word is given twice; keep one of them"),
        (["--set", "wrd=a"], "--set wrd: variable 'wrd' does not exist; did you mean word"),
        (["--restart", "third"], "--restart: step 'third' does not exist"),
    ],
)
def test_mistakes_end_with_1_and_a_sentence(cli, arguments, message):
    code, _, errors = cli("judgelm", "recipe", "run", "mine.yaml", *arguments)
    assert code == 1
    assert message in errors
