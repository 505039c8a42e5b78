"""What stands between `<ans>` and `</ans>`."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.parsing.verdicts import read_label, read_label_original, tagged_answer
from judgelm.records import Unparsed

EXPECTED = Path(__file__).parents[2].parent / "shared" / "data" / "expected" / "qa_metrics.json"
UNTAGGED = "no <ans> tags, and the reply is not one of the two words"
absent = pytest.mark.skipif(not EXPECTED.exists(), reason=f"{EXPECTED} is absent")


def replies():
    return json.loads(EXPECTED.read_text(encoding="utf-8"))["answer_parsing"] if EXPECTED.exists() else []


@absent
@pytest.mark.parametrize("reply", replies(), ids=lambda reply: repr(reply["text"][:24]))
def test_the_original_codes_readings_are_met_exactly(reply):
    text = reply["text"]
    assert tagged_answer(text, "first") == reply["extract_answer"]
    assert tagged_answer(text, "second") == reply["extract_answer_mistral"]
    assert tagged_answer(text, "last_on_line") == reply["extract_answer_mistral_judge"]
    assert (read_label_original(text, "first") == "correct") is reply["counts_as_correct_default"]
    assert (read_label_original(text, "last_on_line") == "correct") is reply["counts_as_correct_mistral"]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("<ans> CORRECT </ans>", "correct"),
        ("The two differ. <ANS>\nincorrect.\n</ANS>", "incorrect"),
        ('<ans>"CORRECT"</ans>', "correct"),
        ("<ans> <b>CORRECT</b> </ans>", "correct"),
        ("<ans>**INCORRECT**</ans>", "incorrect"),
        ("<ans>YOUR LABEL</ans>\n<ans>INCORRECT</ans>", "incorrect"),
        ("<ans>CORRECT</ans> ... <ans>CORRECT</ans>", "correct"),
        ("CORRECT", "correct"),
        (" **Incorrect.**\n", "incorrect"),
    ],
)
def test_a_label_is_read_however_it_is_dressed(text, label):
    found = read_label(text)
    assert found.label == label
    assert text[found.position :].startswith(found.written)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<ans>CORRECT</ans><ans>INCORRECT</ans>", "one line names correct and incorrect"),
        ("<ans>Partially CORRECT</ans>", "no tag holds CORRECT or INCORRECT"),
        ("<ans></ans>", "no tag holds CORRECT or INCORRECT"),
        ("The answer is <ans> CORRECT", UNTAGGED),
        ("It is correct.", UNTAGGED),
        ("", UNTAGGED),
        ("I think </ans>CORRECT<ans>", UNTAGGED),
    ],
)
def test_what_is_neither_word_or_both_is_a_failure(text, why):
    assert read_label(text) == Unparsed("off_grammar", text, why)


def test_the_label_stands_in_the_last_tags_that_hold_it():
    text = "INCORRECT? No: <ans>correct</ans>, so <ans> **CORRECT** </ans>"
    assert read_label(text) == ("correct", text.rindex("CORRECT"), "CORRECT")


def test_the_original_rule_says_what_it_takes_for_incorrect():
    assert read_label_original("<ans> INCORRECT </ans>", "first") == "incorrect"
    assert read_label_original("<ans> correct </ans>", "first").code == "off_grammar"
    assert read_label_original("CORRECT\n", "first") == "correct"
    assert read_label_original("CORRECT", "last_on_line") == Unparsed(
        "off_grammar", "CORRECT", "what rule last_on_line finds is neither CORRECT nor INCORRECT"
    )


def test_the_first_answer_is_the_one_that_is_taken_unless_said_otherwise():
    assert tagged_answer("<ans> one\n</ans> no: <ans>two</ans>") == "one"
    assert tagged_answer(" one\n") == " one\n"


def test_the_last_answer_stands_in_the_last_tags():
    assert tagged_answer("<ans>one</ans> no: <Ans>\ntwo </Ans>", "last") == "two"
    assert tagged_answer("one", "last") == ""


@given(st.text())
def test_every_text_is_read_or_a_failure_with_a_reason(text):
    found = read_label(text)
    if isinstance(found, Unparsed):
        assert found.why
    else:
        assert text[found.position :].startswith(found.written)
