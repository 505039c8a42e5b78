"""The packages that judgelm needs on a machine that has torch, transformers and no network, as one archive.

`pack` fetches them for Python 3.12 on Linux x86-64, here, where there is a network; `unpack` puts those that the other
machine lacks into a folder, there. Wheels keep what judging and training import: pyarrow's and pandas' tests, headers
and cloud file systems are left out, which makes 30 MB of 67. Standard library only.
"""

import fnmatch
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath

ARCHIVE = "packages.tar.xz"
PYTHON = "3.12"
PACKAGES = (
    *("pydantic", "pydantic-core", "annotated-types", "typing-inspection"),  # the engine, the runner
    *("gguf", "datasketch", "confusable-homoglyphs"),  # GGUF files, duplicates, look-alike letters of prompts
    *("trl", "peft", "datasets", "pyarrow", "pandas", "python-dateutil", "six", "xxhash", "dill", "multiprocess"),
    *("typer", "rich", "shellingham", "annotated-doc", "markdown-it-py", "mdurl"),  # the command line
    *("pytest", "pytest-timeout", "pluggy", "iniconfig", "Pygments", "hypothesis", "sortedcontainers"),
)
"""Distributions that `unpack` looks for; transformers and accelerate bring what else is imported."""
_PINNED = ("trl",)
_PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17)), "manylinux2014_x86_64")
_LEFT_OUT = (
    *("*/tests/*", "pyarrow/include/*", "pyarrow/src/*", "*.pyx", "*.pxi", "*.pxd"),
    *("pyarrow/*flight*", "pyarrow/*arrow_s3*", "pyarrow/_s3fs*", "pyarrow/_gcsfs*", "pyarrow/_azurefs*"),
    *("pyarrow/_hdfs*", "pyarrow/*cpp_tests*"),
)


def pack(folder: Path, constraints: Path) -> Path:
    """Fetch the packages at the versions of `constraints` and write the archive; its path.

    Raises:
        subprocess.CalledProcessError: pip found one of them not, and says which.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as wheels:
        options = ["--no-deps", "--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"]
        options += [word for platform in _PLATFORMS for word in ("--platform", platform)]
        command = [sys.executable, "-m", "pip", "download", "-q", *options, "-c", str(constraints), "-d", wheels]
        subprocess.run([*command, *PACKAGES], check=True)
        with tarfile.open(folder / ARCHIVE, "w:xz", preset=6) as archive:
            for wheel in sorted(Path(wheels).glob("*.whl")):
                _add(archive, wheel)
    return folder / ARCHIVE


def _add(archive: tarfile.TarFile, wheel: Path) -> None:
    """Add what is kept of a wheel, below a folder named after distribution and version."""
    distribution = "-".join(wheel.name.split("-")[:2])
    with zipfile.ZipFile(wheel) as source:
        for entry in source.infolist():
            if entry.is_dir() or any(fnmatch.fnmatch(entry.filename, pattern) for pattern in _LEFT_OUT):
                continue
            member = tarfile.TarInfo(f"{distribution}/{entry.filename}")
            member.size = entry.file_size
            with source.open(entry) as content:
                archive.addfile(member, content)


def unpack(archive: Path, folder: Path) -> list[str]:
    """Extract the distributions that this Python lacks; their names with versions.

    trl is extracted wherever another version of it is installed: judgelm is written for one. All others are left to the
    machine where it has any version.
    """
    extracted: dict[str, None] = {}
    with tarfile.open(archive) as source:
        wanted: dict[str, bool] = {}
        for member in source:
            distribution, *rest = PurePosixPath(member.name).parts
            if distribution not in wanted:
                wanted[distribution] = _is_missing(*distribution.split("-"))
            if not wanted[distribution]:
                continue
            member.name = str(PurePosixPath(*rest))
            source.extract(member, folder, filter="data")
            extracted[distribution] = None
    return list(extracted)


def _is_missing(name: str, packed: str) -> bool:
    try:
        installed = version(name)
    except PackageNotFoundError:
        return True
    return name in _PINNED and installed != packed
