"""Any number of answers, ranked."""

import math

from hypothesis import given
from hypothesis import strategies as st

from judgelm.modes.multi import Multi, ranking
from judgelm.records import RankingVerdict, Sample, Truncation
from tests.support.flows import drive, reply, text_of

THREE = Sample(id="1", question="q", answers=("a", "b", "c"))


def concluded(*texts, sample=THREE, **options):
    [requests], judgment = drive(Multi(**options), [reply(text) for text in texts], sample=sample)
    return requests, judgment


def test_three_answers_on_one_line():
    [request], judgment = concluded("5 1 8")
    assert "performance of three AI assistants" in text_of(request.prompt)
    # as in Figure 18: the third is best, the second worst
    assert (judgment.verdict, judgment.scores) == (RankingVerdict(order=((2,), (0,), (1,))), (5, 1, 8))
    assert (judgment.consistent, judgment.failure) == (None, None)
    # equal scores are a tie
    assert concluded("8 6 8")[1].verdict == RankingVerdict(order=((0, 2), (1,)))
    assert concluded("7 7 7")[1].verdict == RankingVerdict(order=((0, 1, 2),))


def test_rotated_orders_are_put_back_in_sample_order_and_averaged():
    # shown abc: 9 5 1; bca: b 6, c 2, a 8; cab: c 3, a 7, b 4. a (9+8+7)/3 = 8, b (5+6+4)/3 = 5, c (1+2+3)/3 = 2
    requests, judgment = concluded("9 5 1", "6 2 8", "3 7 4", permutations=3)
    answers = [[span.text for span in request.prompt.spans if span.kind == "answer"] for request in requests]
    assert answers == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
    assert (judgment.scores, judgment.consistent) == ((8, 5, 2), True)
    assert judgment.shown[1].order == (1, 2, 0)
    assert (judgment.prompt_tokens, judgment.completion_tokens) == (30, 9)
    # a judge that likes what stands first: 9 5 1 throughout, so that each has (9 + 5 + 1) / 3 = 5
    _, judgment = concluded("9 5 1", "9 5 1", "9 5 1", permutations=3)
    assert (judgment.consistent, judgment.verdict) == (False, RankingVerdict(order=((0, 1, 2),)))


def test_a_failed_order_fails_the_judgment_unless_the_user_accepts_the_others():
    _, judgment = concluded("9 5 1", "well", permutations=2)
    assert (judgment.verdict, judgment.consistent, judgment.failure.code) == (None, None, "off_grammar")
    _, judgment = concluded("9 5 1", "well", permutations=2, accept_missing=True)
    assert (judgment.scores, judgment.consistent, judgment.failure) == ((9, 5, 1), None, None)
    assert concluded("well", "well", permutations=2, accept_missing=True)[1].failure.code == "off_grammar"


@given(st.integers(2, 7), st.integers(1, 12), st.sampled_from(["cyclic", "seeded"]))
def test_orders_are_distinct_permutations_and_the_first_is_the_given_one(count, permutations, drawing):
    orders = Multi(permutations=permutations, drawing=drawing).orders("x", count)
    assert orders[0] == tuple(range(count))
    assert all(sorted(order) == list(range(count)) for order in orders)
    most = count if drawing == "cyclic" else math.factorial(count)
    assert len(set(orders)) == len(orders) == min(permutations, most)


def test_drawn_orders_repeat_and_belong_to_the_sample_and_the_seed():
    assert Multi(permutations=9).orders("1", 3) == [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
    mode = Multi(permutations=4, drawing="seeded")
    assert mode.orders("1", 6) == mode.orders("1", 6)
    assert mode.orders("1", 6) != mode.orders("2", 6)
    assert mode.orders("1", 6) != Multi(permutations=4, drawing="seeded", seed=1).orders("1", 6)


@given(st.lists(st.integers(1, 10), min_size=2, max_size=8))
def test_a_ranking_holds_each_answer_once_and_never_a_worse_one_above_a_better(scores):
    order = ranking(scores)
    assert sorted(index for tied in order for index in tied) == list(range(len(scores)))
    assert [{scores[index] for index in tied} for tied in order] == [{score} for score in sorted({*scores})[::-1]]
    # means that differ by rounding only
    assert ranking((0.1 + 0.2, 0.3, 0.4)) == ((2,), (0, 1))


def test_an_answer_of_which_too_little_is_left_is_not_judged():
    lost, kept = (Truncation(answer=1, tokens_before=100, tokens_after=tokens) for tokens in (39, 40))
    _, judgment = drive(Multi(min_answer_tokens=40), [reply("9 5 1", truncations=(lost,))], sample=THREE)
    assert (judgment.verdict, judgment.failure.code, judgment.shown[0].scores) == (None, "too_long", None)
    assert "position 2 would keep only 39 of 100 tokens" in judgment.failure.why
    _, judgment = drive(Multi(min_answer_tokens=40), [reply("9 5 1", truncations=(kept,))], sample=THREE)
    assert (judgment.scores, judgment.shown[0].truncations) == ((9, 5, 1), (kept,))


def test_the_room_for_the_line_grows_with_the_answers():
    [request], _ = concluded("1 2 3")
    assert request.sampling.max_tokens == 36
    assert concluded("1 2 3", max_tokens=5)[0][0].sampling.max_tokens == 5


def test_the_first_readable_order_is_explained():
    mode = Multi(permutations=2, accept_missing=True, reasons="all")
    rounds = [reply("well"), reply("5 1 9")], [reply("The first is best.")]
    [_, [request]], judgment = drive(mode, *rounds, sample=THREE)
    assert [span.text for span in request.prompt.spans if span.kind == "answer"] == ["b", "c", "a"]
    assert request.prompt.prefill == "5 1 9\n"
    assert [shown.reason for shown in judgment.shown] == [None, "The first is best."]
