"""Requests of real judging clients, and what their own parsers made of replies, as they were captured."""

import json

import pytest

from judgelm.dialects.catalog import DIALECTS
from judgelm.dialects.request_body import read_chat, read_completion


def dialects(*starts):
    """The dialects whose names begin so, in this order."""
    return tuple(dialect for start in starts for dialect in DIALECTS if dialect.name.startswith(start))


def requests(shared_data, folder):
    """(what was judged, the request as dialects see it) of each captured request; helper requests included."""
    path = shared_data / "dialects" / folder / "requests.jsonl"
    if not path.is_file():
        pytest.skip(f"no captured requests of {folder}")
    for row in _rows(path):
        read = read_completion if "prompt" in row["body"] else read_chat
        yield row["item"], read(row["body"])


def replies(shared_data, folder):
    """(reply, what the client's parser concluded) of each captured reply."""
    return [(row["reply"], row["parsed"]) for row in _rows(shared_data / "dialects" / folder / "replies.jsonl")]


def _rows(path):
    """Lines end at a line feed alone: the texts hold U+2028."""
    with open(path, encoding="utf-8", newline="\n") as file:
        return [json.loads(line) for line in file]
