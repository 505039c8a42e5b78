"""Install a judge's adapter by copying it from a wheel or folder into the cache.

Distributions are not built, installed, or run. Only the adapter's files are read, with size limits.
"""

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from judgelm.engines.model_cache import cache_root
from judgelm.errors import InputError, ModelError, RunError
from judgelm.judges.cards import ADAPTER_FILES, WEIGHTS, NamedJudge, adapter_package, adapters_folder, check_adapter

_OPTIONAL = ("README.md", "training_questions.sha")
_TEXT_BYTES = 4 << 20
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError, OSError)
"""Errors raised when reading a damaged, encrypted, or unusually compressed zip file."""


def find_source(card: NamedJudge, source: Path | None) -> Path | str:
    """Return the folder or wheel that contains the adapter, or a requirement for the package index.

    If `source` is None, the adapter's folder in a judgelm checkout takes precedence over the index.
    """
    folder = Path(__file__).parents[2] / _in_repository(card) if source is None else source
    if (folder / "pyproject.toml").is_file():
        return folder
    if source is None:
        return f"{adapter_package(card).distribution}=={adapter_package(card).version}"
    if source.suffix == ".whl" and source.is_file():
        return source
    raise InputError(f"{source} is not a wheel or source folder for {adapter_package(card).distribution}")


def install_adapter(card: NamedJudge, source: Path | str) -> None:
    """Copy the adapter from `find_source` into the cache, replacing any earlier version."""
    with tempfile.TemporaryDirectory(prefix="judgelm-adapter-") as scratch:
        if isinstance(source, str):
            try:
                wheel = download_wheel(source, Path(scratch))
            except ModelError as error:
                way_out = f"judgelm judges install {card.name} --from {_in_repository(card)}"
                raise ModelError(f"{error}; in a clone of the judgelm repository, run: {way_out}") from error
            version, files = _read_wheel(card, wheel)
            if hashlib.sha256(files[WEIGHTS]).hexdigest() != adapter_package(card).weights_sha256:
                raise ModelError(f"{source}: the sha256 of {WEIGHTS} does not match the card; nothing was installed")
        else:
            version, files = _read_folder(card, source) if source.is_dir() else _read_wheel(card, source)
        staged = Path(scratch) / "staged" / version
        staged.mkdir(parents=True)
        for name, content in files.items():
            (staged / name).write_bytes(content)
        check_adapter(card, staged)
        _replace(adapters_folder(card), staged.parent)


def _replace(target: Path, staged: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as partial:
            fresh = shutil.copytree(staged, Path(partial) / target.name)
            if target.exists():
                shutil.rmtree(target)
            fresh.rename(target)
    except OSError as error:
        raise RunError(f"{error.filename or cache_root()}: cannot write: {error.strerror or error}") from error


def _read_folder(card: NamedJudge, folder: Path) -> tuple[str, dict[str, bytes]]:
    project_file = folder / "pyproject.toml"
    try:
        project = tomllib.loads(project_file.read_text(encoding="utf-8")).get("project", {})
        name, stated = str(project.get("name", "")), project.get("version", adapter_package(card).version)
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"{project_file}: cannot read: {error}") from error
    version = _checked_version(card, name, stated, project_file)
    module = folder / _module(card)
    paths = {path.name: path for path in module.glob("*") if path.is_file() and not path.is_symlink()}
    sizes = {name: path.stat().st_size for name, path in paths.items()}
    return version, _read_files(card, module, sizes, lambda name: paths[name].read_bytes())


def _read_wheel(card: NamedJudge, wheel: Path) -> tuple[str, dict[str, bytes]]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            prefix = f"{_module(card)}/"
            sizes = {entry.filename.removeprefix(prefix): entry.file_size for entry in archive.infolist()}
            folders = {match[1] for name in sizes if (match := re.match(r"([^/]+)\.dist-info/", name))}
            if len(folders) != 1:
                raise ModelError(f"{wheel}: found {len(folders)} *.dist-info folders; expected one")
            if len(sizes) < len(archive.infolist()):
                raise ModelError(f"{wheel}: contains a duplicate file name; build or download the wheel again")
            [folder] = folders
            name, _, stated = folder.rpartition("-")
            version = _checked_version(card, name, stated, wheel)
            return version, _read_files(card, wheel, sizes, lambda name: archive.read(prefix + name))
    except ZIP_ERRORS as error:
        raise ModelError(f"{wheel}: could not read the wheel: {error}; build or download it again") from error


def _read_files(
    card: NamedJudge, source: Path, sizes: Mapping[str, int], read: Callable[[str], bytes]
) -> dict[str, bytes]:
    limits = dict.fromkeys((*ADAPTER_FILES, *_OPTIONAL), _TEXT_BYTES)
    limits[WEIGHTS] = round(adapter_package(card).megabytes * 1e6)
    if missing := [name for name in ADAPTER_FILES if name not in sizes]:
        raise ModelError(f"judge {card.name}: {source} does not contain {' and '.join(missing)}; use another version")
    for name in limits.keys() & sizes.keys():
        if sizes[name] > limits[name]:
            raise ModelError(f"{source}: {name} has {sizes[name]:,} bytes; expected at most {limits[name]:,}")
    return {name: read(name) for name in limits if name in sizes}


def _checked_version(card: NamedJudge, name: str, version: object, place: Path) -> str:
    if canonicalize_name(name) != canonicalize_name(adapter_package(card).distribution):
        raise ModelError(f"{place}: expected {adapter_package(card).distribution}, got {name!r}")
    try:
        return str(Version(str(version)))
    except InvalidVersion as error:
        raise ModelError(f"{place}: {version!r} is not a valid version") from error


def _module(card: NamedJudge) -> str:
    return adapter_package(card).distribution.replace("-", "_")


def _in_repository(card: NamedJudge) -> Path:
    return Path("examples") / card.name.replace("-", "_")


def download_wheel(requirement: str, folder: Path) -> Path:
    """Download a wheel without its dependencies into an empty folder.

    `requirement` is `name==version`, optionally followed by ` --hash=sha256:HEX`, which pip checks.
    """
    name = requirement.split()[0].replace("==", " ")
    purpose = f"downloading {name}"
    if importlib.util.find_spec("pip") is None:
        raise ModelError(f"{purpose}: {sys.executable} has no pip; run: {sys.executable} -m ensurepip")
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{requirement}\n", encoding="utf-8")
    options = ("--no-deps", "--only-binary=:all:", "--requirement", str(requirements), "--dest", str(folder))
    # avoids a second copy of a gigabyte in pip's cache
    quiet = ("--no-cache-dir", "--no-input", "--disable-pip-version-check", "--quiet")
    command = [sys.executable, "-m", "pip", "download", *options, *quiet]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        raise ModelError(f"{purpose}: pip failed: {' '.join((errors or lines or ['no message'])[-3:])}")
    [wheel] = folder.glob("*.whl")
    return wheel
