"""What a session counts of distributions, reasons and repairs."""

import math

from judgelm.parsing.scores import pair_distribution, score_lines
from judgelm.records import Judgment, PairVerdict, Shown, Unparsed
from judgelm.runs.stats import RunStats

GIVEN = {"order": (0, 1), "text": "8 6", "scores": (8, 6)}


def judged(*shown, probability=None):
    return Judgment(
        sample_id="1", mode="pair", verdict=PairVerdict(winner=1), shown=shown, scores=(8, 6), probability=probability
    )


def some(mass, approximation=""):
    logprobs = [-math.inf, -math.inf, math.log(mass), -math.inf]
    return pair_distribution(score_lines((1, 2), 1), logprobs, approximation)


def stats_of(*judgments):
    stats = RunStats()
    for judgment in judgments:
        stats.add(judgment)
    return stats


def test_repairs_and_reasons_are_counted_apart():
    stats = stats_of(
        judged(Shown(**GIVEN, repaired=Unparsed("off_grammar", "x")), Shown(**GIVEN, reason="why")),
        judged(Shown(**GIVEN, reason="why", reason_failure=Unparsed("truncated", ""))),
        judged(Shown(**GIVEN, reason_failure=Unparsed("engine", "gone"))),
    )
    assert (stats.judged, stats.repaired) == (3, 1)
    assert (stats.reasons, stats.reasons_incomplete, stats.reasons_failed) == (2, 1, 1)


def test_unassigned_mass_is_a_mean_over_orders_and_mostly_unassigned_is_counted():
    stats = stats_of(
        judged(Shown(**GIVEN, distribution=some(1.0)), Shown(**GIVEN, distribution=some(0.8)), probability=1.0),
        judged(Shown(**GIVEN, distribution=some(0.4))),
        judged(Shown(**GIVEN)),
    )
    # 0, 0.2 and 0.6 over three orders
    assert math.isclose(stats.mean_unassigned, 0.8 / 3)
    assert (stats.probabilities, stats.mostly_unassigned, stats.distributions) == (1, 1, 3)
    assert math.isclose(stats.row()["mean_unassigned"], 0.8 / 3)
    assert RunStats().row()["mean_unassigned"] is None
