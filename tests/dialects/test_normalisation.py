"""What files, editors and gateways add to a prompt keeps no dialect from it."""

from dataclasses import replace

import pytest

from judgelm.dialects.catalog import recognise
from judgelm.dialects.contract import ChatRequest, Message
from judgelm.dialects.request_body import read_chat
from tests.support.served import review

SYSTEM = 'Judge two answers. Write "[[A]]" if the first is better, "[[B]]" if the second is, "[[C]]" for a tie.'
USER = (
    "[User Question]\nWhat is 2 + 2?\n\n[The Start of Assistant A's Answer]\n4\n\nfour\n"
    "[The End of Assistant A's Answer]\n\n[The Start of Assistant B's Answer]\n5\n[The End of Assistant B's Answer]"
)


def chat(*messages):
    return ChatRequest(messages=tuple(Message(role=role, text=text) for role, text in messages))


PLAIN = chat(("system", SYSTEM), ("user", USER))


@pytest.mark.parametrize(
    "request_",
    [
        chat(("system", SYSTEM), ("user", USER.replace("\n", "\r\n"))),
        chat(("system", SYSTEM), ("user", USER.replace("\n", "\r"))),
        chat(("system", SYSTEM + "\n"), ("user", USER + "\n")),
        chat(("system", SYSTEM), ("user", USER + " \t\r\n\n")),
        chat(("system", SYSTEM), ("user", "\ufeff\n" + USER)),
        chat(("system", SYSTEM), ("system", " \n"), ("user", USER)),
        chat(("system", SYSTEM), ("user", USER.replace("]\n", "]  \r\n"))),
    ],
    ids=["crlf", "cr", "line end", "blanks", "byte order mark", "empty message", "blanks at lines"],
)
def test_line_ends_and_blanks_around_messages_do_not_count(request_):
    dialect, task = recognise(request_)
    plain_dialect, plain = recognise(PLAIN)
    assert (dialect.name, replace(task, sample=plain.sample)) == (plain_dialect.name, plain)
    assert (task.sample.question, task.sample.answers) == (plain.sample.question, plain.sample.answers)


def test_a_prompt_that_is_known_keeps_its_bytes():
    crlf = USER.replace("4\n\nfour", "4\r\n\r\nfour ")
    assert recognise(chat(("system", SYSTEM), ("user", crlf)))[1].sample.answers[0] == "4\r\n\r\nfour "


@pytest.mark.parametrize("content", [SYSTEM, [{"type": "text", "text": SYSTEM}]])
def test_a_developer_is_a_system(content):
    messages = [{"role": "developer", "content": content}, {"role": "user", "content": USER}]
    assert read_chat({"messages": messages}).messages == PLAIN.messages


def test_the_blank_line_that_tells_two_clients_apart_is_not_taken_away():
    names = []
    for tail in ("\n\n", ""):
        messages = review()["messages"]
        messages[1]["content"] = messages[1]["content"].rstrip("\n") + tail
        names.append(recognise(read_chat({"messages": messages}))[0].name)
    assert names == ["vicuna-review", "alpaca-eval-lmsys"]
