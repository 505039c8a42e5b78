"""The reward of judges that reason first: by hand, and that degenerate policies gain nothing."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.training.grpo import Attempt, GRPOArguments, both_orders_right, length_penalty, read_form

JUDGE = GRPOArguments(train_data=[])
LIMIT = 100
GOOD = "Assistant 1 answers the question, and Assistant 2 does not.\n[[{}]]"


def form(text, *, ended=True):
    return read_form(text, ended=ended, least_letters=20)


def test_a_well_formed_reply_ends_has_reasons_and_a_verdict():
    assert form(GOOD.format(1)) == 1
    assert form(GOOD.format(2)) == 2
    assert form("<think>The first one is right, as 2 + 2 is 4.</think>\n\n[[1]]") == 1


@pytest.mark.parametrize(
    ("text", "ended", "code"),
    [
        (GOOD.format(1), False, "truncated"),  # it goes on and on
        ("<think>Let me see, and see again, and", True, "truncated"),
        ("[[1]]", True, "off_grammar"),  # no reasons
        ("Good.\n[[1]]", True, "off_grammar"),
        ("12345678901234567890 ........\n[[1]]", True, "off_grammar"),
        (GOOD.format("tie"), True, "off_grammar"),
        ("Assistant 1 answers the question.", True, "off_grammar"),
        (GOOD.format(1) + " [[2]]", True, "off_grammar"),  # both on the last line
        ("", True, "off_grammar"),
    ],
)
def test_another_reply_says_what_it_lacks(text, ended, code):
    assert form(text, ended=ended).code == code


def test_the_reward_by_hand():
    # pair 0: 2 of 3 right as given, 1 of 3 right swapped; pair 1: never right as given
    rights = {(0, 0): [1, 1, 0], (0, 1): [0, 0, 1], (1, 0): [0, 0, 0], (1, 1): [1, 1, 1]}
    attempts = [Attempt(*key, bool(right)) for key, group in rights.items() for right in group]
    third = 1 / 3
    assert both_orders_right(attempts) == pytest.approx([third, third, 0, 0, 0, 2 * third, 0, 0, 0, 0, 0, 0])


def test_without_the_other_order_nothing_is_known():
    assert both_orders_right([Attempt(0, 0, True), Attempt(1, 0, True), Attempt(1, 1, True)]) == [None, 1.0, 1.0]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.booleans()), max_size=40), st.randoms())
def test_the_sequence_of_the_attempts_does_not_matter(attempts, rng):
    attempts = [Attempt(*each) for each in attempts]
    shuffled = list(enumerate(attempts))
    rng.shuffle(shuffled)
    rewards = both_orders_right([attempt for _, attempt in shuffled])
    by_index = {index: reward for (index, _), reward in zip(shuffled, rewards, strict=True)}
    assert [by_index[index] for index in range(len(attempts))] == both_orders_right(attempts)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.lists(st.booleans(), min_size=1, max_size=8))
def test_the_mean_reward_is_the_share_of_pairs_of_replies_that_are_both_right(given_, swapped):
    attempts = [Attempt(0, 0, right) for right in given_] + [Attempt(0, 1, right) for right in swapped]
    rewards = both_orders_right(attempts)
    both = sum(a and b for a in given_ for b in swapped) / (len(given_) * len(swapped))
    assert sum(rewards[: len(given_)]) / len(given_) == pytest.approx(both)
    assert sum(rewards[len(given_) :]) / len(swapped) == pytest.approx(both)


def test_length_costs_nothing_up_to_the_soft_limit_and_then_linearly():
    prices = [length_penalty(tokens, soft=60, limit=100) for tokens in (0, 60, 70, 80, 100, 150)]
    assert prices == pytest.approx([0, 0, -0.25, -0.5, -1, -1])


def rewards_of(policy, *, pairs=40, replies=4):
    """All rewards of a policy: called with the order (0, 1) and the better place, it writes text and tokens."""
    rng = random.Random(0)
    shown = [
        (pair, order, 3 - winner if order else winner)
        for pair in range(pairs)
        for winner in [rng.choice([1, 2])]
        for order in (0, 1)
        for _ in range(replies)
    ]
    written = [policy(best, rng) for _, _, best in shown]
    verdicts = [form(text, ended=tokens < LIMIT) for text, tokens in written]
    rights = [verdict == best
              for verdict, (_, _, best) in zip(verdicts, shown, strict=True)]  # fmt: skip
    main = both_orders_right([Attempt(*key[:2], right) for key, right in zip(shown, rights, strict=True)])
    return [
        reward
        + JUDGE.form_weight * (0 if verdict in (1, 2) else -1)
        + JUDGE.length_weight * length_penalty(tokens, soft=JUDGE.soft(LIMIT), limit=LIMIT)
        for reward, verdict, (_, tokens) in zip(main, verdicts, written, strict=True)
    ]


DEGENERATE = {
    "always the first": lambda best, rng: (GOOD.format(1), 30),
    "always the second": lambda best, rng: (GOOD.format(2), 30),
    "always a tie": lambda best, rng: (GOOD.format("tie"), 30),
    "right without a reason": lambda best, rng: (f"[[{best}]]", 5),
    "right with an endless reason": lambda best, rng: (GOOD.format(best), LIMIT),
    "silent": lambda best, rng: ("", 1),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_degenerate_policy_gains_nothing(name):
    assert max(rewards_of(DEGENERATE[name])) <= 0


def test_nothing_is_to_be_gained_within_a_degenerate_policy_by_more_of_it():
    # all replies to a prompt get the same, so no reply has an advantage over another
    for policy in DEGENERATE.values():
        rewards = rewards_of(policy)
        assert all(len(set(rewards[start : start + 4])) == 1 for start in range(0, len(rewards), 4))


def test_a_coin_gains_a_quarter_and_a_right_judge_everything():
    # P(right) is 1/2 in either order, so both are right in a quarter
    assert rewards_of(lambda best, rng: (GOOD.format(best), 30)) == [1.0] * 320
    coin = rewards_of(lambda best, rng: (GOOD.format(rng.choice([1, 2])), 30), pairs=400)
    assert sum(coin) / len(coin) == pytest.approx(0.25, abs=0.03)


def test_a_longer_right_reply_earns_less_than_a_shorter_one():
    short, long = (rewards_of(lambda best, rng, tokens=tokens: (GOOD.format(best), tokens))[0] for tokens in (30, 95))
    # beyond 75 of 100 tokens: 20 / 25 of the price of 0.1
    assert (short, long) == pytest.approx((1.0, 1 - 0.1 * 0.8))
