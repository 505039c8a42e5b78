"""The tree of texts: every number here is worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.engines.openai.text_tree import TextTree, TokenStep, frequencies


def steps(*places):
    """Each place: the token that stands there, and the likeliest ones."""
    return tuple(TokenStep(token=token, tops=tuple(tops.items())) for token, tops in places)


def probabilities(tree):
    return [pytest.approx(math.exp(logprob), abs=1e-9) for logprob in tree.logprobs()]


def test_a_reply_gives_the_candidates_along_its_path():
    tree = TextTree(["8 6\n", "8 7\n", "9 6\n"])
    tree.follow("", "8 6", steps(("8", {"8": 0.7, "9": 0.3}), (" 6", {" 6": 0.6, " 7": 0.4}), ("\n", {"\n": 1.0})))
    # 8 6: 0.7 * 0.6 * 1; 8 7 and 9 lie beside the path, at nodes that were never seen
    assert probabilities(tree) == [0.42, 0.0, 0.0]
    assert tree.shares().open == {"9": pytest.approx(0.3), "8 7": pytest.approx(0.28)}
    assert tree.needed() == ["9", "8 7"]


def test_ways_to_split_one_text_add_up():
    tree = TextTree(["86"])
    tree.follow("", "86", steps(("86", {"86": 0.5, "8": 0.5})))
    tree.follow("8", "6", steps(("6", {"6": 0.8, "7": 0.2})))
    assert probabilities(tree) == [0.5 + 0.5 * 0.8]


def test_a_token_may_overshoot_a_candidate():
    tree = TextTree(["8 6"])
    tree.follow("", "8 6", steps(("8", {"8": 1.0}), (" 6\n", {" 6\n": 0.5, " 6": 0.3, " 7": 0.2})))
    assert probabilities(tree) == [0.8]
    assert tree.needed() == []


def test_a_longer_candidate_takes_its_share_from_the_shorter():
    # "8 10" begins with "8 1": of its 0.5, 0.2 goes on with 0, and 0.05 is not listed, which begins with "8 1" at least
    tree = TextTree(["8 1", "8 10"])
    tree.follow("", "8 1", steps(("8 1", {"8 1": 0.5, "8 10": 0.3}), ("\n", {"\n": 0.5, "0": 0.4})))
    assert probabilities(tree) == [0.5 * (0.5 + 0.1), 0.3 + 0.5 * 0.4]
    assert tree.shares().unlisted == 0, "listed tokens tell of every next character"


def test_what_may_hide_below_the_listed_tokens():
    tree = TextTree(["8", "7", "9"])
    tree.follow("", "8", steps(("8", {"8": 0.5, "x": 0.1})))
    assert tree.shares().unlisted == pytest.approx(2 * 0.1), "7 and 9, each at most as likely as x"
    tree = TextTree(["8", "7", "9"])
    tree.follow("", "8", steps(("8", {"8": 0.8, "x": 0.15})))
    assert tree.shares().unlisted == pytest.approx(0.05), "no more than what is left"


def test_a_reply_that_ends_on_a_candidate_has_said_it():
    tree = TextTree(["8 1", "8 10"])
    tree.follow("", "8 1", steps(("8 1", {"8 1": 1.0}), ("</s>", {"</s>": 0.75, "0": 0.25})))
    assert probabilities(tree) == [0.75, 0.25]


def test_an_end_without_text_counts_as_well():
    tree = TextTree(["8 1", "8 10"])
    tree.follow("", "8 1", steps(("8 1", {"8 1": 1.0}), ("", {"": 0.75, "0": 0.25})))
    assert probabilities(tree) == [0.75, 0.25]


def test_a_leading_blank_is_another_reply():
    tree = TextTree(["8 6"])
    tree.follow("", " 8 6", steps((" 8", {" 8": 0.9, "8": 0.1}), (" 6", {" 6": 1.0})))
    assert tree.shares().open == {"8": pytest.approx(0.1)}


def test_blanks_that_the_detokeniser_dropped_are_found_in_the_text():
    # SentencePiece: "8", a lone blank shown as nothing, "6"; and " 6" shown as "6"
    lone = TextTree(["8 6", "8 7"])
    lone.follow("", "8 6", steps(("8", {"8": 1.0}), ("", {"": 0.9}), ("6", {"6": 0.6, "7": 0.4})))
    assert probabilities(lone) == [0.54, 0.36]
    joined = TextTree(["8 6", "8 7"])
    joined.follow("", "8 6", steps(("8", {"8": 1.0}), ("6", {"6": 0.6, "7": 0.4})))
    assert probabilities(joined) == [0.6, 0.4]


def test_what_is_unknown_is_borrowed_from_the_path_of_the_reply():
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


def test_what_has_nothing_alike_stays_unknown():
    tree = TextTree(["8", "no way"])
    tree.follow("", "8", steps(("8", {"8": 0.5, "no": 0.5})))
    while tree.borrow():
        pass
    assert probabilities(tree) == [0.5, 0.0]
    assert tree.shares().unlisted == pytest.approx(0.5)


def test_little_is_left_alone_and_credited_to_what_it_is_already():
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
def test_no_probability_is_made_or_lost(candidates, weights):
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
