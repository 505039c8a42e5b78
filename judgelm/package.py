"""The version, example pairs, and commands for installing optional extras.

judgelm is never installed by name, because it is not on a package index and anyone could register the name there.
"""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from packaging.requirements import Requirement

VERSION = "0.1.0"

EVERYDAY_PAIRS = Path(__file__).with_name("everyday_pairs.jsonl")
"""60 questions, each with two answers, a label, and a reason, written for this project (`examples/pairs.jsonl`)."""

_ROOT = Path(__file__).parents[1]


MODULES = {
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "pillow": "PIL",
    "protobuf": "google.protobuf",
    "prometheus-client": "prometheus_client",
    "mkdocs-material": "material",
}
"""Distributions whose module has a different name."""


def extra_requirements(extra: str, distribution: str = "judgelm") -> "list[Requirement]":
    """Return the requirements of an extra on this machine, including requirements of extras that it depends on."""
    from importlib.metadata import requires  # imported here because all commands import this module

    from packaging.requirements import Requirement

    requirements: dict[str, Requirement] = {}
    for requirement in map(Requirement, requires(distribution) or []):
        marker = requirement.marker
        if marker is None or not marker.evaluate({"extra": extra}) or marker.evaluate({"extra": ""}):
            continue
        if requirement.name == distribution:
            named = [each for name in sorted(requirement.extras) for each in extra_requirements(name, distribution)]
            requirements |= {each.name: each for each in named}
        else:
            requirements[requirement.name] = requirement
    return list(requirements.values())


def extra_of(module: str, distribution: str = "judgelm") -> str | None:
    """Return the first extra that includes a module (`report` for `scipy.stats`), or None."""
    from importlib.metadata import PackageNotFoundError, metadata, requires

    from packaging.requirements import Requirement

    top = module.partition(".")[0]
    try:
        extras = metadata(distribution).get_all("Provides-Extra") or []
        requirements = [Requirement(line) for line in requires(distribution) or []]
    except PackageNotFoundError:
        return None
    for extra in extras:
        for requirement in requirements:
            name = MODULES.get(requirement.name.lower(), requirement.name.replace("-", "_"))
            if name.partition(".")[0] == top and requirement.marker and requirement.marker.evaluate({"extra": extra}):
                return str(extra)
    return None


def missing_packages(extra: str, used: "Collection[str]", *, distribution: str = "judgelm", root: Path = _ROOT) -> str:
    """Return a message that lists missing packages and the command to install them, or an empty string.

    The versions of the distributions in `used` are declared by `extra`.
    """
    from importlib.metadata import PackageNotFoundError
    from importlib.util import find_spec

    from packaging.requirements import Requirement

    missing = sorted(name for name in used if find_spec(MODULES.get(name, name.replace("-", "_"))) is None)
    if not missing:
        return ""
    try:
        declared = {each.name: each for each in extra_requirements(extra, distribution)}
    except PackageNotFoundError:
        declared = {}
    packages = " ".join(_pip_argument(declared.get(name) or Requirement(name)) for name in missing)
    return f"{', '.join(missing)} not installed; run: pip install {packages}{_pinned(root)}"


def _pinned(root: Path) -> str:
    constraints = Path("constraints.txt") if root == Path.cwd() else root / "constraints.txt"
    return f" -c {shlex.quote(str(constraints))}" if _is_clone(root) and constraints.is_file() else ""


def install_hint(extra: str, *, distribution: str = "judgelm", root: Path = _ROOT) -> str:
    """Return the command to install an extra, from a clone of judgelm or by package name.

    `root` is the folder that contains the `judgelm` package: a clone or site-packages.
    """
    if _is_clone(root):
        target = f'".[{extra}]"' if root == Path.cwd() else shlex.quote(f"{root}[{extra}]")
        return f"pip install -e {target}{_pinned(root)}"
    from importlib.metadata import PackageNotFoundError

    try:
        names = [_pip_argument(requirement) for requirement in extra_requirements(extra, distribution)]
    except PackageNotFoundError:
        names = []
    if not names:
        return f'pip install -e ".[{extra}]" in a clone of judgelm'
    return f"pip install {' '.join(names)}"


def _is_clone(root: Path) -> bool:
    """Also check the name of the project, because other packages may leave a pyproject.toml in site-packages."""
    project = root / "pyproject.toml"
    return project.is_file() and 'name = "judgelm"' in project.read_text(encoding="utf-8", errors="replace")


def _pip_argument(requirement: "Requirement") -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    if requirement.url:
        return shlex.quote(f"{requirement.name}{extras} @ {requirement.url}")
    wanted = ",".join(sorted(map(str, requirement.specifier), reverse=True))
    return shlex.quote(f"{requirement.name}{extras}{wanted}")
