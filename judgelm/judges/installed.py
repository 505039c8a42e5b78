"""Finds installed judges in the cache: the adapter by the judge's name, the base by its sha256."""

from dataclasses import dataclass
from pathlib import Path

from judgelm.engines.model_cache import cache_root, gguf_folder
from judgelm.errors import CardError, ModelError
from judgelm.judges.cards import JudgeCard, card_names, default_card, judge_card

WEIGHTS = "adapter_model.safetensors"
ADAPTER_FILES = (WEIGHTS, "adapter_config.json", "judge.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledJudge:
    """A judge whose adapter and base are on this machine.

    Attributes:
        adapter: folder of the adapter.
        base: folder of the base's checkpoint.
        version: of the adapter's distribution.
    """

    card: JudgeCard
    adapter: Path
    base: Path
    version: str

    @property
    def notice(self) -> str:
        """The judge and its licences, in a line."""
        adapter, base = self.card.adapter, self.card.base
        return (
            f"{self.card.name} {self.version}: adapter under {adapter.licence} ({adapter.terms}), base {base.name} "
            f"under {base.licence}"
        )


def named_judge(model: str | None) -> InstalledJudge | None:
    """The judge that a model's name means; None where it means a folder, a file or a hub id.

    Args:
        model: a name; a file or folder of that name comes first, as before a hub id. None is the default judge.

    Raises:
        ModelError: the judge is not installed, or not whole.
    """
    if model is None:
        return installed_judge(default_card())
    if model not in card_names() or Path(model).exists():
        return None
    return installed_judge(judge_card(model))


def installed_judge(card: JudgeCard) -> InstalledJudge:
    """The judge of a card.

    Raises:
        ModelError: adapter or base is missing or not whole.
        CardError: the adapter was trained on another base.
    """
    folder = find_adapter(card)
    if folder is None:
        raise ModelError(
            f"judge {card.name}: its adapter ({card.adapter.distribution}) is not installed; {way_out(card)}"
        )
    check_adapter(card, folder)
    base = gguf_folder(card.base.gguf_sha256)
    if not base.is_dir():
        raise ModelError(f"judge {card.name}: its base {card.base.name} is not in {cache_root()}; {way_out(card)}")
    return InstalledJudge(card=card, adapter=folder, base=base, version=folder.name)


def way_out(card: JudgeCard) -> str:
    """The command that installs a judge, for errors."""
    return f"run: judgelm judges install {card.name}"


def adapters_folder(card: JudgeCard) -> Path:
    """The folder that holds the installed adapter, in a folder that is named by its version."""
    return cache_root() / "judges" / card.name


def find_adapter(card: JudgeCard) -> Path | None:
    """Folder of a judge's adapter; None where it is not installed."""
    return next((path for path in sorted(adapters_folder(card).glob("*")) if path.is_dir()), None)


def check_adapter(card: JudgeCard, folder: Path) -> None:
    """Check that a folder holds the adapter of this card.

    Raises:
        ModelError: a file is missing.
        CardError: the adapter was trained on another base.
    """
    if missing := [name for name in ADAPTER_FILES if not (folder / name).is_file()]:
        raise ModelError(
            f"judge {card.name}: {folder} has no {' and no '.join(missing)}; install a version of "
            f"{card.adapter.distribution} that holds the trained adapter"
        )
    from judgelm.prompts.judge_card import find_card  # loads huggingface_hub, for which no list of judges waits

    own = find_card(str(folder))
    base = own.base.gguf_sha256 if own is not None and own.base is not None else "not stated"
    if base != card.base.gguf_sha256:
        raise CardError(
            f"{folder / 'judge.json'}: the adapter was trained on another base (GGUF sha256 {base[:12]}) than the card "
            f"of {card.name} names ({card.base.gguf_sha256[:12]}); install {card.adapter.distribution} "
            f"{card.adapter.version}, which belongs to this judgelm"
        )
