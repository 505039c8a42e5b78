"""The dependencies audited: what is imported is declared, what is declared is needed, no licence binds users."""

import ast
import re
import sys
import tomllib
from email.message import Message
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.processes import run_command

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_USERS = ("local", "parquet", "xlsx", "report", "studies", "data", "train", "ray", "serve", "web")
"""The extras that users install here; vLLM's build for tests is none of theirs."""
NOT_IMPORTED = {
    "bitsandbytes": "transformers loads it for quantised weights and optimisers",
    "confusable-homoglyphs": "its table of confusables is read as a file",
    "protobuf": "transformers reads tokenizer.model with it",
    "sentencepiece": "transformers reads tokenizer.model with it",
    "uvloop": "uvicorn's faster loop",
}
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINS = [Requirement(line) for line in CONSTRAINTS if not line.startswith("#")]
NO_EXTRA = {"extra": ""}
COPYLEFT = re.compile(r"\b[AL]?GPL|GNU (?:Affero |Lesser )?General Public", re.IGNORECASE)


def requirements(*extras):
    """The names of what the package and the extras need."""
    listed = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    return {canonicalize_name(Requirement(line).name) for line in listed} - {"judgelm"}


def imported():
    """Distributions that the code imports, and a place of each."""
    of_module = packages_distributions()
    found = {}
    for folder in ("judgelm", "train", "serve", "data_tools"):
        own = {"judgelm", "benchmarks"} if folder == "data_tools" else {"judgelm"}  # benchmarks/ is not installed
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    names = [one.name for one in node.names]
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module]
                else:
                    continue
                for top in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - own:
                    providers = {canonicalize_name(one).removesuffix("-cpu") for one in of_module.get(top, [top])}
                    found.setdefault(frozenset(providers), f"{path.relative_to(ROOT)}:{node.lineno}: {top}")
    return found


def test_what_is_imported_is_declared_and_what_is_declared_is_imported_or_has_its_reason():
    places, declared = imported(), requirements(*FOR_USERS, "vllm")
    names = declared | {"inspect-ai", "inspect_ai", "lighteval", "verifiers"}  # in whose processes judgelm runs
    assert [place for providers, place in places.items() if not providers & names] == []
    assert declared - frozenset().union(*places) == set(NOT_IMPORTED)


def test_no_licence_in_what_users_install_asks_for_their_code():
    """Down to the last dependency's own; what is told by its metadata alone."""
    seen, waiting, bound = set(), sorted(requirements(*FOR_USERS)), []
    while waiting:
        name = waiting.pop()
        try:
            metadata = distribution(name).metadata
        except PackageNotFoundError:  # needed on another system or Python
            continue
        if name in seen:
            continue
        seen.add(name)
        if COPYLEFT.search(licence(metadata)):
            bound.append(f"{name}: {licence(metadata)}")
        needed = map(Requirement, metadata.get_all("Requires-Dist") or [])
        waiting += [
            canonicalize_name(each.name) for each in needed if not each.marker or each.marker.evaluate(NO_EXTRA)
        ]
    assert len(seen) > 100
    assert bound == []
    assert not seen & {"numba", "llvmlite", "gdown"}  # hundreds of megabytes for nothing that judgelm uses


def licence(metadata: Message) -> str:
    """What a distribution says of its licence in a word; a text in full names others' licences, too."""
    classifiers = [line for line in metadata.get_all("Classifier") or [] if line.startswith("License")]
    return (
        metadata.get("License-Expression")
        or "; ".join(classifiers)
        or (metadata.get("License") or "").strip().partition("\n")[0]
    )


def test_every_pin_is_to_be_had_for_the_python_of_debian_12():
    """By the metadata of what is installed in the pinned version."""
    refusing, looked_at = [], 0
    for pin in PINS:
        try:
            installed = distribution(pin.name)
        except PackageNotFoundError:  # of other systems, and of mutation testing
            continue
        if pin.specifier.contains(Version(installed.version).public):
            looked_at += 1
            if not SpecifierSet(installed.metadata["Requires-Python"] or "").contains("3.11.2"):
                refusing.append(f"{pin}: Python {installed.metadata['Requires-Python']}")
    assert looked_at > 200
    assert refusing == []


def test_the_image_pins_a_vllm_with_which_trl_trains_and_judgelm_judges():
    [pin] = [pin for pin in PINS if pin.name == "vllm"]
    [version] = [part.version for part in pin.specifier]
    ranges = [Requirement(line) for line in (requires("trl") or []) + PROJECT["optional-dependencies"]["vllm"]]
    allowed = [wanted for wanted in ranges if wanted.name == "vllm"]
    assert len(allowed) == 2  # TRL refuses others before training, so that `use_vllm` of grpo_7b.yaml is an error
    assert all(wanted.specifier.contains(version) for wanted in allowed)


@pytest.mark.slow
def test_the_extras_of_the_gpu_image_resolve_with_its_pins(tmp_path):
    [extras] = re.findall(r"(?m)^ARG EXTRAS=(\S+)$", (ROOT / "serve/containers/cuda.Containerfile").read_text("utf-8"))
    chosen = [word for extra in extras.split(",") for word in ("--extra", extra)]
    command = [Path(sys.executable).with_name("uv"), "pip", "compile", "pyproject.toml", "-c", "constraints.txt"]
    command += [
        *chosen, "--python-platform", "x86_64-manylinux_2_28", "--python-version", "3.11", "-o", tmp_path / "resolved",
    ]  # fmt: skip
    run_command(*command, cwd=ROOT)
    pinned = {pin.name: str(pin.specifier) for pin in PINS}
    resolved = dict(line.split("==") for line in (tmp_path / "resolved").read_text().splitlines() if "==" in line)
    for name in ("vllm", "trl", "torch", "transformers"):
        assert f"=={resolved[name]}" == pinned[name]


def test_nothing_is_pinned_twice_or_for_no_range():
    names = [canonicalize_name(pin.name) for pin in PINS]
    assert sorted(names) == sorted(set(names))
    pinned = dict(zip(names, PINS, strict=True))
    extras = [line for extra in FOR_USERS for line in PROJECT["optional-dependencies"][extra]]
    for wanted in map(Requirement, [*PROJECT["dependencies"], *extras]):
        if wanted.name == "judgelm":
            continue
        [version] = [part.version for part in pinned[canonicalize_name(wanted.name)].specifier]
        assert wanted.specifier.contains(version), wanted
