"""Requests of real judging clients, and what their own parsers made of replies, as they were captured."""

import json

import pytest

from judgelm.dialects.reading import read_chat, read_completion


def requests(shared_data, folder):
    """(what was judged, the request as dialects see it) of each captured request; helper requests included."""
    path = shared_data / "dialects" / folder / "requests.jsonl"
    if not path.is_file():
        pytest.skip(f"no captured requests of {folder}")
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        read = read_completion if "prompt" in row["body"] else read_chat
        yield row["item"], read(row["body"])


def replies(shared_data, folder):
    """(reply, what the client's parser concluded) of each captured reply."""
    path = shared_data / "dialects" / folder / "replies.jsonl"
    return [(row["reply"], row["parsed"]) for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())]
