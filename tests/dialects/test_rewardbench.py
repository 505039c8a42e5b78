"""RewardBench: what its parsers make of captured replies, and of ours."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captures import replies, requests
from judgelm.dialects.contract import Asked, Case, Finding, Message
from judgelm.dialects.recognising import sample_of
from judgelm.dialects.rewardbench import DIALECTS

BY_NAME = {dialect.name: dialect for dialect in DIALECTS}
REASON = '[[B]] and [[A]]. Output (b) **Result:** B {"better_answer": "2"} 9'
PAIRS = [
    (Finding(winner=1, scores=(8.0, 6.0), first_better=0.9, reason=REASON), "A"),
    (Finding(winner=2, scores=(6.0, 8.0), first_better=0.1, reason="[[A]] Output (a)"), "B"),
    (Finding(winner="tie", scores=(7.0, 7.0), first_better=0.6), "A"),
    (Finding(winner="tie", scores=(7.0, 7.0), first_better=0.4), "B"),
]


def asking(**more):
    return Asked(messages=(Message(role="user", text=""),), **more)


def first_found(marks):
    """The first of the marks that stands in the text, in the marks' order."""
    return lambda text: next((letter for letter, mark in marks.items() if mark in text), "error")


def parsed_rating(text):
    found = re.search(r"\b([1-9]|10)\b\s*$", text)
    return int(found[1]) if found else -1


def parsed_result(text):
    found = re.search(r"\*\*Result:\*\*\s*([AB])", text)
    return found[1] if found else None


def parsed_json(text):
    found = re.search(r'"(?:更好的回答|better_answer)":\s*"?([12])', text)
    return "AB"[int(found[1]) - 1] if found else "None"


PARSERS = {
    "rewardbench_v1_atla": ("rewardbench-atla", parsed_result),
    "rewardbench_v1_conj": ("rewardbench-con-j", parsed_json),
    "rewardbench_v1_offsetbias": ("rewardbench-offsetbias", first_found({"A": "Output (a)", "B": "Output (b)"})),
    "rewardbench_v1_pair": ("rewardbench-pair", first_found({"A": "[[A]]", "B": "[[B]]"})),
    "rewardbench_v1_pair_mt": ("rewardbench-pair-multi-turn", first_found({"A": "[[A]]", "B": "[[B]]"})),
    "rewardbench_v1_rise": ("rewardbench-rise", first_found({"A": "[[A]]", "B": "[[B]]"})),
    "rewardbench_v1_ratings": ("rewardbench-ratings", parsed_rating),
    "rewardbench_v2_ratings": ("rewardbench-ratings", parsed_rating),
    "rewardbench_v2_ratings_ties": ("rewardbench-ratings", parsed_rating),
    "rewardbench_v2_four": ("rewardbench-four", first_found({letter: f"[[{letter}]]" for letter in "ABCD"})),
}


@pytest.mark.parametrize("folder", PARSERS)
def test_the_parsers_are_understood(shared_data, folder):
    _, parser = PARSERS[folder]
    for reply, found in replies(shared_data, folder):
        assert parser(reply["content"]) == found, reply


@pytest.mark.parametrize(
    "folder", [name for name, (dialect, _) in PARSERS.items() if not dialect.endswith(("ratings", "four"))]
)
@pytest.mark.parametrize(("finding", "winner"), PAIRS)
@pytest.mark.parametrize("room", [None, 2048, 8])
def test_the_winner_of_a_pair_is_read(folder, finding, winner, room):
    name, parser = PARSERS[folder]
    case = Case(dialect=name, task="pair", sample=sample_of("q", ("a", "b")))
    [text] = BY_NAME[name].render(case, asking(max_tokens=room), finding).texts
    assert parser(text) == winner
    assert sum(text.count(mark) for mark in ("[[", "Output (", "**Result:**", "更好的回答")) == 1


def test_the_json_of_con_j_is_json():
    case = Case(dialect="rewardbench-con-j", task="pair", sample=sample_of("q", ("a", "b")))
    [text] = BY_NAME["rewardbench-con-j"].render(case, asking(), PAIRS[0][0]).texts
    assert json.loads(text)["更好的回答"] == 1


@pytest.mark.parametrize(("scores", "best"), [((2, 9, 3, 4), "B"), ((1, 2, 3, 9.5), "D"), ((9, 1, 1, 1), "A")])
def test_the_best_of_four_is_read(scores, best):
    case = Case(dialect="rewardbench-four", task="choice", sample=sample_of("q", ("a", "b", "c", "d")))
    [text] = BY_NAME["rewardbench-four"].render(case, asking(), Finding(scores=scores, reason=REASON)).texts
    assert PARSERS["rewardbench_v2_four"][1](text) == best
    assert text.count("[[") == 1


def test_of_equally_good_answers_the_same_is_best_in_every_order():
    def best(answers):
        case = Case(dialect="rewardbench-four", task="choice", sample=sample_of("q", answers))
        finding = Finding(scores=tuple(1.0 if answer == "d" else 8.0 for answer in answers))
        [text] = BY_NAME["rewardbench-four"].render(case, asking(), finding).texts
        return answers["ABCD".index(PARSERS["rewardbench_v2_four"][1](text))]

    assert best(("a", "b", "c", "d")) == best(("d", "c", "b", "a")) == best(("c", "a", "d", "b")) != "d"


@given(score=st.floats(1, 10))
def test_a_rating_ends_the_text(score):
    case = Case(dialect="rewardbench-ratings", task="grade", sample=sample_of("q", ("a",)), scale=(1, 10))
    [text] = BY_NAME["rewardbench-ratings"].render(case, asking(), Finding(scores=(score,), reason=REASON)).texts
    assert abs(parsed_rating(text) - score) <= 0.5
    assert text.split("\n")[-1] == str(parsed_rating(text))


def test_a_pair_with_a_label_for_ties_is_not_rewardbench(shared_data):
    for _, asked in requests(shared_data, "fastchat_pair"):
        assert [one.name for one in DIALECTS if one.recognise(asked) is not None] == []
