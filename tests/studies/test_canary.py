from dataclasses import replace

from judgelm.metrics.drift import DriftLimits
from judgelm.runs.canary import Canary, CanaryPair
from judgelm.studies.canary import compare_canaries


def canary(count=60, *, judge=None, change=0.0, turned=0):
    """Pairs with P(first shown better) 0.6 and 0.4, moved by `change`; the first ones turned to the second answer."""
    shared = {"answers": ("a", "b"), "label": 1, "probabilities": (0.6 + change, 0.4 + change)}
    pairs = tuple(
        CanaryPair(id=str(index), question=f"q{index}", verdict=2 if index < turned else 1, **shared)
        for index in range(count)
    )
    return Canary(judge=judge or {"dtype": "float32"}, recorded="2026-01-01T00:00:00+00:00", pairs=pairs)


def test_the_same_judgments_are_the_same_judge():
    check = compare_canaries(canary(), canary())
    assert not check.drifted
    assert check.conclusion == "same: all verdicts and probabilities of 60 pairs are as recorded."
    elsewhere = canary(judge={"dtype": "float32", "machine": {"python": "3.12"}})
    assert compare_canaries(canary(), elsewhere).identity == {}


def test_small_differences_are_within_the_tolerance():
    check = compare_canaries(canary(), canary(judge={"dtype": "bfloat16"}, change=0.01, turned=1))
    assert not check.drifted
    assert check.conclusion.startswith("same within the tolerance: P(first better) moved by 0.0100")
    assert check.identity == {"dtype": ("float32", "bfloat16")}


def test_a_judge_that_leans_to_the_first_answer_shown_has_drifted():
    check = compare_canaries(canary(), canary(change=0.05))
    assert check.drifted
    assert check.probabilities.shift.value > 0
    assert check.to_json()["drifted"] is True


def test_limits_are_those_recorded_unless_others_are_given():
    lenient = replace(canary(), limits=DriftLimits(tolerance=0.1))
    assert not compare_canaries(lenient, canary(change=0.05)).drifted
    assert compare_canaries(lenient, canary(change=0.05), limits=DriftLimits(tolerance=0.01)).drifted


def test_without_probabilities_the_sentence_says_what_can_be_hidden():
    now = canary()
    now = replace(now, pairs=tuple(replace(pair, probabilities=(None, None)) for pair in now.pairs))
    check = compare_canaries(canary(), now)
    assert not check.drifted
    assert check.without_probability == 60
    assert "up to 6.0 % changed verdicts" in check.conclusion
