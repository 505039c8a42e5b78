"""Images to an OpenAI-compatible endpoint, a real one on this machine that reads the texts beside them."""

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.images import image_url
from judgelm.engines.openai.options import max_usage
from judgelm.errors import EngineError
from judgelm.records import Prompt, Request, Sampling, Span
from tests.support.driving import run
from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.server import endpoint
from tests.support.tiny_vision import write_image


@pytest.fixture
def picture(tmp_path):
    return str(write_image(tmp_path / "a.png", 1))


def load(server, **arguments):
    arguments = {"base_url": server.base_url, "backoff_s": 0.01} | arguments
    return load_engine("openai", EngineOptions(model="tiny", engine_args=arguments))


def request_of(images, *, chat=False, key="1", prefill=""):
    role = "user" if chat else None
    spans = (
        *((Span("Be fair.", "template", "system"),) if chat else ()),
        *(Span(image, "image", role) for image in images),
        Span("What is it? <image> ", "answer", role),
        Span("[S]", "template", role),
    )
    prompt = Prompt(spans=spans, chat=chat, prefill=prefill)
    return Request(key=key, prompt=prompt, sampling=Sampling(max_tokens=6))


@pytest.mark.parametrize("chat", [True, False])
def test_images_are_parts_of_the_users_message(picture, chat):
    with endpoint(ScriptedBackend()) as server:
        engine = load(server)
        [completion] = run(engine, [request_of([picture, "https://example.org/b.jpg"], chat=chat)]).values()
        messages = server.bodies[-1]["messages"]
        engine.close()
    first, second, text = messages[-1]["content"]
    assert messages[-1]["role"] == "user"
    assert first == {"type": "image_url", "image_url": {"url": image_url(picture)}}
    assert second["image_url"]["url"] == "https://example.org/b.jpg"
    assert text == {"type": "text", "text": "What is it? (image) [S]"}  # its own look-alike is sanitized
    assert (completion.texts, completion.sanitized) == (("8 6\n",), 1)


def test_a_completions_only_engine_refuses_images(picture):
    with endpoint(ScriptedBackend()) as server:
        engine = load(server, api="completions")
        with pytest.raises(
            EngineError, match="shows images, which this model does not support: /completions takes only text"
        ):
            engine.submit([request_of([picture])])
        engine.close()


def test_an_image_that_is_not_there_fails_its_request_alone(picture):
    with endpoint(ScriptedBackend()) as server:
        engine = load(server)
        found = run(engine, [request_of(["gone.png"], key="bad"), request_of([picture], key="good")])
        engine.close()
    assert (found["bad"].finish_reasons, found["good"].texts) == (("error",), ("8 6\n",))
    assert "image gone.png: cannot read" in found["bad"].error


def test_the_bill_reckons_with_the_most_an_image_may_cost():
    parts = [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "abc"}]
    body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 5}
    # 50,000 for the image, 3 bytes of text, 16 for the message, 64 around it all
    assert max_usage(body).prompt_tokens == 50_083
