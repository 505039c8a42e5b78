"""PandaLM: what its parser, and JudgeBench's, make of captured replies, and of ours."""

import pytest

from judgelm.dialects.contract import AMBIGUOUS, ChatRequest, JudgeResult, JudgeTask, Message, sample_of
from tests.support import captures
from tests.support.captures import replies

[PANDALM] = captures.dialects("pandalm")
REASON = "Tie\n2\n### Reason: Response 2 wins\n1"
PAIRS = [
    (JudgeResult(winner=1, scores=(8.0, 6.0), first_better=0.9, reason=REASON), 1),
    (JudgeResult(winner=2, scores=(6.0, 8.0), first_better=0.1, reason=REASON), 2),
    (JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.6, reason=REASON), 0),
]
CASE = JudgeTask(dialect="pandalm", kind="pair", sample=sample_of("q", ("a", "b")))


def plain(text, **more):
    return ChatRequest(messages=(Message(role="prompt", text=text),), plain=True, **more)


def parsed(text):
    """1 or 2 on the first line; all else is a tie."""
    first, *_ = text.strip().split("\n")
    return int(first.strip()) if first.strip() in ("1", "2") else 0


def test_the_parsers_are_understood(shared_data):
    for reply, found in replies(shared_data, "pandalm_prompt_only"):
        assert parsed(reply["text"]) == found, reply
    decisions = ["A=B", "A>B", "B>A"]
    for reply, found in replies(shared_data, "judgebench__panda_lm"):
        decision = decisions[parsed(reply["choices"][0]["text"])]
        assert [decision] * 2 == found["decisions_AB_then_BA"], reply


@pytest.mark.parametrize(("finding", "winner"), PAIRS)
@pytest.mark.parametrize("room", [None, 150, 3])
def test_the_first_line_is_the_verdict(finding, winner, room):
    [text] = PANDALM.render(CASE, plain("", max_tokens=room), finding).texts
    assert parsed(text) == winner
    assert text.split("\n")[0] in ("1", "2", "Tie")
    assert room is None or len(text) <= room


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_a_prompt_of_judgebench_may_end_in_any_number_of_lines(end):
    # the format's fixed lines; JudgeBench's template loses the last line end, and its client puts one back
    text = (
        "Below are two responses for a given task. The task is defined by the Instruction. Evaluate the responses and "
        "generate a reference answer for the task.\n\n### Instruction:\nq\n\n### Response 1:\na\n\n### Response 2:\n"
        f"b\n\n### Evaluation:{end}"
    )
    assert PANDALM.recognise(plain(text)) == CASE
    assert PANDALM.recognise(plain(text.replace("\na\n", "\na\n\n### Response 2:\nx\n"))).doubt == AMBIGUOUS
    assert PANDALM.recognise(plain(text + "1")) is None
