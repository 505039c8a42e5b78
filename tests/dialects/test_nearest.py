"""The known prompt nearest to an unknown one, and the place where they differ."""

import re

import pytest

from judgelm.dialects.catalog import DIALECTS, nearest_prompt, recognise
from judgelm.dialects.contract import ChatRequest, Message
from tests.dialects.test_normalisation import SYSTEM, USER


def nearest(*messages):
    request = ChatRequest(messages=tuple(Message(role=role, text=text) for role, text in messages))
    assert recognise(request) is None
    return nearest_prompt(request, DIALECTS)


def test_it_names_the_place_and_both_texts():
    text = USER.replace("[The End of Assistant B's Answer]", "[The End of Assistant B Answer]")
    hint = nearest(("system", SYSTEM), ("user", text))
    at = text.index("B Answer]", text.index("\n5\n")) + 1
    assert "fastchat-pair:" in hint
    assert f"""message 2 has ' Answer]' at character {at} instead of "'s Answer]\"""" in hint


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([("system", SYSTEM), ("user", USER + "\nThank you!")], r"has '\\nThank you!' after "),
        ([("user", "Read this text.\n\n" + USER)], "message 1 starts with 'Read this text"),
        ([("user", USER)], r"but the roles \(user\) or the instructions"),
        ([("system", "Judge."), ("user", USER)], r"but the roles \(system, user\) or the instructions"),
        ([("system", SYSTEM), ("user", USER.replace("[User Question]\n", "Q: "))], r"but not '\[User Question"),
    ],
)
def test_it_says_what_else_differs(messages, words):
    assert re.search(words, nearest(*messages))


def test_a_chat_without_messages_is_near_to_none():
    assert nearest() == ""  # what is left of a chat of blank messages


@pytest.mark.parametrize("text", ["", "hello", "Which of the two answers is better?", "\n\n\n", "[[A]]"])
def test_other_texts_are_near_to_none(text):
    assert nearest(("user", text)) == ""


@pytest.mark.parametrize("dialect", [dialect for dialect in DIALECTS if dialect.templates], ids=lambda one: one.name)
def test_of_each_template_with_a_missing_end_some_template_is_the_nearest(dialect):
    template = dialect.templates[0]
    text = "x".join(template.anchors)
    request = ChatRequest(messages=(Message(role="assistant", text=text[: -max(1, len(template.anchors[-1]) // 2)]),))
    hint = nearest_prompt(request, DIALECTS)
    assert hint.startswith("the most similar known prompt is ") or len(text) < 70
    assert len(hint) < 600


@pytest.mark.parametrize("text", ["a" * 1_000_000, "[" * 1_000_000, USER * 2000, "[User Question]\n" * 50_000])
def test_what_it_says_of_a_hostile_prompt_is_short(text):
    request = ChatRequest(messages=(Message(role="user", text=text + "!"),) * 3)
    hint = nearest_prompt(request, DIALECTS)
    assert hint == "" or hint.endswith("too long to locate the difference")
