"""What judging clients send: captured requests, altered, are recognised and answered or passed over, without a hang."""

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from judgelm.dialects.catalog import DIALECTS, recognise
from judgelm.dialects.contract import ChatRequest, JudgeResult
from judgelm.dialects.request_body import read_chat, read_completion
from tests.support import captures, fuzzing

FINDINGS = st.builds(
    JudgeResult, winner=st.sampled_from((1, 2, "tie")),
    scores=st.lists(st.floats(1, 10), min_size=8, max_size=8).map(tuple), first_better=st.floats(0, 1),
    tie=st.floats(0, 1), grades=st.sampled_from((((5.0, 1.0),), ((1.0, 0.25), (10.0, 0.75)), ((7.5, 0.5), (8.0, 0.5)))),
    correct=st.floats(0, 1),
    reason=st.none() | fuzzing.texts("[[A]]", "Rating: ", "[RESULT] 5", "\n", '"', "{", "}", "Yes", "[[rating]]", "1"),
)  # fmt: skip


@pytest.fixture(scope="module")
def captured(shared_data):
    """Three requests of each captured client, as dialects see them."""
    folders = sorted(path.parent.name for path in shared_data.glob("dialects/*/requests.jsonl"))
    return [asked for one in folders for _, asked in itertools.islice(captures.requests(shared_data, one), 3)]


@st.composite
def altered_requests(draw, captured):
    """A captured request, the text of one message edited with pieces of its own, of another request, or long ones."""
    asked, other = draw(st.sampled_from(captured)), draw(st.sampled_from(captured))
    place = draw(st.integers(0, len(asked.messages) - 1))
    text, donor = asked.messages[place].text, other.messages[-1].text
    for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        from_, to = sorted(draw(st.tuples(*[st.integers(0, len(donor))] * 2)))
        piece = draw(st.sampled_from((text[start:end], donor[from_:to], "\n", "{", '"', "[[A]]", " ", "\u2028", "Ⅷ")))
        count = draw(st.sampled_from((0, *[1] * 12, 2, 5, fuzzing.LONGEST // (len(piece) + 1))))
        text = text[:start] + piece * count + text[draw(st.sampled_from((start, end))) :]
    messages = (*asked.messages[:place], replace(asked.messages[place], text=text), *asked.messages[place + 1 :])
    if draw(st.integers(0, 9)) == 0:
        messages = messages[::-1]
    return replace(asked, messages=messages, n=draw(st.integers(1, 3)), logprobs=draw(st.booleans()), top_logprobs=5)


def finding_for(case, finding, n):
    """A finding as the server would have it for this case."""
    count = len(case.sample.answers)
    scores = finding.scores[:count] + (5.0,) * (count - len(finding.scores))
    own = replace(finding, scores=scores, draws=(scores,) * n)
    if case.kind != "pair":
        own = replace(own, winner=None, first_better=None, tie=None)
    return own if case.kind in ("grade", "label") else replace(own, grades=(), correct=None)


def test_prompts(fuzz, captured):
    def check(given):
        asked, finding = given
        found = recognise(asked)
        if found is None:
            return
        dialect, case = found
        assert case.kind == "prepare" or case.sample.id
        own = finding_for(case, finding, asked.n)
        if "batch" in case.facts:
            own = replace(own, batch=(own,) * len(case.facts["batch"]))
        reply = dialect.render(case, asked, own)
        assert reply.tool or reply.texts
        assert reply.tool is None or isinstance(json.loads(reply.arguments), dict)
        assert not reply.texts or len(reply.texts) == asked.n
        if reply.logprobs:
            assert reply.texts[0].startswith("".join(one.token for one in reply.logprobs))
            assert all(one.logprob <= 0 for one in reply.logprobs)

    fuzz(st.tuples(altered_requests(captured), FINDINGS), check)


@pytest.fixture(scope="module")
def bodies(shared_data):
    """One captured JSON body of each client."""
    found = []
    for path in sorted(shared_data.glob("dialects/*/requests.jsonl")):
        with open(path, encoding="utf-8", newline="\n") as file:
            found.append(json.loads(file.readline())["body"])
    return found


def test_request_bodies(fuzz, bodies):
    def check(body):
        def read():
            asked = (read_completion if "prompt" in body else read_chat)(body)
            assert isinstance(asked, ChatRequest)
            for dialect in DIALECTS:
                dialect.recognise(asked)

        fuzzing.refusal(read)

    fuzz(fuzzing.altered(st.sampled_from(bodies)), check)
