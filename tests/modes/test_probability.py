"""P(first better) in the pair mode: asked for, antisymmetrised, made into a verdict."""

import pytest

from judgelm.errors import ConfigError
from judgelm.modes import Pairwise
from judgelm.parsing.scores import score_lines
from judgelm.records import PairVerdict
from judgelm.runs.stats import RunStats
from tests.support.flows import broken, drive, reply

FIRST = {"8 6": 0.9, "6 8": 0.1}  # 0.9 for the one shown first


def judged(*completions, **options):
    mode = Pairwise(both_orders=len(completions) == 2, **({"distribution": True} | options))
    return drive(mode, completions)[1]


def test_every_score_line_is_asked_for():
    asked, _ = drive(Pairwise(distribution=True), [reply("8 6", lines=FIRST)])
    assert asked[0][0].candidates == score_lines((1, 10), 1).texts
    asked, judgment = drive(Pairwise(), [reply("8 6")])
    assert asked[0][0].candidates == ()
    assert judgment.probability is None


def test_both_orders_are_averaged_in_sample_order():
    # swapped, the one shown first has 0.2, so the sample's first has 0.8; mean of 0.9 and 0.8
    judgment = judged(reply("8 6", lines=FIRST), reply("6 8", lines={"8 6": 0.2, "6 8": 0.8}))
    assert judgment.probability == pytest.approx(0.85)
    assert judgment.shown[1].distribution.first_better == pytest.approx(0.2)
    assert judgment.verdict == PairVerdict(winner=1)


def test_the_scores_decide_unless_the_rule_says_probability():
    # greedy 6 8, but two lines for the first answer have more together
    lines = {"6 8": 0.4, "8 6": 0.3, "9 6": 0.3}
    assert judged(reply("6 8", lines=lines)).verdict == PairVerdict(winner=2)
    by_probability = judged(reply("6 8", lines=lines), order_rule="probability")
    assert by_probability.verdict == PairVerdict(winner=1)
    assert by_probability.scores == (6, 8)


@pytest.mark.parametrize(("band", "winner"), [(0.1, "tie"), (0.05, 1)])
def test_the_tie_threshold_makes_ties(band, winner):
    lines = {"8 6": 0.6, "6 8": 0.4}
    judgment = judged(reply("8 6", lines=lines), order_rule="probability", tie_threshold=band)
    assert judgment.verdict == PairVerdict(winner=winner)


def test_little_mass_is_no_probability_but_is_recorded():
    judgment = judged(reply("8 6", lines={"8 6": 0.3}))
    assert judgment.probability is None
    assert judgment.verdict == PairVerdict(winner=1)
    assert judgment.shown[0].distribution.unassigned == pytest.approx(0.7)


def test_under_the_probability_rule_little_mass_is_a_failure_that_says_so():
    judgment = judged(reply("8 6", lines={"8 6": 0.3}), order_rule="probability")
    assert judgment.verdict is None
    assert judgment.failure.code == "off_grammar"
    assert judgment.failure.why == "the score lines have only 0.3 of the probability together, less than half"


def test_an_engine_without_probabilities_leaves_them_out_or_fails_the_rule():
    assert judged(reply("8 6")).probability is None
    failure = judged(reply("8 6"), order_rule="probability").failure
    assert (failure.code, failure.text) == ("engine", "")
    assert "gives no probabilities" in failure.why


@pytest.mark.parametrize("unread", ["The first is better", "8 6 5", "11 2", "8/6"])
def test_under_the_probability_rule_the_mass_decides_where_the_line_cannot_be_read(unread):
    # swapped, the one shown first has 0.2 of what is assigned, so the sample's first has 0.8; mean of 0.9 and 0.8
    swapped = reply(unread, lines={"8 6": 0.12, "6 8": 0.48})
    judgment = judged(reply("8 6", lines=FIRST), swapped, order_rule="probability")
    assert judgment.verdict == PairVerdict(winner=1)
    assert judgment.probability == pytest.approx(0.85)
    assert (judgment.scores, judgment.failure) == ((8, 6), None)
    assert (judgment.shown[1].failure is not None, judgment.consistent) == (True, None)  # counted and stated
    stats = RunStats()
    stats.add(judgment)
    assert (stats.parts_failed, stats.failures) == (1, {})
    assert judged(reply("8 6", lines=FIRST), swapped).failure is not None  # other rules rest on the scores


def test_where_no_line_can_be_read_the_scores_are_the_expected_ones():
    judgment = judged(reply("Both", lines={"8 6": 0.75, "4 6": 0.25}), order_rule="probability")
    # 0.75 * 8 + 0.25 * 4 = 7
    assert (judgment.verdict, judgment.scores) == (PairVerdict(winner=1), (7.0, 6.0))
    assert judged(broken(), order_rule="probability").failure.code == "engine"


def test_a_failed_order_leaves_no_probability():
    judgment = judged(reply("8 6", lines=FIRST), reply("dunno", lines={"8 6": 0.1}), order_rule="probability")
    assert (judgment.failure.code, judgment.probability) == ("off_grammar", None)
    assert judgment.shown[0].distribution is not None


@pytest.mark.parametrize("other", [broken(), reply("dunno", lines={}), reply("6 8", lines={"6 8": 0.3}), reply("6 8")])
def test_one_order_is_enough_where_the_user_says_so(other):
    judgment = judged(reply("8 6", lines=FIRST), other, order_rule="probability", accept_one_order=True)
    assert judgment.probability == pytest.approx(0.9)
    assert judgment.verdict == PairVerdict(winner=1)


def test_the_approximation_is_kept():
    judgment = judged(reply("8 6", lines=FIRST, approximation="sampled 16 times"))
    assert judgment.shown[0].distribution.approximation == "sampled 16 times"


@pytest.mark.parametrize("options", [{"order_rule": "probability"}, {"reasons": "close"}])
def test_what_rests_on_the_distribution_asks_for_it(options):
    assert Pairwise(**options) == Pairwise(**options, distribution=True)


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"order_rule": "given", "accept_one_order": True}, "of the given order alone; leave accept_one_order out"),
        ({"reasons": "flips"}, "add --both-orders"),
        ({"tie_threshold": 0.6}, r"tie_threshold is 0\.6"),
        ({"close_threshold": -0.1}, r"close_threshold is -0\.1"),
        ({"reason_tokens": 0}, "reason_tokens is 0"),
        ({"step": 0}, "step is 0; it must be above 0"),
        ({"step": 0.01, "distribution": True}, "holds 901 scores"),
        ({"scale": (0, 1000), "retry_unparseable": True}, "holds 1001 scores"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, finding):
    with pytest.raises(ConfigError, match=finding):
        Pairwise(**options)
