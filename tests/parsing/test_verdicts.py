"""Verdicts that a reply states, levels of rubrics, and labels in tags."""

import json
from pathlib import Path

import pytest

from judgelm.judges.released import released_judge
from judgelm.modes.released import MarkedReply
from judgelm.modes.rubric import PLAY_FAVORITES
from judgelm.parsing.verdicts import parse_level, read_label, read_label_original, read_verdict, tagged_answer
from judgelm.records import Scores, Unparsed

LABELS = {"correct": "Correct", "incorrect": "Incorrect"}
PLACES = {"1": "1", "2": "2"}
LEVELS = ("poor", "good")
LETTERS = MarkedReply(before="[[", after="]]", labels={"A": "1", "B": "2"})
GRADE = MarkedReply(before="<score>", after="</score>", scale=(1, 5))
read_prometheus_score = released_judge("prometheus-2").tasks["single"].reply


@pytest.mark.parametrize(
    ("text", "label", "written"),
    [
        ("It is right.\n\n[[Correct]]", "correct", "Correct"),
        ("**[[incorrect]]**", "incorrect", "incorrect"),
        ('My verdict: "[[ **Correct** ]]".', "correct", "Correct"),
        ("I say [[Correct]]\n\nI hope this helps!", "correct", "Correct"),
        ("It differs.\n[Incorrect]", "incorrect", "Incorrect"),
        ("It differs.\nSo [Incorrect] it is, not [quite right].", "incorrect", "Incorrect"),
        ("It differs.\n**Final verdict: Incorrect.**", "incorrect", "Incorrect"),
        # a verdict stated as final counts
        ("It is nearly [[Correct]].\nBut 40 is not 41.\nFinal verdict: Incorrect", "incorrect", "Incorrect"),
        ("[[Correct]]\n\n**Final Verdict:** Incorrect. The sum is 41.", "incorrect", "Incorrect"),
        ("[[Correct]]\n### Final judgment\n[[Incorrect]]", "incorrect", "Incorrect"),
        ("[[Correct]]\n### Final judgment\nIncorrect", "incorrect", "Incorrect"),
        ("[[Correct]] at first.\nSo my final decision is [[Incorrect]], since 41 is odd.", "incorrect", "Incorrect"),
        ("Final verdict: [[Incorrect]]\nHad it said 41, I would have written [[Correct]].", "incorrect", "Incorrect"),
        ("Final verdict: Incorrect (the sum is 41)", "incorrect", "Incorrect"),
        ("最终：[[Correct]]\nFinal verdict： Incorrect", "incorrect", "Incorrect"),
    ],
)
def test_a_verdict_is_read(text, label, written):
    verdict = read_verdict(text, LABELS)
    assert (verdict.label, verdict.written) == (label, written)
    assert text[verdict.position :].startswith(written)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the reply is empty"),
        ("It is correct, I think.", "the reply does not end with a verdict"),
        ("[Correct] or [Incorrect]", "line contains correct and incorrect"),
        ("[[XCorrect]]", "the verdict 'xcorrect' is not one of"),
        ("[[CorrectX]]", "the verdict 'correctx' is not one of"),
        ("That is not correct", "the reply does not end with a verdict"),
        ("The verdict is not correct", "the reply does not end with a verdict"),
        ("[[Correct]]\nor rather [[Partially correct]]", "the verdict 'partially correct' is not one of"),
        # the prompt's own words, said again
        ('"[[Correct]]" if it is and "[[Incorrect]]" if it is not', "line contains correct and incorrect"),
        # verdicts that differ, or that are not meant
        ("At first [[Correct]], I thought.\nThen: [[Incorrect]]", "correct on line 1 and incorrect on line 2"),
        ("The sum is off.\n[[Incorrect]]\nNote: with 41 it would be [[Correct]].", "line 2 and correct on line 3"),
        ("[[Correct]]\nno, I was wrong.\nIncorrect", "correct on line 1 and incorrect on line 3"),
        ("[[Correct]]\nVerdict: Incorrect\nI hope this helps.", "correct on line 1 and incorrect on line 2"),
        ("Final verdict: Correct\nI take that back.\n[[Incorrect]]", "correct on line 1 and incorrect on line 3"),
        ("Final verdict: Correct\nFinal verdict: Incorrect", "correct on line 1 and incorrect on line 2"),
        ("> Final verdict: [[Correct]]\nso the answer says, but [[Incorrect]]", "line 1 and incorrect on line 2"),
        ("[[Correct]]\nFinal verdict: partially correct", "the final verdict 'partially correct' is not an expected"),
        ("[[Correct]]\nFinal verdict: the sum is wrong, it should be 41.", "it should be 41.' is not"),
        ("[[Incorrect]]\nFinal verdict: Correct, but only nearly so", "only nearly so' is not an expected"),
        ("Had it said 41, I would have written [[Correct]].", "the verdict on line 1 is negated, conditional"),
        ("The verdict would be [[Correct]] if it said 41.", "the verdict on line 1 is negated, conditional"),
        ("It is not [[Correct]].", "the verdict on line 1 is negated, conditional, or retracted"),
        ("One might call it\n[[Correct]]\nbut 40 is not 41.", "the verdict on line 2 is negated, conditional"),
        ("[[Correct]]\n\nWait, let me add again.", "the verdict on line 1 is negated, conditional, or retracted"),
    ],
)
def test_a_reply_without_a_clear_verdict_is_off_grammar_with_the_reason(text, why):
    result = read_verdict(text, LABELS)
    assert (result.code, result.text) == ("off_grammar", text)
    assert why in result.why


def test_a_bare_word_does_not_count_if_double_brackets_are_required():
    verdict = read_verdict("Correct", LABELS, brackets_only=True)
    assert verdict == Unparsed("off_grammar", "Correct", "no verdict in double brackets")
    assert read_verdict(" \n", LABELS, brackets_only=True).why == "the reply is empty"
    assert isinstance(read_verdict("Final verdict: 2", PLACES, brackets_only=True), Unparsed)
    assert read_verdict("[[1]], perhaps.\nFinal verdict: 2", PLACES, brackets_only=True).label == "2"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        *((text, "1") for text in ("[[1]]", "[[Response 1]]", "[[ Answer 1 ]]", "Response 1", "So the answer is 1")),
        ("**Response 1**\nIt is right.\n\n**Response 2**\nIt is wrong.\n\n[[1]]", "1"),
        ("Response 1 had the right idea, so if I must choose: [[1]]", "1"),
        ("Response 2 would have been better with a source, so I would choose [[1]]", "1"),
        ("Final answer: 2\nOnly response 1 says so: [[1]]", "1"),  # the judge's own solution, not its verdict
        ("If it had a source, response 1 would be perfect, but it is better as it is: [[1]]", "1"),
        ("Final verdict: the first response has the right sum.\n[[1]]", "1"),
        ("[[1]]\nHowever, both could be shorter.", "1"),
    ],
)
def test_a_verdict_may_have_a_noun_and_other_numbers_are_not_verdicts(text, label):
    verdict = read_verdict(text, PLACES)
    assert (verdict.label, text[verdict.position]) == (label, label)


@pytest.mark.parametrize(
    ("read", "first", "second", "expected"),
    [
        (lambda text: parse_level(text, LEVELS), "Answer: good", "answer: poor", "poor"),
        (read_label, "<ans>CORRECT</ans>", "verdict: <ans>INCORRECT</ans>", "incorrect"),
        (read_label, "<ans>CORRECT</ans>", "verdict: INCORRECT", "incorrect"),
        (LETTERS, "[[A]]", "verdict: [[B]]", "2"),
        (LETTERS, "[[A]]", "verdict: B", "2"),
        (GRADE, "<score>4</score>", "score: <score>2</score>", (2.0,)),
        (read_prometheus_score, "[RESULT] 4", "result: [RESULT] 2", (2.0,)),
    ],
)
def test_every_grammar_reads_several_verdicts_alike(read, first, second, expected):
    differ = read(f"{first}\nNo.\nMy {second}\nI hope this helps.")
    assert isinstance(differ, Unparsed)
    final = read(f"{first}\nNo.\nMy final {second}\nI hope this helps.")
    label = getattr(final, "label", final)
    assert (label.values if isinstance(label, Scores) else label) == expected


@pytest.mark.parametrize(
    "text", ["[[" + " " * 50_000, "verdict" + " " * 50_000 + "x", "[[Correct]]" * 5_000, "final verdict " * 5_000]
)
@pytest.mark.timeout(20)
def test_long_replies_cost_little(text):
    verdict = read_verdict(text, LABELS)
    assert isinstance(verdict, Unparsed) or verdict.label == "correct"


CORRECTNESS = ("correct", "partially correct", "incorrect")


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("Explanation: It is correct up to the sum, Answer: incorrect", "incorrect"),
        ("Explanation: not incorrect at all, Answer: correct", "correct"),
        ("Explanation: ...\n\nAnswer: Partially  Correct.", "partially correct"),
        ("**Explanation:** so. **Answer:** **correct**", "correct"),
        ("Answer:\n[incorrect]", "incorrect"),
        ('ANSWER: "correct"\n\nI hope this helps.', "correct"),
        ("- Answer: - correct", "correct"),
        ("The candidate's answer: 42. That is right, Answer: correct", "correct"),
        ("Answer: correct. Once more, Answer: correct", "correct"),
    ],
)
def test_the_level_is_read(text, level):
    assert parse_level(text, CORRECTNESS) == level


def test_a_level_is_read_despite_markup_in_its_name_or_a_condition_in_the_explanation():
    assert parse_level("Answer: fully correct", ("**fully** correct", "wrong")) == "**fully** correct"
    assert parse_level("Explanation: if it had a source it would be better, Answer: good", LEVELS) == "good"
    assert read_prometheus_score("if it had a source it would be better [RESULT] 3") == Scores((3.0,))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the reply is empty"),
        ("It is correct.", "the reply has no `Answer:`"),
        ("Answer: correct, mostly", "not a level: 'correct, mostly'"),
        ("Answer: not correct", "not a level: 'not correct'"),
        ("Answer: correct or incorrect", "not a level: 'correct or incorrect'"),
        ("Answer:", "not a level: ''"),
        ("Answer: NA", "not a level: 'NA'"),
        ("First thought, Answer: correct\nNo. Answer: incorrect", "correct on line 1 and incorrect on line 2"),
        ("Explanation: [Explanation], Answer: [Answer]", "not a level: '[Answer]'"),
        ("My myanswer: correct", "the reply has no `Answer:`"),
    ],
)
def test_an_invalid_level_is_a_failure_with_the_reason(text, why):
    result = parse_level(text, CORRECTNESS)
    assert (result.code, result.text) == ("off_grammar", text)
    assert why in result.why


@pytest.mark.parametrize("name", PLAY_FAVORITES)
def test_every_level_of_the_paper_is_distinct(name):
    levels = list(PLAY_FAVORITES[name].levels)
    assert [parse_level(f"Explanation: {levels}, Answer: {level.upper()}.", levels) for level in levels] == levels


EXPECTED = Path(__file__).parents[2].parent / "shared" / "data" / "expected" / "qa_metrics.json"

UNTAGGED = "no <ans> tags"


def replies():
    return json.loads(EXPECTED.read_text(encoding="utf-8"))["answer_parsing"] if EXPECTED.exists() else []


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
    verdict = read_label(text)
    assert verdict.label == label
    assert text[verdict.position :].startswith(verdict.written)


def test_the_label_is_in_the_last_tags_that_contain_one():
    text = "INCORRECT? No: <ans>correct</ans>, so <ans> **CORRECT** </ans>"
    assert read_label(text) == ("correct", text.rindex("CORRECT"), "CORRECT")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<ans>CORRECT</ans><ans>INCORRECT</ans>", "line contains correct and incorrect"),
        ("<ans>Partially CORRECT</ans>", "no tag contains CORRECT or INCORRECT"),
        ("<ans></ans>", "no tag contains CORRECT or INCORRECT"),
        ("The answer is <ans> CORRECT", UNTAGGED),
        ("It is correct.", UNTAGGED),
        ("", UNTAGGED),
        ("I think </ans>CORRECT<ans>", UNTAGGED),
    ],
)
def test_what_is_neither_word_or_both_is_a_failure(text, why):
    result = read_label(text)
    assert (result.code, result.text) == ("off_grammar", text)
    assert why in result.why


def test_the_original_rule_says_what_it_takes_for_incorrect():
    assert read_label_original("<ans> INCORRECT </ans>", "first") == "incorrect"
    assert read_label_original("<ans> correct </ans>", "first").code == "off_grammar"
    assert read_label_original("CORRECT\n", "first") == "correct"
    assert read_label_original("CORRECT", "last_on_line").code == "off_grammar"


def test_the_first_or_the_last_answer_is_taken():
    assert tagged_answer("<ans> one\n</ans> no: <ans>two</ans>") == "one"
    assert tagged_answer("<ans>one</ans> no: <Ans>\ntwo </Ans>", "last") == "two"
    assert (tagged_answer(" one\n"), tagged_answer("one", "last")) == (" one\n", "")
