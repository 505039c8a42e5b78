"""Ordinary chats are no judging requests, however much they talk about judging.

`ordinary_chats.txt` holds a chat a line: messages apart by tabs, user and assistant in turns, with a system's message
first where the line says so.
"""

from pathlib import Path

import pytest

from judgelm.dialects.catalog import DIALECTS, wants_a_verdict
from judgelm.dialects.contract import ChatRequest, Message, Tool

FILE = Path(__file__).with_name("ordinary_chats.txt")
SYSTEM = "system: "


def chats():
    with open(FILE, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n").replace("\\r", "\r").replace("\\n", "\n").split("\t")


def messages_of(texts):
    system = [Message(role="system", text=text.removeprefix(SYSTEM)) for text in texts[:1] if text.startswith(SYSTEM)]
    turns = texts[len(system) :]
    return (*system, *(Message(role=("user", "assistant")[place % 2], text=text) for place, text in enumerate(turns)))


def forms(messages):
    """A chat as clients may send it: as it is, with a system's message, as one message or prompt, with a schema."""
    yield ChatRequest(messages=messages)
    yield ChatRequest(messages=messages, logprobs=True, top_logprobs=20, n=20, max_tokens=5)
    yield ChatRequest(messages=messages, json_object=True, max_tokens=1024)
    yield ChatRequest(messages=(Message(role="system", text="You are a helpful assistant."), *messages))
    text = "\n".join(one.text for one in messages)
    yield ChatRequest(messages=(Message(role="system", text=text),))
    yield ChatRequest(messages=(Message(role="prompt", text=text),), plain=True)
    schema = {"type": "object", "properties": {"score": {"type": "number"}, "reasoning": {"type": "string"}}}
    yield ChatRequest(messages=messages, schema=schema)
    yield ChatRequest(messages=messages, tools=(Tool(name="score", parameters=schema),), forced_tool="score")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_no_dialect_takes_an_ordinary_chat_for_its_own(dialect):
    taken = [one for texts in chats() for one in forms(messages_of(texts)) if dialect.recognise(one) is not None]
    assert taken == []


def test_a_chat_is_refused_only_where_it_asks_to_judge_texts_that_it_shows():
    refused = [texts for texts in chats() if wants_a_verdict(ChatRequest(messages=messages_of(texts)))]
    assert [texts[0].partition(":")[0] for texts in refused] == [
        "Compare these two answers and tell me which you would give a child"
    ]
