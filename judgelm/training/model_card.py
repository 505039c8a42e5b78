"""`README.md` beside `judge.json`: the card's facts for people, in the Hugging Face hub's format.

It states what the judge was taught, on which files, how to ask it, and its limits, with the metrics of its training.
Its agreement with other labels is measured by `judgelm eval`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from judgelm.errors import ConfigError, RunError
from judgelm.prompts.judge_card import Card
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
    parts = [
        _metadata(facts),
        f"# {name}",
        _description(card),
        "## How to ask it",
        _usage(card, name),
        "## What it was trained on",
        _data(facts),
        "## How it was trained",
        _table(_settings(facts)),
        *_metrics(facts),
        "## Limits",
        _limits(card),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


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
    return f"{evaluation.get('protocol', '')}\n\n{_table(rows, 'figure', 'value')}"


def _metadata(facts: Mapping[str, Any]) -> str:
    base = str(facts.get("base_model") or "")
    adapter = bool(facts.get("lora")) and "merged" not in facts
    lines = [
        "---",
        f"library_name: {'peft' if adapter else 'transformers'}",
        "pipeline_tag: text-generation",
        "tags: [llm-as-a-judge, judgelm]",
    ]
    if _HUB_ID.fullmatch(base) and not Path(base).exists():
        lines.append(f"base_model: {base}")
    return "\n".join([*lines, "---"])


def _description(card: Card) -> str:
    facts = card.training
    kinds = [_KINDS.get(kind, kind) for kind, count in (facts.get("rows_by_kind") or {}).items() if count]
    answers = ", ".join(kinds) or "answers to a question"
    low, high = card.scale
    return (
        f"A judge model: it reads a question with {answers} and writes one line of scores from {low:g} to {high:g} in "
        f"steps of {card.step:g}, and on request a reason after it. {_REFERENCE.get(card.reference, '')}"
    ).rstrip()


def _usage(card: Card, name: str) -> str:
    form = "through the tokenizer's chat template" if card.prompt_format == "chat" else "as plain text"
    window = f" Prompt and reply had at most {card.window:,} tokens." if card.window else ""
    return (
        f"```\njudgelm-batch pairs.jsonl -o judgments.jsonl --model {name} --both-orders\n```\n\n"
        f"The prompt is the template `{card.template}` (sha256 `{card.template_sha}`), given {form}; `judge.json` "
        f"records it, and `judgelm-batch` refuses any other. With another prompt a judge gives other scores without "
        f"any error.{window}"
    )


def _data(facts: Mapping[str, Any]) -> str:
    files = [(f"`{entry['file']}`", f"`{entry['sha']}`") for entry in facts.get("data") or ()]
    counts = [("rows", facts.get("rows"))]
    counts += [(f"rows: {_KINDS.get(kind, kind)}", count) for kind, count in (facts.get("rows_by_kind") or {}).items()]
    counts += [
        ("rows that show a reference", facts.get("rows_with_reference")),
        ("rows with a reason", facts.get("rows_with_reason")),
    ]
    counts += [(f"left out: {reason}", count) for reason, count in (facts.get("rows_left_out") or {}).items()]
    return "\n\n".join(part for part in (_table(files, "file", "sha256"), _table(counts, "rows", "number")) if part)


def _settings(facts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Name and value of everything that is neither data nor a result."""
    names = {
        "base_model": "base model",
        "global_batch": "batch",
        "learning_rate": "learning rate",
        "reference_drop_prob": "probability of dropping a reference",
        "reason_prob": "share of reasons kept",
        "loss_on": "loss counts",
        "quantization": "base quantised to",
        "last_loss": "last training loss",
    }
    elsewhere = {"data", "rows", "rows_by_kind", "rows_with_reference", "rows_with_reason", "rows_left_out", "metrics"}
    settings: list[tuple[str, Any]] = []
    for key, value in facts.items():
        if key in elsewhere:
            continue
        if isinstance(value, Mapping):
            settings += [(f"{key}: {inner}", each) for inner, each in value.items()]
        else:
            settings.append((names.get(key, key), value))
    return settings


def _metrics(facts: Mapping[str, Any]) -> list[str]:
    """Metrics of the evaluations and their protocol; nothing where there were none."""
    metrics = facts.get("metrics")
    if not metrics:
        return []
    ways = metrics["judged"]
    names = {"agreement": "agreement, given order"} if metrics.get("order_rule") == "given" else {}
    names |= {"agreement_by_mean": "agreement, mean of both orders"}
    rows = [
        (names.get(name, name) + ("" if way is None else f", {way.replace('_', ' ')}"), _figure(figures.get(name)))
        for way, figures in ((None, metrics), *((way, metrics[way]) for way in ways if way in metrics))
        for name in ("agreement", "agreement_by_mean", "consistency", "delta_bias", "failed")
    ]
    at = metrics["checkpoint"]
    files = ", ".join(f"`{entry['file']}`" for entry in metrics["files"])
    chosen = f"chosen by {at['chosen_by']} on these pairs, which flatters it" if at["chosen_by"] else "the last"
    return [
        "## How well it judges",
        f"{metrics['pairs']} of {metrics['pairs_available']} labelled pairs of {files}, "
        f"{' and '.join(way.replace('_', ' ') for way in ways)}; the weights after step {at['step']} of "
        f"{at['steps']}, {chosen}. {metrics['protocol']}"
        + (" Measured before the adapter was merged." if "merged" in facts else ""),
        _table(rows, "figure", "value"),
    ]


def _figure(value: Mapping[str, float] | float | None) -> str | None:
    """A share, with interval and n where it has them."""
    if not isinstance(value, Mapping):
        return None if value is None else f"{value:.3f}"
    return f"{value['value']:.3f} ({value['low']:.3f} to {value['high']:.3f}, n = {value['n']})"


def _table(rows: Iterable[tuple[str, Any]], left: str = "setting", right: str = "value") -> str:
    """A Markdown table of the rows that have a value; nothing where none has."""
    lines = [f"| {_cell(name)} | {_cell(value)} |" for name, value in rows if value is not None]
    return "\n".join([f"| {left} | {right} |", "|---|---|", *lines]) if lines else ""


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.replace("|", "\\|").split())


def _limits(card: Card) -> str:
    facts = card.training
    others = "other pairs than those above" if facts.get("metrics") else "questions it has not seen"
    limits = [
        "It repeats its teacher's judgments, with its errors and biases (length, style, its own model family).",
        f"Its agreement with people, or with its teacher on {others}, is not stated here; measure "
        "it on your labels: `judgelm eval judgments.jsonl --labels labelled.jsonl`.",
        "It may favour the answer shown first or last; `--both-orders` judges each pair twice and shows how often.",
        "It judges from its own knowledge; it misses factual errors beyond it, unless a reference is shown and it was "
        "trained with references.",
    ]
    if card.window:
        limits.append(f"Answers that do not fit into {card.window:,} tokens are truncated before it sees them.")
    if card.reference != "both":
        other = "with" if card.reference == "without" else "without"
        limits.append(
            f"{_REFERENCE[card.reference]} Asked {other} one, it judges worse (JudgeLM, section 4: format bias)."
        )
    if facts.get("rows_with_reason") == 0:
        limits.append("It learned scores only, so its reasons are untrained.")
    if facts.get("quantization") and "merged" not in facts:
        limits.append(
            f"The adapter was trained on a base quantised to {facts['quantization']}; on the unquantised base its "
            "scores may differ a little."
        )
    return "\n".join(f"- {limit}" for limit in limits)
