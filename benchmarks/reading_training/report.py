"""Figures of all runs, from their log-odds: agreement, length, consistency, and differences to the untrained readings.

    python -m benchmarks.reading_training.report --data FOLDER --runs FOLDER

`--data` holds `dev.jsonl` and `train_all.jsonl`, `--runs` what `train.py` wrote. Writes `results.json` beside this file
and prints the tables. Agreement counts pairs whose label names a winner; intervals are at 95 %, over questions.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from benchmarks.reading_training.pairs import Pair, json_lines, read_pairs
from judgelm.metrics.resampling import Estimate, Floats, Resampling, mean, share

GROUPS = (
    "gsm8k sampled", "gsm8k reference", "own neighbour", "alpaca neighbour", "alpaca", "limits", "limits unseen",
    "safety", "facts", "everyday", "all",
)  # fmt: skip
UNTRAINED = ("untrained-letters", "untrained-yes-no")
LOGISTIC = "untrained-logistic"


def main() -> None:
    """Write the figures and print them as tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results.json")
    options = parser.parse_args()
    pairs = read_pairs(options.data / "dev.jsonl")
    runs = {
        path.stem: {row["id"]: row for row in json_lines(path)}
        for path in sorted(options.runs.glob("*.jsonl"))
        if not path.stem.endswith("train_all")
    }
    log_odds = {name: np.array([rows[pair.id]["log_odds"] for pair in pairs]) for name, rows in runs.items()}
    weights = logistic_weights(options)
    log_odds[LOGISTIC] = sum(weight * log_odds[name] for weight, name in zip(weights, UNTRAINED, strict=True))  # type: ignore[assignment]
    results: dict[str, Any] = {
        "pairs": len(pairs),
        "logistic_weights": weights,
        "baselines": baselines(pairs),
        "runs": {},
    }
    for name, values in log_odds.items():
        figures: dict[str, Any] = {"groups": groups(pairs, values, log_odds, name)}
        figures |= reading_figures(name, pairs, runs.get(name, {}), values)
        log = options.runs / name / "training_log.json"
        if log.is_file():
            content = json.loads(log.read_text(encoding="utf-8"))
            losses = content.pop("losses")
            figures["training"] = content | {"first_loss": np.mean(losses[:20]), "last_loss": np.mean(losses[-20:])}
        results["runs"][name] = figures
    options.out.write_text(json.dumps(_rounded(results), indent=1) + "\n", encoding="utf-8")
    print(tables(results))


def group_of(pair: Pair) -> str:
    """The group under which a pair is reported."""
    if pair.family == "limits":
        return "limits unseen" if pair.kind in ("limit capitals", "limit no commas") else "limits"
    if pair.family in ("safety", "facts", "everyday", "ties"):
        return pair.family
    return "alpaca" if pair.family == "preference" else pair.kind


def logistic_weights(options: argparse.Namespace) -> list[float]:
    """Weights of both untrained log-odds, fitted to the labels of the training questions, without intercept."""
    labels = {pair.id: pair.label for pair in read_pairs(options.data / "train_all.jsonl")}
    read = [
        {row["id"]: row["log_odds"] for row in json_lines(options.runs / f"{name}-train_all.jsonl")}
        for name in UNTRAINED
    ]
    features = np.array([[rows[name] for rows in read] for name in labels])
    targets = np.array(list(labels.values()))

    def loss(weights: Floats) -> float:
        values = features @ weights
        return float(np.mean(np.logaddexp(0, values) - targets * values))

    return [float(weight) for weight in minimize(loss, np.zeros(2)).x]


def baselines(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Agreement of the longer answer, by group."""
    lengths = np.array([float(len(pair.answers[0]) - len(pair.answers[1])) for pair in pairs])
    return {"longer answer": {group: _agreement(pairs, lengths, group) for group in GROUPS}}


def _decided(pairs: Sequence[Pair], group: str) -> list[int]:
    return [i for i, pair in enumerate(pairs) if pair.label != 0.5 and group in ("all", group_of(pair))]


def _hits(pairs: Sequence[Pair], values: Floats, indices: Sequence[int]) -> Floats:
    """1 where the better answer is named, 0.5 where the log-odds are 0."""
    labels = np.array([pairs[index].label for index in indices])
    return np.where(values[indices] == 0, 0.5, (values[indices] > 0) == (labels > 0.5)).astype(float)


def _agreement(pairs: Sequence[Pair], values: Floats, group: str) -> Estimate:
    indices = _decided(pairs, group)
    hits = _hits(pairs, values, indices)
    return mean(hits, [pairs[index].question for index in indices], Resampling())


def groups(
    pairs: Sequence[Pair], values: Floats, log_odds: dict[str, Floats], name: str
) -> dict[str, dict[str, Estimate]]:
    """Agreement, share of the longer answer, and differences to the untrained readings, by group."""
    figures = {}
    for group in GROUPS:
        indices = _decided(pairs, group)
        clusters = [pairs[index].question for index in indices]
        own = _hits(pairs, values, indices)
        figures[group] = {"agreement": mean(own, clusters, Resampling())}
        unequal = [i for i in indices if pairs[i].longer_is_better is not None]
        longer = np.array([(values[i] > 0) == (len(pairs[i].answers[0]) > len(pairs[i].answers[1])) for i in unequal])
        figures[group]["longer_taken"] = share(longer, [pairs[i].question for i in unequal], Resampling())
        for other in UNTRAINED:
            if other != name:
                difference = own - _hits(pairs, log_odds[other], indices)
                figures[group][f"against_{other}"] = mean(difference, clusters, Resampling())
    return figures


def reading_figures(name: str, pairs: Sequence[Pair], rows: dict[str, Any], values: Floats) -> dict[str, Any]:
    """For letters agreement of both orders; mass of the two words, and log-odds of ties."""
    tied = [index for index, pair in enumerate(pairs) if pair.family == "ties"]
    figures: dict[str, Any] = {"ties_mean_absolute_log_odds": float(np.abs(values[tied]).mean()), "ties": len(tied)}
    if not rows or "mass" not in next(iter(rows.values())):
        return figures
    first = np.array([rows[pair.id]["prompts"] for pair in pairs])
    if "letters" in name:
        agree = (first[:, 0] > 0) != (first[:, 1] > 0)
        figures["both_orders_agree"] = share(agree, [pair.question for pair in pairs], Resampling())
    figures["mean_log_odds_as_shown"] = float(first.mean())
    figures["least_mass_mean"] = float(np.mean([rows[pair.id]["mass"] for pair in pairs]))
    return figures


def tables(results: dict[str, Any]) -> str:
    """Agreement by run and group in percent, with intervals; then the differences to the untrained readings."""
    heads = ["run", *(f"{group} ({results['baselines']['longer answer'][group].n})" for group in GROUPS)]
    lines = [heads, ["---"] * len(heads)]
    lines.append(["longer answer", *(_percent(results["baselines"]["longer answer"][group]) for group in GROUPS)])
    for name, run in results["runs"].items():
        lines.append([name, *(_percent(run["groups"][group]["agreement"]) for group in GROUPS)])
    for other in UNTRAINED:
        lines.append([f"**difference to {other}, points**", *[""] * len(GROUPS)])
        for name, run in results["runs"].items():
            if name != other:
                lines.append([name, *(_percent(run["groups"][group][f"against_{other}"]) for group in GROUPS)])
    lines.append(["**longer answer taken**", *[""] * len(GROUPS)])
    for name, run in results["runs"].items():
        lines.append([name, *(f"{100 * run['groups'][group]['longer_taken'].value:.0f}" for group in GROUPS)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _percent(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f} ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"


def _rounded(value: Any) -> Any:
    """Plain JSON with four digits."""
    if isinstance(value, Estimate):
        return _rounded(asdict(value))
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.4g}") if isinstance(value, float) and abs(value) < 1e4 else value


if __name__ == "__main__":
    main()
