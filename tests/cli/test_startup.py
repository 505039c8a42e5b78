"""Help, version and completion come at once: what they import, and nothing else."""

import os
import subprocess
import sys

import pytest

NOT_FOR_HELP = (
    *("torch", "transformers", "huggingface_hub", "datasets", "numpy", "pandas", "scipy", "sklearn"),
    *("statsmodels", "matplotlib", "jinja2", "yaml", "fastapi", "gradio", "ray", "vllm", "httpx"),
)
"""Not pydantic, which Typer itself loads to read options."""
HELPS = [
    ("judgelm", ["--help"]),
    ("judgelm", ["--version"]),
    ("judgelm-batch", ["--help"]),
    ("judgelm", ["eval", "--help"]),
    ("judgelm", ["report", "--help"]),
    ("judgelm", ["panel", "--help"]),
    ("judgelm", ["modes", "--help"]),
    ("judgelm", ["study", "qa", "--help"]),
    ("judgelm", ["study", "judgelm", "--help"]),
    ("judgelm", ["data", "--help"]),
    ("judgelm", ["data", "build", "--help"]),
    ("judgelm", ["data", "import", "--help"]),
    ("judgelm", ["recipe", "run", "--help"]),
    ("judgelm", ["share", "--help"]),
    ("judgelm", ["judges", "--help"]),
    ("judgelm", ["judges", "install", "--help"]),
]
LISTED = """
import sys
sys.argv = sys.argv[1:]
from judgelm.cli.{module} import main
try:
    main()
finally:
    print("loaded:", *({names!r} & sys.modules.keys()), file=sys.stderr)
"""


def run(program, arguments, **environment):
    module = "main" if program == "judgelm" else "batch"
    code = LISTED.format(module=module, names=set(NOT_FOR_HELP))
    return subprocess.run(
        [sys.executable, "-c", code, program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )


def loaded(done):
    return done.stderr.splitlines()[-1].split()[1:]


@pytest.mark.parametrize(("program", "arguments"), HELPS, ids=lambda given: given if isinstance(given, str) else None)
def test_help_imports_nothing_that_judging_needs(program, arguments):
    assert loaded(run(program, arguments)) == []


@pytest.mark.parametrize(
    ("program", "line"),
    [("judgelm", "judgelm st"), ("judgelm", "judgelm eval --pro"), ("judgelm-batch", "judgelm-batch --mode s")],
)
def test_completion_imports_nothing_that_judging_needs(program, line):
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    place = str(len(line.split()) - 1)
    done = run(program, [], **{variable: "complete_bash", "COMP_WORDS": line, "COMP_CWORD": place})
    assert done.stdout.strip()
    assert loaded(done) == []
