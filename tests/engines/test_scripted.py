"""Fixed replies of the scripted engine."""

import math

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.records import Request, Sampling
from tests.support.driving import prompt_of


@pytest.mark.parametrize(
    ("reply", "single", "pair"),
    [
        ("8 6", "8", "8 6"),
        ("7.5 3 1\n", "7.5", "7.5 3"),
        ("10 1", "10", "10 1"),
        ("8 6 since", "8 6 since", "8 6 since"),
    ],
)
def test_fixed_reply_has_as_many_scores_as_the_candidates(reply, single, pair):
    grades = ("1", "7.5", "8", "10")
    lines = tuple(f"{first} {second}" for first in grades for second in ("1", "3", "6"))
    engine = ScriptedEngine({"*": reply})
    texts = [
        engine.answer(Request(key="1", prompt=prompt_of("x"), sampling=Sampling(max_tokens=9), candidates=candidates))
        for candidates in (grades, lines)
    ]
    assert [completion.texts[0].rstrip("\n") for completion in texts] == [single, pair]


def test_fixed_score_continues_the_prompts_line():
    request = Request(key="1", prompt=prompt_of("x"), sampling=Sampling(max_tokens=9), candidates=(" 6", " 8"))
    completion = ScriptedEngine({"*": "8 6"}).answer(request)
    assert (completion.texts, completion.candidate_logprobs) == ((" 8",), (-math.inf, 0.0))
