"""Prompts of the user's own: a file in, a dialect out; prompts recorded and suggested."""

import asyncio
import json
import math
from dataclasses import replace

import pytest
import yaml

from judgelm.dialects.contract import ChatRequest, Message, Tool
from judgelm.dialects.learned_prompts import LearnedPrompts, read_learned, shared_parts, suggested_prompts, written
from judgelm.dialects.prompt_file import read_prompts
from judgelm.errors import ConfigError
from judgelm.serving.chat_response import UnrecognisedError
from tests.support.known_judge import CHANCES, handler_of, of_quality

PAIR = """
name: desk
prompt:
  - {role: system, text: "You compare replies of a desk for {customer}."}
  - text: |-
      Ticket {ignored_number}:
      {question}
      Reply A:
      {answer_1}
      Reply B:
      {answer_2}
      The ticket was: {question}
      Which one is it?
reply:
  pair: {first: A, second: B, tie: C}
  text: "{reason} [[{verdict}]]"
"""
GRADE = """
name: mark
prompt: [{text: "Q: {question}\\nA: {answer}\\nMark it."}]
reply: {grade: [0, 4], json: {mark: verdict, why: reason}}
"""
LABEL = """
name: check
prompt: [{text: "Is {answer} right? It should be {reference}."}]
reply: {label: {fulfilled: PASS, failed: FAIL}}
"""


@pytest.fixture
def dialects(tmp_path):
    def read(text):
        path = tmp_path / "prompts.yaml"
        path.write_text(text, encoding="utf-8")
        return read_prompts(path)

    return read


def chat(*texts, roles=("user",)):
    return ChatRequest(messages=tuple(Message(role=role, text=text) for role, text in zip(roles, texts, strict=True)))


def desk(first, second, question="How do I pay?", again=None):
    text = (
        f"Ticket 17:\n{question}\nReply A:\n{first}\nReply B:\n{second}\nThe ticket was: {again or question}\n"
        "Which one is it?"
    )
    return chat("You compare replies of a desk for Acme.", text, roles=("system", "user"))


def replies(read, text, request):
    with handler_of(prompts=read(text)) as handler:
        response = asyncio.run(handler.respond(request))
    return response.reply.texts[0], response


def test_a_pair_is_recognised_by_its_template_and_answered_in_its_form(dialects):
    best, worst = of_quality(8), of_quality(4)
    assert replies(dialects, PAIR, desk(best, worst))[0].endswith("[[A]]")
    text, response = replies(dialects, PAIR, desk(worst, best))
    assert text.endswith("[[B]]")
    assert response.dialect == "desk"
    assert replies(dialects, PAIR, desk(best, best))[0].endswith("[[C]]")


def test_slots_become_question_answers_and_texts_beside_them(dialects):
    [dialect] = dialects(PAIR)
    task = dialect.recognise(desk("one", "two"))
    assert (task.kind, task.sample.question, task.sample.answers) == ("pair", "How do I pay?", ("one", "two"))
    assert task.sample.metadata == {"customer": "Acme"}  # the ticket's number is ignored
    assert dialect.recognise(desk("one", "two", again="Another question?")) is None  # the two places must agree
    assert dialect.recognise(chat("You compare replies.")) is None


def test_a_grade_is_given_on_the_own_scale_in_named_fields(dialects):
    # quality 7 of 1 to 10 is two thirds: 2.67 of 4, whole 3
    text, _ = replies(dialects, GRADE, chat(f"Q: Why?\nA: {of_quality(7)}\nMark it."))
    assert json.loads(text) | {"why": ""} == {"mark": 3, "why": ""}


def test_a_function_that_the_client_demands_is_called_with_the_fields(dialects):
    request = replace(chat(f"Q: Why?\nA: {of_quality(7)}\nMark it."), tools=(Tool(name="Mark"),), forced_tool="Mark")
    with handler_of(prompts=dialects(GRADE)) as handler:
        reply = asyncio.run(handler.respond(request)).reply
    assert (reply.tool, reply.texts, json.loads(reply.arguments)["mark"]) == ("Mark", (), 3)


BRACED = """
name: fields
prompt: [{text: "Fields: {{question}}, {{answer}}, {other}. {{{x}}}\\nQ: {question}\\nA: {answer}\\nMark it."}]
reply: {grade: [0, 4]}
"""


def test_doubled_braces_are_a_word_in_braces_and_no_slot(dialects):
    [dialect] = dialects(BRACED)
    text = "Fields: {question}, {answer}, 5. {{x}}\nQ: Why?\nA: So.\nMark it."
    sample = dialect.recognise(chat(text)).sample
    assert (sample.question, sample.answers, sample.metadata) == ("Why?", ("So.",), {"other": "5"})


def test_a_message_without_slots_must_be_the_same(dialects):
    own = LABEL.replace("prompt: [", "prompt: [{role: system, text: Be strict.}, ")
    [dialect] = dialects(own)
    asked = "Is it 7 right? It should be 7."
    assert dialect.recognise(chat("Be strict.", asked, roles=("system", "user"))).sample.answers == ("it 7",)
    assert dialect.recognise(chat("Be kind.", asked, roles=("system", "user"))) is None


def test_a_label_is_given_in_own_words(dialects):
    for quality, word in ((9, "PASS"), (2, "FAIL")):
        request = chat(f"Is {of_quality(quality)} right? It should be 7.")
        assert replies(dialects, LABEL, request)[0] == word


def test_a_probability_stands_where_it_is_wanted(dialects):
    own = PAIR.replace('text: "{reason} [[{verdict}]]"', "json: {winner: verdict, p: probability}")
    text, _ = replies(dialects, own, desk(of_quality(6), of_quality(5)))
    assert json.loads(text) == {"winner": "A", "p": CHANCES[1]}


def test_a_reason_takes_no_more_room_than_there_is(dialects):
    request = desk(of_quality(8), of_quality(4))
    assert "out of 10" in replies(dialects, PAIR, request)[0]
    assert replies(dialects, PAIR, replace(request, max_tokens=8))[0] == "[[A]]"


def test_log_probabilities_are_those_of_the_words(dialects):
    request = replace(desk(of_quality(6), of_quality(5)), logprobs=True, top_logprobs=2)
    text, response = replies(dialects, PAIR, request)
    logprobs = response.reply.logprobs
    assert "".join(token.token for token in logprobs) == text
    [verdict] = [token for token in logprobs if token.token == "A"]
    assert dict(verdict.candidates) == pytest.approx({"A": math.log(CHANCES[1]), "B": math.log(1 - CHANCES[1])})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("{answer_2}", "{other}"), "a pair reply requires the slots answer_1, answer_2; the prompt has answer_1"),
        (("Reply B:\n      {answer_2}", "{answer_2}"), None),
        (("{answer_1}\n      Reply B:\n      ", "{answer_1}"), r"no fixed text between {answer_1} and {answer_2}"),
        (("[[{verdict}]]", "[[A]]"), r"must contain {verdict} exactly once"),
        (("tie: C", "tie: A"), "verdict words must be unique and not empty, got 'A', 'B', 'A'"),
        (("  text: ", "  json: {w: winner}\n  text: "), "text and json"),
        (('text: "{reason} [[{verdict}]]"', "json: {w: winner}"), "unknown field 'winner'"),
        (("pair: {first: A, second: B, tie: C}", "pairs: 1"), r"reply\.pairs: Unexpected keyword"),
        (("pair: {first: A, second: B, tie: C}", "grade: [5, 1]"), "a grade reply requires the slots answer"),
        (("name: desk", "name: My desk"), "other than a-z"),
        (("pair: {first: A, second: B, tie: C}", "choice: [A, B]"), r"reply\.choice: .*three verdict words, got 2"),
        (("name: desk", "name: desk\nexamples: [[{text: a}]]"), r"examples: Unexpected keyword"),
    ],
)
def test_a_prompt_that_cannot_work_is_refused_with_its_place(dialects, change, message):
    text = PAIR.replace(*change)
    assert text != PAIR
    if message is None:
        assert dialects(text)
        return
    with pytest.raises(ConfigError, match=rf"prompts\.yaml: .*{message}"):
        dialects(text)


def test_a_name_stands_for_one_prompt(dialects):
    with pytest.raises(ConfigError, match="no prompts found"):
        dialects("[]")
    with pytest.raises(ConfigError, match=r"check: the name is already in use"):
        dialects(yaml.safe_dump([yaml.safe_load(LABEL), yaml.safe_load(LABEL)]))


FIRST = "Rate it.\nTicket: How do I pay?\nProduct: X1\n\nReply:\nBy card.\n\nThen wait.\n\nGive 1 to 5."
SECOND = "Rate it.\nTicket: How do I leave?\nProduct: Y2\n\nReply:\nNo idea.\n\nGive 1 to 5."


@pytest.mark.parametrize(
    ("texts", "parts"),
    [
        ((FIRST, SECOND), ["Rate it.\nTicket: ", "\nProduct: ", "\n\nReply:\n", "\n\nGive 1 to 5."]),
        (("<q>a b</q><a>x</a>\nRate.", "<q>c</q><a>y z</a>\nRate."), ["<q>", "</q><a>", "</a>\nRate."]),
        (('{"q": "What?", "n": 3}', '{"q": "Who?", "n": 3}'), ['{"q": "']),
        (("same", "same"), ["same"]),
        (("one", "two"), ["", ""]),
    ],
)
def test_slots_are_found_where_prompts_differ(texts, parts):
    found = shared_parts(texts)
    assert found[: len(parts)] == parts
    for text in texts:
        position = 0
        for part in found:  # every part stands in every text, in order
            position = text.index(part, position) + len(part)


def test_unknown_prompts_are_recorded_once_and_suggested(dialects, tmp_path):
    path = tmp_path / "learned.jsonl"
    with handler_of(learn=LearnedPrompts(path)) as handler:
        for text in (FIRST, SECOND, FIRST, "Good morning."):
            with pytest.raises(UnrecognisedError):
                asyncio.run(handler.respond(chat(text)))
    assert path.stat().st_mode & 0o077 == 0
    assert len(read_learned(path)) == 3
    LearnedPrompts(path)(chat(SECOND))  # a server that starts again knows what is there
    assert len(read_learned(path)) == 3
    [suggested] = suggested_prompts(read_learned(path))
    assert suggested["prompt"][0]["text"].startswith("Rate it.\nTicket: {question}\nProduct: {")
    assert suggested["reply"]["grade"] == [1, 5]
    [dialect] = dialects(written([suggested]))
    assert dialect.recognise(chat(SECOND)).sample.answers == ("No idea.",)


def test_a_chat_that_asks_for_a_verdict_is_refused_and_never_guessed():
    asks = "Please act as an impartial judge. Reply A: x. Reply B: y. Say [[A]] or [[B]]."
    with handler_of(chat=True) as handler:
        with pytest.raises(UnrecognisedError, match=r"asks for a verdict.*--prompts FILE"):
            asyncio.run(handler.respond(chat(asks)))
        assert asyncio.run(handler.respond(chat("Good morning."))).dialect is None
