"""SimpleQA's grader: what lighteval sends, and the letters it reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.contract import JudgeResult
from tests.support import captures

[SIMPLEQA] = captures.dialects("simpleqa")
FOLDERS = ("lighteval_simpleqa_openai", "lighteval_simpleqa_litellm")
TEXTS = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from(["a", "\n", "\nGold target: ", "\nPredicted answer: ", "```\n", "\n```\n\n", "\u2028", " ",
                         "Here is a new example. Simply reply with either CORRECT, INCORRECT, NOT ATTEMPTED. "]),
        max_size=6,
    ).map("".join),
)  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS)
def test_captured_requests_are_recognised_and_split_exactly(shared_data, folder):
    for item, asked in captures.requests(shared_data, folder):
        case = SIMPLEQA.recognise(asked)
        assert (case.dialect, case.kind, case.doubt) == ("simpleqa", "label", "")
        assert (case.sample.question, [*case.sample.answers], case.sample.reference) == (
            item["question"], item["answers"], item["reference"])  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_client_counts_an_a_and_nothing_else(shared_data, folder):
    for reply, parsed in captures.replies(shared_data, folder):
        assert float(reply["content"] == "A") == parsed


@given(question=TEXTS, answer=TEXTS, reference=TEXTS)
def test_what_is_put_in_comes_out_or_is_doubted(refilled, question, answer, reference):
    asked = refilled(FOLDERS[0], question=question, answers=[answer], reference=reference)
    sample = (case := SIMPLEQA.recognise(asked)).sample
    assert case.doubt or (sample.question, sample.answers, sample.reference) == (question, (answer,), reference)


@pytest.mark.parametrize(("correct", "letter"), [(1.0, "A"), (0.5, "A"), (0.49, "B"), (0.0, "B")])
def test_the_reply_is_one_letter(refilled, correct, letter):
    asked = refilled(FOLDERS[1], answers=["A"])
    found = SIMPLEQA.render(SIMPLEQA.recognise(asked), asked, JudgeResult(correct=correct, reason="It is A."))
    assert found.texts == (letter,)
