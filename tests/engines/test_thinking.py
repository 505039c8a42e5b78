"""Judges that think, with a local model and with a server."""

from shutil import copytree

import pytest
from transformers import AutoTokenizer

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ConfigError
from judgelm.judge import Judge
from judgelm.modes.pairwise import Pairwise
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, write_card
from judgelm.records import Prompt, Request, Sampling, Span
from judgelm.runs.runner import judge
from tests.support.driving import run
from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.client import client
from tests.support.endpoint.server import endpoint
from tests.support.flows import SAMPLE

ALWAYS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>{{ '<think>\\n' }}"
CHAT = Prompt(spans=(Span("rate a fox", "question", "user"),), chat=True)


@pytest.fixture
def thinker(tiny_model, tmp_path):
    """A tiny model whose chat template opens a thinking block."""
    copytree(tiny_model, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = ALWAYS
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(("thinking", "begins"), [("absent", "<think>\n"), ("on", "<think>\n"), ("off", "")])
def test_reply_inside_the_thinking_block_has_its_opening(thinker, thinking, begins):
    engine = load_engine("transformers", EngineOptions(model=str(thinker), thinking=thinking))
    request = Request(key="0", prompt=CHAT, sampling=Sampling(max_tokens=12))
    engine.submit([request])
    done, seen = [], []
    while not done:
        done = engine.collect(0.0)
        seen += engine.progress(["0"]).values()
    assert done[0].texts[0].startswith("<think>") == bool(begins)
    assert seen
    assert all(text.startswith("<think>\n") == bool(begins) for text in seen)
    engine.close()


def test_user_overrides_the_cards_thinking_setting(thinker):
    template = get_template("judgelm-chat")
    write_card(thinker, Card(template=template.id, template_sha=template.sha, thinking="on"))
    for options, mode in (({}, "on"), ({"thinking": "off"}, "off")):
        with Judge(str(thinker), engine="transformers", **options) as loaded:
            assert loaded.engine.thinking.mode == mode
            # at most half of the window
            assert loaded.engine.thinking.max_tokens == min(4096, loaded.engine.describe()["window"] // 2)


def test_zero_thinking_tokens_are_rejected():
    with pytest.raises(ConfigError, match="thinking_tokens is 0; it must be at least 1"):
        load_engine("scripted", EngineOptions(model="8 6", thinking_tokens=0))


def chat(server, **options):
    return client(server, options=options, api="chat")


def replying(text, **fields):
    """A server's reply; `fields` are separate, as with vLLM's reasoning parser."""

    def change(data):
        for choice in data["choices"]:
            choice["message"] |= {"content": text} | fields

    return lambda number, body: change


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_servers_reasoning_field_is_the_thinking(field):
    with endpoint(ScriptedBackend()) as server, chat(server, thinking="on", thinking_tokens=100) as engine:
        server.misbehave(replying("8 6\nBecause.", **{field: "Hm.\n9 1?\n"}))
        [judgment] = judge([SAMPLE], Pairwise(), engine)
        assert (judgment.scores, judgment.shown[0].text, judgment.shown[0].thinking) == ((8, 6), "8 6", "Hm.\n9 1?")
        body = server.bodies[-1]
        # the server would stop in the thinking; 24 tokens for the line and 100 for thinking
        assert ("stop" in body, body["max_tokens"]) == (False, 124)
        assert body["chat_template_kwargs"] == {"enable_thinking": True, "thinking": True}


def test_thinking_in_the_reply_is_separated():
    with endpoint(ScriptedBackend(), refuses=("chat_template_kwargs",)) as server:
        server.misbehave(replying("Hm.\n9 1?\n</think>\n\n8 6\nBecause."))
        with chat(server, thinking="off") as engine:
            done = run(engine, [Request(key="0", prompt=CHAT, sampling=Sampling(max_tokens=50))])
            assert done["0"].texts[0].startswith("Hm.")  # the runner separates the thinking
            assert engine.stats()["not_taken_by_server"] == ["chat_template_kwargs"]
        with chat(server, thinking="on") as engine:
            [judgment] = judge([SAMPLE], Pairwise(), engine)
            assert (judgment.scores, judgment.shown[0].thinking) == ((8, 6), "Hm.\n9 1?")
