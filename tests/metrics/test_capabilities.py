"""Mean scores by what questions ask for."""

from judgelm.metrics.benchmark_scores import (
    Graded,
    by_capability,
    by_combination,
    capability_order,
    combination_order,
    mean_score,
)
from judgelm.metrics.resampling import Resampling

HOW = Resampling(resamples=200)
ROWS = [
    Graded(score=2.0, capabilities=frozenset({"ocr"}), cluster="a"),
    Graded(score=8.0, capabilities=frozenset({"ocr", "math"}), cluster="b"),
    Graded(score=5.0, capabilities=frozenset({"ocr", "math"}), cluster="c"),
    Graded(score=None, capabilities=frozenset({"math"}), cluster="d"),
]


def test_a_capability_takes_all_questions_that_need_it():
    ocr, math = by_capability(ROWS, ["ocr", "math"], HOW)
    assert (ocr.mean.value, ocr.n, ocr.failed) == (5.0, 3, 0)  # (2 + 8 + 5) / 3
    assert (math.mean.value, math.n, math.failed) == (6.5, 3, 1)  # (8 + 5) / 2, one failed
    assert math.mean.n == 2
    [art] = by_capability(ROWS, ["art"], HOW)
    assert (art.capabilities, art.n, art.failed, art.mean) == (("art",), 0, 0, None)


def test_a_combination_takes_those_that_need_exactly_it():
    both, alone = by_combination(ROWS, [("ocr", "math"), ("math",)], HOW)
    assert (both.mean.value, both.n) == (6.5, 2)
    assert (alone.mean, alone.n, alone.failed) == (None, 1, 1)  # undefined, not 0


def test_one_cluster_alone_or_scores_alike_have_no_interval():
    alike = [Graded(score=4.0, capabilities=frozenset(), cluster=place) for place in range(5)]
    assert mean_score((), alike, HOW).mean == 4.0
    one = [Graded(score=score, capabilities=frozenset(), cluster="a") for score in (1.0, 9.0)]
    assert mean_score((), one, HOW).mean == 5.0


def test_questions_about_one_image_are_one_draw():
    # two images, ten questions each: the mean of two draws is 1, 5 or 9, and 1 and 9 in a quarter of the resamples each
    rows = [Graded(score=score, capabilities=frozenset(), cluster=score) for score in (1.0, 9.0) for _ in range(10)]
    found = mean_score((), rows, HOW).mean
    assert (found.value, found.low, found.high, found.n) == (5.0, 1.0, 9.0, 20)


def test_orders_are_by_frequency_then_name():
    asked = [row.capabilities for row in ROWS] + [frozenset({"know"})]
    assert capability_order(asked) == ("math", "ocr", "know")  # 3, 3, 1
    assert combination_order(asked) == (("math", "ocr"), ("know",), ("math",), ("ocr",))
    asked = [frozenset({"ocr"})] * 2 + [frozenset({"ocr", "math"})]
    assert combination_order(asked) == (("ocr",), ("ocr", "math"))  # ocr 3, math 1: the most frequent stands first
