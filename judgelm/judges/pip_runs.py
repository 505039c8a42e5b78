"""Runs this Python's pip."""

import importlib.util
import subprocess
import sys

from judgelm.errors import ModelError


def run_pip(*arguments: str, purpose: str) -> None:
    """Run pip with these arguments, without questions.

    Args:
        arguments: of pip, its command first.
        purpose: begins the error.

    Raises:
        ModelError: this Python has no pip, or pip fails; with pip's own last words.
    """
    if importlib.util.find_spec("pip") is None:
        raise ModelError(f"{purpose}: {sys.executable} has no pip; run: {sys.executable} -m ensurepip")
    command = [sys.executable, "-m", "pip", *arguments, "--no-input", "--disable-pip-version-check", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        raise ModelError(f"{purpose}: pip failed: {' '.join((errors or lines or ['without a message'])[-3:])}")
