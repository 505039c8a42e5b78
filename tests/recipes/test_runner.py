"""Steps run in order, are skipped once they are finished, and run again when a command or an input changed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from judgelm.errors import ConfigError, InputError, RunError
from judgelm.recipes import StepError, check_inputs, plan_steps, read_recipe, run_steps

# each step appends its name to a file, so that the file says which ran; `copy` reads what `make` wrote
RECIPE = """
variables: {word: one, tail: ""}
folder: out
steps:
  - name: make
    run: [bash, -c, 'echo make >> ran; echo $0 > made.txt; echo hello', "${word}"]
    outputs: [made.txt]
  - name: copy
    run: [bash, -c, 'echo copy $@ >> ran; cp made.txt copied.txt', ignored]
    inputs: [made.txt]
    outputs: [copied.txt]
    overwrite: --again
  - name: last
    run: [bash, -c, 'echo last >> ran', "${tail}"]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(RECIPE, encoding="utf-8")


def run(restart=None, **changes):
    """Names of the steps that ran, and all that they printed."""
    Path("ran").unlink(missing_ok=True)
    written = []
    run_steps(
        read_recipe(Path("mine.yaml"), changes), restart=restart, announce=lambda step: None, write=written.append
    )
    return ran(), b"".join(written).decode()


def ran():
    return Path("ran").read_text().split("\n")[:-1] if Path("ran").exists() else []


def actions(**changes):
    return [
        (planned.step.name, planned.decision.action) for planned in plan_steps(read_recipe(Path("mine.yaml"), changes))
    ]


def change(old, new):
    text = Path("mine.yaml").read_text()
    assert old in text
    Path("mine.yaml").write_text(text.replace(old, new))


def test_all_steps_run_once_and_their_output_is_shown_and_logged():
    assert run() == (["make", "copy", "last"], "hello\n")
    log = Path("out/mine.logs/make.log").read_text()
    assert log.startswith("$ bash -c ")
    assert log.endswith("one\nhello\n")
    assert run() == ([], "")


def test_a_changed_command_runs_again_with_all_behind_it():
    run()
    assert actions(tail="x") == [("make", "skip"), ("copy", "skip"), ("last", "overwrite")]
    assert run(tail="x")[0] == ["last"]
    assert actions(word="two", tail="x") == [("make", "overwrite"), ("copy", "overwrite"), ("last", "overwrite")]
    assert run(word="two", tail="x")[0] == ["make", "copy --again", "last"]


def test_a_changed_input_runs_again_and_the_same_bytes_do_not():
    run()
    Path("made.txt").touch()
    assert run()[0] == []
    Path("made.txt").write_text("other")
    assert run()[0] == ["copy --again", "last"]


def test_an_output_that_is_gone_is_made_again():
    run()
    Path("copied.txt").unlink()
    assert actions() == [("make", "skip"), ("copy", "run"), ("last", "overwrite")]
    assert run()[0] == ["copy", "last"]


def test_a_folder_is_an_input_by_the_names_and_bytes_of_its_files():
    change("inputs: [made.txt]", "inputs: [in]")
    Path("in/deep").mkdir(parents=True)
    Path("in/deep/a").write_text("1")
    run()
    assert run()[0] == []
    Path("in/deep/a").rename("in/deep/b")
    assert run()[0] == ["copy --again", "last"]


def test_a_failed_step_stops_with_its_code_and_goes_on_later():
    change("cp made.txt copied.txt", "test -e ready && cp made.txt copied.txt || exit 7")
    with pytest.raises(
        StepError, match=r"step copy failed with exit code 7; its output is in out/mine\.logs/copy"
    ) as raised:
        run()
    assert (raised.value.exit_code, ran()) == (7, ["make", "copy"])
    assert actions() == [("make", "skip"), ("copy", "resume"), ("last", "run")]
    Path("ready").touch()
    assert run()[0] == ["copy", "last"]  # without --again: its own outputs stand there, so it goes on with them


def test_a_step_that_a_signal_ends_has_the_shells_code():
    change("cp made.txt copied.txt", "kill -9 $$")
    with pytest.raises(StepError) as raised:
        run()
    assert raised.value.exit_code == 128 + 9


def test_a_step_without_its_output_has_failed():
    change("cp made.txt copied.txt", "true")
    with pytest.raises(StepError, match=r"step copy ended well, but did not write copied\.txt"):
        run()


def test_a_step_can_be_started_over():
    run()
    assert run(restart="copy")[0] == ["copy --again", "last"]
    with pytest.raises(ConfigError, match="--restart: step 'coyp' does not exist; did you mean copy"):
        run(restart="coyp")


def test_what_was_stopped_between_two_steps_runs_the_later_ones_again():
    # the last step is finished, then an earlier one runs again and the recipe stops before the last: it is stale
    run()
    change("cp made.txt copied.txt", "cp made.txt copied.txt; exit 3")
    with pytest.raises(StepError):
        run()
    change("; exit 3", "")
    assert actions() == [("make", "skip"), ("copy", "overwrite"), ("last", "overwrite")]


def test_missing_inputs_and_programs_are_refused_before_anything_runs():
    change("inputs: [made.txt]", "inputs: [nowhere.txt]")
    recipe = read_recipe(Path("mine.yaml"), {})
    with pytest.raises(InputError, match=r"nowhere\.txt: input of step copy: no such file, and no earlier step"):
        check_inputs(recipe)
    assert [planned.decision.action for planned in plan_steps(recipe)] == [
        "run"
    ] * 3  # a dry run shows them all the same
    change("nowhere.txt", "made.txt")
    change("run: [bash, -c, 'echo last", "run: [no-such-program, 'echo last")
    with pytest.raises(ConfigError, match="step last: program no-such-program not found"):
        run()
    assert ran() == []


def test_extras_are_looked_for_before_anything_runs(monkeypatch):
    change("folder: out", "folder: out\nextras: [train]")
    monkeypatch.setattr("sys.path", [path for path in sys.path if not path.endswith("site-packages")])
    # judgelm itself stays: from a folder with its metadata alone
    metadata = Path("alone/judgelm-0.dist-info/METADATA")
    metadata.parent.mkdir(parents=True)
    metadata.write_text(
        "Metadata-Version: 2.1\nName: judgelm\nVersion: 0\nProvides-Extra: train\n"
        'Requires-Dist: trl>=1; extra == "train"\n'
    )
    sys.path.insert(0, str(Path("alone").absolute()))
    with pytest.raises(ConfigError, match=r"mine\.yaml: trl not installed; run: pip install .*\[train\]"):
        run()
    change("[train]", "[trian]")
    with pytest.raises(ConfigError, match=r"'trian' does not exist; did you mean train"):
        run()
    assert ran() == []


def test_a_torn_line_of_the_state_is_forgotten_and_a_damaged_one_refused():
    run()
    state = Path("out/mine.state.jsonl")
    whole = state.read_text()
    state.write_text(whole + '{"step": "ma')
    assert run()[0] == []
    state.write_text("{}\n" + whole)
    with pytest.raises(InputError, match=r"mine\.state\.jsonl:1: not an event of a step; remove the file"):
        run()


def test_the_state_holds_shas_and_not_the_command():
    run(word="secret-word")
    rows = [json.loads(line) for line in Path("out/mine.state.jsonl").read_text().splitlines()]
    assert [(row["step"], row["event"]) for row in rows[:3]] == [
        ("make", "started"), ("make", "finished"), ("copy", "started"),
    ]  # fmt: skip
    assert len(rows[0]["command"]) == len(rows[2]["inputs"]["made.txt"]) == 64
    assert "secret-word" not in Path("out/mine.state.jsonl").read_text()


SLOW = """
folder: out
steps:
  - name: slow
    run:
      - bash
      - -c
      - |
        trap "echo saved >> ran; exit 5" TERM
        echo started >> ran
        test -e go || { sleep 60 & wait $!; }
        echo done >> ran
"""


def test_ctrl_c_lets_the_step_save_and_a_rerun_goes_on():
    Path("mine.yaml").write_text(SLOW)
    command = [sys.executable, "-m", "judgelm", "recipe", "run", "mine.yaml"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)
    while not Path("ran").exists():
        time.sleep(0.05)
    with pytest.raises(RunError, match="another process is writing this file"):
        run_steps(read_recipe(Path("mine.yaml"), {}), announce=lambda step: None, write=lambda chunk: None)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted in step slow; run the same command again to go on" in errors
    assert ran() == ["started", "saved"]
    Path("go").touch()
    assert subprocess.run(command, check=False).returncode == 0
    assert ran() == ["started", "saved", "started", "done"]
