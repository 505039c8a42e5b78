"""The OpenAI engine over /completions and chat, with texts and images."""

import re
from dataclasses import replace
from functools import partial

import pytest
from transformers import AutoTokenizer

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.images import image_url
from judgelm.errors import ConfigError, EngineError
from judgelm.prompts.catalog import get_template
from judgelm.records import Grammar, Prompt, Sample, Span
from tests.support.driving import prompt_of, run
from tests.support.endpoint.backends import ScriptedBackend, TinyBackend
from tests.support.endpoint.client import ask, client, engine_threads, load, request_of
from tests.support.endpoint.server import endpoint
from tests.support.tiny_vision import write_image

CHAT_TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


answer = partial(ask, key="a big fox", stop=())


@pytest.fixture(scope="module")
def backend(tiny_model):
    return TinyBackend(tiny_model)


@pytest.mark.parametrize("tokenizer", [True, False])
def test_completions_equal_the_local_engine(backend, tiny_model, tokenizer):
    local = load_engine("transformers", EngineOptions(model=str(tiny_model)))
    with endpoint(backend) as server, client(server, **({"tokenizer": str(tiny_model)} if tokenizer else {})) as engine:
        requests = [request_of("a big fox " * count, stop=()) for count in range(1, 6)]
        completions, expected = run(engine, requests), run(local, requests)
        assert isinstance(server.bodies[-1]["prompt"], list if tokenizer else str)
    assert completions == expected  # texts, reasons, token counts and all


def test_server_may_ignore_n_and_stop(backend):
    with endpoint(backend) as server, client(server) as engine:
        free = answer(engine, max_tokens=12).texts[0]
        settings = {"max_tokens": 12, "stop": (free[6:8],)}
        expected = answer(engine, **settings).texts
        server.ignores_n = server.ignores_stop = True
        assert answer(engine, **settings).texts == expected
        drawn = answer(engine, n=3, temperature=1.0, seed=1)
        assert 1 < len(set(drawn.texts)) <= len(drawn.texts) == 3, "each missing reply has its own seed"


CHAT = get_template("judgelm-chat").render(Sample(id="1", question="q", answers=("a", "b")), (0, 1), None)


@pytest.mark.parametrize(
    ("switches", "prompt", "roles"),
    [({"has_completions": False}, prompt_of("a big fox"), ["user"]), ({}, CHAT, ["system", "user"])],
)
def test_chat_messages_are_sent_if_completions_cannot_be_used(switches, prompt, roles):
    with endpoint(ScriptedBackend(marker=prompt.spans[-1].text[-4:]), **switches) as server, client(server) as engine:
        assert answer(engine, prompt=prompt, stop=("\n",)).texts == ("8 6",)
        messages = server.bodies[-1]["messages"]
        assert [message["role"] for message in messages] == roles
        assert messages[-1]["content"].endswith(prompt.spans[-1].text)


def test_chat_prompt_on_completions_needs_the_tokenizer():
    refused = pytest.raises(EngineError, match="the model's chat template")
    with endpoint() as server, client(server, api="completions") as engine, refused:
        engine.submit([request_of(prompt=CHAT)])


@pytest.fixture
def chat_folder(tiny_model, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(tmp_path)
    return str(tmp_path)


def test_chat_prompt_is_sent_as_ids_with_the_tokenizer(backend, chat_folder):
    prompt = Prompt(spans=(Span("rate a fox", role="system"), Span("a dog", kind="answer", role="user")), chat=True)
    with endpoint(backend) as server, client(server, tokenizer=chat_folder) as engine:
        answer(engine, prompt=prompt)
        text = backend.tokenizer.decode(server.bodies[-1]["prompt"])
        assert text == "<system>rate a fox<user>a dog<assistant>"


def test_long_answers_are_truncated_with_the_tokenizer(backend, chat_folder):
    with endpoint(backend, window=512) as server, client(server, tokenizer=chat_folder, api="chat") as engine:
        done = ask(engine, "big " * 900, max_tokens=4, stop=())
        assert (done.finish_reasons, done.truncations[0].answer) == (("length",), 0)
        assert done.truncations[0].tokens_before == pytest.approx(900, abs=2)
        assert done.prompt_tokens <= 508


def test_too_long_prompt_without_the_tokenizer_fails(backend):
    with endpoint(backend, window=512) as server, client(server) as engine:
        done = run(engine, [request_of("long", prompt_of("big " * 900)), request_of("short", stop=())])
        assert done["long"].finish_reasons == ("too_long",)
        assert "--engine-arg tokenizer=" in done["long"].error
        assert done["short"].finish_reasons == ("length",)
        assert server.counts["answered"] == len(server.bodies) - 1, "a 400 is not sent again"


def test_unknown_window_is_rejected(backend, tmp_path):
    backend.tokenizer.save_pretrained(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    config.write_text(config.read_text().replace('"model_max_length": 512', '"model_max_length": 1e30'))
    with endpoint(backend) as server:
        with pytest.raises(ConfigError, match="--max-model-len"):
            load(server, tokenizer=str(tmp_path))
        with client(server, options={"max_model_len": 100}, tokenizer=str(tmp_path)) as engine:
            assert engine.describe()["window"] == 100


def test_special_tokens_in_answers_are_sanitized_without_a_tokenizer():
    with endpoint() as server, client(server) as engine:
        done = answer(engine, prompt=prompt_of("</s> [INST] 10 1 <|im_start|>user <|odd_one|> <b>"))
        assert done.sanitized == 4
        assert "(/s) (INST) 10 1 (/im_start/)user (/odd_one/) <b>" in server.bodies[-1]["prompt"]


@pytest.mark.parametrize("refuses", [(), ("continue_final_message",)])
def test_prefill_is_continued(refuses):
    script = {"": {"9": 1.0}, "8 6\n": {"Both": 1.0}, "8 6\nBoth": {" good": 1.0}}
    prompt = Prompt(spans=prompt_of("x").spans, prefill="8 6\n")
    with endpoint(ScriptedBackend(script), refuses=refuses) as server:
        with client(server) as engine:
            assert answer(engine, prompt=prompt).texts == ("Both good",)
        with client(server, api="chat") as engine:
            [done, again] = (answer(engine, prompt=prompt) for _ in range(2))
            assert done.texts == again.texts == (("9",) if refuses else ("Both good",))
            assert server.bodies[-1]["messages"][-1] == {"role": "assistant", "content": "8 6\n"}
            assert engine.stats()["not_taken_by_server"] == (["continuation"] if refuses else [])


def test_repeated_prefill_is_removed():
    script = {"": {"8 6\n": 1.0}, "8 6\n": {"Both": 1.0}}
    repeating = endpoint(ScriptedBackend(script), refuses=("add_generation_prompt",))
    with repeating as server, client(server, api="chat") as engine:
        assert answer(engine, prompt=Prompt(spans=prompt_of("x").spans, prefill="8 6\n")).texts == ("Both",)


def test_rejected_fields_are_left_out_later():
    with endpoint(refuses=("max_tokens", "stop", "temperature")) as server, client(server, api="chat") as engine:
        assert answer(engine, stop=("\n",)).texts == ("8 6",)
        before = len(server.bodies)
        assert answer(engine, stop=("\n",)).texts == ("8 6",)
        assert len(server.bodies) == before + 1
        assert server.bodies[-1].keys() == {"model", "messages", "max_completion_tokens"}
        assert engine.stats()["not_taken_by_server"] == ["max_tokens", "stop", "temperature"]


def test_grammar(backend):
    with endpoint(backend, supports_grammar=True) as server, client(server) as engine:
        assert engine.supports_grammar
        [text] = answer(engine, grammar=Grammar("regex", r"[0-9] [0-9]"), max_tokens=12).texts
        assert re.fullmatch("[0-9] [0-9]", text)


NUMBER = Grammar("json_schema", '{"properties": {"score": {"type": "integer"}}, "required": ["score"]}')


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_json_schema_is_sent_as_response_format(api):
    script = {"": {'{"score":': 1.0}, '{"score":': {" 8}": 1.0}}
    with endpoint(ScriptedBackend(script)) as server, client(server, api=api) as engine:
        assert answer(engine, grammar=NUMBER, stop=()).texts == ('{"score": 8}',)
        sent = server.bodies[-1]["response_format"]
    assert (sent["type"], sent["json_schema"]["schema"]["required"]) == ("json_schema", ["score"])


@pytest.mark.parametrize(("refuses", "words"), [((), "does not match the grammar"), (("response_format",), "HTTP 400")])
def test_schema_that_the_server_ignores_or_refuses_fails(refuses, words):
    with endpoint(refuses=refuses) as server, client(server) as engine:
        failed = answer(engine, grammar=NUMBER)
    assert (failed.texts, failed.finish_reasons) == ((), ("error",))
    assert words in failed.error


def test_logprobs_of_a_server_without_them_are_missing():
    with endpoint(logprobs=False) as server, client(server) as engine:
        completion = answer(engine, logprobs=2)
    assert (completion.finish_reasons, completion.logprobs) == (("stop",), None)


def test_grammar_is_rejected_if_the_server_ignores_it():
    with endpoint() as server, client(server) as engine:
        assert not engine.supports_grammar
        failed = answer(engine, grammar=Grammar("regex", r"\d"))
        assert (failed.texts, failed.finish_reasons) == ((), ("error",))
        assert "does not support regular expressions" in failed.error
        with pytest.raises(EngineError, match="serve the adapter as a model"):
            engine.submit([replace(request_of(), adapter="a")])


def test_close_ends_the_thread():
    before = engine_threads()
    with endpoint(delay_s=0.2) as server:
        engine = load(server)
        assert engine_threads() > before
        engine.submit([request_of()])
        engine.close()
        engine.close()
        assert engine_threads() == before
        assert engine.collect(0.01) == []
        with pytest.raises(EngineError, match="closed"):
            engine.submit([request_of()])


@pytest.fixture
def picture(tmp_path):
    return str(write_image(tmp_path / "a.png", 1))


def request_with(images, *, chat=False):
    role = "user" if chat else None
    spans = [Span("Be fair.", "template", "system")] if chat else []
    spans += [Span(image, "image", role) for image in images]
    spans = (*spans, Span("What is it? <image> ", "answer", role), Span("[S]", "template", role))
    return request_of(prompt=Prompt(spans=spans, chat=chat), stop=())


@pytest.mark.parametrize("chat", [True, False])
def test_images_are_parts_of_the_user_message(picture, chat):
    with endpoint() as server, client(server) as engine:
        [done] = run(engine, [request_with([picture, "https://example.org/b.jpg"], chat=chat)]).values()
        message = server.bodies[-1]["messages"][-1]
    first, second, text = message["content"]
    assert message["role"] == "user"
    assert first == {"type": "image_url", "image_url": {"url": image_url(picture)}}
    assert second["image_url"]["url"] == "https://example.org/b.jpg"
    assert text == {"type": "text", "text": "What is it? (image) [S]"}  # its own look-alike is sanitized
    assert (done.texts, done.sanitized) == (("8 6\n",), 1)


def test_images_that_cannot_be_sent(picture):
    refused = pytest.raises(EngineError, match="/completions only accepts text")
    with endpoint() as server, client(server, api="completions") as engine, refused:
        engine.submit([request_with([picture])])
    with endpoint() as server, client(server) as engine:
        completions = run(engine, [replace(request_with(["gone.png"]), key="bad"), request_with([picture])])
        assert (completions["bad"].finish_reasons, completions["x"].texts) == (("error",), ("8 6\n",))
        assert "image gone.png: cannot open" in completions["bad"].error
