"""The tree of texts. All numbers are worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.engines.openai.text_tree import TextTree, TokenStep, frequencies


def steps(*places):
    """Pairs of the chosen token and the most probable ones."""
    return tuple(TokenStep(token=token, tops=tuple(tops.items())) for token, tops in places)


def probabilities(tree):
    return [pytest.approx(math.exp(logprob), abs=1e-9) for logprob in tree.logprobs()]


def test_reply_gives_probabilities_along_its_path():
    tree = TextTree(["8 6\n", "8 7\n", "9 6\n"])
    tree.follow("", "8 6", steps(("8", {"8": 0.7, "9": 0.3}), (" 6", {" 6": 0.6, " 7": 0.4}), ("\n", {"\n": 1.0})))
    # 8 6: 0.7 * 0.6 * 1; 8 7 and 9 are not on the path
    assert probabilities(tree) == [0.42, 0.0, 0.0]
    assert tree.shares().open == {"9": pytest.approx(0.3), "8 7": pytest.approx(0.28)}
    assert tree.needed() == ["9", "8 7"]


def test_tokenisations_of_one_text_add_up():
    tree = TextTree(["86"])
    tree.follow("", "86", steps(("86", {"86": 0.5, "8": 0.5})))
    tree.follow("8", "6", steps(("6", {"6": 0.8, "7": 0.2})))
    assert probabilities(tree) == [0.5 + 0.5 * 0.8]


def test_token_may_go_beyond_a_candidate():
    tree = TextTree(["8 6"])
    tree.follow("", "8 6", steps(("8", {"8": 1.0}), (" 6\n", {" 6\n": 0.5, " 6": 0.3, " 7": 0.2})))
    assert probabilities(tree) == [0.8]
    assert tree.needed() == []


def test_longer_candidate_takes_its_share_from_the_shorter():
    # "8 10" begins with "8 1": of its 0.5, 0.2 continues with 0, and 0.05 is not listed and counts for "8 1"
    tree = TextTree(["8 1", "8 10"])
    tree.follow("", "8 1", steps(("8 1", {"8 1": 0.5, "8 10": 0.3}), ("\n", {"\n": 0.5, "0": 0.4})))
    assert probabilities(tree) == [0.5 * (0.5 + 0.1), 0.3 + 0.5 * 0.4]
    assert tree.shares().unlisted == 0, "the listed tokens include every next character"


def test_upper_bound_of_unlisted_probability():
    tree = TextTree(["8", "7", "9"])
    tree.follow("", "8", steps(("8", {"8": 0.5, "x": 0.1})))
    assert tree.shares().unlisted == pytest.approx(2 * 0.1), "7 and 9, each at most as probable as x"
    tree = TextTree(["8", "7", "9"])
    tree.follow("", "8", steps(("8", {"8": 0.8, "x": 0.15})))
    assert tree.shares().unlisted == pytest.approx(0.05), "at most the rest"


def test_reply_may_end_at_a_candidate():
    tree = TextTree(["8 1", "8 10"])
    tree.follow("", "8 1", steps(("8 1", {"8 1": 1.0}), ("</s>", {"</s>": 0.75, "0": 0.25})))
    assert probabilities(tree) == [0.75, 0.25]


def test_end_token_without_text_counts():
    tree = TextTree(["8 1", "8 10"])
    tree.follow("", "8 1", steps(("8 1", {"8 1": 1.0}), ("", {"": 0.75, "0": 0.25})))
    assert probabilities(tree) == [0.75, 0.25]


def test_leading_blank_is_a_different_reply():
    tree = TextTree(["8 6"])
    tree.follow("", " 8 6", steps((" 8", {" 8": 0.9, "8": 0.1}), (" 6", {" 6": 1.0})))
    assert tree.shares().open == {"8": pytest.approx(0.1)}


def test_dropped_blanks_are_restored_from_the_text():
    # SentencePiece: "8", a lone blank shown as nothing, "6"; and " 6" shown as "6"
    lone = TextTree(["8 6", "8 7"])
    lone.follow("", "8 6", steps(("8", {"8": 1.0}), ("", {"": 0.9}), ("6", {"6": 0.6, "7": 0.4})))
    assert probabilities(lone) == [0.54, 0.36]
    joined = TextTree(["8 6", "8 7"])
    joined.follow("", "8 6", steps(("8", {"8": 1.0}), ("6", {"6": 0.6, "7": 0.4})))
    assert probabilities(joined) == [0.6, 0.4]


def test_unknown_continuations_are_borrowed():
    tree = TextTree([f"{first} {second}\n" for first in range(7, 10) for second in range(5, 8)])
    tree.follow(
        "", "8 6", steps(("8", {"8": 0.5, "7": 0.4, "9": 0.1}), (" 6", {" 6": 0.6, " 7": 0.4}), ("\n", {"\n": 1.0}))
    )
    while tree.borrow():
        pass
    shares = {name: math.exp(value) for name, value in zip(tree._candidates, tree.logprobs(), strict=True)}
    assert shares["8 7\n"] == pytest.approx(0.5 * 0.4)
    assert shares["7 6\n"] == pytest.approx(0.4 * 0.6)
    assert shares["9 7\n"] == pytest.approx(0.1 * 0.4)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_nothing_is_borrowed_without_a_similar_node():
    tree = TextTree(["8", "no way"])
    tree.follow("", "8", steps(("8", {"8": 0.5, "no": 0.5})))
    while tree.borrow():
        pass
    assert probabilities(tree) == [0.5, 0.0]
    assert tree.shares().unlisted == pytest.approx(0.5)


def test_negligible_nodes_are_not_requested():
    tree = TextTree(["8", "80"])
    tree.follow("", "9", steps(("9", {"9": 0.992, "8": 0.008})))
    assert tree.needed() == []
    assert probabilities(tree) == [0.008, 0.0]


def test_frequencies_count_the_longest_candidate():
    logprobs = frequencies(["8 1", "8 10", "9"], ["8 1\n", "8 10", "8 10", "x"])
    assert logprobs == (math.log(0.25), math.log(0.5), -math.inf)


@given(
    st.lists(st.text("12 \n", min_size=1, max_size=4), min_size=1, max_size=6, unique=True),
    st.lists(st.lists(st.floats(0.01, 1), min_size=4, max_size=4), min_size=8, max_size=8),
)
def test_probabilities_sum_to_at_most_one(candidates, weights):
    tree = TextTree(candidates)
    for number in range(64):
        needed = tree.needed()
        if not needed:
            break
        total = sum(weights[number % 8])
        tops = {piece: weight / total for piece, weight in zip(("1", "2", " ", "\n"), weights[number % 8], strict=True)}
        tree.follow(needed[0], "1", steps(("1", tops)))
    assert tree.needed() == []
    shares = [math.exp(logprob) for logprob in tree.logprobs()]
    assert all(0 <= share <= 1 + 1e-9 for share in shares)
    assert sum(shares) <= 1 + 1e-9
