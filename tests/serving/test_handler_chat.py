"""Ordinary chats: what no dialect knows goes to the model as it is, where the server lets it chat."""

import asyncio

import pytest

from judgelm.dialects.contract import ChatRequest, Message, Tool
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge
from judgelm.records import Completion
from judgelm.serving.chat import check_chat, model_request, stable_text
from judgelm.serving.chat_response import UnjudgedError
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.handler import HandlerOptions, JudgeHandler
from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.server import endpoint
from tests.support.known_judge import handler_of


def talk(*said, **more):
    return ChatRequest(messages=tuple(Message(role=role, text=text) for role, text in said), **more)


HELLO = talk(("system", "Be brief."), ("user", "Hello, who are you?"))


def sampling(asked):
    return model_request(asked).sampling


def test_the_model_answers_and_no_dialect_is_named():
    with handler_of(ScriptedEngine({"Be brief.|Hello, who are you?": "A judge."}), chat=True) as handler:
        found = asyncio.run(handler.respond(HELLO))
        assert (found.reply.texts, found.dialect, found.finish_reasons) == (("A judge.",), None, ("stop",))
        assert (found.prompt_tokens, found.completion_tokens) == (6, 2)


def test_the_length_the_ends_and_the_number_of_replies_are_the_clients():
    engine = ScriptedEngine({"*": "one two three four"})
    with handler_of(engine, chat=True) as handler:
        cut = asyncio.run(handler.respond(talk(("user", "count"), max_tokens=2)))
        assert (cut.reply.texts, cut.finish_reasons) == (("one two",), ("length",))
        stopped = asyncio.run(handler.respond(talk(("user", "count"), stop=("three",), n=3)))
        assert (stopped.reply.texts, stopped.finish_reasons) == (("one two ",) * 3, ("stop",) * 3)


def test_what_the_client_leaves_open():
    found = sampling(HELLO)
    assert (found.max_tokens, found.temperature, found.n) == (512, 1.0, 1)
    assert found.seed == sampling(HELLO).seed != sampling(talk(("user", "other"))).seed
    given = sampling(talk(("user", "x"), temperature=0.3, seed=-1, max_tokens=7))
    assert (given.temperature, given.seed, given.max_tokens) == (0.3, 2**32 - 1, 7)


def test_messages_keep_their_roles_and_are_the_users_text():
    prompt = model_request(
        talk(("system", "s"), ("user", "a"), ("user", "b"), ("assistant", "c"), ("user", "d"))
    ).prompt
    assert prompt.chat
    assert [(span.role, span.text) for span in prompt.spans] == [
        ("system", "s"), ("user", "a"), ("user", "\n\n"), ("user", "b"), ("assistant", "c"), ("user", "d"),
    ]  # fmt: skip
    assert {span.kind for span in prompt.spans} == {"question"}  # look-alikes of special tokens are sanitized in it
    plain = model_request(talk(("prompt", "Once upon"), plain=True)).prompt
    assert (plain.chat, [span.text for span in plain.spans]) == (False, ["Once upon"])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (talk(("tool", "x")), "unsupported role 'tool'"),
        (talk(("developer", "x"), ("user", "y")), '"messages", 0: unsupported role'),
        (talk(("user", "x"), json_object=True), "not supported in ordinary chats"),
        (talk(("user", "x"), schema={"type": "object"}), "not supported in ordinary chats"),
        (talk(("user", "x"), tools=(Tool(name="f"),), forced_tool="f"), "not supported in ordinary chats"),
    ],
)
def test_what_a_chat_cannot_do_is_refused(asked, message):
    with handler_of(ScriptedEngine({"*": "x"}), chat=True) as handler, pytest.raises(InputError, match=message):
        asyncio.run(handler.respond(asked))


class Refusing(ScriptedEngine):
    """Ends every request in the way that it is told."""

    reason = "error"

    def answer(self, request):
        return Completion(key=request.key, texts=(), finish_reasons=(self.reason,), error="no room")


@pytest.mark.parametrize(("reason", "code"), [("error", "engine"), ("too_long", "too_long")])
def test_a_chat_that_fails_says_why(reason, code):
    engine = Refusing({})
    engine.reason = reason
    with handler_of(engine, chat=True) as handler, pytest.raises(UnjudgedError, match="no room") as failed:
        asyncio.run(handler.respond(HELLO))
    assert failed.value.failure.code == code


def test_probabilities_of_a_chat_are_not_made_up():
    with handler_of(ScriptedEngine({"*": "x"}), chat=True) as handler:
        found = asyncio.run(handler.respond(talk(("user", "x"), logprobs=True)))
        assert found.reply.logprobs == ()
        [_, note] = found.notes
        assert "log-probabilities are not supported" in note


@pytest.mark.parametrize(
    ("text", "stop", "sent"),
    [
        ("one two", (), "one two"),
        ("one \ufffd\ufffd", (), "one "),  # bytes of a character to come
        ("one ##", ("###",), "one "),
        ("one ## two", ("###",), "one ## two"),
        ("see a", ("ab", "e a!"), "se"),  # the longer beginning
        ("\ufffd", ("x",), ""),
    ],
)
def test_what_may_still_change_is_not_sent(text, stop, sent):
    assert stable_text(text, stop) == sent


def test_an_engine_that_cannot_chat_is_refused_before_it_serves():
    with endpoint(ScriptedBackend(marker="x")) as upstream:
        arguments = {"base_url": upstream.base_url, "api": "completions"}
        with (
            Judge("tiny", engine="openai", template="judgelm-compact", engine_args=arguments) as judge,
            pytest.raises(ConfigError, match=r"--chat: chat prompts on /completions .*tokenizer="),
        ):
            check_chat(judge.engine)


def test_the_question_whether_it_chats_leaves_nothing_in_flight():
    engine = ScriptedEngine({"*": "x"})
    check_chat(engine)
    assert engine.collect(0) == []


def test_messages_that_the_models_chat_template_refuses_fail_alone(tiny_model):
    with Judge(str(tiny_model), engine="transformers", template="judgelm-compact", device="cpu") as judge:
        worker = EngineWorker(judge.engine)
        handler = JudgeHandler(judge, worker, HandlerOptions(chat=True))
        with pytest.raises(UnjudgedError, match="chat template") as failed:
            asyncio.run(handler.respond(HELLO))
        assert failed.value.failure.code == "engine"
        plain = asyncio.run(handler.respond(talk(("prompt", "the big fox"), plain=True, max_tokens=3)))
        assert (plain.completion_tokens, plain.finish_reasons, worker.broken) == (3, ("length",), None)
        worker.close()
