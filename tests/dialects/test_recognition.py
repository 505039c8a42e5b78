"""Recognition of judging requests: roles, line ends and blanks, the nearest known prompt, and ordinary chats.

`ordinary_chats.txt` contains one chat per line. Tabs separate the messages. A line starts with a system message if it
says so; then user and assistant take turns. They are not judging requests, however much they talk about judging.
"""

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from judgelm.dialects.catalog import DIALECTS, nearest_prompt, recognise, wants_a_verdict
from judgelm.dialects.contract import AMBIGUOUS, Tool, ambiguity_note, digest, lone_text, sample_of, user_text
from judgelm.dialects.request_body import read_chat
from judgelm.dialects.splits import TemplateSplit
from judgelm.records import Sample
from tests.support.captures import chat
from tests.support.served import review

SYSTEM = 'Judge two answers. Write "[[A]]" if the first is better, "[[B]]" if the second is, "[[C]]" for a tie.'
USER = (
    "[User Question]\nWhat is 2 + 2?\n\n[The Start of Assistant A's Answer]\n4\n\nfour\n"
    "[The End of Assistant A's Answer]\n\n[The Start of Assistant B's Answer]\n5\n[The End of Assistant B's Answer]"
)
PLAIN = chat(("system", SYSTEM), USER)


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
def test_roles_select_the_text(roles, user, lone):
    request = chat(*((role, f"{role}'s") for role in roles))
    assert (user_text(request), lone_text(request)) == (user, lone)


def test_a_sample_is_named_by_its_question_and_answers():
    sample = sample_of("q", ["a", "b"], "r", criterion="c", context=None)
    name = hashlib.sha256(b"q\0a\0b").hexdigest()[:16]
    assert sample == Sample(id=name, question="q", answers=("a", "b"), reference="r", metadata={"criterion": "c"})
    assert sample_of("q", ("a", "b")).reference is None
    # clients may send half of a surrogate pair, escaped in JSON; its three bytes are those of UTF-8's form
    assert digest("\ud83c") == hashlib.sha256(b"\xed\xa0\xbc").hexdigest()


def test_one_ambiguous_split_of_several_is_noted():
    sure, unsure = (TemplateSplit(values={}, ambiguous=ambiguous) for ambiguous in (False, True))
    assert (ambiguity_note(sure, unsure), ambiguity_note(sure)) == (AMBIGUOUS, "")


# What files, editors and gateways add to a prompt


@pytest.mark.parametrize(
    "messages",
    [
        (("system", SYSTEM), USER.replace("\n", "\r\n")),
        (("system", SYSTEM), USER.replace("\n", "\r")),
        (("system", SYSTEM + "\n"), USER + "\n"),
        (("system", SYSTEM), USER + " \t\r\n\n"),
        (("system", SYSTEM), "\ufeff\n" + USER),
        (("system", SYSTEM), ("system", " \n"), USER),
        (("system", SYSTEM), USER.replace("]\n", "]  \r\n")),
    ],
    ids=["crlf", "cr", "line end", "blanks", "byte order mark", "empty message", "blanks at lines"],
)
def test_line_ends_and_blanks_around_messages_do_not_count(messages):
    dialect, task = recognise(chat(*messages))
    plain_dialect, plain = recognise(PLAIN)
    assert (dialect.name, replace(task, sample=plain.sample)) == (plain_dialect.name, plain)
    assert (task.sample.question, task.sample.answers) == (plain.sample.question, plain.sample.answers)


def test_a_known_prompt_keeps_its_bytes():
    crlf = USER.replace("4\n\nfour", "4\r\n\r\nfour ")
    assert recognise(chat(("system", SYSTEM), crlf))[1].sample.answers[0] == "4\r\n\r\nfour "


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


# The nearest known prompt and the place where they differ


def nearest(*messages):
    request = chat(*messages)
    assert recognise(request) is None
    return str(nearest_prompt(request, DIALECTS) or "")


def test_it_names_the_place_and_both_texts():
    text = USER.replace("[The End of Assistant B's Answer]", "[The End of Assistant B Answer]")
    hint = nearest(("system", SYSTEM), text)
    at = text.index("B Answer]", text.index("\n5\n")) + 1
    assert "fastchat-pair:" in hint
    assert f"""message 2 has ' Answer]' at character {at} instead of "'s Answer]\"""" in hint


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([("system", SYSTEM), USER + "\nThank you!"], r"has '\\nThank you!' after "),
        (["Read this text.\n\n" + USER], "message 1 starts with 'Read this text"),
        ([USER], r"but the roles \(user\) or the instructions"),
        ([("system", "Judge."), USER], r"but the roles \(system, user\) or the instructions"),
        ([("system", SYSTEM), USER.replace("[User Question]\n", "Q: ")], r"but not '\[User Question"),
    ],
)
def test_it_says_what_else_differs(messages, words):
    assert re.search(words, nearest(*messages))


@pytest.mark.parametrize(
    "messages", [[], [""], ["hello"], ["Which of the two answers is better?"], ["\n\n\n"], ["[[A]]"]]
)
def test_other_texts_are_near_to_none(messages):
    assert nearest(*messages) == ""


@pytest.mark.parametrize("dialect", [each for each in DIALECTS if each.templates], ids=lambda dialect: dialect.name)
def test_of_each_template_with_a_missing_end_some_template_is_the_nearest(dialect):
    anchors = dialect.templates[0].anchors
    text = "x".join(anchors)
    hint = str(nearest_prompt(chat(("assistant", text[: -max(1, len(anchors[-1]) // 2)])), DIALECTS))
    assert hint.startswith("the most similar known prompt is ") or len(text) < 70
    assert len(hint) < 600


@pytest.mark.parametrize("text", ["a" * 1_000_000, "[" * 1_000_000, USER * 2000, "[User Question]\n" * 50_000])
def test_what_it_says_of_a_hostile_prompt_is_short(text):
    nearest = nearest_prompt(chat(*[text + "!"] * 3), DIALECTS)
    assert nearest is None or nearest.difference.endswith("too long to locate the difference")


# Ordinary chats


def chats():
    with open(Path(__file__).with_name("ordinary_chats.txt"), encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n").replace("\\r", "\r").replace("\\n", "\n").split("\t")


def forms(texts):
    """A chat as clients may send it: as it is, with a system message, as one message or prompt, with a schema."""
    first, *others = texts
    system = [("system", first.removeprefix("system: "))] if first.startswith("system: ") else []
    turns = [(("user", "assistant")[place % 2], text) for place, text in enumerate(others if system else texts)]
    messages = (*system, *turns)
    yield chat(*messages)
    yield chat(*messages, logprobs=True, top_logprobs=20, n=20, max_tokens=5)
    yield chat(*messages, json_object=True, max_tokens=1024)
    yield chat(("system", "You are a helpful assistant."), *messages)
    text = "\n".join(text for _, text in messages)
    yield chat(("system", text))
    yield chat(("prompt", text), plain=True)
    schema = {"type": "object", "properties": {"score": {"type": "number"}, "reasoning": {"type": "string"}}}
    yield chat(*messages, schema=schema)
    yield chat(*messages, tools=(Tool(name="score", parameters=schema),), forced_tool="score")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_no_dialect_recognises_an_ordinary_chat(dialect):
    recognised = [form for texts in chats() for form in forms(texts) if dialect.recognise(form) is not None]
    assert recognised == []


def test_only_a_chat_that_asks_to_judge_texts_that_it_shows_wants_a_verdict():
    wanting = [texts[0].partition(":")[0] for texts in chats() if wants_a_verdict(next(forms(texts)))]
    assert wanting == ["Compare these two answers and tell me which you would give a child"]
