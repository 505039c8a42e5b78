"""Figures of the readings that `python -m benchmarks.reading_choice` asked for, and of sums and mixtures of them.

    python -m benchmarks.reading_choice.report --pools FOLDER --out FOLDER

`--out` holds a folder for each model. Writes `results.json` beside this file and prints a table for each model. All
intervals are at 95 %: Wilson's for a share of pairs, a bootstrap over questions for a difference.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict
from statsmodels.stats.proportion import proportion_confint

from benchmarks.reading_choice.sets import SETS, development_pairs
from benchmarks.reading_choice.wordings import WORDINGS, mass
from benchmarks.reading_training.pairs import Pair, json_lines
from judgelm.metrics.resampling import Floats, Resampling, mean

CHOICE_SETS = ("own", "gsm8k", "alpaca")
"""Sets that the choice rests on."""
COMPARED = ("yes-no", "asked-before")
"""The reading that was there before, and the best one: each other reading is compared with both, on common pairs."""
Values = Mapping[str, Floats]
"""What a model said to a pair in each wording, shape (2 prompts,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A number for a pair, positive where the first answer is better, from wordings that it needs."""

    needs: tuple[str, ...]
    value: Callable[[Values], float]


def difference(values: Floats) -> float:
    """Of an answer's value to the other's, or the mean of both orders times 2."""
    return float(values[0] - values[1])


def added(*names: str) -> Reading:
    """The sum of wordings' log-odds."""
    return Reading(needs=names, value=lambda values: sum(difference(values[name]) for name in names))


def probability(*names: str) -> Reading:
    """The mean of wordings' probabilities."""
    return Reading(needs=names, value=lambda values: sum(difference(1 / (1 + np.exp(-values[name]))) for name in names))


READINGS = {name: added(name) for name in WORDINGS} | {
    "correct + limits": added("correct", "limits"),
    "correct + limits + safe": added("correct", "limits", "safe"),
    "correct, limits and safe, mean probability": probability("correct", "limits", "safe"),
    "yes-no + wrong": added("yes-no", "wrong"),
    "yes-no and wrong, mean probability": probability("yes-no", "wrong"),
    "yes-no + all-in-one": added("yes-no", "all-in-one"),
    "asked-before + yes-no": added("asked-before", "yes-no"),
    "asked-before + all-in-one": added("asked-before", "all-in-one"),
    "letters + letters-criteria": added("letters", "letters-criteria"),
    "letters + letters-worse": added("letters", "letters-worse"),
    "yes-no + letters": added("yes-no", "letters"),
    "yes-no + letters-criteria": added("yes-no", "letters-criteria"),
    "asked-before + letters-criteria": added("asked-before", "letters-criteria"),
}
LOGISTIC = (
    ("yes-no", "letters"), ("yes-no", "letters-criteria"), ("asked-before", "letters-criteria"),
    ("all-in-one", "letters-criteria"), ("yes-no", "wrong"), ("correct", "limits", "safe"),
)  # fmt: skip
MIN_LOGISTIC_PAIRS = 100


def main() -> None:
    """Write the figures and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    sets = development_pairs(options.pools)
    models = {folder.name: of_model(folder, sets) for folder in sorted(options.out.iterdir()) if folder.is_dir()}
    results = {
        "longer answer": {name: longer_is_better(pairs) for name, pairs in sets.items()},
        "models": models,
    }
    target = Path(__file__).parent / "results.json"
    target.write_text(json.dumps(_rounded(results), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, model in models.items():
        print(table(name, model), end="\n\n")


def of_model(folder: Path, sets: Mapping[str, Sequence[Pair]]) -> dict[str, Any]:
    """Figures of each reading, and of each wording's words."""
    rows = {path.stem: {row["id"]: row for row in json_lines(path)} for path in sorted(folder.glob("*.jsonl"))}
    said = {
        name: {key: np.array([WORDINGS[name].value(word) for word in row["logprobs"]]) for key, row in entries.items()}
        for name, entries in rows.items()
    }
    scores = {
        name: {
            pair.id: reading.value({need: said[need][pair.id] for need in reading.needs})
            for pairs in sets.values()
            for pair in pairs
            if all(pair.id in said.get(need, {}) for need in reading.needs)
        }
        for name, reading in READINGS.items()
    }
    scores |= {f"{' and '.join(names)}, logistic": logistic(sets, said, names) for names in LOGISTIC}
    others = {name: scores[name] for name in COMPARED}
    figures = {name: reading_figures(sets, values, others) for name, values in scores.items() if values}
    for name, entries in rows.items():
        figures[name]["words"] = word_figures(name, list(entries.values()))
    seconds = folder / "seconds.json"
    return {"readings": figures, "seconds": json.loads(seconds.read_text()) if seconds.is_file() else None}


def logistic(
    sets: Mapping[str, Sequence[Pair]], said: Mapping[str, Mapping[str, Floats]], names: Sequence[str]
) -> dict[str, float]:
    """A weighted sum without intercept, weights fitted to the other nine tenths of the questions of `CHOICE_SETS`."""
    pairs = [
        pair for name in CHOICE_SETS for pair in sets[name] if all(pair.id in said.get(each, {}) for each in names)
    ]
    if len(pairs) < MIN_LOGISTIC_PAIRS:
        return {}
    features = np.array([[difference(said[name][pair.id]) for name in names] for pair in pairs])
    labels = np.array([pair.label > 0.5 for pair in pairs])
    values = cross_val_predict(
        LogisticRegression(fit_intercept=False, C=100.0), features, labels, cv=GroupKFold(10),
        groups=[pair.question for pair in pairs], method="decision_function",
    )  # fmt: skip
    return {pair.id: float(value) for pair, value in zip(pairs, values, strict=True)}


def reading_figures(
    sets: Mapping[str, Sequence[Pair]], scores: Mapping[str, float], others: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """By set: accuracy, and how often the longer answer is taken; differences to other readings."""
    by_set: dict[str, Any] = {}
    for name, all_pairs in sets.items():
        pairs = [pair for pair in all_pairs if pair.id in scores]
        if not pairs:
            continue
        unequal = [pair for pair in pairs if pair.longer_is_better is not None]
        longer_taken = hits(unequal, scores) == [bool(pair.longer_is_better) for pair in unequal]
        kinds = sorted({pair.kind for pair in pairs if pair.family == "own"})
        by_set[name] = {
            "accuracy": wilson(hits(pairs, scores)),
            "longer_taken": float(np.mean(longer_taken)),
            "longer_is_better": longer_is_better(pairs),
            "when_longer_is_better": wilson(hits([pair for pair in unequal if pair.longer_is_better], scores)),
            "when_shorter_is_better": wilson(hits([pair for pair in unequal if not pair.longer_is_better], scores)),
            "kinds": {kind: wilson(hits([pair for pair in pairs if pair.kind == kind], scores)) for kind in kinds},
        }
    chosen = [pair for name in CHOICE_SETS for pair in sets[name] if pair.id in scores]
    return {
        "chosen": wilson(hits(chosen, scores)),
        "against": {
            f"{label}, {other}": paired(pairs, scores, values)
            for label, pairs in (("own", [pair for pair in chosen if pair.family == "own"]), ("chosen", chosen))
            for other, values in others.items()
        },
        "sets": by_set,
    }


def paired(pairs: Sequence[Pair], scores: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float] | None:
    """Accuracy less that of another reading on the pairs that both have; None without such pairs."""
    both = [pair for pair in pairs if pair.id in scores and pair.id in other]
    if not both:
        return None
    estimate = mean(hits(both, scores) - hits(both, other), [pair.question for pair in both], Resampling())
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}


def hits(pairs: Sequence[Pair], scores: Mapping[str, float]) -> Floats:
    """1 where the better answer is taken, 0.5 for a value of 0."""
    values = np.array([scores[pair.id] for pair in pairs])
    labels = np.array([pair.label > 0.5 for pair in pairs])
    return np.where(values == 0, 0.5, (values > 0) == labels).astype(float)


def wilson(right: Floats) -> dict[str, float] | None:
    """A share with Wilson's interval; None without pairs."""
    if not len(right):
        return None
    low, high = proportion_confint(right.sum(), len(right), method="wilson")
    return {"value": float(right.mean()), "low": float(low), "high": float(high), "n": len(right)}


def longer_is_better(pairs: Sequence[Pair]) -> float:
    """Share of the pairs whose longer answer is the better one."""
    return float(np.mean([bool(pair.longer_is_better) for pair in pairs if pair.longer_is_better is not None]))


def word_figures(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Tokens of both prompts, probability outside the words, mean value, agreement of both orders."""
    logprobs = [row["logprobs"] for row in rows]
    outside = 1 - np.array([mass(words) for prompts in logprobs for words in prompts])
    values = np.array([[WORDINGS[name].value(words) for words in prompts] for prompts in logprobs])
    figures: dict[str, Any] = {
        "pairs": len(values), "prompt_tokens_mean": float(np.mean([row["prompt_tokens"] for row in rows])),
        "outside_mean": float(outside.mean()),
        "outside_quantile_95": float(np.quantile(outside, 0.95)), "value_mean": float(values.mean()),
    }  # fmt: skip
    if WORDINGS[name].shows_both:
        figures["both_orders_agree"] = wilson(((values[:, 0] > 0) != (values[:, 1] > 0)).astype(float))
    return figures


def table(model: str, figures: Mapping[str, Any]) -> str:
    """A row a reading, in the order of the accuracy on all `CHOICE_SETS`, in percent."""
    heads = [
        "reading", "all three", *SETS, *(f"all three, against {other}" for other in COMPARED), "longer taken, own",
        "outside", "orders agree",
    ]  # fmt: skip
    lines = [heads, ["---"] * len(heads)]
    for name, entry in sorted(figures["readings"].items(), key=lambda item: -item[1]["chosen"]["value"]):
        sets, words = entry["sets"], entry.get("words")
        agree = words and words.get("both_orders_agree")
        lines.append([
            name,
            _percent(entry["chosen"]),
            *(_percent(sets.get(each, {}).get("accuracy")) for each in SETS),
            *(_percent(entry["against"][f"chosen, {other}"]) for other in COMPARED),
            f"{100 * sets['own']['longer_taken']:.0f}" if "own" in sets else "",
            f"{words['outside_mean']:.4f}" if words else "",
            f"{100 * agree['value']:.0f}" if agree else "",
        ])  # fmt: skip
    return f"{model}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _percent(share: Mapping[str, float] | None) -> str:
    if share is None:
        return ""
    return f"{100 * share['value']:.1f} ({100 * share['low']:.1f} to {100 * share['high']:.1f}; {share['n']})"


def _rounded(value: Any) -> Any:
    """Plain JSON with four digits."""
    if isinstance(value, Mapping):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
