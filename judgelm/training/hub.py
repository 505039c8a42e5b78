"""A finished judge: model, tokenizer, card and README in the dtype that engines load, and its upload to the hub.

A folder of a training holds more than the judge: checkpoints, optimizer states, arguments with local paths. Only the
files that a judge consists of are sent; all others are listed with the reason, and a text that looks like a secret
stops it.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import CommitOperationAdd, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from trl import ModelConfig  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see

from judgelm.data.training_questions import QUESTIONS_NAME, hashes_of_files, read_hashes, write_hashes
from judgelm.engines.gguf.checkpoint import GgufRecord, gguf_record
from judgelm.errors import ConfigError, InputError, ModelError, first_line
from judgelm.jsonl import parse_json
from judgelm.package import VERSION
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import (
    CARD_NAME,
    HUB_ID,
    MODEL_CARD_NAME,
    Card,
    GgufBase,
    complete_model_card,
    find_card,
    render_model_card,
    write_card,
    write_model_card,
)
from judgelm.training.arguments import JudgeArguments, rows_per_step, save_dtype_of
from judgelm.training.checkpoints import VERSIONS
from judgelm.training.rows.builder import RowCounts
from judgelm.training.rows.dataset import ROWS_FOLDER, file_sha
from judgelm.training.validation import step_of_weights

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
    if not HUB_ID.fullmatch(name):
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
    if card.model is not None:
        raise ModelError(
            f"{folder}: a judge without weights of {card.model}, which the hub cannot load; copy the folder"
        )
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


def save_judge(
    trainer: Any,
    judge: JudgeArguments,
    base: ModelConfig,
    *,
    facts: Mapping[str, Any] | None = None,
    tuned_from: Card | None = None,
) -> None:
    """Write model, tokenizer, `judge.json`, `README.md` and hashes of the training questions into the output folder.

    Call it on every process, since shards are gathered.

    Args:
        trainer: a `JudgeTrainer` or another trainer with `JudgeMixin`, trained.
        judge: data and target.
        base: TRL's `ModelConfig`.
        facts: more of the training, for the card.
        tuned_from: the card of the judge that was trained further; None for a base model, and for `judge.adapter`,
            whose own card is read.
    """
    folder, rows = str(trainer.args.output_dir), trainer.rows
    metrics = {"metrics": trainer.validation.card_facts(trainer)} if trainer.validation is not None else {}
    with trainer.saving_in(save_dtype_of(judge.save_dtype, trainer.args)):
        trainer.save_model(folder)
    if not trainer.is_world_process_zero():
        return
    template = get_template(judge.template)
    gguf = gguf_record(base.model_name_or_path or "")
    adapts = gguf is not None and hasattr(trainer.model, "peft_config")
    if judge.adapter is not None:
        tuned_from = find_card(judge.adapter)
        began_from = {"judge": Path(judge.adapter).name, **(tuned_from.training if tuned_from else {})}
        facts = {**(facts or {}), "began_from": began_from}
    earlier = read_hashes(judge.adapter or base.model_name_or_path or "") if tuned_from is not None else None
    questions = hashes_of_files(judge.train_data) | (earlier or set())
    card = Card(
        base=_name_gguf_base(Path(folder), gguf) if gguf and adapts else None,
        template=template.id,
        template_sha=template.sha,
        reading=template.reading,
        scale=(judge.scale[0], judge.scale[1]),
        step=min(rows.counts.step, tuned_from.step if tuned_from else 1),
        prompt_format="chat" if template.chat else "text",
        reference=_reference(rows.counts, tuned_from),
        window=rows.window,
        training={
            **_facts(trainer, judge, base),
            "questions": {"file": QUESTIONS_NAME, "count": len(questions)},
            **(facts or {}),
            **metrics,
        },
    )
    write_card(folder, card)
    write_model_card(folder, card)
    write_hashes(folder, questions)
    shutil.rmtree(Path(folder) / ROWS_FOLDER, ignore_errors=True)


def _name_gguf_base(folder: Path, record: GgufRecord) -> GgufBase:
    """Name an adapter's base by the GGUF file, since the path of its checkpoint means nothing on another machine."""
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"base_model_name_or_path": record.file}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return GgufBase(gguf_sha256=record.sha256, file=record.file)


def _reference(counts: RowCounts, tuned_from: Card | None) -> str:
    """Kind of prompts that the judge saw, in earlier trainings too."""
    always = counts.with_reference == counts.made - counts.kinds["single"]
    seen = ("with" if always else "both") if counts.with_reference else "without"
    return seen if tuned_from is None or tuned_from.reference == seen else "both"


def _facts(trainer: Any, judge: JudgeArguments, base: ModelConfig) -> dict[str, Any]:
    """The training in the judge's card."""
    args, state, rows = trainer.args, trainer.state, trainer.rows
    counts, steps = rows.counts, step_of_weights(trainer)
    gguf = gguf_record(base.model_name_or_path or "")
    adapter = trainer.model.peft_config["default"] if hasattr(trainer.model, "peft_config") else None
    dtype = save_dtype_of(judge.save_dtype, args) or trainer.model.dtype
    losses = [entry["loss"] for entry in state.log_history if "loss" in entry and entry["step"] <= steps]
    return {
        "base_model": gguf.file if gguf else base.model_name_or_path,
        **({"base_gguf": {"sha256": gguf.sha256, "dtype": gguf.dtype, "repairs": list(gguf.repairs)}} if gguf else {}),
        "data": [{"file": Path(path).name, "sha": file_sha(path)} for path in judge.train_data],
        "rows": counts.made,
        "rows_by_kind": dict(counts.kinds),
        "rows_with_reference": counts.with_reference,
        "rows_with_reason": counts.with_reason,
        "rows_left_out": dict(counts.left_out),
        "rows_swapped": counts.swapped,
        "swap_prob": judge.swap_prob,
        "reference_drop_prob": judge.reference_drop_prob,
        "reason_prob": judge.reason_prob,
        "loss_on": judge.loss_on,
        "score_weight": judge.score_weight,
        "steps": steps,
        # fewer than configured where it ended early
        "epochs": rows.schedule.epochs_of(rows.per_epoch) * steps / state.max_steps,
        "global_batch": rows_per_step(args),
        "learning_rate": args.learning_rate,
        "optimisation": _optimisation(args),
        "seed": args.seed,
        "last_loss": losses[-1] if losses else None,
        "dtype": None if adapter else str(dtype).removeprefix("torch."),  # an adapter's base has its own
        "lora": {"r": adapter.r, "alpha": adapter.lora_alpha} if adapter else None,
        "quantization": "4bit" if base.load_in_4bit else "8bit" if base.load_in_8bit else None,
        "versions": VERSIONS,
    }


def _optimisation(args: transformers.TrainingArguments) -> dict[str, Any]:
    """Hyper-parameters of the paper's Table 7 that have no entry of their own in the card."""
    return {
        "optimizer": getattr(args.optim, "value", args.optim),
        "betas": [args.adam_beta1, args.adam_beta2],
        "epsilon": args.adam_epsilon,
        "weight_decay": args.weight_decay,
        "max_grad_norm": args.max_grad_norm,
        "schedule": getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type),
        "warmup_steps": args.warmup_steps,
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "float32",
        "gradient_checkpointing": args.gradient_checkpointing,
    }
