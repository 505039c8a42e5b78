"""Elo ratings and length-controlled win rates of AlpacaEval's annotations, beside its published leaderboard.

    python -m benchmarks.alpaca_eval_leaderboard --data FOLDER --leaderboard CSV

FOLDER holds AlpacaEval's published annotations as `judgments.parquet` (instruction, output_1, output_2, preference,
annotator) and `outputs.parquet` (generator, text); CSV is the leaderboard of its repository
(`src/alpaca_eval/leaderboards/data_AlpacaEval_2/weighted_alpaca_eval_gpt4_turbo_leaderboard.csv`). Neither is part of
judgelm. Every model met one baseline only, and the folder may lack instructions that the leaderboard has, so that this
checks that nothing is lost between annotations and ranking, and says how far the length control is from theirs:
AlpacaEval adds each instruction's difficulty, an L1 penalty and two more versions of its baseline.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import bootstrap, kendalltau, spearmanr

from judgelm.metrics.bradley_terry import Match, bradley_terry
from judgelm.metrics.resampling import Resampling
from judgelm.metrics.win_rate import Control, control_style, length_controlled, style_differences

CONTROLS: tuple[Control, ...] = ("length", "length,style")
ALONE = "length, each model alone"


def main() -> None:
    """Print correlations with the leaderboard's columns as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--leaderboard", type=Path, required=True)
    parser.add_argument("--annotator", default="weighted_alpaca_eval_gpt4_turbo")
    parser.add_argument("--resamples", type=int, default=1000)
    options = parser.parse_args()
    rows = read(options.data, options.annotator)
    published = pd.read_csv(options.leaderboard, index_col=0)
    start = time.perf_counter()
    matches = [
        Match(first=model, second=baseline, preference=preference, question=question)
        for model, baseline, preference, question in zip(
            rows["model"], rows["baseline"], rows["preference"], rows["instruction"], strict=True
        )
    ]
    ratings = bradley_terry(matches, Resampling(resamples=options.resamples))
    seconds = time.perf_counter() - start
    table = pd.DataFrame({"elo": {rating.model: rating.elo.value for rating in ratings.rated}})
    table["ranks"] = pd.Series({rating.model: rating.worst_rank - rating.best_rank + 1 for rating in ratings.rated})
    reasons: dict[str, dict[str, str]] = {}
    for name in CONTROLS:
        table[name], reasons[name] = controlled(rows, name)
    table[ALONE], reasons[ALONE] = controlled_alone(rows)
    table["raw"] = 100 * rows.groupby("model")["preference"].mean()
    table = table.join(published, how="inner")
    print(
        json.dumps(
            {
                "annotator": options.annotator,
                "judgments": len(rows),
                "instructions": int(rows["instruction"].nunique()),
                "models": len(ratings.rated),
                "unrated": ratings.unrated,
                "models_on_the_leaderboard": len(table),
                "separable_resamples": ratings.separable_resamples,
                "mean_width_of_rank_intervals": round(float(table["ranks"].mean()), 2),
                "seconds_for_ratings": round(seconds, 1),
                "elo_and_win_rate": correlation(table, "elo", "win_rate"),
                "raw_and_win_rate": difference(table, "raw", "win_rate"),
                **{
                    f"{name} and published length control": {
                        **correlation(table, name, "length_controlled_winrate"),
                        **difference(table, name, "length_controlled_winrate"),
                        "no_estimate": reasons[name],
                    }
                    for name in (*CONTROLS, ALONE)
                },
                "raw and published length control": {
                    **correlation(table, "raw", "length_controlled_winrate"),
                    **difference(table, "raw", "length_controlled_winrate"),
                },
            },
            indent=1,
        )
    )


def read(folder: Path, annotator: str) -> pd.DataFrame:
    """The annotator's rows: model, baseline, texts, and the probability that the model's output is better."""
    judgments = pd.read_parquet(folder / "judgments.parquet")
    outputs = pd.read_parquet(folder / "outputs.parquet")
    rows = judgments[judgments["annotator"] == annotator].copy()
    for side, name in (("output_1", "baseline"), ("output_2", "model")):
        rows[name] = outputs["generator"].to_numpy()[rows[side]].astype(str)
        rows[f"{name}_text"] = outputs["text"].to_numpy()[rows[side]]
    rows["preference"] = rows["preference"] - 1
    return rows[rows["model"] != rows["baseline"]]


def controlled(rows: pd.DataFrame, control: Control) -> tuple[pd.Series, dict[str, str]]:
    """Controlled win rates by model in percent, one coefficient for all models, and what is without one."""
    answers = list(zip(rows["model_text"], rows["baseline_text"], strict=True))
    fit = control_style(
        rows["preference"].to_numpy(),
        style_differences(answers, control),
        list(rows["instruction"]),
        list(zip(rows["model"], rows["baseline"], strict=True)),
    )
    if isinstance(fit, str):
        return pd.Series(dtype=float), {"all": fit}
    rates = 100 * pd.Series(fit.neutral, index=rows.index).groupby(rows["model"]).mean()
    return rates.dropna(), {str(model): "always or never wins" for model in rates[rates.isna()].index}


def controlled_alone(rows: pd.DataFrame) -> tuple[pd.Series, dict[str, str]]:
    """Length-controlled win rates by `judgelm study leaderboard`, a coefficient for each model."""
    rates, reasons = {}, {}
    for model, group in rows.groupby("model"):
        lengths = np.column_stack([group["baseline_text"].str.len(), group["model_text"].str.len()]).astype(float)
        fit = length_controlled(group["preference"].to_numpy(), lengths, list(group["instruction"]))
        if isinstance(fit, str):
            reasons[str(model)] = fit
        else:
            rates[str(model)] = 100 * fit.rate.value
    return pd.Series(rates), reasons


def correlation(table: pd.DataFrame, ours: str, theirs: str) -> dict[str, object]:
    """Spearman's and Kendall's coefficients over the models, the former with a percentile interval."""
    both = table[[ours, theirs]].dropna()
    values: Sequence[NDArray[np.float64]] = (both[ours].to_numpy(), both[theirs].to_numpy())
    drawn = bootstrap(
        values,
        lambda first, second: spearmanr(first, second).statistic,
        paired=True,
        vectorized=False,
        method="percentile",
        n_resamples=1000,
        rng=np.random.default_rng(0),
    ).confidence_interval
    return {
        "models": len(both),
        "spearman": round(float(spearmanr(*values).statistic), 4),
        "spearman_interval": [round(float(drawn.low), 4), round(float(drawn.high), 4)],
        "kendall": round(float(kendalltau(*values).statistic), 4),
    }


def difference(table: pd.DataFrame, ours: str, theirs: str) -> dict[str, float]:
    """Mean and largest absolute difference, in points of win rate."""
    gaps = (table[ours] - table[theirs]).dropna().abs()
    return {"mean_difference": round(float(gaps.mean()), 2), "largest_difference": round(float(gaps.max()), 2)}


if __name__ == "__main__":
    main()
