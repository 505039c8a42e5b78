"""Simulate `judgelm gate --max-drop 3`: how often it passes and fails, by the true drop and the number of pairs.

    python -m benchmarks.gate_power --figure docs/images/gate-power.svg

A label changes in 20 % of the pairs: from good to bad in 10 % plus half of the drop, and from bad to good in the rest.
"""

import argparse
from pathlib import Path

import numpy as np

from judgelm.studies.gate import check_mean

LIMIT, CHANGED, RUNS = 3.0, 0.2, 1000
SIZES = (100, 300, 1000, 3000)
DROPS = (-6.0, -4.0, -2.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def rates(drop: float, n: int, cluster: int = 1) -> tuple[float, float]:
    """Return the shares of runs that pass and that fail."""
    draws = np.random.default_rng([n, int(100 * (drop + 100)), cluster])
    down, up = CHANGED / 2 + drop / 200, CHANGED / 2 - drop / 200
    questions = n // cluster
    clusters = [index for index in range(questions) for _ in range(cluster)]
    outcomes = []
    for _ in range(RUNS):
        values = np.repeat(draws.choice([100.0, 0.0, -100.0], size=questions, p=[down, 1 - down - up, up]), cluster)
        check = check_mean("drop", values, clusters, limit=LIMIT, bounds=(-100.0, 100.0), is_maximum=True)
        outcomes.append(check.outcome)
    return outcomes.count("passed") / RUNS, outcomes.count("failed") / RUNS


def main() -> None:
    """Print the rates, and draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    found = {(n, drop): rates(drop, n) for n in SIZES for drop in DROPS}
    for (n, drop), (passed, failed) in found.items():
        print(f"n = {n}, true drop {drop:g}: passed {100 * passed:.1f} %, failed {100 * failed:.1f} %")
    for n in (30, 100, 500):
        for cluster in (1, 5):
            passed, failed = rates(LIMIT, n, cluster)
            print(f"n = {n} in clusters of {cluster}, drop 3: passed {100 * passed:.1f} %, failed {100 * failed:.1f} %")
    if options.figure is not None:
        draw(found, options.figure)


def draw(found: dict[tuple[int, float], tuple[float, float]], path: Path) -> None:
    """Write the curves as SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    with mpl.rc_context({"svg.hashsalt": "judgelm", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure, axes = plt.subplots(figsize=(7, 3.6))
        for n, colour, marker in zip(SIZES, ("#56b4e9", "#0072b2", "#d55e00", "#000000"), "osD^", strict=True):
            for place, style in ((0, "-"), (1, "--")):
                label = f"{n:,} pairs" if place == 0 else None
                shares = [100 * found[n, drop][place] for drop in DROPS]
                axes.plot(DROPS, shares, style, color=colour, marker=marker, markersize=4, label=label)
        axes.axvline(LIMIT, color="#999999", linewidth=1)
        axes.set_xlabel("true drop, percentage points (limit: 3)")
        axes.set_ylabel("passed (solid), failed (dashed), %")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
