"""Prompt files of the user and judgelm's own: recognised, answered, recorded and suggested."""

import asyncio
import json
import math
import re
from dataclasses import replace

import pytest
import yaml

from judgelm.dialects.catalog import PROMPT_FILES, recognise
from judgelm.dialects.contract import Tool
from judgelm.dialects.learned_prompts import LearnedPrompts, read_learned, shared_parts, suggested_prompts, written
from judgelm.dialects.prompt_file import read_dialects
from judgelm.errors import ConfigError
from judgelm.prompts.judge_prompt import PromptMessage
from judgelm.serving.chat_response import UnrecognisedError
from judgelm.yaml_files import read_yaml
from tests.support.captures import chat
from tests.support.flows import text_of
from tests.support.known_judge import CHANCES, KnownEngine, handler_of, of_quality, word_opinion

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
        return read_dialects(path)

    return read


def desk(first, second, question="How do I pay?", again=None):
    text = (
        f"Ticket 17:\n{question}\nReply A:\n{first}\nReply B:\n{second}\nThe ticket was: {again or question}\n"
        "Which one is it?"
    )
    return chat(("system", "You compare replies of a desk for Acme."), text)


def respond(request, **options):
    with handler_of(**options) as handler:
        return asyncio.run(handler.respond(request))


def reply_to(request, prompts, **options):
    [text] = respond(request, prompts=prompts, **options).reply.texts
    return text


def test_a_pair_is_recognised_by_its_template_and_answered_in_its_form(dialects):
    best, worst = of_quality(8), of_quality(4)
    prompts = dialects(PAIR)
    assert reply_to(desk(best, worst), prompts).endswith("[[A]]")
    assert "out of 10" in reply_to(desk(best, worst), prompts)
    assert reply_to(replace(desk(best, worst), max_tokens=8), prompts) == "[[A]]"  # there is no room for a reason
    response = respond(desk(worst, best), prompts=prompts)
    assert (response.dialect, response.reply.texts[0][-5:]) == ("desk", "[[B]]")
    assert reply_to(desk(best, best), prompts).endswith("[[C]]")


def test_slots_become_question_answers_and_texts_beside_them(dialects):
    [dialect] = dialects(PAIR)
    task = dialect.recognise(desk("one", "two"))
    assert (task.kind, task.sample.question, task.sample.answers) == ("pair", "How do I pay?", ("one", "two"))
    assert task.sample.metadata == {"customer": "Acme"}  # the ticket's number is ignored
    assert dialect.recognise(desk("one", "two", again="Another question?")) is None  # the two places must agree
    assert dialect.recognise(chat("You compare replies.")) is None


def test_a_request_is_judged_with_the_prompt_itself(dialects):
    engine, prompts = KnownEngine(word_opinion), dialects(PAIR + "ask: prompt\n")
    best, worst = of_quality(8), of_quality(4)
    [text] = respond(desk(worst, best), engine=engine, prompts=prompts).reply.texts
    assert text.endswith("[[B]]")
    shown = [text_of(prompt) for prompt in engine.prompts]
    assert all(text.startswith("You compare replies of a desk for Acme.Ticket 17:\nHow do I pay?") for text in shown)
    assert shown[0].index(worst) < shown[0].index(best)
    assert shown[1].index(best) < shown[1].index(worst)


def test_a_grade_of_the_prompt_itself_is_the_mean(dialects):
    # quality 3 of 0 to 4 with 0.75, and 2 with 0.25: 2.75, as a whole number 3
    engine = KnownEngine(lambda prompt: {"3": 0.75, "2": 0.25})
    reply = reply_to(chat("Q: Why?\nA: So.\nMark it."), dialects(GRADE + "ask: prompt\n"), engine=engine)
    assert json.loads(reply)["mark"] == 3
    exact = GRADE.replace("[0, 4],", "[0, 4], whole: false,") + "ask: prompt\n"
    assert json.loads(reply_to(chat("Q: Why?\nA: So.\nMark it."), dialects(exact), engine=engine))["mark"] == 2.75


def test_a_label_of_the_prompt_itself_follows_its_words(dialects):
    labels = LABEL.replace("{answer} right", "{answer} right for {customer}") + "ask: prompt\n"
    engine = KnownEngine(lambda prompt: {"PASS": 0.2, "FAIL": 0.7})
    assert reply_to(chat("Is it right for Acme? It should be 7."), dialects(labels), engine=engine) == "FAIL"
    assert text_of(engine.prompts[0]) == "Is it right for Acme? It should be 7."


def test_a_grade_is_given_on_the_own_scale_in_named_fields(dialects):
    # quality 7 of 1 to 10 is two thirds: 2.67 of 4, whole 3
    request, prompts = chat(f"Q: Why?\nA: {of_quality(7)}\nMark it."), dialects(GRADE)
    assert json.loads(reply_to(request, prompts)) | {"why": ""} == {"mark": 3, "why": ""}
    reply = respond(replace(request, tools=(Tool(name="Mark"),), forced_tool="Mark"), prompts=prompts).reply
    assert (reply.tool, reply.texts, json.loads(reply.arguments)["mark"]) == ("Mark", (), 3)  # the client demands it


def test_doubled_braces_are_a_word_in_braces_and_no_slot(dialects):
    fields = "Fields: {{task}}, {{reply}}, {other}. {{{x}}}"
    [dialect] = dialects(GRADE.replace('"Q: ', f'"{fields}\\nQ: '))
    text = "Fields: {task}, {reply}, 5. {{x}}\nQ: Why?\nA: So.\nMark it."
    sample = dialect.recognise(chat(text)).sample
    assert (sample.question, sample.answers, sample.metadata) == ("Why?", ("So.",), {"other": "5"})


def test_a_message_without_slots_must_be_the_same(dialects):
    [dialect] = dialects(LABEL.replace("prompt: [", "prompt: [{role: system, text: Be strict.}, "))
    text = "Is it 7 right? It should be 7."
    assert dialect.recognise(chat(("system", "Be strict."), text)).sample.answers == ("it 7",)
    assert dialect.recognise(chat(("system", "Be kind."), text)) is None


def test_a_label_is_given_in_own_words(dialects):
    for quality, word in ((9, "PASS"), (2, "FAIL")):
        assert reply_to(chat(f"Is {of_quality(quality)} right? It should be 7."), dialects(LABEL)) == word


def test_probabilities_are_in_a_field_or_are_those_of_the_words(dialects):
    request = desk(of_quality(6), of_quality(5))
    fields = PAIR.replace('text: "{reason} [[{verdict}]]"', "json: {winner: verdict, p: probability}")
    assert json.loads(reply_to(request, dialects(fields))) == {"winner": "A", "p": CHANCES[1]}
    reply = respond(replace(request, logprobs=True, top_logprobs=2), prompts=dialects(PAIR)).reply
    assert "".join(token.token for token in reply.logprobs) == reply.texts[0]
    [verdict] = [token for token in reply.logprobs if token.token == "A"]
    assert dict(verdict.candidates) == pytest.approx({"A": math.log(CHANCES[1]), "B": math.log(1 - CHANCES[1])})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("{answer_2}", "{other}"), r"requires a prompt with \{answer_1\}, \{answer_2\}; .*\{answer_1\}"),
        (
            ("{answer_1}\n      Reply B:\n      ", "{answer_1}"),
            r"line 9: there is no fixed text between {answer_1} and {answer_2}",
        ),
        (("[[{verdict}]]", "[[A]]"), r"must contain {verdict} exactly once"),
        (("tie: C", "tie: A"), "verdict words must be unique"),
        (("  text: ", "  json: {w: winner}\n  text: "), "text and json"),
        (('text: "{reason} [[{verdict}]]"', "json: {w: winner}"), "line 16: .*unknown slot 'winner'"),
        (("pair: {first: A, second: B, tie: C}", "pairs: 1"), r"reply\.pairs: Unexpected keyword"),
        (("pair: {first: A, second: B, tie: C}", "grade: [5, 1]"), r"a grade reply requires a prompt with \{answer\}"),
        (("name: desk", "name: My desk"), "other than a-z"),
        (("pair: {first: A, second: B, tie: C}", "choice: [A, B]"), r"reply\.choice: .*3 verdict words, got 2"),
        (("name: desk", "name: desk\nexamples: [[{text: a}]]"), r"examples: Unexpected keyword"),
    ],
)
def test_a_prompt_that_cannot_work_is_refused_with_its_place(dialects, change, message):
    text = PAIR.replace(*change)
    assert text != PAIR
    assert dialects(PAIR.replace("Reply B:\n      {answer_2}", "{answer_2}"))  # a line end is fixed text
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
    shared = shared_parts(texts)
    assert shared[: len(parts)] == parts
    for text in texts:
        position = 0
        for part in shared:  # every part is in every text, in order
            position = text.index(part, position) + len(part)


def test_unknown_prompts_are_recorded_once_and_suggested(dialects, tmp_path):
    path = tmp_path / "learned.jsonl"
    with handler_of(learn=LearnedPrompts(path)) as handler:
        for text in (FIRST, SECOND, FIRST):
            with pytest.raises(UnrecognisedError):
                asyncio.run(handler.respond(chat(text)))
    with handler_of(learn=LearnedPrompts(path), unknown="answer") as handler:
        asyncio.run(handler.respond(chat("Good morning.")))
    assert path.stat().st_mode & 0o077 == 0
    assert len(read_learned(path)) == 3
    LearnedPrompts(path)(chat(SECOND))  # a server that starts again knows what is there
    assert len(read_learned(path)) == 3
    [suggested] = suggested_prompts(read_learned(path))
    assert suggested["prompt"][0]["text"].startswith("Rate it.\nTicket: {question}\nProduct: {")
    assert suggested["reply"]["grade"] == [1, 5]
    [dialect] = dialects(written([suggested]))
    assert dialect.recognise(chat(SECOND)).sample.answers == ("No idea.",)


# judgelm's own prompt files

TEXTS = {
    "question": "What is 2 + 2?", "answer": of_quality(8), "answer_1": of_quality(8), "answer_2": of_quality(3),
    "reference": "It is 4.", "criterion": "depth: is it deep?", "context": "Two and two are four.",
    "language": "German", "ignored": "Take your time.", "ignored_form": "", "ignored_rules": "Take your time.",
}  # fmt: skip
ROWS = {row["name"]: row for name in PROMPT_FILES for row in read_yaml(f"judgelm/dialects/{name}.yaml")}


def filled(name, **options):
    texts = [
        (message.get("role", "user"), re.sub(r"\{(\w+)\}", lambda slot: TEXTS[slot[1]], message["text"]))
        for message in ROWS[name]["prompt"]
    ]
    return chat(*texts, **options)


@pytest.mark.parametrize("name", ROWS)
def test_each_prompt_is_recognised_as_itself_and_its_texts_are_found(name):
    dialect, task = recognise(filled(name))
    slots = set(re.findall(r"\{(\w+)\}", str(ROWS[name]["prompt"])))
    assert (dialect.name, task.doubt, task.sample.question) == (
        name,
        "",
        TEXTS["question"] if "question" in slots else "",
    )
    assert task.sample.answers == tuple(TEXTS[slot] for slot in sorted(slots) if slot.startswith("answer"))
    assert task.sample.reference == (TEXTS["reference"] if "reference" in slots else None)
    for slot in slots & {"criterion", "context"}:
        assert task.sample.metadata[slot].strip() == TEXTS[slot]


@pytest.mark.parametrize(
    ("name", "pattern", "verdict"),
    [
        ("langchain-pairwise", r"\[\[(.*?)\]\]", "A"),
        ("langchain-score-labeled", r"\[\[(.*?)\]\]", "8"),
        ("langchain-criteria", r"\b(Y|N)\b\s*$", "Y"),
        ("langchain-qa", r"^(\w+)$", "CORRECT"),
        ("langchain-qa-cot", r"GRADE: (\w+)$", "CORRECT"),
        ("autoevals-battle", r'"choice": "(\w+)"', "Yes"),
        ("autoevals-factuality", r'"choice": "(\w+)"', "C"),
        ("langfuse-correctness", r'"score": ([\d.]+)\}', "0.78"),  # (8 - 1) / 9
        ("mlflow-guidelines", r'"result": "(\w+)"', "yes"),
        ("opik-answer-relevance", r'"answer_relevance_score": ([\d.]+),', "0.78"),
        ("phoenix-faithfulness", r'"label": "(\w+)"', "faithful"),
    ],
)
def test_the_reply_is_what_the_clients_parser_looks_for(name, pattern, verdict):
    assert re.search(pattern, respond(filled(name)).reply.texts[0])[1] == verdict


def test_a_forced_function_gets_the_reply_as_arguments():
    reply = respond(
        filled("autoevals-closedqa", tools=(Tool(name="select_choice"),), forced_tool="select_choice")
    ).reply
    assert (reply.tool, json.loads(reply.arguments)["choice"]) == ("select_choice", "Y")


# An instruction and a known prompt in a single message

FASTCHAT = (
    "[User Question]\nWhat is 2 + 2?\n\n[The Start of Assistant A's Answer]\n4\n[The End of Assistant A's Answer]\n\n"
    "[The Start of Assistant B's Answer]\n5\n[The End of Assistant B's Answer]"
)


@pytest.mark.parametrize("between", ["\n", "\n\n", " \n\n\n"])
def test_an_instruction_and_a_known_prompt_in_one_message_are_taken_apart(between):
    judge = "Please act as an impartial judge. Answer [[A]], [[B]] or [[C]]."
    dialect, task = recognise(chat(judge + between + FASTCHAT))
    assert (dialect.name, task.sample.answers, task.doubt) == ("fastchat-pair", ("4", "5"), "")


@pytest.mark.parametrize("before", ["Hello there.", "Write a poem about cats."])
def test_another_text_before_a_known_prompt_is_not_a_request_for_a_verdict(before):
    assert recognise(chat(f"{before}\n\n{FASTCHAT}")) is None


CLIENTS = (
    "Please act as an impartial judge of a chatbot.\nTicket: {}\nReply: {}\nIs the reply polite? Say yes or no.",
    "Please act as an impartial judge of a chatbot.\n# Summary\n{}\n# Source\n{}\nCount the unsupported facts.",
)


def test_prompts_of_different_clients_that_share_a_sentence_are_suggested_apart():
    texts = [text.format(f"a {number}", f"b {number}" * 9) for number in range(3) for text in CLIENTS]
    suggested = suggested_prompts([(PromptMessage(text=text),) for text in texts])
    assert [each["name"] for each in suggested] == ["prompt-1", "prompt-2"]
    assert "Ticket: " in suggested[0]["prompt"][0]["text"]
    assert "# Summary" in suggested[1]["prompt"][0]["text"]
    assert suggested_prompts([(PromptMessage(text=text.format("a", "b")),) for text in CLIENTS]) == []


def test_slots_of_any_name_are_recognised(dialects):
    [dialect] = dialects('prompt: "{Customer-Name} asks {question}: {answer}."\nreply: Yes/No\n')
    task = dialect.recognise(chat("Ann asks How?: So."))
    assert task.sample.metadata == {"Customer-Name": "Ann"}
