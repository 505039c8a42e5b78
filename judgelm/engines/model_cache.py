"""judgelm's cache folder: `$JUDGELM_CACHE` or `~/.cache/judgelm`."""

import os
from pathlib import Path

CACHE_VARIABLE = "JUDGELM_CACHE"


def cache_root() -> Path:
    """Return the cache folder, which may not exist."""
    return Path(os.environ.get(CACHE_VARIABLE) or "~/.cache/judgelm").expanduser()


def gguf_folder(sha256: str) -> Path:
    """Return a GGUF file's checkpoint folder. If it exists, it is complete."""
    return cache_root() / "gguf" / sha256
