"""Check that optional packages are installed and recent enough."""

import importlib.util
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from judgelm.errors import ConfigError, MissingExtraError
from judgelm.package import install_hint


def require(module: str, *, extra: str) -> None:
    """Check that a module is installed, with an error that names the package to install.

    Raises:
        MissingExtraError: the module is not installed.
    """
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(f"{module} is not installed; run: {install_hint(extra)}")


def require_local() -> None:
    """Check that torch is installed, without which no model runs in this process.

    Raises:
        MissingExtraError: it is not.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError(
            f"torch is not installed, which runs models on this machine; run: {install_hint('local')}\n"
            "A judge behind a server of OpenAI's protocol needs none: "
            "--engine openai --engine-arg base_url=URL --model NAME"
        )


def require_version(distribution: str) -> None:
    """Check that the installed version is not too old.

    A newer version than judgelm was tested with is not refused here; `judgelm doctor` names it.

    Raises:
        ConfigError: the installed version is below the lowest that judgelm declares.
    """
    try:
        installed, declared = version(distribution), requires("judgelm") or []
    except PackageNotFoundError:
        return  # judgelm runs from a folder that was never installed, or `require` has the error
    for requirement in map(Requirement, declared):
        lowest = [part for part in requirement.specifier if part.operator == ">="]
        if requirement.name == distribution and not all(part.contains(installed, prereleases=True) for part in lowest):
            raise ConfigError(
                f"{distribution} {installed} is installed, and judgelm needs {requirement.specifier}; "
                f"run: pip install '{distribution}{requirement.specifier}'"
            )
