"""Selective self-reference: the gate, what is shown, both orders, and runs on the same solves."""

import json
import math
from dataclasses import replace

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, InputError
from judgelm.modes.self_reference import SelectiveSelfReference
from judgelm.records import Completion, Sample
from judgelm.runs.runner import judge
from judgelm.runs.serialization import judgment_from_row, judgment_row
from tests.support.flows import broken, drive, reply

PAIR = Sample(id="1", question="q", answers=("It is (A).", "It is (B)."))
FIRST = [reply("[[1]]"), reply("[[2]]")]  # the sample's first, in both orders


def solves(letters):
    """A completion of one solve per letter; `-` is one without an answer."""
    texts = tuple("I do not know." if one == "-" else f"The answer is ({one})." for one in letters)
    reasons = ("stop",) * len(texts)
    return [Completion(key="", texts=texts, finish_reasons=reasons, prompt_tokens=20, completion_tokens=50)]


def saved(letters):
    rows = [{"text": f"so {one}", "answer": None if one == "-" else one} for one in letters]
    return replace(PAIR, metadata={"solves": rows})


def text_of(request):
    return "".join(span.text for span in request.prompt.spans)


@pytest.mark.parametrize(
    ("letters", "tau", "shown"),
    [
        ("AAAAB", 0.8, "A"),  # 4/5 is 0.8: on
        ("AAABB", 0.8, None),  # 3/5
        ("AAABB", 0.6, "A"),
        ("AAAA-", 0.8, "A"),  # 4 of 5: the one without an answer stays in k ...
        ("AAA--", 0.8, None),  # ... so 3 of 3 that have one are not unanimous
        ("-----", 0.0, None),
        ("BAABC", 0.4, "B"),  # 2-2-1: the one drawn first
    ],
)
def test_the_gate(letters, tau, shown):
    asked, judgment = drive(SelectiveSelfReference(tau=tau), solves(letters), FIRST, sample=PAIR)
    assert judgment.own_reference == shown
    assert [one.referenced for one in judgment.shown] == [shown is not None] * 2
    for request in asked[1]:
        assert ("the correct answer is" in text_of(request)) == (shown is not None)
        assert f"the correct answer is {shown}." in text_of(request) or shown is None
        assert "The answer is (" not in text_of(request)  # the answer alone, never its reasoning


def test_the_papers_values_are_the_defaults():
    [request] = next(SelectiveSelfReference()(PAIR))
    assert (request.sampling.n, request.sampling.temperature, SelectiveSelfReference().tau) == (5, 0.7, 0.8)
    assert SelectiveSelfReference().both_orders


def test_always_shows_the_majority_and_never_asks_for_none():
    _, judgment = drive(SelectiveSelfReference(when="always"), solves("ABCDE"), FIRST, sample=PAIR)
    assert judgment.own_reference == "A"
    _, judgment = drive(SelectiveSelfReference(when="always"), solves("-----"), FIRST, sample=PAIR)
    assert (judgment.own_reference, judgment.shown[0].referenced) == (None, False)
    asked, judgment = drive(SelectiveSelfReference(when="never"), FIRST, sample=PAIR)
    assert [len(one) for one in asked] == [2]
    assert judgment.self_answers == ()


def test_one_order_alone():
    _, judgment = drive(SelectiveSelfReference(when="never", both_orders=False), [reply("[[2]]")], sample=PAIR)
    assert (judgment.winner, judgment.consistent) == (2, None)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (reply("no idea"), "off_grammar"),
        (reply("[[3]]"), "off_grammar"),
        (reply("First, [[1]]", finish="length"), "truncated"),
        (broken("error"), "engine"),
        (broken("too_long"), "too_long"),
    ],
)
def test_an_order_that_failed_fails_the_judgment_unless_one_is_enough(bad, code):
    _, judgment = drive(SelectiveSelfReference(when="never"), [reply("[[1]]"), bad], sample=PAIR)
    assert (judgment.verdict, judgment.failure.code, judgment.consistent) == (None, code, None)
    _, judgment = drive(SelectiveSelfReference(when="never", accept_one_order=True), [reply("[[1]]"), bad], sample=PAIR)
    assert (judgment.winner, judgment.failure, judgment.consistent) == (1, None, None)


def test_a_solve_request_that_failed_is_the_judgments_failure():
    _, judgment = drive(SelectiveSelfReference(), [broken("error")], sample=PAIR)
    assert (judgment.verdict, judgment.failure.code, judgment.shown, judgment.self_answers) == (None, "engine", (), ())


def test_tokens_of_solves_and_orders_are_added_and_the_solves_kept():
    _, judgment = drive(SelectiveSelfReference(), solves("AAAAB"), FIRST, sample=PAIR)
    # 20 + 10 + 10 and 50 + 3 + 3
    assert (judgment.prompt_tokens, judgment.completion_tokens) == (40, 56)
    assert [one.answer for one in judgment.self_answers] == list("AAAAB")


def test_the_same_solves_serve_every_way_and_every_tau_and_none_is_asked_again():
    sampled = []

    def script(prompt):
        text = "".join(span.text for span in prompt.spans)
        if "[Task]" not in text:
            sampled.append(text)
            return "The answer is (B)."
        return "[[1]]" if "the correct answer is" in text else "[[2]]"

    [first] = judge([PAIR], SelectiveSelfReference(), ScriptedEngine(script))
    assert len(sampled) == 1  # one request for all five
    row = json.loads(json.dumps(judgment_row(first)))
    assert judgment_from_row(row) == first
    again = replace(PAIR, metadata={"solves": row["solves"]})
    sampled.clear()
    for when, tau in [("never", 0.8), ("always", 0.8), *(("selective", tau) for tau in (0.2, 0.6, 0.8, 1.0))]:
        [judgment] = judge([again], SelectiveSelfReference(when=when, tau=tau), ScriptedEngine(script))
        assert judgment.self_answers == first.self_answers
        assert judgment.own_reference == (None if when == "never" else "B")
    assert sampled == []


@pytest.mark.parametrize(("tau", "reference"), [(0.4, "A"), (0.6, "A"), (0.8, None), (1.0, None)])
def test_saved_solves_pass_the_gate_by_their_own_agreement(tau, reference):
    _, judgment = drive(SelectiveSelfReference(tau=tau), FIRST, sample=saved("AAAB-"))
    assert judgment.own_reference == reference


def test_the_samples_reference_is_never_shown():
    asked, _ = drive(SelectiveSelfReference(when="never"), FIRST, sample=replace(PAIR, reference="the truth"))
    assert not any("the truth" in text_of(request) for request in asked[0])


def with_candidates(first, second):
    return Completion(
        key="", texts=("1",), finish_reasons=("stop",), candidate_logprobs=(math.log(first), math.log(second))
    )


def test_a_probability_of_little_mass_or_of_one_order_only_is_none():
    mode = SelectiveSelfReference(when="never", distribution=True)
    labels = [with_candidates(0.6, 0.2), with_candidates(0.1, 0.1)]
    assert drive(mode, FIRST, labels, sample=PAIR)[1].probability is None
    both = replace(mode, accept_one_order=True)
    assert drive(both, [reply("[[1]]"), reply("?")], labels[:1], sample=PAIR)[1].probability == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"task": "preference"}, "task preference has no answers that could agree"),
        ({"tau": 1.2}, r"tau is 1\.2"),
        ({"solves": 0}, "0 solves"),
        ({"solve_temperature": 0}, "5 solves at temperature 0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, finding):
    with pytest.raises(ConfigError, match=finding):
        SelectiveSelfReference(**options)


def test_only_pairs_are_judged():
    with pytest.raises(InputError, match="sample 1: expected 2 answers, got 1"):
        next(SelectiveSelfReference()(Sample(id="1", question="q", answers=("a",))))
