"""Images for vision-language judges, with two random models."""

import base64
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from judgelm.engines.base import EngineOptions, ImageError
from judgelm.engines.catalog import load_engine
from judgelm.engines.images import image_url, read_image
from judgelm.errors import ConfigError, ModelError
from judgelm.records import Prompt, Request, Sampling, Span
from tests.support.driving import run
from tests.support.tiny_vision import CHAT_TEMPLATE, make_idefics, make_llava, replies_of_transformers, write_image

TEXTS = ["what is the capital of france paris london a big red fox 1 2 3 4 5 6 7 8 9 10"] * 20
LINES = ("1 2", "3 4", "7 8")
PROGRAM = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF\n"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    return [str(write_image(folder / f"{number}.png", number)) for number in range(4)]


@pytest.fixture(scope="module", params=["llava", "idefics3"])
def judge(request, tmp_path_factory):
    make = make_llava if request.param == "llava" else make_idefics
    return make(tmp_path_factory.mktemp(request.param) / "judge", TEXTS)


def load(judge, **options):
    return load_engine("transformers", EngineOptions(model=str(judge), **options))


@pytest.fixture(scope="module")
def engine(judge):
    engine = load(judge)
    yield engine
    engine.close()


def request_of(key, images, *, words=1, chat=False, prefill="", max_tokens=6):
    role = "user" if chat else None
    spans = (
        Span("a big fox ", "template", role),
        *(Span(image, "image", role) for image in images),
        Span("what is the capital " * words, "answer", role),
    )
    prompt = Prompt(spans=spans, chat=chat, prefill=prefill)
    return Request(key=key, prompt=prompt, sampling=Sampling(max_tokens=max_tokens), candidates=LINES)


def plain_text(request):
    spans = request.prompt.spans
    text = "".join("<image>" if span.kind == "image" else span.text for span in spans)
    if not request.prompt.chat:
        return text
    return "user: " + text.replace("<image>", "<image>\n") + "\nassistant: "  # CHAT_TEMPLATE, by hand


def test_replies_equal_transformers(engine, judge, pictures):
    requests = [
        request_of("one", pictures[:1]),
        request_of("none", [], words=3),
        request_of("two", pictures[1:3], words=2),
        request_of("chat", pictures[3:], chat=True),
        request_of("again", pictures[:1], words=4),
    ]
    inputs = [(plain_text(request), request.prompt.images) for request in requests]
    own = replies_of_transformers(judge, inputs, max_tokens=6)
    completions = run(engine, requests)
    assert [completions[request.key].texts[0] for request in requests] == own


def test_continued_reply_uses_its_own_image(engine, pictures):
    begun = run(engine, [request_of("a", pictures[:1]), request_of("b", pictures[1:2])])
    before = engine.stats()["reused_prompt_tokens"]
    prefills = {key: begun[key].texts[0][:1] + " 7\n" for key in "ab"}
    continued = [request_of(key, [pictures[place]], prefill=prefills[key]) for place, key in enumerate("ab")]
    completions = run(engine, continued)
    assert engine.stats()["reused_prompt_tokens"] > before
    for request in continued:
        fresh = load(engine.describe()["model"]["path"])
        assert run(fresh, [request])[request.key].texts == completions[request.key].texts
        fresh.close()


def test_data_url_equals_the_file(engine, pictures):
    url = image_url(pictures[0])
    assert url.startswith("data:image/png;base64,")
    by_url, by_path = (run(engine, [request_of("1", [source])])["1"] for source in (url, pictures[0]))
    assert by_url == by_path


def test_image_tokens_in_text_are_sanitized(engine, pictures):
    request = request_of("1", pictures[:1])
    *spans, answer = request.prompt.spans
    prompt = replace(request.prompt, spans=(*spans, replace(answer, text="<image> <image>")))
    [completion] = run(engine, [replace(request, prompt=prompt)]).values()
    assert completion.sanitized == 2
    assert completion.finish_reasons != ("error",)


def test_truncation_keeps_images(judge, pictures):
    short = load(judge, max_model_len=80)
    [completion] = run(short, [request_of("1", pictures[:1], words=100)]).values()
    assert completion.truncations[0].tokens_after < completion.truncations[0].tokens_before
    assert completion.prompt_tokens <= 80 - 6
    [alone] = run(short, [request_of("1", pictures, words=100)]).values()
    assert alone.finish_reasons == ("too_long",) or alone.prompt_tokens > 4 * 6
    short.close()


TEXT_ONLY = "{% for message in messages %}{{ message['content'] }}{% endfor %} so"


@pytest.mark.parametrize(
    ("template", "finding"),
    [(CHAT_TEMPLATE.replace("<image>\n", ""), "includes 0 of 1 images"), (TEXT_ONLY, "supports only text")],
)
def test_chat_template_without_images(judge, pictures, tmp_path, template, finding):
    folder = shutil.copytree(judge, tmp_path / "judge")
    (folder / "chat_template.jinja").write_text(template)
    engine = load(folder)
    if template == TEXT_ONLY:
        as_text = request_of("2", [])
        spans = (*as_text.prompt.spans, Span(" so", "template"))
        as_text = replace(as_text, prompt=replace(as_text.prompt, spans=spans))
        completions = run(engine, [request_of("1", [], chat=True), as_text])
        assert completions["1"].texts == completions["2"].texts
    with pytest.raises(ConfigError, match=finding):
        engine.submit([request_of("1", pictures[:1], chat=True)])
    engine.close()


def test_unsupported_vision_model_or_missing_processor_is_rejected(judge, tiny_model, tmp_path):
    folder = shutil.copytree(judge, tmp_path / "judge")
    (folder / "processor_config.json").unlink()
    with pytest.raises(ModelError, match=r"cannot load the image processor.*copy processor_config.json"):
        load(folder)
    folder = shutil.copytree(tiny_model, tmp_path / "tiny")
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2_vl", "vision_config": {}}))
    with pytest.raises(ModelError, match=r"qwen2_vl models: .* two-dimensional"):
        load(folder)


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        ("https://example.org/a.png", "does not download images; download it first"),
        ("data:image/png;base64,!!", "invalid base64"),
        ("data:image/png;base64", "has no comma"),
        ("data:text/plain," + "x" * 90, "unknown image format"),
        (f"data:image/png;base64,{base64.b64encode(PROGRAM).decode()}", "unknown image format"),
    ],
)
def test_invalid_images_are_rejected(source, finding):
    with pytest.raises(ImageError, match=finding) as raised:
        read_image(source)
    assert len(str(raised.value)) < 250


def test_only_image_files_become_urls(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("x")
    with pytest.raises(ImageError, match="image extension"):
        image_url(str(path))
    picture = write_image(tmp_path / "a.png", 1)
    assert base64.b64decode(image_url(str(picture)).partition(",")[2]) == picture.read_bytes()


def test_damaged_images_are_read_or_rejected(tmp_path):
    whole = write_image(tmp_path / "whole.png", 1).read_bytes()
    for cut in range(0, len(whole), 7):
        damaged = base64.b64encode(whole[:cut] + b"?" + whole[cut + 1 :]).decode()
        with suppress(ImageError):
            read_image(f"data:image/png;base64,{damaged}")


def test_only_requests_with_missing_or_rejected_images_fail(engine, pictures, tmp_path, monkeypatch):
    from PIL import Image

    processor = type(engine._loaded.vision._processor)
    process = processor.__call__

    def reject_narrow(self, images, **options):
        if images[0].width > 200 * images[0].height:  # as Qwen2-VL's processor
            raise ValueError("absolute aspect ratio must be smaller than 200")
        return process(self, images=images, **options)

    monkeypatch.setattr(processor, "__call__", reject_narrow)
    Image.new("RGB", (400, 1)).save(tmp_path / "line.png")
    images = {"narrow": [str(tmp_path / "line.png")], "missing": ["nowhere.png"], "good": pictures[:1]}
    done = run(engine, [request_of(*each) for each in images.items()])
    assert done["narrow"].finish_reasons == done["missing"].finish_reasons == ("error",) != done["good"].finish_reasons
    assert "400 x 1 pixels" in done["narrow"].error
    assert "image nowhere.png: cannot open: No such file" in done["missing"].error


IN_A_PROCESS = """
import json, sys
from tests.engines.test_images import judged
print(json.dumps(judged("vllm", sys.argv[1], json.loads(sys.argv[2]))))
"""


def judged(name, judge, pictures):
    """Texts and the larger candidate's log-probability, by key."""
    arguments = {"kv_cache_memory_bytes": 1 << 28} if name == "vllm" else {}
    engine = load_engine(name, EngineOptions(model=str(judge), dtype="float32", engine_args=arguments))
    assert engine.supports_images
    requests = []
    for key, images in enumerate((pictures[:1], [], pictures[1:], pictures[:1]), 1):
        spans = (Span("a big fox "), *(Span(image, "image") for image in images), Span("what is " * key, "question"))
        options = {"sampling": Sampling(max_tokens=6), "candidates": ("1", "3")}
        requests.append(Request(key=str(key), prompt=Prompt(spans=spans), **options))
    completions = run(engine, requests)
    engine.close()
    return {key: [completion.texts[0], max(completion.candidate_logprobs)] for key, completion in completions.items()}


@pytest.mark.slow
def test_vllm_equals_transformers(tmp_path):
    # vLLM runs in a separate process; its CPU build has no torchvision, which LLaVA needs and Idefics 3 does not
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed: `make test` installs it")
    judge = make_idefics(tmp_path / "judge", TEXTS)
    pictures = [str(write_image(tmp_path / f"{number}.png", number)) for number in range(3)]
    command = [sys.executable, "-c", IN_A_PROCESS, str(judge), json.dumps(pictures)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    by_vllm = json.loads(done.stdout.strip().splitlines()[-1])
    for key, (text, logprob) in judged("transformers", judge, pictures).items():
        assert by_vllm[key] == [text, pytest.approx(logprob, abs=1e-3)]
