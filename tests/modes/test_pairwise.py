"""The pair mode: what it asks, and how it concludes."""

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.modes import Pairwise
from judgelm.records import Completion, PairVerdict, Sample
from judgelm.runs.runner import judge

SAMPLE = Sample(id="1", question="q", answers=("a", "b"), reference="r")


def conclude(given, swapped=None, **options):
    """The judgment when the judge writes `given`, and `swapped` on the exchanged answers."""
    script = {"q|a|b": given} | ({"q|b|a": swapped} if swapped is not None else {})
    mode = Pairwise(both_orders=swapped is not None, reference="ignore", **options)
    [judgment] = judge([SAMPLE], mode, ScriptedEngine(script))
    return judgment


def test_one_order():
    judgment = conclude("8 6\n")
    assert judgment.verdict == PairVerdict(winner=1)
    assert (judgment.scores, judgment.consistent, judgment.failure) == ((8.0, 6.0), None, None)


@pytest.mark.parametrize(
    ("rule", "winner"),
    # given: 8 against 6; swapped, put back: 4 against 9; means 6 and 7.5
    [("mean", 2), ("tie", "tie")],
)
def test_a_conflict_of_orders_follows_the_rule(rule, winner):
    judgment = conclude("8 6\n", "9 4\n", order_rule=rule)
    assert judgment.verdict == PairVerdict(winner=winner)
    assert judgment.scores == (6.0, 7.5)
    assert judgment.consistent is False


def test_a_failed_order_fails_the_judgment_and_leaves_consistency_unknown():
    judgment = conclude("8 6\n", "no idea\n")
    assert judgment.verdict is None
    assert judgment.failure.code == "off_grammar"
    assert judgment.consistent is None
    assert judgment.shown[0].scores == (8.0, 6.0)  # what was readable is kept


def test_one_order_is_enough_where_the_user_says_so():
    judgment = conclude("8 6\n", "no idea\n", accept_one_order=True)
    assert judgment.verdict == PairVerdict(winner=1)
    assert judgment.consistent is None
    assert judgment.failure is None


def test_under_rule_given_the_swapped_order_serves_consistency_alone():
    judgment = conclude("8 6\n", "9 4\n", order_rule="given")
    assert (judgment.verdict, judgment.scores, judgment.consistent) == (PairVerdict(winner=1), (8.0, 6.0), False)
    swapped_failed = conclude("8 6\n", "no idea\n", order_rule="given")
    assert (swapped_failed.verdict, swapped_failed.consistent) == (PairVerdict(winner=1), None)
    assert (swapped_failed.failure, swapped_failed.shown[1].failure.code) == (None, "off_grammar")
    given_failed = conclude("no idea\n", "9 4\n", order_rule="given")
    assert (given_failed.verdict, given_failed.scores, given_failed.failure.code) == (None, None, "off_grammar")


def test_a_reply_that_was_cut_off_is_no_score():
    # "8 10" cut after three tokens could read "8 1": never take the beginning of a line for the line
    judgment = conclude("8 6 and so on without end", max_tokens=2)
    assert judgment.failure.code == "truncated"


def test_engine_failures_keep_the_engines_words():
    [judgment] = judge([SAMPLE], Pairwise(), ScriptedEngine({"other": "8 6"}))
    assert judgment.failure.code == "engine"
    assert "q|r|a|b" in judgment.failure.text


@pytest.mark.parametrize(("use", "key"), [("auto", "q|r|a|b"), ("use", "q|r|a|b"), ("ignore", "q|a|b")])
def test_the_reference_is_shown_as_asked(use, key):
    [judgment] = judge([SAMPLE], Pairwise(reference=use), ScriptedEngine({key: "8 6\n", "": ""}))
    assert judgment.failure is None


def test_greedy_unless_a_temperature_is_given_and_then_seeded_by_the_sample():
    [cold] = next(Pairwise()(SAMPLE))
    assert (cold.sampling.temperature, cold.sampling.stop) == (0.0, ("\n",))
    warm = Pairwise(temperature=0.7, seed=1)
    [first], [again] = next(warm(SAMPLE)), next(warm(SAMPLE))
    [other] = next(warm(Sample(id="2", question="q", answers=("a", "b"))))
    assert first.sampling.seed == again.sampling.seed != other.sampling.seed


def test_counts_of_both_prompts_are_added():
    flow = Pairwise(both_orders=True)(Sample(id="1", question="[System] q", answers=("a", "b")))
    first, second = next(flow)
    completions = [
        Completion(key=one.key, texts=("8 6",), finish_reasons=("stop",), prompt_tokens=10, completion_tokens=3,
                   sanitized=1)
        for one in (first, second)
    ]  # fmt: skip
    with pytest.raises(StopIteration) as finished:
        flow.send(completions)
    judgment = finished.value.value
    # the question's confusable is sanitized in both prompts, and the engine found one special token in each
    assert (judgment.prompt_tokens, judgment.completion_tokens, judgment.sanitized) == (20, 6, 4)
