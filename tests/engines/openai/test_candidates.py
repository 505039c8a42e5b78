"""Candidates' probabilities: the tree of texts, by hand, and from servers, exact or with a note."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.openai.text_tree import TextTree, TokenStep, frequencies
from judgelm.records import Request, Sampling
from tests.support.driving import prompt_of, run
from tests.support.endpoint.backends import ScriptedBackend, TinyBackend
from tests.support.endpoint.client import ask, client
from tests.support.endpoint.server import endpoint


def follow(tree, node, text, *places):
    """Add a reply: the most probable tokens of each place, the chosen one first."""
    tree.follow(node, text, tuple(TokenStep(token=next(iter(tops)), tops=tuple(tops.items())) for tops in places))


def tree_of(candidates, text, *places):
    tree = TextTree(candidates)
    follow(tree, "", text, *places)
    return tree


def probabilities(tree):
    return [pytest.approx(math.exp(logprob), abs=1e-9) for logprob in tree.logprobs()]


@pytest.mark.parametrize(
    ("candidates", "reply", "places", "expected"),
    [
        # a token goes beyond a candidate
        (["8 6"], "8 6", [{"8": 1.0}, {" 6\n": 0.5, " 6": 0.3, " 7": 0.2}], [0.8]),
        # the reply ends at a candidate, with an end token that has a text or none
        (["8 1", "8 10"], "8 1", [{"8 1": 1.0}, {"</s>": 0.75, "0": 0.25}], [0.75, 0.25]),
        (["8 1", "8 10"], "8 1", [{"8 1": 1.0}, {"": 0.75, "0": 0.25}], [0.75, 0.25]),
        # of the 0.5 of "8 1", 0.2 continues with 0, and 0.05 is not listed and counts for "8 1"
        (["8 1", "8 10"], "8 1", [{"8 1": 0.5, "8 10": 0.3}, {"\n": 0.5, "0": 0.4}], [0.5 * 0.6, 0.3 + 0.5 * 0.4]),
        # SentencePiece: "8", a lone blank shown as nothing, "6"; and " 6" shown as "6"
        (["8 6", "8 7"], "8 6", [{"8": 1.0}, {"": 0.9}, {"6": 0.6, "7": 0.4}], [0.54, 0.36]),
        (["8 6", "8 7"], "8 6", [{"8": 1.0}, {"6": 0.6, "7": 0.4}], [0.6, 0.4]),
        # negligible nodes are not requested
        (["8", "80"], "9", [{"9": 0.992, "8": 0.008}], [0.008, 0.0]),
    ],
)
def test_one_reply_gives_all_probabilities(candidates, reply, places, expected):
    tree = tree_of(candidates, reply, *places)
    assert probabilities(tree) == expected
    assert (tree.needed(), tree.shares().unlisted) == ([], 0)


def test_reply_gives_probabilities_along_its_path():
    tree = tree_of(["8 6\n", "8 7\n", "9 6\n"], "8 6", {"8": 0.7, "9": 0.3}, {" 6": 0.6, " 7": 0.4}, {"\n": 1.0})
    # 8 6: 0.7 * 0.6 * 1; 8 7 and 9 are not on the path
    assert probabilities(tree) == [0.42, 0.0, 0.0]
    assert tree.shares().open == {"9": pytest.approx(0.3), "8 7": pytest.approx(0.28)}
    assert tree.needed() == ["9", "8 7"]


def test_tokenisations_of_one_text_add_up():
    tree = tree_of(["86"], "86", {"86": 0.5, "8": 0.5})
    follow(tree, "8", "6", {"6": 0.8, "7": 0.2})
    assert probabilities(tree) == [0.5 + 0.5 * 0.8]


# 7 and 9, each at most as probable as x; at most the rest
@pytest.mark.parametrize(("tops", "unlisted"), [({"8": 0.5, "x": 0.1}, 2 * 0.1), ({"8": 0.8, "x": 0.15}, 0.05)])
def test_upper_bound_of_unlisted_probability(tops, unlisted):
    assert tree_of(["8", "7", "9"], "8", tops).shares().unlisted == pytest.approx(unlisted)


def test_leading_blank_is_a_different_reply():
    tree = tree_of(["8 6"], " 8 6", {" 8": 0.9, "8": 0.1}, {" 6": 1.0})
    assert tree.shares().open == {"8": pytest.approx(0.1)}


def test_unknown_continuations_are_borrowed():
    lines = [f"{first} {second}\n" for first in range(7, 10) for second in range(5, 8)]
    tree = tree_of(lines, "8 6", {"8": 0.5, "7": 0.4, "9": 0.1}, {" 6": 0.6, " 7": 0.4}, {"\n": 1.0})
    while tree.borrow():
        pass
    shares = dict(zip(lines, map(math.exp, tree.logprobs()), strict=True))
    expected = pytest.approx((0.5 * 0.4, 0.4 * 0.6, 0.1 * 0.4, 1.0))
    assert (shares["8 7\n"], shares["7 6\n"], shares["9 7\n"], sum(shares.values())) == expected


def test_nothing_is_borrowed_without_a_similar_node():
    tree = tree_of(["8", "no way"], "8", {"8": 0.5, "no": 0.5})
    while tree.borrow():
        pass
    assert probabilities(tree) == [0.5, 0.0]
    assert tree.shares().unlisted == pytest.approx(0.5)


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
        follow(tree, needed[0], "1", tops)
    assert tree.needed() == []
    shares = [math.exp(logprob) for logprob in tree.logprobs()]
    assert all(0 <= share <= 1 + 1e-9 for share in shares)
    assert sum(shares) <= 1 + 1e-9


SCORE_LINES = tuple(f"{first} {second}\n" for first in range(1, 11) for second in range(1, 11))
CANDIDATES = ("8 6", "8 7", "7 6", "7 7", "9 6", "9 7")
SCRIPT = {
    "": {"8": 0.5, "7": 0.4, "9": 0.1},
    "8": {" 6": 0.6, " 7": 0.4},
    "7": {" 6": 0.1, " 7": 0.9},
    "9": {" 6": 0.5, " 7": 0.5},
    **{line: {"\n": 1.0} for line in CANDIDATES},
}
EXACT = [0.3, 0.2, 0.04, 0.36, 0.05, 0.05]


def scored(engine, candidates=CANDIDATES, **sampling):
    done = ask(engine, candidates=candidates, **sampling)
    return [math.exp(logprob) for logprob in done.candidate_logprobs], done.approximation, done


@pytest.mark.parametrize("tokenizer", [True, False])
def test_completions_equal_the_local_engine(tiny_judge, tokenizer):
    sampling = Sampling(max_tokens=8, stop=("\n",))
    requests = [Request(key=answer, prompt=prompt_of(answer), sampling=sampling, candidates=SCORE_LINES)
                for answer in ("a big dog", "a red fox", "lazy")]  # fmt: skip
    expected = run(load_engine("transformers", EngineOptions(model=str(tiny_judge))), requests)
    arguments = {"tokenizer": str(tiny_judge)} if tokenizer else {}
    with endpoint(TinyBackend(tiny_judge)) as server, client(server, **arguments) as engine:
        completions = run(engine, requests)
    for key, completion in completions.items():
        assert (completion.texts, completion.approximation) == (expected[key].texts, "")
        ours, local = (list(map(math.exp, done.candidate_logprobs)) for done in (completion, expected[key]))
        assert sum(local) > 0.8, "the judge writes score lines"
        listed = [expected for share, expected in zip(ours, local, strict=True) if share > 0]
        assert [share for share in ours if share > 0] == pytest.approx(listed, abs=1e-3)
        assert sum(b for a, b in zip(ours, local, strict=True) if a == 0) < 0.011


def test_other_beginnings_are_requested_on_completions():
    with endpoint(ScriptedBackend(SCRIPT)) as server, client(server) as engine:
        before = len(server.bodies)
        shares, approximation, done = scored(engine)
        assert shares == pytest.approx(EXACT)
        # the tokens are only the reply's
        assert (approximation, done.texts, done.completion_tokens) == ("", ("8 6",), 3)
        # one request for the reply, and one each after 7 and 9, which are sent together
        assert len(server.bodies) == before + 3
        assert {body["prompt"][-4:] for body in server.bodies[-2:]} == {"[S]7", "[S]9"}


def test_negligible_beginnings_are_not_requested():
    script = SCRIPT | {"": {"8": 0.99, "7": 0.008, "9": 0.002}}
    with endpoint(ScriptedBackend(script)) as server, client(server) as engine:
        before = len(server.bodies)
        shares, approximation, _ = scored(engine)
        assert shares == pytest.approx([0.99 * 0.6, 0.99 * 0.4, 0, 0, 0, 0])
        assert approximation == ""
        assert len(server.bodies) == before + 1


def test_chat_borrows_continuations_with_a_note():
    with endpoint(ScriptedBackend(SCRIPT)) as server, client(server, api="chat") as engine:
        before = len(server.bodies)
        shares, approximation, _ = scored(engine)
        # after 7 and 9 as after 8: 0.6 and 0.4
        assert shares == pytest.approx([0.3, 0.2, 0.24, 0.16, 0.06, 0.04])
        assert approximation.startswith("0.50 of the probability is on other prefixes")
        assert len(server.bodies) == before + 1


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_chat_form_of_logprobs(api):
    backend = ScriptedBackend({"": {"A": 0.7, "B": 0.3}})
    with endpoint(backend, chat_form=True) as server, client(server, api=api) as engine:
        assert scored(engine, ("A", "B"))[0] == pytest.approx([0.7, 0.3])


def test_note_on_unlisted_tokens():
    script = {"": {str(i): 0.1 for i in range(10)}}
    with endpoint(ScriptedBackend(script), most_logprobs=5) as server, client(server) as engine:
        shares, approximation, _ = scored(engine, ("0", "9"))
        assert shares == pytest.approx([0.1, 0.0])
        # 9 has at most the probability of the last listed token
        assert approximation.startswith("up to 0.10 ")
        assert engine.stats()["not_taken_by_server"] == ["many_logprobs"]
        assert server.bodies[-1]["logprobs"] == 5
        scored(engine, ("0", "9"))
        assert [body["logprobs"] for body in server.bodies[-2:]] == [5, 5], "20 is only requested once"


@pytest.mark.parametrize("switches", [{"logprobs": False}, {"refuses": ("logprobs",)}, {"most_logprobs": 0}])
@pytest.mark.parametrize("ignores_n", [False, True])
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_candidates_are_counted_without_logprobs(api, switches, ignores_n):
    with (
        endpoint(ScriptedBackend(SCRIPT), ignores_n=ignores_n, **switches) as server,
        client(server, api=api, candidate_samples=64) as engine,
    ):
        shares, approximation, done = scored(engine, seed=3)
        assert (approximation, done.texts) == ("frequencies of 64 sampled replies", ("8 6",))
        assert sum(shares) == pytest.approx(1)
        assert all(share * 64 == pytest.approx(round(share * 64)) for share in shares)
        assert shares == pytest.approx(EXACT, abs=0.2)  # 3 standard deviations of a share of 0.36 among 64 are 0.18


class Thinking(ScriptedBackend):
    """Its log-probabilities begin with those of its thinking."""

    def generate(self, prompt, options, number):
        reply = super().generate(prompt, options, number)
        reply.steps.insert(0, ("hm", 0.0, {"hm": 0.0}))
        return reply


def test_logprobs_of_thinking_are_not_used():
    with endpoint(Thinking(SCRIPT)) as server, client(server, api="chat") as engine:
        shares, approximation, _ = scored(engine)
        assert approximation == "frequencies of 16 sampled replies"
        assert sum(shares) == pytest.approx(1)
