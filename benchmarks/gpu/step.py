"""One step of `benchmarks.gpu`, in a process of its own."""

import importlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.step_runner import record

Save = Callable[[Mapping[str, object]], None]
"""Adds entries to the step's results at once, so that a step that is stopped leaves what it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Device and output folder of a step; `shape` is the part of its name behind the dash."""

    device: str
    tiny: bool
    shape: str
    scratch: Path

    @property
    def dtype(self) -> torch.dtype:
        """bfloat16; float32 where the CPU only rehearses."""
        return torch.bfloat16 if self.device == "cuda" else torch.float32


def main() -> None:
    """Run the step that the arguments name."""
    step, file, device, tiny = sys.argv[1:]
    module, _, shape = step.partition("-")
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device; --device cpu --tiny runs the steps on the CPU")
    with tempfile.TemporaryDirectory() as scratch:
        setting = Setting(device=device, tiny=bool(int(tiny)), shape=shape, scratch=Path(scratch))
        importlib.import_module(f"benchmarks.gpu.{module}").measure(
            setting, lambda entries: record(Path(file), step, entries)
        )


if __name__ == "__main__":
    main()
