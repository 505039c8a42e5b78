"""Prometheus, by itself, RewardBench and JudgeBench: what their parsers make of captured replies, and of ours."""

import re

import pytest

from judgelm.dialects.contract import AMBIGUOUS, ChatRequest, JudgeResult, JudgeTask, Message, sample_of
from tests.support import captures
from tests.support.captures import replies

ABSOLUTE, RELATIVE = captures.dialects("prometheus-absolute", "prometheus-relative")
REASON = "Result: B\n[RESULT] B. Score of 2 out of 5\nResult B"
PAIRS = [
    (JudgeResult(winner=1, scores=(8.0, 6.0), first_better=0.9, reason=REASON), "A"),
    (JudgeResult(winner=2, scores=(6.0, 8.0), first_better=0.1, reason="Result: A\nResult A"), "B"),
    (JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.6), "A"),
    (JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.4), "B"),
]
GRADES = [(1.0, 1), (10.0, 5), (5.5, 3), (8.2, 4), (4.375, 2)]  # 1 + (score - 1) / 9 * 4: 8.2 is 4.2, 4.375 is 2.5
# how JudgeBench words the task is free; the headings are the format's
JUDGEBENCH = (
    '###Task Description:\nSay which is better.\nThe output: "(feedback) [RESULT] (A or B)"\n\n###Instruction:\n{}\n\n'
    "###Response A:\n{}\n\n###Response B:\n{}\n\n###Score Rubric:\n[Is it correct?]\n\n###Feedback: "
)


def asking(text="", **more):
    system = "You are a fair judge assistant."
    return ChatRequest(messages=(Message(role="system", text=system), Message(role="user", text=text)), **more)


def parsed_absolute(text):
    """A whole number of 1 to 5 at the end, behind a mark."""
    mark = r"(?:\[RESULT\]|\[SCORE\]|score of|score|result)"
    found = re.search(rf"(?i){mark}:?\s*[(\[\s]*(\d+)(?:[)\]]|\s*/\s*5|\s*out\s*of\s*5)?\s*$", text)
    return int(found[1]) if found and 1 <= int(found[1]) <= 5 else None


def parsed_relative(text):
    """A letter at the end, behind a mark."""
    found = re.search(r"(?i)(?:\[RESULT\]|\[(?=Response)|result):?\s*(?:Response\s+)?(A|B)\]?\s*$", text)
    return found[1].upper() if found else None


def parsed_by_judgebench(text):
    """The first letter behind a mark, anywhere."""
    marks = r"\[RESULT\](?:\s+Response)?|\[Response\s+|^Result:?"
    found = re.search(rf"(?im)(?:{marks})\s*(A|B)(?:\]|\s|$)", text)
    return {"A": "A>B", "B": "B>A"}[found[1].upper()] if found else None


def parsed_by_rewardbench(text):
    return text[-1] if "[RESULT]" in text and text[-1] in "AB" else "error"


@pytest.mark.parametrize(
    ("folder", "parser"),
    [
        ("prometheus_absolute", parsed_absolute),
        ("prometheus_absolute_ref", parsed_absolute),
        ("prometheus_relative", parsed_relative),
        ("prometheus_relative_ref", parsed_relative),
        ("rewardbench_v1_prometheus", parsed_by_rewardbench),
    ],
)
def test_the_parsers_are_understood(shared_data, folder, parser):
    for reply, found in replies(shared_data, folder):
        assert parser(reply["content"]) == found, reply


def test_the_parser_of_judgebench_is_understood(shared_data):
    for reply, found in replies(shared_data, "judgebench__prometheus_2"):
        assert [parsed_by_judgebench(reply["content"])] * 2 == found["decisions_AB_then_BA"], reply


@pytest.mark.parametrize(
    ("old", "new"),
    [("###Task", "Now: ###Task"), ("[RESULT]", "[X]"), ("###Instruction:", "###Question:"), ("###Feedback: ", "Go.")],
)
def test_what_is_not_of_the_format_is_not_taken(old, new):
    prompt = JUDGEBENCH.format("q", "a", "b")
    assert RELATIVE.recognise(asking(prompt)) is not None
    assert RELATIVE.recognise(asking(prompt.replace(old, new))) is None
    assert ABSOLUTE.recognise(asking(prompt)) is None


def test_a_question_that_quotes_the_heading_stays_whole():
    question = "q\n\n###Instruction:\nx"
    assert RELATIVE.recognise(asking(JUDGEBENCH.format(question, "a", "b"))).sample.question == question


@pytest.mark.parametrize("reference", [None, "r"])
def test_a_single_response_is_graded_by_its_rubric(reference):
    told, shown = ("", "") if reference is None else (" a reference answer,", "###Reference Answer (Score 5):\nr\n\n")
    prompt = (
        f"###Task Description:\nGiven an instruction,{told} and a rubric, end with [RESULT].\n\n"
        f"###The instruction to evaluate:\nq\n\n###Response to evaluate:\na\n\n{shown}"
        "###Score Rubrics:\n\n[Is it kind?] \n\n###Feedback: "
    )
    case = ABSOLUTE.recognise(asking(prompt))
    assert (case.dialect, case.kind, case.scale, case.doubt) == ("prometheus-absolute", "grade", (1.0, 5.0), "")
    expected = sample_of("q", ("a",), reference, criterion="[Is it kind?] ")  # line ends go, blanks stay
    assert case.sample == expected
    twice = ABSOLUTE.recognise(
        asking(prompt.replace("to evaluate:\na", "to evaluate:\na\n\n###Response to evaluate:\nb"))
    )
    assert twice.doubt == AMBIGUOUS
    assert RELATIVE.recognise(asking(prompt)) is None


def test_line_ends_around_a_prompt_and_its_rubric_do_not_matter():
    prompt = JUDGEBENCH.format("q", "a", "b").replace("[Is it correct?]", "\n [Is it correct?]\n")
    alone = ChatRequest(messages=(Message(role="user", text=f"\n{prompt}\n \n"),))
    sample = RELATIVE.recognise(alone).sample
    assert (sample.question, sample.answers) == ("q", ("a", "b"))
    assert sample.metadata == {"criterion": " [Is it correct?]"}


def test_a_reference_is_one_where_the_description_tells_of_it():
    prompt = JUDGEBENCH.format("q", "a", "b\n\n###Reference Answer:\nr")
    told = prompt.replace("Say which", "Given a reference answer, say which")
    assert RELATIVE.recognise(asking(prompt)).sample.answers == ("a", "b\n\n###Reference Answer:\nr")
    sample = RELATIVE.recognise(asking(told)).sample
    assert (sample.answers, sample.reference) == (("a", "b"), "r")
    without = RELATIVE.recognise(asking(told.replace("\n\n###Reference Answer:\nr", ""))).sample
    assert (without.answers, without.reference) == (("a", "b"), None)


@pytest.mark.parametrize(("finding", "winner"), PAIRS)
@pytest.mark.parametrize("room", [None, 1024, 12])
def test_a_winner_is_read_by_all_three_clients(finding, winner, room):
    case = JudgeTask(dialect="prometheus-relative", kind="pair", sample=sample_of("q", ("a", "b")))
    [text] = RELATIVE.render(case, asking(max_tokens=room), finding).texts
    assert {parsed_relative(text), parsed_by_rewardbench(text), parsed_by_judgebench(text)[0]} == {winner}
    assert text.startswith("Feedback: ")
    assert text.count("[") == 1


@pytest.mark.parametrize(("score", "grade"), GRADES)
def test_a_grade_is_a_whole_number_at_the_end(score, grade):
    case = JudgeTask(dialect="prometheus-absolute", kind="grade", sample=sample_of("q", ("a",)), scale=(1, 5))
    [text] = ABSOLUTE.render(case, asking(), JudgeResult(scores=(score,), reason=REASON)).texts
    assert parsed_absolute(text) == grade
