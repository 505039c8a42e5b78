"""Requests of real judging clients, and what their own parsers made of replies, as they were captured."""

import json
from dataclasses import replace

import pytest

from judgelm.dialects.catalog import DIALECTS
from judgelm.dialects.contract import ChatRequest, Message
from judgelm.dialects.request_body import read_chat, read_completion


def dialects(*starts):
    """The dialects whose names begin so, in this order."""
    return tuple(dialect for start in starts for dialect in DIALECTS if dialect.name.startswith(start))


def recognised(request, *starts):
    """(dialect, task) of every dialect that knows the request, of those whose names begin so."""
    named = dialects(*starts) if starts else DIALECTS
    return [(dialect, task) for dialect in named if (task := dialect.recognise(request)) is not None]


def chat(*messages, **options):
    """A request of (role, text) pairs."""
    pairs = [("user", message) if isinstance(message, str) else message for message in messages]
    return ChatRequest(messages=tuple(Message(role=role, text=text) for role, text in pairs), **options)


def changed(request, old, new):
    *before, last = request.messages
    assert old in last.text
    return replace(request, messages=(*before, replace(last, text=last.text.replace(old, new))))


def requests(shared_data, folder):
    path = shared_data / "dialects" / folder / "requests.jsonl"
    if not path.is_file():
        pytest.skip(f"no captured requests of {folder}")
    for row in _rows(path):
        read = read_completion if "prompt" in row["body"] else read_chat
        yield row["item"], read(row["body"])


def last_turn(item):
    """The item with the question and answers of a dialogue's last turn, which is what is judged."""
    last = item.get("turns", [{}])[-1]
    return item | last | ({"answers": [last["answer"]]} if "answer" in last else {})


def bodies(shared_data, folder):
    return [row["body"] for row in _rows(shared_data / "dialects" / folder / "requests.jsonl")]


def replies(shared_data, folder):
    """(reply, what the client's parser concluded) of each captured reply."""
    return [(row["reply"], row["parsed"]) for row in _rows(shared_data / "dialects" / folder / "replies.jsonl")]


def _rows(path):
    """Lines end at a line feed alone: the texts hold U+2028."""
    with open(path, encoding="utf-8", newline="\n") as file:
        return [json.loads(line) for line in file]
