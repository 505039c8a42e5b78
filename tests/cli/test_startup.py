"""Help, version and completion are fast: what they import, and what they complete."""

import json
import subprocess
import sys

NOT_FOR_HELP = (
    *("torch", "transformers", "huggingface_hub", "datasets", "numpy", "pandas", "scipy", "sklearn"),
    *("statsmodels", "matplotlib", "jinja2", "yaml", "fastapi", "gradio", "ray", "vllm", "httpx"),
)
"""Without pydantic, which Typer loads."""
LISTED = """
import contextlib, io, json, os, sys
from judgelm.cli import batch, main
for line, environment in json.loads(sys.argv[1]):
    os.environ.update(environment)
    sys.argv = line.split()
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        (main if sys.argv[0] == "judgelm" else batch).main()
    print(json.dumps([printed.getvalue(), sorted({names!r} & sys.modules.keys())]))
"""


def run(*calls):
    """Run each call in one process; return its output, and the modules loaded so far.

    Args:
        calls: command line and what is added to the environment.
    """
    command = [sys.executable, "-c", LISTED.format(names=set(NOT_FOR_HELP)), json.dumps(calls)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_help_has_no_slow_imports():
    commands = (
        *("--help", "--version", "eval --help", "report --help", "study panel --help", "study qa --help"),
        *("study judgelm --help", "data --help", "data build --help", "data import --help", "judges modes --help"),
        *("train --help", "export --help", "judges --help", "judges install --help"),
    )
    lines = ["judgelm-batch --help", *(f"judgelm {words}" for words in commands)]
    for line, (printed, loaded) in zip(lines, run(*((line, {}) for line in lines)), strict=True):
        assert printed, line
        assert not loaded, line


def test_completion_has_no_slow_imports():
    offered = {
        "judgelm d": "doctor data",
        "judgelm study cal": "calibration",
        "judgelm eval --proto": "--protocol",
        "judgelm eval --protocol p": "pandalm",
        "judgelm judges modes m": "multi multimodal",
        "judgelm-batch --mode s": "single ssr",
        "judgelm-batch --reasons c": "close",
        "judgelm-batch pai": "",  # empty, so that bash completes file names
    }
    assert completed(*offered) == {line: (sorted(words.split()), []) for line, words in offered.items()}


def test_completion_of_names_in_files():
    offered = {
        "judgelm serve --engine s": "scripted",
        "judgelm data import mm": "mmlu-pro mm-vet",
        "judgelm-batch --mode ssr --mode-arg tau": "tau=",
        "judgelm-batch --template judgelm-c": "judgelm-chat judgelm-compact",
    }
    assert {line: words for line, (words, _) in completed(*offered).items()} == {
        line: sorted(words.split()) for line, words in offered.items()
    }


def completed(*lines):
    """Return bash's completions of each line's last word, and the modules loaded for them."""
    calls = []
    for line in lines:
        variable = f"_{line.split()[0].upper().replace('-', '_')}_COMPLETE"
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        calls.append((line.split()[0], {variable: "complete_bash"} | words))
    return {line: (sorted(text.split()), loaded) for line, (text, loaded) in zip(lines, run(*calls), strict=True)}
