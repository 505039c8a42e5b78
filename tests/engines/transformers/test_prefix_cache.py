"""What two prompts have in common at their beginning is computed once, and changes no reply."""

from dataclasses import replace

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.prompts.catalog import get_template
from judgelm.records import Prompt, Request, Sample, Sampling
from tests.support.driving import run

QUESTION = "what does the quick brown fox do when the lazy dog sleeps in the sun all day " * 2


def requests_of(texts, **sampling):
    template = get_template("judgelm-compact")
    found = []
    for key, answers in texts.items():
        prompt = template.render(Sample(id=key, question=QUESTION, answers=answers), (0, 1), None)
        found.append(Request(key=key, prompt=prompt, sampling=Sampling(max_tokens=6, **sampling), candidates=("8 6",)))
    return found


def shared(engine, requests):
    """Tokens that each prompt after the first has in common with the first."""
    ids = [engine._adapters.truncator(None).truncate(one.prompt, 6).ids for one in requests]
    return [next(place for place, token in enumerate(other) if token != ids[0][place]) for other in ids[1:]]


@pytest.fixture
def engine(tiny_model):
    with_one = load_engine("transformers", EngineOptions(model=str(tiny_model), dtype="float32"))
    yield with_one
    with_one.close()


def test_both_orders_read_the_question_once(engine):
    requests = requests_of({"given": ("a red fox", "some big dog"), "swapped": ("some big dog", "a red fox")})
    together = run(engine, requests)
    assert [engine.stats()["reused_prompt_tokens"]] == shared(engine, requests)
    assert shared(engine, requests)[0] > 40
    for request in requests:
        [alone] = run(engine_like(engine), [request]).values()
        assert alone.texts == together[request.key].texts
        assert alone.prompt_tokens == together[request.key].prompt_tokens
        assert alone.candidate_logprobs == pytest.approx(together[request.key].candidate_logprobs, abs=1e-4)


def engine_like(engine):
    return load_engine("transformers", EngineOptions(model=engine.describe()["model"]["path"], dtype="float32"))


def test_prompts_alike_in_one_batch_wait_for_the_first_and_nothing_else_does(engine):
    """Three of one question stand between others: all are answered, as if each were alone."""
    mixed = requests_of({str(number): (f"a red fox {number}", "some big dog") for number in range(3)})
    others = [replace(one, key=f"other {one.key}", prompt=Prompt(spans=one.prompt.spans[::-1])) for one in mixed]
    requests = [mixed[0], mixed[1], others[0], mixed[2], others[1], others[2]]
    together = run(engine, requests)
    for request in requests:
        [alone] = run(engine_like(engine), [request]).values()
        assert alone.texts == together[request.key].texts


def test_sampled_replies_are_the_same_whatever_was_known(engine):
    requests = requests_of({"a": ("a red fox", "some big dog")}, temperature=1.0, n=3, seed=5)
    first, again = run(engine, requests)["a"], run(engine, requests)["a"]
    assert engine.stats()["reused_prompt_tokens"] == first.prompt_tokens - 1
    assert first.texts == again.texts
