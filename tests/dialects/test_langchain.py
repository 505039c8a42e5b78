"""LangChain's evaluators, which are a prompt file of judgelm's own, and prompts in a single message."""

import asyncio
import re

import pytest

from judgelm.dialects.catalog import DIALECTS, recognise
from judgelm.dialects.contract import ChatRequest, Message
from judgelm.yaml_files import read_yaml
from tests.support.known_judge import handler_of, of_quality

TEXTS = {
    "question": "What is 2 + 2?",
    "answer": of_quality(8),
    "answer_1": of_quality(8),
    "answer_2": of_quality(3),
    "reference": "It is 4.",
    "criterion": "depth: is it deep?",
    "context": "Two and two are four.",
}
PROMPTS = {dialect.name: dialect for dialect in DIALECTS if dialect.name.startswith("langchain-")}


def request_of(name):
    [row] = [row for row in read_yaml("judgelm/dialects/langchain.yaml") if row["name"] == name]
    messages = [
        Message(role=each.get("role", "user"), text=re.sub(r"\{(\w+)\}", lambda slot: TEXTS[slot[1]], each["text"]))
        for each in row["prompt"]
    ]
    return ChatRequest(messages=tuple(messages))


@pytest.mark.parametrize("name", PROMPTS)
def test_each_prompt_is_recognised_as_itself_and_its_texts_are_found(name):
    dialect, task = recognise(request_of(name))
    assert (dialect.name, task.doubt, task.sample.question) == (name, "", TEXTS["question"])
    pairwise = name.startswith("langchain-pairwise")
    assert task.sample.answers == ((of_quality(8), of_quality(3)) if pairwise else (of_quality(8),))
    referenced = name.endswith("-labeled") or name in ("langchain-qa", "langchain-qa-sql")
    assert task.sample.reference == (TEXTS["reference"] if referenced else None)
    if "criteria" in name or "score" in name or pairwise:
        assert task.sample.metadata["criterion"].strip() == TEXTS["criterion"].strip()
    if name in ("langchain-qa-context", "langchain-qa-cot"):
        assert task.sample.metadata["context"] == TEXTS["context"]


@pytest.mark.parametrize(
    ("name", "found", "verdict"),
    [
        ("langchain-pairwise", r"\[\[(.*?)\]\]", "A"),
        ("langchain-score-labeled", r"\[\[(.*?)\]\]", "8"),
        ("langchain-criteria", r"\b(Y|N)\b\s*$", "Y"),
        ("langchain-qa", r"^(\w+)$", "CORRECT"),
        ("langchain-qa-cot", r"GRADE: (\w+)$", "CORRECT"),
    ],
)
def test_the_reply_is_what_the_parser_of_langchain_looks_for(name, found, verdict):
    with handler_of() as handler:
        response = asyncio.run(handler.respond(request_of(name)))
    assert re.search(found, response.reply.texts[0])[1] == verdict


FASTCHAT = (
    "[User Question]\nWhat is 2 + 2?\n\n[The Start of Assistant A's Answer]\n4\n[The End of Assistant A's Answer]\n\n"
    "[The Start of Assistant B's Answer]\n5\n[The End of Assistant B's Answer]"
)
JUDGE = "Please act as an impartial judge. Answer [[A]], [[B]] or [[C]]."


@pytest.mark.parametrize("between", ["\n", "\n\n", " \n\n\n"])
def test_an_instruction_and_a_known_prompt_in_one_message_are_taken_apart(between):
    request = ChatRequest(messages=(Message(role="user", text=JUDGE + between + FASTCHAT),))
    dialect, task = recognise(request)
    assert (dialect.name, task.sample.answers, task.doubt) == ("fastchat-pair", ("4", "5"), "")


@pytest.mark.parametrize("before", ["Hello there.", "Write a poem about cats."])
def test_another_text_before_a_known_prompt_makes_no_request_for_a_verdict(before):
    assert recognise(ChatRequest(messages=(Message(role="user", text=f"{before}\n\n{FASTCHAT}"),))) is None
