"""The machine: processor, memory, CUDA devices and their driver."""

import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

INSTRUCTION_SETS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "i8mm",
    "sve",
    "bf16",
)
"""Those that decide how fast matrix products are, by the kernel's names (x86-64, then Arm)."""

_DRIVER_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor; `usable_cores` are the logical cores that this process may run on."""

    model: str
    physical_cores: int
    logical_cores: int
    usable_cores: int
    instruction_sets: tuple[str, ...]
    memory_free_bytes: int
    memory_total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice:
    """A device that torch sees."""

    name: str
    compute_capability: str
    memory_free_bytes: int
    memory_total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """All that could run a judge. `driver` is the NVIDIA driver's version, `cuda_build` the CUDA torch is built for."""

    cpu: Cpu
    cuda: tuple[CudaDevice, ...]
    driver: str | None
    cuda_build: str | None

    @property
    def finding(self) -> str | None:
        """A GPU that torch does not use, and the way out."""
        if self.driver is None or self.cuda:
            return None
        if self.cuda_build is None:
            return (
                f"NVIDIA driver {self.driver} is installed, but torch is a CPU build; take a CUDA build: "
                "https://pytorch.org/get-started/locally"
            )
        return (
            f"NVIDIA driver {self.driver} is installed, but torch (CUDA {self.cuda_build}) sees no device; look at "
            "CUDA_VISIBLE_DEVICES, and whether nvidia-smi states a CUDA version as high as torch's"
        )


def look_at_devices(*, with_torch: bool = True) -> Devices:
    """The devices of this machine; without torch no CUDA devices."""
    cuda, build = _cuda() if with_torch else ((), None)
    return Devices(cpu=_cpu(), cuda=cuda, driver=_driver(), cuda_build=build)


def parse_cpuinfo(text: str) -> tuple[str, tuple[str, ...]]:
    """Model name and instruction sets from the text of /proc/cpuinfo, which psutil does not read."""
    stated = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    flags = stated.get("flags", stated.get("Features", "")).split()
    return stated.get("model name") or stated.get("CPU part", ""), tuple(
        name for name in INSTRUCTION_SETS if name in flags
    )


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
    import torch

    gpus = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
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


def _driver() -> str | None:
    """The NVIDIA driver's version as nvidia-smi states it, or None where there is no such thing."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DRIVER_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.split()
    return lines[0] if done.returncode == 0 and lines else None
