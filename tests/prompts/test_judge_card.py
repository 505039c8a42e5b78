"""`judge.json`: what no judge has is refused with its place, wherever it is read or written."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from judgelm.errors import CardError
from judgelm.prompts import judge_card
from judgelm.prompts.judge_card import Card, find_card, write_card

CARD = {"template": "judgelm-v1", "template_sha": "ab" * 32}


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ('"scale": [10, 1]', "scale: 10 to 1"),
        ('"scale": [5, 5]', "scale: 5 to 5"),
        ('"scale": [NaN, 10]', "scale: nan to 10"),
        ('"scale": [1, Infinity]', "scale: 1 to inf"),
        ('"step": 0', "step: 0"),
        ('"step": -1', "step: -1"),
        ('"step": NaN', "step: nan"),
        ('"step": 50', "step: 50"),
        ('"window": 0', "window: 0; expected a token count"),
        ('"window": -2048', "window: -2048"),
        ('"training": {"max_completion_length": "long"}', "max_completion_length: 'long'; expected a token count"),
        ('"training": {"max_completion_length": NaN}', "max_completion_length: nan"),
        ('"reference": "sometimes"', "reference: 'sometimes'; expected without or with or both"),
        ('"prompt_format": "html"', "prompt_format: 'html'; expected text or chat"),
    ],
)
def test_an_impossible_card_is_refused_with_its_field(tmp_path, fields, finding):
    (tmp_path / "judge.json").write_text(json.dumps(CARD)[:-1] + f", {fields}}}")
    with pytest.raises(CardError, match=rf"judge\.json: {finding}"):
        find_card(str(tmp_path))


def test_a_card_that_no_judge_has_cannot_be_written():
    with pytest.raises(CardError, match="scale: 5 to 1"):
        Card(**CARD, scale=(5, 1))


def test_scales_of_any_kind_that_a_judge_can_have_are_read(tmp_path):
    for scale, step in (((0, 1), 0.1), ((-1, 1), 2), ((1, 5), 1)):
        write_card(tmp_path, Card(**CARD, scale=scale, step=step))
        assert (find_card(str(tmp_path)).scale, find_card(str(tmp_path)).step) == (scale, step)


def test_a_hub_without_an_answer_is_told_from_one_that_refuses():
    class Refusing(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_error(403)

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        assert judge_card._answers(address)
        server.shutdown()
    judge_card._answers.cache_clear()
    assert not judge_card._answers(address)
