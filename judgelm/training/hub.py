"""A judge on the Hugging Face hub: its model card, the files that are sent, and the upload by the hub's own client.

The model card is `README.md` beside `judge.json`. It states what the judge was taught, on which files, how to ask it,
and its limits, with the metrics of its training. Agreement with other labels is measured by `judgelm eval`.

A folder of a training holds more than the judge: checkpoints, optimizer states, arguments with local paths. Only the
files that a judge consists of are sent; all others are listed with the reason, and a text that looks like a secret
stops it.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from jinja2 import Environment

from judgelm.data.training_questions import QUESTIONS_NAME
from judgelm.errors import ConfigError, InputError, ModelError, RunError, first_line
from judgelm.jsonl import parse_json
from judgelm.package import VERSION
from judgelm.prompts.judge_card import CARD_NAME, Card, find_card
from judgelm.yaml_files import parse_yaml

MODEL_CARD_NAME = "README.md"

_MEASURED = "## Measured by judgelm eval"
_FRONT_MATTER = re.compile(r"---\n(.*?\n)---\n", re.S)
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_KINDS = {
    "pair": "pairs of answers",
    "single": "single answers beside a reference",
    "multi": "three answers and more",
}
_SETTINGS = {
    "base_model": "base model",
    "global_batch": "batch",
    "learning_rate": "learning rate",
    "reference_drop_prob": "probability of dropping a reference",
    "reason_prob": "share of reasons kept",
    "loss_on": "loss counts",
    "quantization": "base quantised to",
    "last_loss": "last training loss",
}
_ELSEWHERE = ("data", "rows", "rows_by_kind", "rows_with_reference", "rows_with_reason", "rows_left_out", "metrics")
"""Facts that stand in other sections."""
_REFERENCE = {
    "without": "No prompt for several answers showed a reference answer.",
    "with": "Every prompt for several answers showed a reference answer.",
    "both": "Prompts for several answers showed a reference answer or none.",
}


def write_model_card(folder: str | Path, card: Card) -> None:
    """Write `README.md` into a judge's folder, over that of other libraries.

    Raises:
        RunError: the folder cannot be written.
    """
    path = Path(folder) / MODEL_CARD_NAME
    try:
        path.write_text(render_model_card(card, name=Path(folder).resolve().name), encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror}") from error


def render_model_card(card: Card, *, name: str) -> str:
    """The model card as Markdown after the hub's metadata, without facts that the card lacks.

    Args:
        card: the judge's card, with the facts of `train/sft.py` or `train/merge_lora.py` under `training`.
        name: the judge's name, for the title and the command.
    """
    facts = card.training
    base = str(facts.get("base_model") or "")
    kinds = {_KINDS.get(kind, kind): count for kind, count in (facts.get("rows_by_kind") or {}).items()}
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    template = environment.from_string(Path(__file__).with_name("model_card.md.j2").read_text(encoding="utf-8"))
    return template.render(
        card=card,
        facts=facts,
        name=name,
        base_id=base if _HUB_ID.fullmatch(base) and not Path(base).exists() else None,
        answers=", ".join(kind for kind, count in kinds.items() if count) or "answers to a question",
        reference=_REFERENCE.get(card.reference, ""),
        window=card.window and f"{card.window:,}",
        files=[(f"`{entry['file']}`", f"`{entry['sha']}`") for entry in facts.get("data") or ()],
        counts=[
            ("rows", facts.get("rows")),
            *((f"rows: {kind}", count) for kind, count in kinds.items()),
            ("rows that show a reference", facts.get("rows_with_reference")),
            ("rows with a reason", facts.get("rows_with_reason")),
            *((f"left out: {reason}", count) for reason, count in (facts.get("rows_left_out") or {}).items()),
        ],
        settings=_settings(facts),
        metrics=facts.get("metrics"),
        figures=_figures(facts.get("metrics") or {}),
        table=_table,
    )


def complete_model_card(
    text: str, *, licence: str | None, contradicts: bool, evaluation: Mapping[str, Any] | None
) -> tuple[str, str | None]:
    """The model card with its licence among the metadata, and a section of measured figures.

    Args:
        text: the card; what its author wrote stays.
        licence: the hub's name of a licence, for a card that states none.
        contradicts: True to refuse a card that states another licence, instead of keeping its own.
        evaluation: the JSON of `judgelm eval --json`.

    Returns:
        The card, and the licence that it states.

    Raises:
        ConfigError: the metadata is not YAML, or states another licence.
    """
    match = _FRONT_MATTER.match(text)
    metadata = parse_yaml(match[1]) if match else {}
    if not isinstance(metadata, dict):
        raise ConfigError(f"{MODEL_CARD_NAME}: the metadata between the --- lines is no mapping; correct it")
    stated = metadata.get("license")
    if contradicts and stated is not None and stated != licence:
        raise ConfigError(f"{MODEL_CARD_NAME} states license: {stated}, not {licence}; correct one of them")
    if stated is None and licence is not None:
        lines = f"license: {licence}\n" + ("license_link: LICENSE\n" if licence == "other" else "")
        text = f"---\n{lines}{text[4:]}" if match else f"---\n{lines}---\n\n{text}"
    if evaluation is not None and _MEASURED not in text:
        section = f"{_MEASURED}\n\n{_measured(evaluation)}\n\n"
        head, limits, rest = text.partition("## Limits\n")
        text = f"{head}{section}{limits}{rest}" if limits else f"{text.rstrip()}\n\n{section.rstrip()}\n"
    return text, stated or licence


def _measured(evaluation: Mapping[str, Any]) -> str:
    """Metrics of `judgelm eval --json`, with the protocol."""
    figures = evaluation.get(str(evaluation.get("failures", "excluded")))
    if not isinstance(figures, Mapping) or not isinstance(figures.get("accuracy"), Mapping):
        raise ConfigError("eval.json: not the output of judgelm eval --json; write it again, or remove it")
    position, counts = figures.get("position") or {}, evaluation.get("counts") or {}
    rows = [
        ("agreement with the labels", _figure(figures["accuracy"])),
        ("agreement of the most frequent label", _figure(figures.get("majority"))),
        ("macro F1", _figure(figures.get("f1"))),
        ("consistency of both orders", _figure(position.get("consistency"))),
        ("failed judgments", counts.get("failed")),
    ]
    return f"{evaluation.get('protocol', '')}\n{_table(rows, 'figure', 'value')}".rstrip("\n")


def _settings(facts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Name and value of everything that is neither data nor a result."""
    settings: list[tuple[str, Any]] = []
    for key, value in facts.items():
        if isinstance(value, Mapping) and key not in _ELSEWHERE:
            settings += [(f"{key}: {inner}", each) for inner, each in value.items()]
        elif key not in _ELSEWHERE:
            settings.append((_SETTINGS.get(key, key), value))
    return settings


def _figures(metrics: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Name and value of the metrics, over all pairs and for each kind of prompt."""
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
    """A share, with interval and n where it has them."""
    if not isinstance(value, Mapping):
        return None if value is None else f"{value:.3f}"
    return f"{value['value']:.3f} ({value['low']:.3f} to {value['high']:.3f}, n = {value['n']})"


def _table(rows: Iterable[tuple[str, Any]], left: str, right: str) -> str:
    """A Markdown table of the rows that have a value, after a blank line; nothing where none has."""
    lines = [f"| {_cell(name)} | {_cell(value)} |\n" for name, value in rows if value is not None]
    return "".join([f"\n| {left} | {right} |\n|---|---|\n", *lines]) if lines else ""


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.replace("|", "\\|").split())


EVALUATION_NAME = "eval.json"
_WEIGHTS = ("adapter_model.safetensors", "model.safetensors", "model-*-of-*.safetensors")
_PARTS = (
    *_WEIGHTS, "model.safetensors.index.json", "adapter_config.json", "config.json", "generation_config.json",
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "chat_template.jinja", "preprocessor_config.json", "processor_config.json",
    "modeling_*.py", "configuration_*.py", "tokenization_*.py",
    CARD_NAME, MODEL_CARD_NAME, QUESTIONS_NAME, EVALUATION_NAME, "LICENSE*", "LICENCE*", "NOTICE*", "*.png", "*.svg",
)  # fmt: skip
_LEFT_OUT = (
    (("checkpoint-*",), "a checkpoint of the training"),
    (("optimizer*", "scheduler*", "rng_state*", "scaler*", "global_step*", "trainer_state.json", "training_args.bin",
      "zero_to_fp32.py", "latest"), "a state of the training"),
    (("*.bin", "*.pt", "*.pth", "*.pkl"), "pickled; only safetensors are sent"),
    ((".*",), "a hidden file"),
)  # fmt: skip
_BINARY = (".safetensors", ".png", ".model")
_SECRETS = {
    "a hub token": re.compile(r"\bhf_[A-Za-z0-9]{30,}"),
    "an API key": re.compile(r"(?<![\w-])sk-(?=[\w-]*\d)[\w-]{20,}"),
    "a GitHub token": re.compile(r"\b(?:gh[pousr]_|github_pat_)\w{30,}"),
    "an AWS key": re.compile(r"\bAKIA[0-9A-Z]{16}\b"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "an address with a password": re.compile(r"https?://[^\s/@:\"']+:[^\s/@\"']+@"),
}
_SECRET_VARIABLE = re.compile(r"(TOKEN|KEY|SECRET|PASSWORD)S?$")
_LICENCES = {
    "apache-2.0": ("Apache License", "Version 2.0"),
    "mit": ("MIT License",),
    "cc-by-nc-4.0": ("Attribution-NonCommercial 4.0 International",),
    "cc-by-4.0": ("Attribution 4.0 International",),
}
_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_HTTPError: type[Exception] = HfHubHTTPError.__mro__[1]  # that of the hub client's HTTP library, whichever it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The files of a judge that are to be sent.

    Attributes:
        folder: the judge's.
        files: size in bytes by name; the model card's is that of `model_card`.
        left_out: reason by name; folders end in a slash.
        model_card: `README.md` with licence and measured figures added.
        licence: the hub's name for it; None if neither card, option nor file states one.
        notes: findings that do not stop the upload.
    """

    folder: Path
    files: Mapping[str, int]
    left_out: Mapping[str, str]
    model_card: str
    licence: str | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """The outcome of an upload: the address of the repository, and who can see it."""

    url: str
    private: bool


def prepare_share(folder: Path, *, name: str, licence: str | None = None) -> Share:
    """Choose the files and complete the model card; nothing is written and nothing is sent.

    Args:
        folder: output of a training, a merged judge, or an adapter.
        name: of the repository on the hub, `OWNER/NAME`.
        licence: the hub's name for the judge's licence.

    Raises:
        ConfigError: `name` is none, the licence contradicts the card, or a file looks like it holds a secret.
        ModelError: the folder is no finished judge.
        InputError: a file cannot be read.
    """
    if not _REPO.fullmatch(name):
        raise ConfigError(f"--to {name}: expected OWNER/NAME, such as my-name/my-judge")
    card = _finished_card(folder)
    sent, left_out = _choose_files(folder)
    if not any(fnmatch(part, pattern) for part in sent for pattern in _WEIGHTS):
        raise ModelError(f"{folder}: no weights as safetensors, so no judge; give the output folder of a training")
    text, stated = complete_model_card(
        _model_card(folder, card, name),
        licence=licence or _licence_of_file(folder, sent),
        contradicts=licence is not None,
        evaluation=parse_json(_read_text(folder / EVALUATION_NAME)) if EVALUATION_NAME in sent else None,
    )
    sizes = {part: (folder / part).stat().st_size for part in sent} | {MODEL_CARD_NAME: len(text.encode())}
    share = Share(
        folder=folder,
        files=dict(sorted(sizes.items())),
        left_out=left_out,
        model_card=text,
        licence=stated,
        notes=tuple(_notes(folder, sent, stated)),
    )
    _refuse_secrets(share)
    return share


def upload_share(share: Share, name: str, *, public: bool) -> Uploaded:
    """Create the repository where it is missing, and send all files in one commit.

    Args:
        share: from `prepare_share`.
        name: of the repository, `OWNER/NAME`.
        public: let everybody see a new repository; an existing one stays as it is.

    Raises:
        ConfigError: no token, or a repository that exists is public and `public` is False.
        ModelError: the hub refuses, or cannot be reached.
    """
    if get_token() is None:
        raise ConfigError(
            "no token of the hub; make one with write permission at huggingface.co/settings/tokens, then run "
            "hf auth login, or set HF_TOKEN"
        )
    api = HfApi()
    operations = [
        CommitOperationAdd(
            part, share.model_card.encode() if part == MODEL_CARD_NAME else str((share.folder / part).resolve())
        )
        for part in share.files
    ]
    try:
        url = str(api.create_repo(name, private=not public, exist_ok=True))
        private = bool(api.repo_info(name).private)
        if not private and not public:
            raise ConfigError(f"{name} exists and is public; pass --public to send the judge there, or another --to")
        api.create_commit(name, operations, commit_message=f"Upload judge with judgelm {VERSION}")
    except (_HTTPError, OSError, RuntimeError, ValueError) as error:
        raise ModelError(_upload_finding(name, error)) from error
    return Uploaded(url=url, private=private)


def _upload_finding(name: str, error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return f"{name}: the hub does not accept the token; run hf auth login again, or correct HF_TOKEN"
    if status == 403:
        return (
            f"{name}: the token may not write there; use one with write permission, and an OWNER that is you or an "
            "organisation of yours"
        )
    if isinstance(error, RepositoryNotFoundError):
        return f"{name}: the hub does not find it; check OWNER and NAME, and that the token may see it"
    if status is None and not isinstance(error, ValueError | RuntimeError):
        finding = f"{name}: the hub cannot be reached ({first_line(error)})"
        return f"{finding}; check the network, HF_ENDPOINT and HF_HUB_OFFLINE"
    cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
    if isinstance(cause, ValueError) and not isinstance(cause, OSError):
        return f"{name}: the hub refuses the upload: {' '.join(str(cause).split())}"
    return f"{name}: the upload failed: {first_line(cause)}; run the same command again"


def _finished_card(folder: Path) -> Card:
    """The judge's card; a checkpoint of a training has none to be shared."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder; give the output folder of a training")
    if re.fullmatch(r"checkpoint-\d+", folder.resolve().name) or (folder / "optimizer.pt").exists():
        raise ModelError(f"{folder}: a checkpoint with optimizer states; share the finished judge, its parent folder")
    card = find_card(str(folder.resolve()))
    if card is None:
        raise ModelError(f"{folder}: no {CARD_NAME}, so no finished judge; give the output folder of a training")
    return card


def _model_card(folder: Path, card: Card, name: str) -> str:
    """The folder's model card; that of a training, unless somebody changed it, names the judge as the hub does."""
    path = folder / MODEL_CARD_NAME
    text = _read_text(path) if path.is_file() else None
    generated = render_model_card(card, name=folder.resolve().name)
    return render_model_card(card, name=name) if text in (None, generated) else str(text)


def _choose_files(folder: Path) -> tuple[list[str], dict[str, str]]:
    sent: list[str] = []
    left_out: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        reason = next((why for patterns, why in _LEFT_OUT if any(fnmatch(path.name, part) for part in patterns)), None)
        if reason is None and (path.is_dir() or not any(fnmatch(path.name, part) for part in _PARTS)):
            reason = "no part of a judge"
        if reason is not None:
            left_out[f"{path.name}/" if path.is_dir() else path.name] = reason
        elif folder.resolve() not in path.resolve().parents:
            raise ModelError(f"{path}: a link to a file elsewhere; put the file itself there, or remove the link")
        else:
            sent.append(path.name)
    return sent, left_out


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read as UTF-8: {error}; correct the file") from error


def _licence_of_file(folder: Path, sent: list[str]) -> str | None:
    """The hub's name of a licence text that stands in the folder; `other` for one that is not known."""
    name = next((part for part in sent if part.startswith(("LICENSE", "LICENCE"))), None)
    if name is None:
        return None
    text = _read_text(folder / name)[:2000]
    return next((known for known, words in _LICENCES.items() if all(word in text for word in words)), "other")


def _notes(folder: Path, sent: list[str], licence: str | None) -> Iterator[str]:
    if licence is None:
        yield "no licence is stated; give --license, after looking at those of the base model and of the data"
    if "adapter_config.json" in sent:
        base = str(_json_of(folder / "adapter_config.json").get("base_model_name_or_path") or "")
        if base.startswith(("/", ".", "~")) or Path(base).is_dir():
            yield (
                f"adapter_config.json names its base by a local path, {base}; set base_model_name_or_path to the "
                "base's id on the hub, so that others can load the adapter"
            )


def _json_of(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(_read_text(path))
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}; restore the file") from error
    return content if isinstance(content, dict) else {}


def _refuse_secrets(share: Share) -> None:
    """Refuse a text that looks like a secret, or holds the value of this machine's own; the value is not shown."""
    own = [value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name) and len(value) >= 12]
    own += [token for token in [get_token()] if token]
    for name in share.files:
        if name.endswith(_BINARY):
            continue
        text = share.model_card if name == MODEL_CARD_NAME else _read_text(share.folder / name)
        for line_number, line in enumerate(text.splitlines(), start=1):
            kind = next((kind for kind, pattern in _SECRETS.items() if pattern.search(line)), None)
            if kind is None and any(value in line for value in own):
                kind = "a key of this machine's environment"
            if kind is not None:
                raise ConfigError(
                    f"{share.folder / name}:{line_number}: looks like {kind}; remove it, nothing was sent"
                )
