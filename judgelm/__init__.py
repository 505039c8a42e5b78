"""judgelm: fine-tune open judge models and run them locally. Importing this package does not load torch."""

import logging
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from judgelm.package import VERSION

if TYPE_CHECKING:
    from judgelm.judge import Judge

__version__ = VERSION
__all__ = ["Judge", "__version__"]
if find_spec("verifiers") is not None:
    __all__ += ["VerifiersJudge"]  # verifiers looks for a judge plugin among the names of this package

# count GPUs with NVML; otherwise torch initialises CUDA, and forks of this process cannot use GPUs
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

# on some CPUs, bitsandbytes (imported by peft) recommends a package that loads code from the hub
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)


def __getattr__(name: str) -> Any:
    """Load `Judge` and the plugin on first use to keep `import judgelm` fast."""
    if name == "Judge":
        from judgelm.judge import Judge

        return Judge
    if name == "VerifiersJudge":
        from judgelm.rewards.verifiers import VerifiersJudge

        return VerifiersJudge
    raise AttributeError(f"module 'judgelm' has no attribute {name!r}")
