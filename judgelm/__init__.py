"""judgelm: fine-tune open judge models and run them locally. Importing this package loads no torch."""

import logging
import os
from typing import TYPE_CHECKING, Any

from judgelm.package import VERSION

if TYPE_CHECKING:
    from judgelm.judge import Judge

__version__ = VERSION
__all__ = ["Judge", "__version__"]

# torch then counts GPUs through NVML: its own count initialises CUDA, and forks of this process could not use a GPU.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

# peft imports it, and on some CPUs it asks for a package that would load code from the hub
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)


def __getattr__(name: str) -> Any:
    """Load `Judge` when it is first asked for, so that `import judgelm` stays light."""
    if name == "Judge":
        from judgelm.judge import Judge

        return Judge
    raise AttributeError(f"module 'judgelm' has no attribute {name!r}")
