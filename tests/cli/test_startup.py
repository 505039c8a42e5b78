"""Help, version and completion come at once: what they import and what the shell is offered, and nothing else."""

import os
import subprocess
import sys

import pytest

from judgelm.cli.options import MODE_NAMES
from judgelm.modes import MODES

NOT_FOR_HELP = (
    *("torch", "transformers", "huggingface_hub", "datasets", "numpy", "pandas", "scipy", "sklearn"),
    *("statsmodels", "matplotlib", "jinja2", "yaml", "fastapi", "gradio", "ray", "vllm", "httpx"),
)
"""Not pydantic, which Typer itself loads to read options."""
LISTED = """
import sys
sys.argv = sys.argv[1:]
from judgelm.cli.{module} import main
try:
    main()
finally:
    print("loaded:", *({names!r} & sys.modules.keys()), file=sys.stderr)
"""


def run(program, *arguments, **environment):
    """What a program prints, and which of those modules it has loaded."""
    code = LISTED.format(module="main" if program == "judgelm" else "batch", names=set(NOT_FOR_HELP))
    command = [sys.executable, "-c", code, program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | environment)
    return done.stdout, done.stderr.splitlines()[-1].split()[1:]


@pytest.mark.parametrize(
    "line",
    [
        "judgelm --help",
        "judgelm --version",
        "judgelm-batch --help",
        "judgelm eval --help",
        "judgelm report --help",
        "judgelm panel --help",
        "judgelm modes --help",
        "judgelm study qa --help",
        "judgelm study judgelm --help",
        "judgelm data --help",
        "judgelm data build --help",
        "judgelm data import --help",
        "judgelm recipe run --help",
        "judgelm share --help",
        "judgelm judges --help",
        "judgelm judges install --help",
    ],
)
def test_help_imports_nothing_that_judging_needs(line):
    printed, loaded = run(*line.split())
    assert printed
    assert loaded == []


def test_the_names_of_the_modes_are_those_there_are():
    assert tuple(MODES) == MODE_NAMES


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("judgelm d", "doctor data"),
        ("judgelm study cal", "calibration"),
        ("judgelm eval --proto", "--protocol"),
        ("judgelm eval --protocol p", "pandalm"),
        ("judgelm modes m", "multi multimodal"),
        ("judgelm-batch --mode s", "single ssr"),
        ("judgelm-batch --reasons c", "close"),
        ("judgelm-batch pai", ""),  # nothing of ours, so that bash goes on to file names
    ],
)
def test_what_can_be_named_is_offered_and_nothing_that_judging_needs_imported(line, offered):
    assert completed(line) == (sorted(offered.split()), [])


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("judgelm serve --engine s", "scripted"),
        ("judgelm data import mm", "mmlu-pro mm-vet"),
        ("judgelm-batch --mode ssr --mode-arg tau", "tau="),
        ("judgelm-batch --template judgelm-c", "judgelm-chat judgelm-compact"),
    ],
)
def test_names_of_what_must_be_read_are_offered(line, offered):
    assert completed(line)[0] == sorted(offered.split())


def completed(line):
    """The proposals for the last word as bash gets them, and the modules loaded for them."""
    program = line.split()[0]
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    printed, loaded = run(program, **{variable: "complete_bash"}, **words)
    return sorted(printed.split()), loaded
