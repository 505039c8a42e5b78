"""Check that optional packages are installed and recent enough."""

import importlib.util
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from judgelm.errors import ConfigError, MissingExtraError
from judgelm.package import install_hint


def require(module: str, *, extra: str) -> None:
    """Raise a MissingExtraError if the module is not installed."""
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(f"{module} is not installed; run: {install_hint(extra)}")


def require_local() -> None:
    """Raise a MissingExtraError if torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError(
            f"torch is not installed; to run models locally, run: {install_hint('local')}\n"
            "OpenAI-compatible servers do not require torch: "
            "use --engine openai --engine-arg base_url=URL --model NAME"
        )


def require_version(distribution: str) -> None:
    """Raise a ConfigError if an installed package is older than judgelm requires."""
    try:
        installed, declared = version(distribution), requires("judgelm") or []
    except PackageNotFoundError:
        return  # judgelm runs from source, or the package is missing, which `require` reports
    for requirement in map(Requirement, declared):
        lowest = [part for part in requirement.specifier if part.operator == ">="]
        if requirement.name == distribution and not all(part.contains(installed, prereleases=True) for part in lowest):
            way_out = f"run: pip install '{distribution}{requirement.specifier}'"
            raise ConfigError(f"{distribution} {installed} is too old; {way_out}")
