"""The folder of what judgelm makes of model files: `$JUDGELM_CACHE`, else `~/.cache/judgelm`. Light: loads no model."""

import os
from pathlib import Path

CACHE_VARIABLE = "JUDGELM_CACHE"


def cache_root() -> Path:
    """The cache's folder, which need not exist."""
    return Path(os.environ.get(CACHE_VARIABLE) or "~/.cache/judgelm").expanduser()


def gguf_folder(sha256: str) -> Path:
    """Folder of the dequantised checkpoint of a GGUF file; where it exists, it is whole.

    Args:
        sha256: of the file, hex.
    """
    return cache_root() / "gguf" / sha256
