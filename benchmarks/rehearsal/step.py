"""One step of the rehearsal, in a process of its own: what it needs, its commands, and what they took."""

import argparse
import importlib
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

import torch

from benchmarks.dummy_model import SHAPES, Shape, build_dummy_model, made_up_pairs
from benchmarks.rehearsal.plan import STEPS, Step
from benchmarks.step_runner import ROOT, record
from judgelm.machine import look_at_devices

_TINY = Shape(hidden=128, inner=384, layers=2, heads=4, vocabulary=4096)  # bitsandbytes wants widths that 64 divides
_ATTENTION_SAYS, _TINY_SAYS = 200.0, 20.0
"""Times the dummy's own attention, over all layers, so that P(first better) depends on the prompt.

At 200 it ranges over 0.003 (214M) and 0.001 (1B), in bfloat16, which other batches move by 0.00008 at the most, and the
line ends behind the scores but for 2e-7 of the sampled replies (temperature 0.7). The tiny judge is 128 wide and noisy:
at 40 it goes on in 0.4 % of the replies, at 150 in 5 %.
"""
SIZES = {"judge": "7B", "train": "214M", "large": "13B"}
"""Full fine-tuning keeps up to four checkpoints, each of 3 GB with 214M, and of 16 GB with 1B."""
TEMPLATE = "judgelm-v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a step runs, and its folder, which is empty at its beginning and removed at its end."""

    device: str
    tiny: bool
    folder: Path
    materials: Path
    save: Callable[[Mapping[str, Any]], None]
    commands: list[str] = field(default_factory=list)

    @property
    def dtype(self) -> str:
        """bfloat16; float32 where the CPU only rehearses."""
        return "bfloat16" if self.device == "cuda" else "float32"

    @property
    def gpus(self) -> int:
        """Number of GPUs; on a CPU 2, the processes that stand in for them."""
        return torch.cuda.device_count() if self.device == "cuda" else 2

    def run(self, *command: object, environment: Mapping[str, str] | None = None) -> None:
        """Run a command as a user would, and note it.

        Raises:
            SystemExit: it failed; its own output is in the step's.
        """
        shown = shlex.join([*(f"{name}={value}" for name, value in (environment or {}).items()), *map(str, command)])
        for name, place in ((self.folder, "STEP"), (self.materials, "MODELS"), (ROOT, "."), (sys.executable, "python")):
            shown = shown.replace(str(name), place)
        self.commands.append(shown)
        self.save({"commands": self.commands})
        print(f"$ {self.commands[-1]}", flush=True)
        variables = os.environ | self.variables() | (environment or {})
        code = subprocess.run([*map(str, command)], cwd=ROOT, env=variables, check=False).returncode
        if code:
            sys.exit(f"exit code {code}: {self.commands[-1]}")

    def variables(self) -> dict[str, str]:
        """What a CPU needs besides: one thread for each process, and DeepSpeed without a search for devices."""
        return {} if self.device == "cuda" else {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}

    def base(self, use: str) -> Path:
        """The folder of a model of random weights that writes score lines; made once for all steps.

        Args:
            use: `judge`, `train` or `large`; on a small device all are tiny.
        """
        name = "tiny" if self.tiny else SIZES[use]
        folder = self.materials / name
        if not folder.is_dir():
            unfinished = folder.with_name(f"{name}.new")
            shutil.rmtree(unfinished, ignore_errors=True)
            shape = _TINY if self.tiny else SHAPES[name]
            pairs = list(made_up_pairs(200))
            model, tokenizer = build_dummy_model(pairs, shape, getattr(torch, self.dtype), self.device)
            says = (_TINY_SAYS if self.tiny else _ATTENTION_SAYS) / shape.layers
            with torch.no_grad():
                for layer in model.model.layers:
                    layer.self_attn.o_proj.weight.mul_(says)
            model.save_pretrained(unfinished)
            tokenizer.save_pretrained(unfinished)
            del model
            unfinished.rename(folder)
            if self.device == "cuda":
                torch.cuda.empty_cache()
        return folder

    def pairs(self, count: int) -> Path:
        """A file of made-up pairs with scores, which are drawn from nothing that the answers say."""
        file = self.folder / f"pairs-{count}.jsonl"
        with file.open("w", encoding="utf-8") as out:
            for pair in made_up_pairs(count, most_words=40 if self.tiny else 200):
                scores = [2 + int(pair.id) % 3, 7 - int(pair.id) % 2]
                row = {"id": pair.id, "question": pair.question, "answers": pair.answers, "scores": scores}
                out.write(json.dumps(row) + "\n")
        return file


def check(holds: bool, finding: str) -> None:
    """End the step unless a condition holds.

    Raises:
        SystemExit: with the finding.
    """
    if not holds:
        sys.exit(f"check failed: {finding}")


def obstacle(step: Step, device: str) -> str | None:
    """The state of a step that cannot run here; None where it can."""
    missing = [name for name in dict.fromkeys(step.packages) if importlib.util.find_spec(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    enough = step.on_cpu if device == "cpu" else gpus >= step.gpus
    return None if enough else f"needs {step.gpus} GPU{'s' if step.gpus > 1 else ''}"


def facts_of(step: Step) -> dict[str, Any]:
    """Devices and versions that a step's figures hold for."""
    devices = look_at_devices()
    names = [gpu.name for gpu in devices.cuda] or [devices.cpu.model]
    return {"machine": names, "versions": versions_of(step.packages), "cuda": torch.version.cuda}


def versions_of(packages: Iterable[str]) -> dict[str, str | None]:
    """Versions by module; None for one that is not installed."""
    distributions = packages_distributions()
    versions: dict[str, str | None] = {}
    for package in dict.fromkeys(packages):
        try:
            versions[package] = version(distributions.get(package, [package])[0])
        except PackageNotFoundError:
            versions[package] = None
    return versions


@contextmanager
def peak_memory(setting: Setting) -> Iterator[None]:
    """Record the peak of the GPUs' memory in use, once a second, while the context lasts; needs `nvidia-smi`."""
    stop, query = threading.Event(), ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    peak = [0]

    def watch() -> None:
        while not stop.wait(1.0):
            used = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
            peak[0] = max([peak[0], *(int(number) for number in used if number.isdigit())])

    thread = threading.Thread(target=watch, daemon=True)
    if setting.device == "cuda" and shutil.which("nvidia-smi"):
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if peak[0]:
            setting.save({"peak_gpu_gib": round(peak[0] / 1024, 1)})


def main() -> None:
    """Run the step that the arguments name."""
    parser = argparse.ArgumentParser()
    for name in ("step", "file", "device", "tiny"):
        parser.add_argument(name)
    options = parser.parse_args()
    step, file = STEPS[options.step], Path(options.file).resolve()
    if state := obstacle(step, options.device):
        record(file, options.step, {"state": state})
        return
    folder = file.parent / "work" / options.step
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    setting = Setting(
        device=options.device, tiny=bool(int(options.tiny)), folder=folder, materials=file.parent / "materials",
        save=lambda entries: record(file, options.step, entries),
    )  # fmt: skip
    setting.save(facts_of(step))
    module, _, function = step.call.partition(".")
    with peak_memory(setting):
        getattr(importlib.import_module(f"benchmarks.rehearsal.{module}"), function)(setting, **step.options)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
