"""The cache folder: `$JUDGELM_CACHE`, or `~/.cache/judgelm` by default."""

import os
from pathlib import Path

CACHE_VARIABLE = "JUDGELM_CACHE"


def cache_root() -> Path:
    """Return the cache folder."""
    return Path(os.environ.get(CACHE_VARIABLE) or "~/.cache/judgelm").expanduser()


def gguf_folder(sha256: str) -> Path:
    """Return the folder for a converted GGUF file. An existing folder is always complete."""
    return cache_root() / "gguf" / sha256
