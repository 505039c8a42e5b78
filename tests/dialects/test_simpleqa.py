"""SimpleQA's grader: what lighteval sends, and the letters it reads."""

import pytest

from judgelm.dialects.contract import JudgeResult
from tests.support import captures

[SIMPLEQA] = captures.dialects("simpleqa")
FOLDERS = ("lighteval_simpleqa_openai", "lighteval_simpleqa_litellm")


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_client_counts_an_a_and_nothing_else(shared_data, folder):
    for reply, parsed in captures.replies(shared_data, folder):
        assert float(reply["content"] == "A") == parsed


@pytest.mark.parametrize(("correct", "letter"), [(1.0, "A"), (0.5, "A"), (0.49, "B"), (0.0, "B")])
def test_the_reply_is_one_letter(refilled, correct, letter):
    asked = refilled(FOLDERS[1], answers=["A"])
    found = SIMPLEQA.render(SIMPLEQA.recognise(asked), asked, JudgeResult(correct=correct, reason="It is A."))
    assert found.texts == (letter,)
