"""The cards in a judge's folder: `judge.json` describes the prompt, and `README.md` is the model card for the hub.

A template that differs from the training template would silently change a judge's scores. When a judge is loaded, the
template's ID and SHA-256 are therefore compared with the card.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from socket import gaierror
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from pydantic import ConfigDict, TypeAdapter, ValidationError

from judgelm.errors import CardError, ModelError
from judgelm.jsonl import renamed
from judgelm.prompts.judge_prompt import JudgePrompt
from judgelm.records import HeadTerms, ThinkingMode
from judgelm.yaml_files import read_yaml

if TYPE_CHECKING:
    from judgelm.prompts.catalog import Template

CARD_NAME = "judge.json"
MODEL_CARD_NAME = "README.md"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
"""OWNER/NAME of a repository on the hub."""
_LENGTHS = ("max_completion_length",)
"""Training facts that are token counts and are also used for judging."""
_MAX_BYTES = 64 << 20
_HUB_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufBase:
    """The GGUF file that an adapter was trained on.

    Attributes:
        gguf_sha256: SHA-256 (hex) of the file, used as the name of its dequantised checkpoint in the cache.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    gguf_sha256: str
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSource:
    """The prompt file of a judge: its name, its text, and the name of the prompt in it."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    file: str
    name: str
    text: str

    @classmethod
    def of(cls, prompt: JudgePrompt) -> Self:
        """Return the source of a prompt."""
        return cls(file=prompt.file, name=prompt.name, text=prompt.source)

    def load(self) -> JudgePrompt:
        """Return the prompt.

        Raises:
            CardError: the text does not contain a prompt with this name.
        """
        from judgelm.prompts.prompt_file import parse_prompts  # loads jinja2, which --help does not need

        for prompt in parse_prompts(self.text, self.file):
            if prompt.name == self.name:
                return prompt
        raise CardError(f"prompt: {self.file} has no prompt named {self.name}; restore the card, or pass --ignore-card")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadCard:
    """The linear head of a judge from `judgelm tune`.

    Attributes:
        layer: number of the layer whose state it uses.
        dtype: dtype of the states that it was fitted to.
        terms: how its output becomes a score.
        criteria: the same by criterion, if there are weights for each criterion of a checklist.
        file: safetensors file in the card's folder; None if the folder's own model ends in the head.
        sha256: hash of the file.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    layer: int
    dtype: Literal["float32", "float16", "bfloat16"]
    terms: HeadTerms
    criteria: dict[str, HeadTerms] = field(default_factory=dict)
    file: str | None = None
    sha256: str = ""

    def __post_init__(self) -> None:
        rows = [each.row for each in self.criteria.values()] or [self.terms.row]
        if sorted(rows) != list(range(len(rows))):
            raise CardError(f"head: the rows of the weights are {rows}; expected one for each criterion, from 0")

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes that can use it, the usual one first."""
        if self.terms.kind == "pair":
            return "pair", "multi"
        return ("single",) if self.terms.kind == "grade" else ("checklist",) if self.criteria else ("label", "grounded")

    def locate(self, folder: str) -> str | None:
        """Return the path of the file, if any.

        Raises:
            CardError: the file is missing, or is not the one that belongs to the card.
        """
        if self.file is None:
            return None
        path = Path(folder) / self.file
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise CardError(f"{path}: cannot read: {error.strerror}; restore it, or run judgelm tune again") from error
        if found != self.sha256:
            finding = f"not the head that belongs to {CARD_NAME} (sha256 {found[:12]}, not {self.sha256[:12]})"
            raise CardError(f"{path}: {finding}; restore it, or run judgelm tune again")
        return str(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstainCard:
    """When a judge from `judgelm tune --risk` abstains, and what that promises (`judgelm.studies.risk`).

    Attributes:
        below: lowest probability of the likelier answer for a verdict, from 0.5 to 1; below it, the judge abstains.
        level: with the probability `confidence`, at most this share of verdicts disagrees with the labels.
        pairs: number of labelled pairs used for calibration, one per question.
        decided: calibration pairs with a verdict, of which `wrong` disagree with the label.
        sha256: hash of the ids and labels of these pairs.
        counts: how ties, failures, and abstentions are counted.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    below: float
    level: float
    confidence: float
    pairs: int
    decided: int
    wrong: int
    sha256: str
    counts: str

    def __post_init__(self) -> None:
        if not 0.5 <= self.below <= 1:
            raise CardError(f"abstain: below is {self.below}; expected a probability between 0.5 and 1")


def template_of(template_id: str, prompt: PromptSource | None) -> "Template":
    """Return the template of a prompt file, or else a built-in template."""
    from judgelm.prompts.catalog import get_template
    from judgelm.prompts.prompt_template import prompt_template

    return get_template(template_id) if prompt is None else prompt_template(prompt.load())


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Describes how a judge was trained and how it is prompted.

    Attributes:
        template: ID of the pair template.
        template_sha: SHA-256 (hex) of the template used in training.
        name: name of a judge with a built-in card; None for your own judges.
        base: GGUF file that an adapter was trained on; None if the base is a folder or hub ID.
        model: model to load: a folder (relative to the card's folder), a GGUF file, a hub ID, or the name of a judge;
            None if the weights are in the card's folder.
        identity: hashes of the model from `model_hashes`; empty if the engine provides none.
        mode: usual mode; if None, `pair`, or that of the prompt file.
        reading: how the reply is parsed; if None, the template's reading is used.
        tie_threshold: see mode `pair`; if None, each run sets the threshold.
        head: linear head that scores the answers shown in the prompt.
        abstain: when the judge abstains; None if it always gives a verdict.
        prompt: prompt file that replaces the template; its ID is then `prompt:` and the prompt's name.
        prompt_format: `text` or `chat` (the tokenizer's chat template).
        reference: whether training prompts contained references: `with`, `without`, or `both`.
        thinking: thinking argument for the chat template; `absent` omits it.
        window: maximum number of tokens for prompt and reply in training; None if unknown.
        training: facts: base model, data and hashes, hyper-parameters, versions, and metrics.

    Raises:
        CardError: a value is invalid.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    template: str
    template_sha: str
    name: str | None = None
    base: GgufBase | None = None
    model: str | None = None
    identity: dict[str, str] = field(default_factory=dict)
    mode: str | None = None
    reading: str | None = None
    criterion: str | None = None
    tie_threshold: float | None = None
    calibration_temperature: float = 1.0
    scale: tuple[float, float] = (1, 10)
    step: float = 1
    head: HeadCard | None = None
    abstain: AbstainCard | None = None
    prompt: PromptSource | None = None
    prompt_format: str = "text"
    reference: str = "both"
    thinking: ThinkingMode = "absent"
    window: int | None = None
    training: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        low, high = self.scale
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise CardError(f"scale: {low:g} to {high:g}; expected the lowest and the highest score, such as 1 and 10")
        if not 0 < self.step <= high - low:  # nor NaN
            raise CardError(
                f"step: {self.step:g}; expected the difference between adjacent scores on the scale {low:g} to {high:g}"
            )
        if self.tie_threshold is not None and not 0 <= self.tie_threshold <= 0.5:
            raise CardError(f"tie_threshold: {self.tie_threshold:g}; expected a distance from 0.5, between 0 and 0.5")
        if not 0 < self.calibration_temperature < math.inf:
            raise CardError(f"calibration_temperature: {self.calibration_temperature:g}; it must be above 0")
        lengths = {"window": self.window, **{name: self.training.get(name) for name in _LENGTHS}}
        for name, tokens in lengths.items():
            if tokens is not None and (not isinstance(tokens, int) or tokens < 1):
                raise CardError(f"{name}: {tokens!r}; expected a token count of at least 1")
        for name, known in (("prompt_format", ("text", "chat")), ("reference", ("without", "with", "both"))):
            if (value := getattr(self, name)) not in known:
                raise CardError(f"{name}: {value!r}; expected {' or '.join(known)}")


_FILE = TypeAdapter(Card)


def is_gguf(model: str) -> bool:
    """Return whether a name refers to a local or hub GGUF file."""
    return model.lower().endswith(".gguf") and not Path(model).is_dir()


def find_card(model: str, revision: str | None = None) -> Card | None:
    """Load a model's card; return None for GGUF files and models without a card.

    Raises:
        CardError: the file is not a valid card.
        ModelError: the folder or hub ID does not exist, or the hub is unreachable.
    """
    if is_gguf(model):
        return None
    check_place(model)
    folder = Path(model)
    if folder.is_dir():
        path = folder / CARD_NAME
        return _read(path) if path.is_file() else None
    # a slow import that local folders and servers do not need
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return _read(Path(hf_hub_download(model, CARD_NAME, revision=revision)))
    except LocalEntryNotFoundError as error:
        if isinstance(try_to_load_from_cache(model, "config.json", revision=revision), str):
            return None  # offline; the cached model has no card
        raise ModelError(f"{model}: no such folder, and the hub is unreachable; check the path and network") from error
    except EntryNotFoundError:
        return None
    except (HfHubHTTPError, HFValidationError) as error:
        first = str(error).strip().splitlines()[0]
        raise ModelError(f"{model}: folder not found, and the hub reports: {first}; check the id") from error


def check_place(model: str) -> None:
    """Check that a model is a folder, GGUF file, or hub ID. If the hub does not respond, hub IDs are used offline.

    Raises:
        ModelError: the check fails.
    """
    path = Path(model)
    missing = is_gguf(model) and model.startswith((".", "/", "~")) and not path.is_file()
    if missing or not (is_gguf(model) or path.is_dir() or (not path.exists() and _is_hub_id(model))):
        raise ModelError(f"{model}: no such folder; use a local folder, a GGUF file, or a hub id (owner/name)")
    if not path.exists() and _is_hub_id(model):
        _go_offline_without_hub()


def _is_hub_id(model: str) -> bool:
    return model.count("/") == 1 and not model.startswith((".", "/", "~"))


def _go_offline_without_hub() -> None:
    """Skip huggingface_hub's five retries per request, which take at least 24 seconds."""
    from huggingface_hub import constants

    if not constants.is_offline_mode() and not _answers(constants.ENDPOINT):
        constants.HF_HUB_OFFLINE = True


@cache
def _answers(endpoint: str) -> bool:
    try:
        urlopen(Request(endpoint, method="HEAD"), timeout=_HUB_TIMEOUT_S).close()
    except URLError as error:
        return isinstance(error, HTTPError) or not isinstance(error.reason, gaierror | TimeoutError | ConnectionError)
    except TimeoutError:
        return False
    return True


def locate_weights(model: str) -> tuple[str, Card | None]:
    """Return the model to load and the card that names it, if any.

    Raises:
        CardError: the card is invalid, or names another folder without weights.
    """
    card = _card_without_weights(model)
    if card is None or card.model is None:
        return model, None
    path = Path(model) / card.model
    weights = str(path) if path.exists() or card.model.startswith(".") else card.model
    if _card_without_weights(weights) is not None:
        raise CardError(f"{Path(model) / CARD_NAME}: model: {card.model} has no weights either; specify the model")
    return weights, card


def weights_of(model: str) -> str:
    """Return the model specified in a folder's card, or else the model itself."""
    return locate_weights(model)[0]


def _card_without_weights(folder: str) -> Card | None:
    card = _read(path) if (path := Path(folder) / CARD_NAME).is_file() else None
    return card if card is not None and card.model is not None else None


def model_hashes(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the hashes in `Engine.describe()["model"]` that identify a model; empty for a model on a server."""
    own = next((key for key in ("gguf_sha256", "sha", "commit") if described.get(key)), None)
    return {key: str(described[key]) for key in (own, "adapter_sha") if key is not None and described.get(key)}


def check_identity(card: Card, described: Mapping[str, Any], location: str) -> None:
    """Check that the loaded model (`Engine.describe()["model"]`) matches the card."""
    loaded = model_hashes(described)
    if card.identity and loaded != card.identity:
        finding = f"{_shown_identity(card.identity)} in the card, {_shown_identity(loaded)} loaded"
        way_out = "restore that model, run judgelm tune again, or pass --ignore-card"
        raise CardError(f"{location}: {CARD_NAME} was created for a different model: {finding}; {way_out}")


def _shown_identity(identity: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {value[:12]}" for key, value in identity.items()) or "no hashes"


def _read(path: Path) -> Card:
    try:
        if (size := path.stat().st_size) > _MAX_BYTES:
            raise CardError(f"the file is too large for a card ({size:,} bytes)")
        return _FILE.validate_json(path.read_bytes())
    except CardError as error:
        raise CardError(f"{path}: {error}; correct the card or delete it to use the defaults") from error
    except OSError as error:
        raise CardError(f"{path}: cannot read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        finding = f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}"
        raise CardError(f"{path}: {finding}; restore the card or delete it to use the defaults") from error


def write_card(folder: str | Path, card: Card) -> None:
    """Write the card to a model folder."""
    _write(Path(folder) / CARD_NAME, json.dumps(asdict(card), indent=2, ensure_ascii=False) + "\n")


def _write(path: Path, text: str) -> None:
    with renamed(path, way_out="") as partial:
        partial.write_text(text, encoding="utf-8")


def check_card(card: Card, *, template: str, template_sha: str, location: str) -> None:
    """Check that a template is the same as in training or tuning."""
    made, again = ("tuned to", "tune") if card.model is not None else ("trained with", "train")
    if card.template != template:
        finding = f"the judge was {made} template {card.template!r}, not {template!r}"
        raise CardError(f"{location}: {finding}; remove --template or --prompt, or pass --ignore-card")
    if card.template_sha != template_sha:
        finding = f"another version of template {template!r} (sha {card.template_sha[:12]}, here {template_sha[:12]})"
        way_out = f"{again} it again, or pass --ignore-card"
        if card.prompt is None:
            way_out = f"install the judgelm version it was {made}, {way_out}"
        else:
            way_out = f"restore the prompt, {way_out}"
        raise CardError(f"{location}: the judge was {made} {finding}; {way_out}")


def write_model_card(folder: str | Path, card: Card) -> None:
    """Write `README.md` to a judge's folder."""
    _write(Path(folder) / MODEL_CARD_NAME, render_model_card(card, name=Path(folder).resolve().name))


def render_model_card(card: Card, *, name: str) -> str:
    """Return the model card as Markdown with the hub's metadata; missing values are omitted."""
    from jinja2 import Environment  # slow, and only training writes model cards

    facts = card.training
    base = str(facts.get("base_model") or "")
    words = read_yaml(Path(__file__).with_name("model_card.yaml"))
    kinds = {words["kinds"].get(kind, kind): count for kind, count in (facts.get("rows_by_kind") or {}).items()}
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    template = environment.from_string(Path(__file__).with_name("model_card.md.j2").read_text(encoding="utf-8"))
    return template.render(
        card=card,
        facts=facts,
        name=name,
        base_id=base if HUB_ID.fullmatch(base) and not Path(base).exists() else None,
        answers=", ".join(kind for kind, count in kinds.items() if count) or "answers to a question",
        reference=words["reference"].get(card.reference, ""),
        window=card.window and f"{card.window:,}",
        files=[(f"`{entry['file']}`", f"`{entry['sha']}`") for entry in facts.get("data") or ()],
        counts=[
            ("rows", facts.get("rows")),
            *((f"rows: {kind}", count) for kind, count in kinds.items()),
            ("rows that show a reference", facts.get("rows_with_reference")),
            ("rows with a reason", facts.get("rows_with_reason")),
            *((f"left out: {reason}", count) for reason, count in (facts.get("rows_left_out") or {}).items()),
        ],
        settings=_settings(facts, words),
        metrics=facts.get("metrics"),
        figures=_figures(facts.get("metrics") or {}),
        table=_table,
    )


def _settings(facts: Mapping[str, Any], words: Mapping[str, Any]) -> list[tuple[str, Any]]:
    settings: list[tuple[str, Any]] = []
    for key, value in facts.items():
        if key in words["elsewhere"]:
            continue
        if isinstance(value, Mapping):
            settings += [(f"{key}: {inner}", each) for inner, each in value.items()]
        else:
            settings.append((words["settings"].get(key, key), value))
    return settings


def _figures(metrics: Mapping[str, Any]) -> list[tuple[str, Any]]:
    names = {"agreement": "agreement, given order"} if metrics.get("order_rule") == "given" else {}
    names |= {"agreement_by_mean": "agreement, mean of both orders"}
    kinds = {"": metrics} | {f", {kind.replace('_', ' ')}": metrics.get(kind) for kind in metrics.get("judged", ())}
    return [
        (names.get(name, name) + kind, _figure(figures.get(name)))
        for kind, figures in kinds.items()
        if figures is not None
        for name in ("agreement", "agreement_by_mean", "consistency", "delta_bias", "failed")
    ]


def _figure(value: Mapping[str, float] | float | None) -> str | None:
    if not isinstance(value, Mapping):
        return None if value is None else f"{value:.3f}"
    return f"{value['value']:.3f} ({value['low']:.3f} to {value['high']:.3f}, n = {value['n']})"


def _table(rows: Iterable[tuple[str, Any]], left: str, right: str) -> str:
    lines = [f"| {_cell(name)} | {_cell(value)} |\n" for name, value in rows if value is not None]
    return "".join([f"\n| {left} | {right} |\n|---|---|\n", *lines]) if lines else ""


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.replace("|", "\\|").split())
