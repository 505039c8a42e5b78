"""Arena-Hard 0.1 with its second try, version 2, and JudgeBench's copy: one form of prompt, three parsers."""

import re

import pytest

from judgelm.dialects.contract import ChatRequest, JudgeResult, Message
from tests.support import captures

[DIALECT] = captures.dialects("arena-hard")
SYSTEM = "Compare them and end with one label: [[A>>B]], [[A>B]], [[A=B]], [[B>A]] or [[B>>A]]."
NO_TIE = "Compare them and end with one label: [[A>B]] or [[B>A]]."
AGAIN = "continue your judgment and finish by outputting a final verdict label"


def chat(question, first, second, system=SYSTEM, more=()):
    user = (
        f"<|User Prompt|>\n{question}\n\n<|The Start of Assistant A's Answer|>\n{first}\n<|The End of Assistant A's "
        f"Answer|>\n\n<|The Start of Assistant B's Answer|>\n{second}\n<|The End of Assistant B's Answer|>"
    )
    texts = (("system", system), ("user", user), *more)
    return ChatRequest(messages=tuple(Message(role=role, text=text) for role, text in texts), max_tokens=4096)


def first_version(reply, second_reply):
    """The label, and how many requests it took; replies of both tries are read together."""
    found = re.findall(r"\[\[([AB<>=]+)\]\]", reply)
    requests = 1
    if not found:
        requests = 2
        found = re.findall(r"\[\[([AB<>=]+)\]\]", f"{reply}\n{second_reply}")
    return (found[0] if len(set(found)) == 1 else None), requests


def second_version(reply):
    for pattern in (r"\[\[([AB<>=]+)\]\]", r"\[([AB<>=]+)\]"):
        found = re.findall(pattern, reply.upper())
        if found:
            return found[-1]
    return None


def test_the_parsers_are_as_captured(shared_data):
    for reply, parsed in captures.replies(shared_data, "arena_hard_v01"):
        label, requests = first_version(reply["content"], reply["content"])
        assert parsed == {"games": [{"score": label}] * 2, "http_requests": 2 * requests}
    for reply, parsed in captures.replies(shared_data, "arena_hard_v2"):
        assert parsed["games"] == [{"score": second_version(reply["content"])}] * 2
    for reply, parsed in captures.replies(shared_data, "judgebench__arena_hard"):
        label, _ = first_version(reply["content"], reply["content"])
        assert parsed["decisions_AB_then_BA"] == [label and label.replace(">>", ">")] * 2


@pytest.mark.parametrize(
    ("winner", "scores", "label"),
    [
        (1, (8.0, 6.0), "A>B"),
        (1, (8.5, 5.5), "A>>B"),  # a lead of 3 points
        (1, (6.0, 9.0), "A>B"),  # the winner's own lead counts
        ("tie", (9.0, 2.0), "A=B"),
        (2, (6.0, 8.9), "B>A"),
        (2, (2.0, 9.0), "B>>A"),
    ],
)
def test_all_parsers_read_the_label_that_was_found(winner, scores, label):
    asked = chat("q", "[[A>B]]", "[[B>>A]]")
    finding = JudgeResult(winner=winner, scores=scores, first_better=0.5, reason="My verdict: [[A=B]] [B>A]")
    [text] = DIALECT.render(DIALECT.recognise(asked), asked, finding).texts
    assert first_version(text, "") == (label, 1)
    assert second_version(text) == label
    assert text.endswith(f"\n\nMy final verdict is: [[{label}]]")


def test_where_no_tie_is_offered_the_likelier_answer_wins():
    asked = chat("q", "a", "b", NO_TIE)
    finding = JudgeResult(winner="tie", scores=(9.0, 2.0), first_better=0.3)
    [text] = DIALECT.render(DIALECT.recognise(asked), asked, finding).texts
    assert first_version(text, "") == ("B>A", 1)


def test_where_no_scores_are_known_no_answer_is_much_better():
    asked = chat("q", "a", "b")
    [text] = DIALECT.render(DIALECT.recognise(asked), asked, JudgeResult(winner=1)).texts
    assert first_version(text, "") == ("A>B", 1)


def test_a_second_try_is_the_same_case_and_gets_the_label():
    again = (("assistant", "I cannot say."), ("user", AGAIN))
    asked, once = chat("q", "a", "b", more=again), chat("q", "a", "b")
    case = DIALECT.recognise(asked)
    assert case == DIALECT.recognise(once)
    [text] = DIALECT.render(case, asked, JudgeResult(winner=1, scores=(7.0, 6.0))).texts
    assert first_version("I cannot say.", text) == ("A>B", 2)


@pytest.mark.parametrize(
    "asked",
    [
        chat("q", "a", "b", "Compare them in a poem."),
        chat("q", "a", "b", more=(("assistant", "So."), ("user", "Why?"))),
        chat("q", "a", "b", more=(("assistant", "So."),)),
        chat("q", "a", "b", more=(("assistant", "So."), ("user", AGAIN), ("assistant", "So."), ("user", "Why?"))),
        ChatRequest(messages=(Message(role="user", text="q"),)),
        ChatRequest(messages=(Message(role="system", text=SYSTEM), Message(role="user", text="q"))),
    ],
)
def test_other_chats_are_not_taken(asked):
    assert DIALECT.recognise(asked) is None
