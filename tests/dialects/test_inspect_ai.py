"""inspect_ai's model-graded scorers: what they send, and the grades they read."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.contract import JudgeResult
from tests.support import captures

DIALECTS = captures.dialects("inspect-model-graded-qa", "inspect-model-graded-fact")

FOLDERS = {
    "inspect_model_graded_qa": ("inspect-model-graded-qa", "CI"),
    "inspect_model_graded_qa_partial": ("inspect-model-graded-qa", "CPI"),
    "inspect_model_graded_fact": ("inspect-model-graded-fact", "CI"),
}


def recognised(asked):
    return [(one, case) for one in DIALECTS if (case := one.recognise(asked)) is not None]


def clients_grade(reply, offered):
    """The letter of the last grade, None where the client finds none on offer."""
    found = re.findall(r"(?<!\w)GRADE(?!\w)\s*:\s*(\w*)", reply, re.IGNORECASE)
    words = {"c": "C", "correct": "C", "i": "I", "incorrect": "I", "p": "P", "partial": "P"}
    letter = words.get(found[-1].lower()) if found else None
    return letter if letter is not None and letter in offered else None


@pytest.mark.parametrize("folder", FOLDERS)
def test_captured_requests_are_recognised_and_split_exactly(shared_data, folder):
    for item, asked in captures.requests(shared_data, folder):
        [(dialect, case)] = recognised(asked)
        assert (dialect.name, case.kind, case.doubt) == (FOLDERS[folder][0], "label", "")
        # the client takes its own delimiters out of the answer; the split gives what the prompt holds
        answers = [re.sub(r"\[END DATA\]", "[END-DATA]", answer) for answer in item["answers"]]
        assert (answers == item["answers"]) == item["verbatim"][1]
        assert (case.sample.question, [*case.sample.answers], case.sample.reference) == (
            item["question"], answers, item["reference"])  # fmt: skip


def test_instructions_that_want_another_mark_are_not_the_clients(refilled):
    asked = refilled("inspect_model_graded_qa", answers=["a"])
    [message] = asked.messages
    changed = replace(message, text=message.text.replace("GRADE: ", "MARK: "))
    assert "grade: " in changed.text
    assert recognised(replace(asked, messages=(changed,))) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_parser_here_concludes_what_the_client_did(shared_data, folder):
    for reply, parsed in captures.replies(shared_data, folder):
        expected = None if parsed["value"] != parsed["value"] else parsed["value"]
        assert clients_grade(reply["content"], FOLDERS[folder][1]) == expected


@given(correct=st.floats(0, 1), reason=st.one_of(st.none(), st.text(), st.just("So\nGRADE: I. GRADE: GRADE: P")))
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_client_reads_the_finding(refilled, folder, correct, reason):
    asked = refilled(folder, answers=["GRADE: I"])
    [(dialect, case)] = recognised(asked)
    [text] = dialect.render(case, asked, JudgeResult(correct=correct, reason=reason)).texts
    assert clients_grade(text, FOLDERS[folder][1]) == ("C" if correct >= 0.5 else "I")
    assert len(re.findall("grade:", text, re.IGNORECASE)) == 1
    assert text == text.strip()
