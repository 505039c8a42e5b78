"""A judge that reasons first, asked several times."""

from dataclasses import replace

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.modes import make_mode
from judgelm.modes.conversation import per_order
from judgelm.modes.votes import Voted
from judgelm.records import Sample
from judgelm.runs.run_files import mode_identity
from judgelm.runs.runner import judge
from judgelm.serialization import judgment_from_row, judgment_row

SAMPLE = Sample(id="1", question="q", answers=("a", "b"))


class DrawingEngine(ScriptedEngine):
    """Gives the next of its replies at each draw, by the answer shown first, and keeps the requests it answered."""

    def __init__(self, **replies):
        super().__init__({"*": ""})
        self.requests = []
        self.replies = {first: iter(texts) for first, texts in replies.items()}

    def answer(self, request):
        self.requests.append(request)
        n = request.sampling.n
        first = next(span.text for span in request.prompt.spans if span.kind == "answer")
        completion = super().answer(request)
        texts = tuple(next(self.replies[first]) for _ in range(n))
        return replace(completion, texts=texts, finish_reasons=("stop",) * n, completion_tokens=n)


def vote(engine, votes, mode="reasoned", sample=SAMPLE, **options):
    [judgment] = judge([sample], make_mode(mode, {"votes": votes, **options}), engine)
    return judgment


def test_the_most_frequent_verdict_wins_and_the_rest_is_not_drawn():
    # 3 of 5 could decide, and are 1, 2, 1; two more could make it 2: one more vote for 1 decides (3 : 1 with one left)
    engine = DrawingEngine(a=["[[1]]", "[[2]]", "[[1]]", "[[1]]", "[[2]]"])
    judgment = vote(engine, 5)
    assert judgment.winner == 1
    assert judgment.votes == {"1": "1", "2": "2", "3": "1", "4": "1"}
    assert [request.sampling.n for request in engine.requests] == [3, 1]
    assert judgment_from_row(judgment_row(judgment)) == judgment
    assert [shown.part for shown in judgment.shown] == ["vote 1", "vote 2", "vote 3", "vote 4"]
    # values 1, 0, 1, 1: mean 3/4, variance 3/16
    assert judgment.spread == pytest.approx((3 / 16) ** 0.5)


def test_a_round_is_one_request_and_rounds_draw_differently():
    engine = DrawingEngine(a=["[[1]]", "[[2]]", "[[1]]"], b=["[[2]]", "[[1]]", "[[2]]"])
    vote(engine, 3, both_orders=True)
    # two votes of two orders, then the third, since the first two differ
    assert [request.sampling.n for request in engine.requests] == [2, 2, 1, 1]
    first, _, third, _ = (request.sampling for request in engine.requests)
    assert first.seed != third.seed
    assert first.temperature == 0.7


def test_orders_are_compared_over_all_votes():
    engine = DrawingEngine(a=["[[1]]"] * 3, b=["[[2]]", "[[1]]", "[[2]]"])
    judgment = vote(engine, 3, both_orders=True)
    # votes: 1 in both orders, a conflict (tie), 1 in both orders
    assert (judgment.winner, judgment.consistent, list(judgment.votes.values())) == (1, False, ["1", "tie", "1"])
    assert [(shown.order, shown.label) for shown in per_order(judgment.shown)] == [((0, 1), "1"), ((1, 0), "2")]


def test_an_unparseable_vote_does_not_count():
    engine = DrawingEngine(a=["well", "[[2]]", "[[2]]"])
    judgment = vote(engine, 3)
    # the first round's one verdict of two is no majority of three; the third vote makes it one
    assert (judgment.winner, judgment.votes) == (2, {"1": None, "2": "2", "3": "2"})


def test_a_majority_of_the_votes_must_be_parseable():
    judgment = vote(DrawingEngine(a=["well", "well", "[[2]]", "[[1]]"]), 4)
    # 3 drawn at first (more than half of 4), of which one can be read: with the fourth only two of four could be
    assert judgment.failure.code == "off_grammar"
    assert "2 of 3 votes failed (4 requested)" in judgment.failure.why
    assert (judgment.verdict, judgment.spread) == (None, None)


def test_an_even_split_is_a_tie_and_the_mean_takes_all_votes():
    assert vote(DrawingEngine(a=["[[1]]", "[[2]]", "[[2]]", "[[1]]"]), 4).winner == "tie"
    # 1, 0, 0 is a mean of 1/3, which is P(first better) where the judge gives no probability
    judgment = vote(DrawingEngine(a=["[[1]]", "[[2]]", "[[2]]"]), 3, vote_rule="mean")
    assert (judgment.winner, len(judgment.votes)) == (2, 3)
    assert judgment.probability == pytest.approx(1 / 3)


def test_grades_are_averaged():
    sample = Sample(id="1", question="q", answers=("a",))
    replies = ["Answer: very helpful", "Answer: very unhelpful"]
    judgment = vote(DrawingEngine(a=replies), 2, "rubric", sample, dimensions=("helpfulness",))
    # 6/7 and 2/7: mean 4/7, each 2/7 from it
    assert judgment.scores == (pytest.approx(4 / 7),)
    assert judgment.spread == pytest.approx(2 / 7)


def test_the_manifest_has_the_options_of_mode_and_votes():
    options = mode_identity(make_mode("reasoned", {"votes": 5, "both_orders": True}))["mode"]
    assert (options["name"], options["votes"], options["both_orders"]) == ("reasoned", 5, True)
    assert "mode" not in options
    assert not isinstance(make_mode("reasoned", {"votes": 1}), Voted)
