"""Coverage of `judgelm study estimate`'s 95 % intervals, on simulated judges of known error.

    python -m benchmarks.estimate_coverage

Each world draws questions, the people's verdict on each (win, tie, loss), and a judge's verdict and P(win) with given
accuracy, bias and ties; labels are a random part. An interval covers where it holds the world's true win rate.
Estimates that do not exist (their reason is counted) are in no share.
"""

import argparse
import json
from collections import Counter
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from statsmodels.stats.proportion import proportion_confint

from judgelm.metrics.resampling import Estimate
from judgelm.metrics.true_win_rate import JudgedPairs, true_win_rate

ESTIMATES = ("judge", "labels", "rogan_gladen", "ppi")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Shares of people's verdicts, and a judge.

    Attributes:
        hit: probability that the judge gives people's verdict, else one of the others at random.
        bias: probability that it calls a win whatever it sees.
        soft: it gives a P(win) around its verdict.
    """

    wins: float
    ties: float
    hit: float
    pairs: int
    labels: int
    soft: bool = False
    per_question: int = 1
    bias: float = 0.0

    @property
    def truth(self) -> float:
        """The true win rate."""
        return self.wins + self.ties / 2


WORLDS = tuple(
    World(wins=wins, ties=ties, hit=hit, pairs=pairs, labels=labels, soft=soft, per_question=per_question, bias=bias)
    for wins, ties, hit, pairs, labels, soft, per_question, bias in (
        (0.6, 0.0, 0.8, 1000, 50, False, 1, 0.0),
        (0.6, 0.0, 0.8, 1000, 100, False, 1, 0.2),
        (0.6, 0.0, 0.8, 1000, 200, False, 1, 0.2),
        (0.4, 0.2, 0.7, 1000, 100, False, 1, 0.2),
        (0.4, 0.2, 0.7, 1000, 300, True, 1, 0.2),
        (0.8, 0.0, 0.9, 1000, 100, True, 1, 0.0),
        (0.5, 0.1, 0.6, 300, 50, False, 1, 0.1),
        (0.5, 0.1, 0.8, 900, 150, True, 3, 0.1),
    )
)


def main() -> None:
    """Print each world's coverage as one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for index, world in enumerate(WORLDS):
        outcome = coverage(world, options.draws, seed=options.seed + index)
        print(json.dumps({"world": asdict(world), "truth": round(world.truth, 4), **outcome}), flush=True)


def coverage(world: World, draws: int, seed: int) -> dict[str, object]:
    """Share of intervals that hold the truth, their mean width and the estimates' mean error, by estimate."""
    generator = np.random.default_rng(seed)
    covered: dict[str, list[bool]] = {name: [] for name in ESTIMATES}
    widths: dict[str, list[float]] = {name: [] for name in ESTIMATES}
    errors: dict[str, list[float]] = {name: [] for name in ESTIMATES}
    reasons: Counter[str] = Counter()
    for _ in range(draws):
        result = true_win_rate(draw(world, generator))
        for name in ESTIMATES:
            estimate = getattr(result, name)
            if not isinstance(estimate, Estimate):
                reasons[f"{name}: {estimate}"] += 1
                continue
            covered[name].append(estimate.low <= world.truth <= estimate.high)
            widths[name].append(estimate.high - estimate.low)
            errors[name].append(estimate.value - world.truth)
    return {
        "draws": draws,
        **{name: _summary(covered[name], widths[name], errors[name]) for name in ESTIMATES},
        "no_estimate": dict(reasons),
    }


def _summary(covered: list[bool], widths: list[float], errors: list[float]) -> dict[str, float] | None:
    if not covered:
        return None
    low, high = proportion_confint(sum(covered), len(covered), method="wilson")
    return {
        "coverage": round(float(np.mean(covered)), 4),
        "coverage_low": round(float(low), 4),
        "coverage_high": round(float(high), 4),
        "mean_width": round(float(np.mean(widths)), 4),
        "mean_error": round(float(np.mean(errors)), 4),
    }


def draw(world: World, generator: np.random.Generator) -> JudgedPairs:
    """Judged pairs of a world, `labels` of them labelled; pairs of one question have one verdict by people and judge.

    With `soft` the proxy is a P(win) around the verdict, else the verdict itself.
    """
    questions = world.pairs // world.per_question
    values = np.array([1.0, 0.5, 0.0])
    shares = [world.wins, world.ties, 1 - world.wins - world.ties]
    truth = np.repeat(generator.choice(3, size=questions, p=shares), world.per_question)
    n = len(truth)
    others = (truth + generator.integers(1, 3, size=n)) % 3 if world.ties else 2 - truth
    judged = np.where(generator.random(n) < world.hit, truth, others)
    judged = np.where(generator.random(n) < world.bias, 0, judged)
    verdicts: NDArray[np.float64] = values[judged]
    proxy = np.clip(verdicts * 0.6 + 0.4 * generator.random(n), 0, 1) if world.soft else verdicts
    labels = np.full(n, np.nan)
    chosen = generator.choice(n, size=world.labels, replace=False)
    labels[chosen] = values[truth[chosen]]
    clusters = np.repeat(np.arange(questions), world.per_question).tolist()
    return JudgedPairs(verdicts=verdicts, proxy=proxy, labels=labels, clusters=clusters)


if __name__ == "__main__":
    main()
