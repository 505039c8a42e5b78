"""The tables of `docs/findings.md`, made of `results.json`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Figures = Mapping[str, Any]
NAMES = {"small": "small judge", "base": "its base, SmolLM2-135M-Instruct", "box": "default judge"}
_NAMED_IN_SECTION_6_2 = ("GPT-4o", "GPT-3.5 Turbo", "Claude 3.5 Sonnet", "Llama 3 8B")
"""Judges whose self-bias Play Favorites finds under every reference."""

_SETS = {"llmbar": "LLMBar", "pandalm": "PandaLM"}
_AGAINST = {"llmbar": "gold labels", "pandalm": "majority of 3 people"}


def render(results: Figures) -> str:
    """All tables as Markdown, each under its name."""
    tables: dict[str, Callable[[Figures], str]] = {
        "judges": _judges,
        "calibration": _calibration,
        "self-reference": _self_reference,
        "correctness": _correctness,
        "own-knowledge": _own_knowledge,
        "short-answers": _short_answers,
        "ssr": _ssr,
        "gates": _gates,
        "self-bias": _self_bias,
        "references": _references,
        "comparing-bias": _comparing_bias,
        "shared-errors": _shared_errors,
    }
    return "\n\n".join(f"## {name}\n\n{make(results)}" for name, make in tables.items()) + "\n"


def percent(figure: Figures | None) -> str:
    """A share in percent with its interval; a dash where there is none."""
    if figure is None:
        return "-"
    return f"{100 * figure['value']:.1f} ({100 * figure['low']:.1f} to {100 * figure['high']:.1f})"


def decimal(figure: Figures | None, digits: int = 3) -> str:
    """A number with its interval; a dash where there is none."""
    if figure is None:
        return "-"
    return f"{figure['value']:.{digits}f} ({figure['low']:.{digits}f} to {figure['high']:.{digits}f})"


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(map(str, row))} |" for row in (heads, *rows)]
    return "\n".join((lines[0], "|" + "---|" * len(heads), *lines[1:]))


def _scored(results: Figures) -> list[dict[str, Any]]:
    own = [
        {**row, "judge": NAMES[row["judge"]], "on": _SETS[row["on"]], "against": _AGAINST[row["on"]]}
        for row in results["models"]
    ]
    return [*results["published"], *own]


def _judges(results: Figures) -> str:
    heads = (
        "judge", "pairs of", "against", "n", "failed", "agreement %", "most frequent label %", "both orders agree %",
        "first %", "second %",
    )  # fmt: skip
    return _table(
        heads,
        (
            (
                row["judge"], row["on"], row["against"] or "-", f"{row['n']:,}", row["failed"],
                percent(row.get("agreement")),
                f"{100 * row['most_frequent']['value']:.1f}" if row.get("most_frequent") else "-",
                *(percent(row.get(key)) for key in ("consistency", "toward_first", "toward_second")),
            )
            for row in _scored(results)
        ),
    )  # fmt: skip


def _calibration(results: Figures) -> str:
    heads = ("judge", "pairs of", "n", "calibration error", "by chance", "overconfidence, points", "Brier score")
    return _table(
        heads,
        (
            (
                row["judge"], row["on"], f"{row['error']['n']:,}", decimal(row["error"]),
                f"{row['error_by_chance']:.3f}", percent(row["overconfidence"]), decimal(row["brier"]),
            )
            for row in _scored(results)
            if row.get("error")
        ),
    )  # fmt: skip


def _self_reference(results: Figures) -> str:
    heads = (
        "judge by its own answer", "answers to", "n", "own answers right %", "judgments right %", "r_GJ",
        "r_GJ given A", "overconfidence, points",
    )  # fmt: skip
    return _table(
        heads,
        (
            (
                row["judge"], row["on"], f"{row['agreement']['n']:,}", percent(row["own"]), percent(row["agreement"]),
                decimal(row["r_gj"]), decimal(row["partial"]), percent(row["overconfidence"]),
            )
            for row in results["comparing"]
        ),
    )  # fmt: skip


def _correctness(results: Figures) -> str:
    heads = ("judge", "n", "replies without a verdict %", "judged correct %", "truly correct %", "judgments right %")
    return _table(
        heads,
        (
            (
                NAMES[row["judge"]], row["n"],
                *(percent(row[key]) for key in ("without_verdict", "said_correct", "truly_correct", "agreement")),
            )
            for row in results["correctness"]
        ),
    )  # fmt: skip


def _own_knowledge(results: Figures) -> str:
    heads = (
        "prompt", "n", "judgments right %", "own answers right %", "F1 where they are right", "F1 where they are wrong",
        "overconfidence, points", "r_GJ given A",
    )  # fmt: skip
    words = {"CoT": "reasons only", "self-reference": "with its own answer"}
    return _table(
        heads,
        (
            (
                words[row["method"]], row["n"], percent(row["accuracy"]), percent(row["own"]), decimal(row["f1_right"]),
                decimal(row["f1_wrong"]), percent(row["overconfidence"]), decimal(row["partial"]),
            )
            for row in results["own_knowledge"]["self_reference"]
        ),
    )  # fmt: skip


def _short_answers(results: Figures) -> str:
    found = results["own_knowledge"]["qa"]
    judges = {f"default judge, {name}": row for name, row in found["runs"].items()}
    rows = judges | {"exact match": found["exact_match"], "people": {"n": found["exact_match"]["n"]}}
    rows["people"] |= {"said_correct": found["people_say_correct"]}
    return _table(
        ("judge", "answers", "without a verdict", "agrees with people %", "called correct %"),
        (
            (name, row["n"], row.get("failed", "-"), percent(row.get("agreement")), percent(row["said_correct"]))
            for name, row in rows.items()
        ),
    )


def _ssr(results: Figures) -> str:
    heads = ("judge", "reference", "n", "orders disagree", "right, a split is half %", "right in both orders %")
    return _table(
        heads,
        (
            (
                NAMES[judge["judge"]], half["condition"], half["accuracy"]["n"], half["splits"],
                percent(half["accuracy"]), percent(wrong["accuracy"]),
            )
            for judge in (*results["ssr"], results["own_knowledge"]["ssr"])
            for half in judge["rows"]
            for wrong in judge["rows"]
            if half["split"] == "half" and wrong["split"] == "wrong" and half["condition"] == wrong["condition"]
        ),
    )  # fmt: skip


def _gates(results: Figures) -> str:
    heads = ("answers to", "questions", "models", "share that must agree", "gate on %", "majority right then %")
    models = {"GSM8K": 4, "MMLU-Pro": 5}
    return _table(
        heads,
        (
            (
                row["on"], f"{row['questions']:,}", models[row["on"]], f"{row['tau']:g}",
                percent(row["gate_on_rate"]), percent(row["gate_precision"]),
            )
            for row in results["gates"]
        ),
    )  # fmt: skip


def _effects(rows: Iterable[Figures]) -> dict[tuple[str, str], dict[str, Figures]]:
    effects: dict[tuple[str, str], dict[str, Figures]] = {}
    for row in rows:
        effects.setdefault((row["term"].split(" ")[0], row["of"]), {})[row["fit"]] = row["effect"]
    return effects


def _self_bias(results: Figures) -> str:
    fits = ("all", "dimension: Faithfulness", "dimension: Logical correctness")
    return _table(
        ("bias", "of", "n", "both dimensions", "faithfulness", "logical correctness"),
        (
            (bias, name, f"{effects['all']['n']:,}", *(decimal(effects.get(fit)) for fit in fits))
            for (bias, name), effects in _effects(results["self_bias"]["effects"]).items()
        ),
    )


def _references(results: Figures) -> str:
    rows = [
        (row["of"], row["reference"], decimal(row["text"]), decimal(row["figure"]))
        for row in results["references"]
        if row["of"] in _NAMED_IN_SECTION_6_2
    ]
    heads = ("self-bias of", "reference", "text: without its completions", "figure: with them")
    return _table(heads, sorted(rows, key=lambda row: _NAMED_IN_SECTION_6_2.index(row[0])))


def _comparing_bias(results: Figures) -> str:
    return _table(
        ("bias", "of", "n", "effect"),
        (
            (bias, name, effects["all"]["n"], decimal(effects["all"]))
            for (bias, name), effects in _effects(results["comparing_bias"]["effects"]).items()
        ),
    )


def _shared_errors(results: Figures) -> str:
    return _table(
        ("models", "both wrong", "the same wrong answer %"),
        (
            (f"{row['first']}, {row['second']}", row["same"]["n"], percent(row["same"]))
            for row in results["shared_errors"]
            if min(row["same"]["value"], 1 - row["same"]["value"]) * row["same"]["n"] >= 29.5
        ),
    )
