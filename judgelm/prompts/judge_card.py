"""`judge.json`: the card beside a judge's weights that says how it must be prompted.

A judge asked with another template than it was trained on gives other scores without any error. So training writes
the template's id and sha256 here, and loading the model compares them with the template in use.
"""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from pydantic import ConfigDict, TypeAdapter, ValidationError

from judgelm.errors import CardError, ModelError, RunError
from judgelm.records import ThinkingMode

CARD_NAME = "judge.json"
_LENGTHS = ("max_completion_length",)
"""Facts of a training that judging reads as a number of tokens."""
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufBase:
    """The GGUF file that an adapter was trained on.

    Attributes:
        gguf_sha256: of the file, hex; its dequantised checkpoint in the cache has this name.
        file: the file's name, for messages.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    gguf_sha256: str
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The training of a judge, and how it must be prompted.

    Attributes:
        name: the judge's name among judgelm's cards; None for the user's own judges.
        base: the GGUF file that an adapter was trained on; None where the base is a folder or hub id.
        template: id of the pair template.
        template_sha: sha256 (hex) of that template's bytes when the judge was trained.
        scale: lowest and highest score the judge writes.
        step: spacing of the scores it writes; cards from before this was kept stand for whole ones.
        prompt_format: `text` or `chat` (the tokenizer's own chat template).
        reference: which prompts it saw in training: `without`, `with` or `both`.
        thinking: whether its chat template is told to have it think before it replies (`on`, `off`); `absent` tells the
            template nothing.
        window: tokens that prompt and reply had at most in training; None where that is not known.
        training: free-form facts (base model, data and its hash, hyper-parameters, versions, measured metrics).
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    template: str
    template_sha: str
    name: str | None = None
    base: GgufBase | None = None
    scale: tuple[float, float] = (1, 10)
    step: float = 1
    prompt_format: str = "text"
    reference: str = "both"
    thinking: ThinkingMode = "absent"
    window: int | None = None
    training: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what no judge has.

        Raises:
            CardError: a scale, a step, a window or a length that is impossible, or an unknown name.
        """
        low, high = self.scale
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise CardError(f"scale: {low:g} to {high:g}; it is the lowest and the highest score, such as 1 and 10")
        if not 0 < self.step <= high - low:  # nor NaN
            raise CardError(f"step: {self.step:g}; it is the spacing of scores on the scale {low:g} to {high:g}")
        lengths = {"window": self.window, **{name: self.training.get(name) for name in _LENGTHS}}
        for name, tokens in lengths.items():
            if tokens is not None and (not isinstance(tokens, int) or tokens < 1):
                raise CardError(f"{name}: {tokens!r}; it is a number of tokens, 1 or more")
        for name, known in (("prompt_format", ("text", "chat")), ("reference", ("without", "with", "both"))):
            if (value := getattr(self, name)) not in known:
                raise CardError(f"{name}: {value!r}; it is {', '.join(known)}")


_FILE = TypeAdapter(Card)


def is_gguf(model: str) -> bool:
    """True if a model's name means a GGUF file, here or on the hub."""
    return model.lower().endswith(".gguf") and not Path(model).is_dir()


def find_card(model: str, revision: str | None = None) -> Card | None:
    """The card of a model folder or hub id, or None where there is none (a model that judgelm did not train).

    A GGUF file has none.

    Raises:
        CardError: the file is there but is no card.
        ModelError: no such folder or hub id, or the hub cannot be reached and the model is not in the cache.
    """
    if is_gguf(model):
        return None
    folder = Path(model)
    if folder.is_dir():
        path = folder / CARD_NAME
        return _read(path) if path.is_file() else None
    if folder.exists() or model.startswith((".", "/", "~")) or model.count("/") != 1:
        raise ModelError(f"{model}: no such folder; a model is a local folder, a GGUF file or a hub id (owner/name)")
    try:
        return _read(Path(hf_hub_download(model, CARD_NAME, revision=revision)))
    except LocalEntryNotFoundError as error:
        if isinstance(try_to_load_from_cache(model, "config.json", revision=revision), str):
            return None  # offline, with a cached model that has no card
        raise ModelError(
            f"{model}: no such folder here, and the hub cannot be reached; check the path or the network"
        ) from error
    except EntryNotFoundError:
        return None
    except (HfHubHTTPError, HFValidationError) as error:
        first = str(error).strip().splitlines()[0]
        raise ModelError(f"{model}: no such folder here, and the hub says: {first}; check the id") from error


def _read(path: Path) -> Card:
    try:
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise CardError(f"{size:,} bytes are no card")
        return _FILE.validate_json(path.read_bytes())
    except CardError as error:
        raise CardError(f"{path}: {error}; correct the card or delete it to use the defaults") from error
    except OSError as error:
        raise CardError(f"{path}: cannot read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        field_name = ".".join(str(part) for part in first["loc"]) or "file"
        raise CardError(
            f"{path}: {field_name}: {first['msg']}; restore the card or delete it to use the defaults"
        ) from error


def write_card(folder: str | Path, card: Card) -> None:
    """Write the card into a model folder.

    Raises:
        RunError: the folder cannot be written.
    """
    path = Path(folder) / CARD_NAME
    try:
        path.write_text(json.dumps(asdict(card), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror}") from error


def check_card(card: Card, *, template: str, template_sha: str, location: str) -> None:
    """Refuse a template other than the one the judge was trained with.

    Raises:
        CardError: id or bytes differ; both sides are shown.
    """
    if card.template != template:
        raise CardError(
            f"{location}: the model was trained with template {card.template!r}, but {template!r} was asked for; "
            f"leave --template out, or pass --ignore-card if you want the mismatch"
        )
    if card.template_sha != template_sha:
        raise CardError(
            f"{location}: the model was trained with other bytes of template {template!r} "
            f"(sha {card.template_sha[:12]}, this judgelm has {template_sha[:12]}); install the judgelm version it was "
            f"trained with, train it again, or pass --ignore-card if you want the mismatch"
        )
