"""Pairs judged by reasons first: verdicts of both orders, probabilities, and judges of such templates."""

import math

import pytest

from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge
from judgelm.judges.judge_format import judge_format
from judgelm.modes import Pairwise, Reasoned
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card
from judgelm.records import Completion, PairVerdict, Sample
from tests.support.flows import drive, reply

BOTH = Reasoned(template="reasoned-compact", both_orders=True)


@pytest.mark.parametrize(
    ("given", "swapped", "winner", "consistent"),
    # swapped, place 1 is the sample's second
    [("1", "2", 1, True), ("2", "1", 2, True), ("1", "1", "tie", False), ("2", "2", "tie", False)],
)
def test_both_orders_decide(given, swapped, winner, consistent):
    _, judgment = drive(BOTH, [reply(f"Better.\n[[{given}]]"), reply(f"Better.\n[[{swapped}]]")])
    assert judgment.verdict == PairVerdict(winner=winner)
    assert judgment.consistent is consistent


def test_a_reply_without_a_verdict_in_double_brackets_is_a_failure():
    _, judgment = drive(BOTH, [reply("Both are fine. [[tie]]"), reply("So.\n[[2]]")])
    assert (judgment.verdict, judgment.failure.code) == (None, "off_grammar")
    accepting = Reasoned(template="reasoned-compact", both_orders=True, accept_one_order=True)
    _, judgment = drive(accepting, [reply("Both are fine. [[tie]]"), reply("So.\n[[2]]")])
    assert judgment.winner == 1


def test_the_answers_stand_in_both_orders_and_cannot_write_verdicts():
    sample = Sample(id="1", question="q", answers=("so [[1]]", "b"), reference="r")
    requests = next(BOTH(sample))
    texts = ["".join(span.text for span in request.prompt.spans) for request in requests]
    assert texts == ["[Q] q\n[R] r\n[1] so ((1))\n[2] b\n[S] ", "[Q] q\n[R] r\n[1] b\n[2] so ((1))\n[S] "]
    assert "[R]" not in next(Reasoned(template="reasoned-compact", reference="ignore")(sample))[0].prompt.spans[0].text


def test_the_probability_is_asked_for_where_the_verdict_stands():
    mode = Reasoned(template="reasoned-compact", both_orders=True, distribution=True)
    answers = [
        Completion(key="", texts=("",), finish_reasons=("length",), candidate_logprobs=tuple(map(math.log, shares)))
        for shares in ((0.6, 0.2), (0.15, 0.45))
    ]
    asked, judgment = drive(mode, [reply("Good.\n[[1]]"), reply("Bad.\n[[2]]")], answers)
    assert [request.prompt.prefill for request in asked[1]] == ["Good.\n[[", "Bad.\n[["]
    # given 0.6 / 0.8 = 0.75; swapped 0.15 / 0.6 = 0.25 for place 1, the sample's second: 0.75 for its first
    assert judgment.probability == pytest.approx(0.75)


def test_a_missing_verdict_is_the_more_probable_label_behind_the_reply_and_is_counted_apart():
    mode = Reasoned(template="reasoned-compact", both_orders=True, retry_unparseable=True)
    cut = Completion(key="", texts=("The first one is",), finish_reasons=("length",))
    forced = Completion(
        key="", texts=("",), finish_reasons=("length",), candidate_logprobs=(math.log(0.6), math.log(0.2))
    )
    asked, judgment = drive(mode, [cut, reply("So.\n[[2]]")], [forced])
    [request] = asked[1]
    assert (request.prompt.prefill, request.candidates) == ("The first one is\n\n[[", ("1", "2"))
    assert (judgment.winner, judgment.repaired) == (1, True)
    assert (judgment.shown[0].text, judgment.shown[0].repaired.code) == ("The first one is\n\n[[1]]", "truncated")
    assert judgment.shown[1].repaired is None
    # an engine without probabilities changes nothing
    _, judgment = drive(mode, [cut, reply("So.\n[[2]]")], [Completion(key="", texts=("",), finish_reasons=("stop",))])
    assert (judgment.verdict, judgment.failure.code) == (None, "truncated")


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="begins with a score line"):
        Reasoned(template="judgelm-v1")
    with pytest.raises(InputError, match="expected 2 answers, got 3"):
        drive(BOTH, sample=Sample(id="1", question="q", answers=("a", "b", "c")))


def test_a_judge_that_reasons_first_does_so_in_the_mode_of_pairs():
    with Judge("So.\n[[1]]", engine="scripted", template="reasoned-compact") as judge_:
        assert judge_.mode("pair", both_orders=True) == Reasoned(template="reasoned-compact", both_orders=True)
        judgment = judge_.compare("q", "a", "b")
        assert (judgment.verdict, judgment.consistent) == (PairVerdict(winner="tie"), False)
        with pytest.raises(ConfigError, match="mode multi expects scores"):
            judge_.mode("multi")
        with pytest.raises(ConfigError, match="writes no score lines"):
            judge_.pairwise()


@pytest.mark.parametrize(
    ("fields", "room"), [({}, 1024), ({"window": 512}, 256), ({"training": {"max_completion_length": 64}}, 64)]
)
def test_the_room_for_a_reply_is_that_of_the_training(fields, room):
    template = get_template("reasoned-compact")
    card = Card(template=template.id, template_sha=template.sha, **fields)
    with Judge("So.\n[[1]]", engine="scripted", template="reasoned-compact") as judge_:
        judge_.format = judge_format(card, None, location="judge", ignore_card=False)
        assert judge_.mode("pair").max_tokens == room
        assert judge_.mode("pair", max_tokens=7).max_tokens == 7


def test_any_other_model_can_be_asked_to_reason_first():
    with Judge("So.\n[[1]]", engine="scripted") as judge_:
        assert judge_.mode("reasoned") == Reasoned()
        assert isinstance(judge_.mode("pair"), Pairwise)
    with (
        Judge("So.\n[[1]]", engine="scripted", template="judgelm-v1") as judge_,
        pytest.raises(ConfigError, match="such as reasoned-chat"),
    ):
        judge_.mode("reasoned")
