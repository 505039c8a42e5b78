"""What the shell offers: Typer's completion in a real bash, and what ours adds."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from judgelm.cli.options import MODE_NAMES
from judgelm.modes import MODES

BIN = Path(sys.executable).parent
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def completed(program, *words):
    """The proposals for the last word, as bash gets them."""
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    asked = {variable: "complete_bash", "COMP_WORDS": " ".join((program, *words)), "COMP_CWORD": str(len(words))}
    module = "main" if program == "judgelm" else "batch"
    code = f"import sys; sys.argv[0] = {program!r}; from judgelm.cli.{module} import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_the_names_of_the_modes_are_those_there_are():
    assert tuple(MODES) == MODE_NAMES


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("judgelm", "d"), ["doctor", "data"]),
        (("judgelm", "study", "cal"), ["calibration"]),
        (("judgelm", "eval", "--proto"), ["--protocol"]),
        (("judgelm", "eval", "--protocol", "p"), ["pandalm"]),
        (("judgelm", "modes", "m"), ["multi", "multimodal"]),
        (("judgelm", "data", "import", "mm"), ["mmlu-pro", "mm-vet"]),
        (("judgelm", "serve", "--engine", "s"), ["scripted"]),
        (("judgelm-batch", "--mode", "s"), ["single", "ssr"]),
        (("judgelm-batch", "--mode", "ssr", "--mode-arg", "tau"), ["tau="]),
        (("judgelm-batch", "--reasons", "c"), ["close"]),
        (("judgelm-batch", "--template", "judgelm-c"), ["judgelm-chat", "judgelm-compact"]),
        (("judgelm-batch", "pai"), []),  # nothing of ours, so that bash goes on to file names
    ],
)
def test_what_can_be_named_is_offered(words, offered):
    assert sorted(completed(*words)) == sorted(offered)


def test_the_script_of_show_completion_works_in_bash(tmp_path):
    script = f"""
        export PATH={BIN}:$PATH _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1
        source <(judgelm --show-completion bash)
        complete -p judgelm
        COMP_WORDS=(judgelm study ss) COMP_CWORD=2
        _judgelm_completion judgelm ss study  # as bash calls it
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    registered, offered = done.stdout.splitlines()
    assert "-o default" in registered  # where nothing is offered, bash completes file names
    assert offered == "ssr", done.stderr


def test_install_completion_writes_where_bash_reads_it(tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    code = "import sys; sys.argv[0] = 'judgelm-batch'; from judgelm.cli.batch import main; main()"
    subprocess.run([sys.executable, "-c", code, "--install-completion", "bash"], env=environment, check=True)
    assert "judgelm-batch.sh" in (tmp_path / ".bashrc").read_text()
    assert "_JUDGELM_BATCH_COMPLETE" in (tmp_path / ".bash_completions/judgelm-batch.sh").read_text()
