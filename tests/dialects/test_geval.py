"""The original G-Eval script: what it sends, and the numbers it reads."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.contract import JudgeResult
from tests.support import captures

[GEVAL] = captures.dialects("geval")
SCALES = {"coh": (1, 5), "con": (1, 5), "flu": (1, 3), "rel": (1, 5)}


def clients_score(reply):
    found = re.search(r"^ ?([\d\.]+)", reply)
    try:
        return float(found[1]) if found else 0
    except ValueError:
        return 0


@pytest.mark.parametrize("metric", SCALES)
def test_captured_requests_are_recognised_and_split_exactly(shared_data, metric):
    for item, asked in captures.requests(shared_data, f"geval_original_{metric}"):
        case = GEVAL.recognise(asked)
        assert (case.dialect, case.kind, case.scale, case.doubt) == ("geval", "grade", SCALES[metric], "")
        # fluency is judged without the source
        assert (case.sample.question, [*case.sample.answers], case.sample.reference) == (
            "" if metric == "flu" else item["source"], item["answers"], None)  # fmt: skip
        name = {"coh": "Coherence", "con": "Consistency", "flu": "Fluency", "rel": "Relevance"}[metric]
        assert case.sample.metadata["criterion"].startswith(f"{name} ({SCALES[metric][0]}-{SCALES[metric][1]}")


@pytest.mark.parametrize(
    "part", ["You will be given", "Coherence (1-5)", "Example:", "Source Text:", "Evaluation Form"]
)
def test_a_prompt_without_one_of_its_parts_is_not_taken(refilled, part):
    asked = refilled("geval_original_coh", question="q", answers=["a"])
    [message] = asked.messages
    assert part in message.text
    changed = replace(message, text=message.text.replace(part, "Part"))
    assert GEVAL.recognise(replace(asked, messages=(changed,))) is None


@pytest.mark.parametrize("metric", SCALES)
def test_the_parser_here_concludes_what_the_client_did(shared_data, metric):
    for reply, parsed in captures.replies(shared_data, f"geval_original_{metric}"):
        assert clients_score(reply["content"]) == parsed


def test_twenty_replies_average_to_the_expected_grade(refilled):
    asked = refilled("geval_original_coh", answers=["a"])
    draws = ((10.0,),) * 5 + ((1.0,),) * 10 + ((5.5,),) * 5
    reply = GEVAL.render(GEVAL.recognise(asked), asked, JudgeResult(scores=(4.0,), draws=draws))
    assert len(reply.texts) == asked.n == 20
    # 10 is 5 of 1 to 5, 1 is 1, 5.5 is 3: (5*5 + 10*1 + 5*3) / 20 = 2.5
    assert sum(map(clients_score, reply.texts)) / 20 == pytest.approx(2.5)


@given(st.floats(1, 10))
def test_every_score_reaches_the_client(refilled, score):
    asked = refilled("geval_original_flu", answers=["a"])
    reply = GEVAL.render(GEVAL.recognise(asked), asked, JudgeResult(scores=(score,)))
    # linearly from 1..10 to 1..3, two decimals
    assert clients_score(reply.texts[0]) == pytest.approx(1 + (score - 1) * 2 / 9, abs=0.006)
    assert len(reply.texts) == 20
