"""Write a build's data set card and manifest."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import yaml

from judgelm.data.builder.counts import BuildCounts, SetCounts
from judgelm.data.builder.options import BuildOptions
from judgelm.data.builder.pipeline import BuildResult
from judgelm.package import VERSION


def dataset_card(options: BuildOptions, built: BuildResult) -> str:
    """Return the data set card as Markdown."""
    configs, tags = _configs(built.files), ["judgelm", "llm-as-a-judge"]
    header = {"configs": configs, "tags": tags, "task_categories": ["text-generation"]}
    counts = built.counts
    sources = "\n".join(
        f"| {name} | {read:,} | {_of(counts.rejected, name):,} | {_of(counts.dropped, name):,} |"
        for name, read in sorted(counts.read.items())
    )
    files = "\n".join(f"| `{name}` | {rows:,} |" for name, rows in built.files.items())
    return f"""---
{yaml.safe_dump(header, sort_keys=False)}---
# Pairwise judgments

Rows are in JudgeLM's schema: a question, two answers, and a teacher's scores and reasons, without and, if available,
with a reference answer. Built with judgelm {VERSION}. `build.json` contains all options and counts; `left_out.jsonl`
lists the omitted rows and the reasons.

| file | rows |
|---|---|
{files}

| source | rows read | rejected | dropped |
|---|---|---|---|
{sources}

- **Swap augmentation**: {_swap_words(options)} {_listed(counts.swapped) or "nothing to swap"}.
- **References**: {_reference_words(options)} {_listed(counts.references) or "no pair has a reference"}.
- **Winners** of clean pairs: {_listed(counts.before.winners)}; of training rows: {_listed(counts.train.winners)}.
- **Held out**: {counts.validation.pairs:,} pairs for validation and {counts.test.pairs:,} for testing, not augmented.
  The training files do not contain their questions or near copies.
{_balance(options, built)}- **Licence**: the licence of the sources applies. State it here before you publish.
"""


def _balance(options: BuildOptions, built: BuildResult) -> str:
    if not options.balance:
        return ""
    rows = "\n".join(
        f"| {row.set} | {row.stage} | {row.pairs:,} | {row.decided:,} | {_percent(row.first)} | {_percent(row.longer)} "
        f"| {_percent(row.model)} |"
        for row in built.baselines
    )
    strata = ", ".join(map(str, options.length_strata))
    return f"""- **Balance** by {", ".join(options.balance)}, separately in each set (`judgelm.data.builder.balance`);
  length strata are bounded at {strata} characters. The table shows how often rules that ignore the content of answers
  agree with the labels, excluding ties. Win rates are computed from the training pairs before sampling:

| set | sampling and swaps | pairs | decided | first answer | longer answer | model with the higher win rate |
|---|---|---|---|---|---|---|
{rows}

"""


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _configs(files: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return one config per kind of row, because `datasets` requires equal columns within a config."""
    configs: dict[str, list[dict[str, str]]] = {"default": []}
    for name in files:
        side, _, part = name.partition(".")[0].partition("-")
        config, split = ("default", f"{side}_{part}") if part.isdigit() else (part or "default", side)
        configs.setdefault(config, []).append({"split": split, "path": name})
    return [{"config_name": config, "data_files": splits} for config, splits in configs.items()]


def manifest(options: BuildOptions, built: BuildResult, inputs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return all options and counts of a build as JSON values."""
    return {
        "judgelm": VERSION,
        "options": asdict(options),
        "inputs": inputs,
        "files": built.files,
        "subsets_too_large": list(built.subsets.too_large),
        "baselines": [asdict(row) for row in built.baselines],
        "counts": _counts_row(built.counts),
    }


def _counts_row(counts: BuildCounts) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name in ("read", "references", "swapped", "ambiguous"):
        row[name] = dict(sorted(getattr(counts, name).items()))
    for name in ("rejected", "dropped", "repaired"):
        outcomes = sorted(getattr(counts, name).items())
        row[name] = [{"source": source, "why": why, "rows": rows} for (source, why), rows in outcomes]
    for name in ("before", "train", "validation", "test"):
        row[name] = _set_row(getattr(counts, name))
    return row


def _set_row(counts: SetCounts) -> dict[str, Any]:
    scores, models = sorted(counts.scores.items()), sorted(counts.models.items())
    return {
        "pairs": counts.pairs,
        "with_reference": counts.with_reference,
        "judgments_with_reason": counts.with_reason,
        "winners": dict(sorted(counts.winners.items())),
        "scores": [{"place": place, "score": score, "judgments": rows} for (place, score), rows in scores],
        "models": [{"first": first, "second": second, "pairs": pairs} for (first, second), pairs in models],
    }


def _swap_words(options: BuildOptions) -> str:
    if options.swap == "none":
        return "none."
    if options.swap == "both":
        return "each pair in both orders, with answers, models, scores and reasons swapped;"
    return f"answers, models, scores and reasons swapped with probability {options.swap_prob:g};"


def _reference_words(options: BuildOptions) -> str:
    if options.reference == "both":
        return "rows contain both judgments, and one is drawn during training;"
    if options.reference == "ignore":
        return "dropped, along with the judgments made with them;"
    return f"dropped with probability {options.reference_drop_prob:g}, in prompt and target together;"


def _of(counts: Mapping[tuple[str, str], int], source: str) -> int:
    return sum(rows for (name, _), rows in counts.items() if name == source)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in sorted(counts.items()))
