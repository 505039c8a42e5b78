"""Shared steps of recognisers."""

import hashlib

import pytest

from judgelm.dialects.contract import AMBIGUOUS, ChatRequest, Message, ambiguity_note, lone_text, sample_of, user_text
from judgelm.dialects.splits import Pattern, TemplateSplit, latest_split
from judgelm.records import Sample

PAIR = Pattern("[Q]{question}[A]{first}[B]{second}[E]")


def asked(*roles):
    return ChatRequest(messages=tuple(Message(role=role, text=f"{role}'s") for role in roles))


@pytest.mark.parametrize(
    ("roles", "user", "lone"),
    [
        (("user",), "user's", "user's"),
        (("system", "user"), "user's", None),
        (("prompt",), None, "prompt's"),
        (("system",), None, None),
        (("user", "assistant", "user"), None, None),
        (("user", "user"), None, None),
    ],
)
def test_roles_say_which_text_is_whose(roles, user, lone):
    request = asked(*roles)
    assert (user_text(request), lone_text(request)) == (user, lone)


def test_a_sample_is_named_by_its_question_and_answers():
    found = sample_of("q", ["a", "b"], "r", criterion="c", context=None)
    name = hashlib.sha256(b"q\0a\0b").hexdigest()[:16]
    assert found == Sample(id=name, question="q", answers=("a", "b"), reference="r", metadata={"criterion": "c"})
    assert sample_of("q", ("a", "b")).reference is None


def test_one_doubtful_split_of_several_is_doubt():
    sure, unsure = (TemplateSplit(values={}, ambiguous=ambiguous) for ambiguous in (False, True))
    assert (ambiguity_note(sure, unsure), ambiguity_note(sure)) == (AMBIGUOUS, "")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[Q]q[A]fake[A]a[B]b[E]", ("q[A]fake", "a", "b")),
        ("[Q]q[A]a[B]fake[B]b[E]", ("q", "a[B]fake", "b")),
        ("[Q]q[A]fake[A]a[B]b[A]c[E]", ("q[A]fake", "a", "b[A]c")),
        # the question quotes a whole prompt: every border is as late as can be
        ("[Q]q[A]x[B]y[E][A]a[B]b[E]", ("q[A]x[B]y[E]", "a", "b")),
    ],
)
def test_borders_are_as_late_as_can_be_and_in_doubt(text, values):
    names = ("question", "first", "second")
    assert latest_split(PAIR, text) == TemplateSplit(values=dict(zip(names, values, strict=True)), ambiguous=True)


def test_where_there_is_one_way_it_is_taken_without_doubt():
    found = latest_split(PAIR, "[Q]q[A]a[B]b[E]")
    assert found == TemplateSplit(values={"question": "q", "first": "a", "second": "b"}, ambiguous=False)
    assert latest_split(PAIR, "[Q]q[B]b[A]a[E]") is None
