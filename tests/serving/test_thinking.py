"""A judge that thinks, behind the server: its thinking stands beside the content, where no client's parser reads it."""

import json

from tests.support import thinking_model
from tests.support.served import CHAT, review, served
from tests.support.thinking_model import THOUGHT, going_on
from tests.support.writing_engine import WritingEngine

HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


def chunks(server, body):
    lines = server.post(CHAT, body | {"stream": True}).text.splitlines()
    rows = [json.loads(line.removeprefix("data: ")) for line in lines if line and line != "data: [DONE]"]
    return [row["choices"][0]["delta"] for row in rows if row["choices"]]


def test_a_verdict_has_its_thinking_beside_it():
    with served(thinking_model.engine(going_on("8 6\nBecause."))) as server:
        message = server.post(CHAT, review()).json()["choices"][0]["message"]
        assert message["reasoning_content"] == THOUGHT
        assert message["content"].startswith("8 6")
        assert "Wait" not in message["content"]
        deltas = chunks(server, review())
        assert [one["reasoning_content"] for one in deltas if "reasoning_content" in one] == [THOUGHT]
        assert "".join(one.get("content", "") for one in deltas) == message["content"]


def test_an_ordinary_chat_has_it_apart_too():
    for asked in ("on", "absent"):
        engine = thinking_model.engine(going_on("Good day."), asked=asked)
        with served(engine, chat=True) as server:
            reply = server.post(CHAT, HELLO).json()["choices"][0]
            assert (reply["message"]["content"], reply["message"]["reasoning_content"]) == ("Good day.", THOUGHT)
            assert reply["finish_reason"] == "stop"


def test_a_chat_cut_off_in_its_thinking_has_no_content():
    engine = thinking_model.engine(lambda prompt: "<think>\nWell", asked="absent", thinks=False)
    with served(engine, chat=True) as server:
        reply = server.post(CHAT, HELLO).json()["choices"][0]
        assert (reply["message"]["content"], reply["message"]["reasoning_content"]) == ("", "Well")
        assert reply["finish_reason"] == "length"


def test_no_thinking_is_streamed_as_content():
    engine = WritingEngine({"*": "<think>\nWell, let me see.\n</think>\n\nGood day to you, dear friend."})
    with served(engine, chat=True) as server:
        deltas = chunks(server, HELLO)
        content = [one["content"] for one in deltas if one.get("content")]
        assert "".join(content) == "Good day to you, dear friend."
        assert len(content) > 1  # it came while it was written
        assert [one["reasoning_content"] for one in deltas if "reasoning_content" in one] == ["Well, let me see."]
