"""What others send: replies of servers, images, GGUF headers become records of our own or an error."""

import base64
import json
import math
from io import BytesIO

import numpy as np
from gguf import GGUFWriter
from hypothesis import strategies as st
from PIL import Image

from judgelm.engines.base import ImageError
from judgelm.engines.gguf.header import read_header
from judgelm.engines.images import read_image
from judgelm.engines.openai.rate_limits import stated_pause_s
from judgelm.engines.openai.responses import BadReplyError, Choice, read_choices, read_json, read_usage
from judgelm.engines.openai.text_tree import TextTree
from tests.support import fuzzing

LIKELIEST = {"token": "8", "logprob": -0.1}
TOKEN = LIKELIEST | {"top_logprobs": [LIKELIEST, {"token": "7", "logprob": -2}]}
USAGE = {"prompt_tokens": 5, "completion_tokens": 3}
PLAIN = {"tokens": ["8", " 6"], "token_logprobs": [-0.1, None], "top_logprobs": [{"8": -0.1}, None]}
CHOICES = (
    {"message": {"content": "8 6"}, "finish_reason": "stop", "logprobs": {"content": [TOKEN, TOKEN]}},
    {"text": "8 6", "finish_reason": "length", "logprobs": PLAIN},
)
BODIES = tuple({"choices": [choice], "usage": USAGE} for choice in CHOICES)
HEADERS = st.dictionaries(
    st.sampled_from(("retry-after-ms", "retry-after", "x-ratelimit-reset-requests")),
    fuzzing.texts("1", "6m0s", "20ms", ".", "-", "Wed, 21 Oct 99999 07:28:00 GMT", "s", "inf", "1e999", " ", "9" * 400),
)


def test_replies_of_servers(fuzz):
    def check(given):
        text, headers = given
        choices = []

        def read():
            data = read_json(text)
            usage = read_usage(data)
            assert usage is None or min(usage.prompt_tokens, usage.completion_tokens) >= 0
            choices.extend(read_choices(data))
            assert choices

        fuzzing.refusal(read, expected=BadReplyError)
        for one in choices:
            check_choice(one)
        pause = stated_pause_s(headers, text)
        assert pause is None or pause >= 0

    altered = fuzzing.altered(st.sampled_from(BODIES)).map(json.dumps)
    torn = fuzzing.mangled(st.sampled_from(BODIES).map(lambda body: json.dumps(body).encode()))
    fuzz(st.tuples(altered | torn.map(lambda data: data.decode(errors="replace")), HEADERS), check)


def check_choice(one):
    assert isinstance(one, Choice)
    tree = TextTree(("8 6", "8 7", "10 1"))
    tree.follow("", one.text or "", one.steps or ())
    assert all(not math.isnan(value) and value <= 1e-9 for value in tree.logprobs())


def picture(kind):
    out = BytesIO()
    Image.new("RGB", (3, 2), (1, 2, 3)).save(out, kind)
    return out.getvalue()


def test_images(fuzz, tmp_path):
    path = tmp_path / "image.png"

    def check(given):
        content, as_url = given
        path.write_bytes(content)
        source = f"data:image/png;base64,{base64.b64encode(content).decode()}" if as_url else str(path)
        found = []
        fuzzing.refusal(lambda: found.append(read_image(source)), path, "data:", expected=ImageError)
        assert all(image.mode == "RGB" for image in found)

    whole = st.sampled_from([picture(kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")])
    fuzz(st.tuples(fuzzing.mangled(whole), st.booleans()), check)


def test_damaged_headers(fuzz, tmp_path):
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_custom_alignment(32)
    writer.add_add_bos_token(True)
    writer.add_token_list(["a", "b"])
    writer.add_token_scores([0.0, 1.0])
    for name in ("a.weight", "b.weight"):
        writer.add_tensor(name, np.zeros((2, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    whole = path.read_bytes()

    def check(content):
        path.write_bytes(content)
        files = []
        if fuzzing.refusal(lambda: files.append(read_header(path)), path) is None:
            assert all(tensor.start + tensor.size <= len(content) for tensor in files[0].tensors)

    numbers = st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\1" + b"\0" * 7, b"\0" * 7 + b"\x80", b"\xff" * 4, b"\x08"])
    written = st.tuples(st.integers(4, len(whole)), numbers).map(
        lambda change: whole[: change[0]] + change[1] + whole[change[0] + len(change[1]) :]
    )
    fuzz(written | fuzzing.mangled(st.just(whole)), check)
