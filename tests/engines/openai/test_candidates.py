"""Candidates' probabilities over the wire: exact where the server lets them be, and said where it does not."""

import math
import random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.records import Request, Sampling
from tests.support.driving import prompt_of, run
from tests.support.endpoint.backends import ScriptedBackend, TinyBackend
from tests.support.endpoint.client import load
from tests.support.endpoint.server import endpoint

SCORE_LINES = tuple(f"{first} {second}\n" for first in range(1, 11) for second in range(1, 11))
ANSWERS = ("a big dog", "a red fox", "lazy")
CANDIDATES = ("8 6", "8 7", "7 6", "7 7", "9 6", "9 7")
SCRIPT = {
    "": {"8": 0.5, "7": 0.4, "9": 0.1},
    "8": {" 6": 0.6, " 7": 0.4},
    "7": {" 6": 0.1, " 7": 0.9},
    "9": {" 6": 0.5, " 7": 0.5},
    **{line: {"\n": 1.0} for line in CANDIDATES},
}
EXACT = [0.3, 0.2, 0.04, 0.36, 0.05, 0.05]


def scored(engine, candidates=CANDIDATES, **sampling):
    settings = {"max_tokens": 6, "stop": ("\n",)} | sampling
    request = Request(key="1", prompt=prompt_of("x"), sampling=Sampling(**settings), candidates=candidates)
    [done] = run(engine, [request]).values()
    return [math.exp(one) for one in done.candidate_logprobs], done.approximation, done


@pytest.fixture(scope="module")
def judge_folder(tiny_model, tmp_path_factory):
    """The tiny model after a moment's training: it writes score lines, and is in doubt about them."""
    folder = tmp_path_factory.mktemp("scoring") / "model"
    tokenizer, model = AutoTokenizer.from_pretrained(tiny_model), AutoModelForCausalLM.from_pretrained(tiny_model)
    rng = random.Random(0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(150):
        prompt = "".join(span.text for span in prompt_of(ANSWERS[step % 3]).spans)
        start = len(tokenizer(prompt)["input_ids"])
        rows = []
        for _ in range(16):
            first = rng.choices((8, 7, 1, 10), (5, 3, 1, 1))[0]
            rows.append(f"{first} {rng.choices((6, first, 10), (5, 3, 2))[0]}\n")
        batch = tokenizer([prompt + row for row in rows], return_tensors="pt", padding=True)
        labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
        labels[:, :start] = -100
        model(**batch, labels=labels).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("tokenizer", [True, False])
def test_over_completions_they_are_the_local_engines(judge_folder, tokenizer):
    requests = [
        Request(
            key=answer, prompt=prompt_of(answer), sampling=Sampling(max_tokens=8, stop=("\n",)), candidates=SCORE_LINES
        )
        for answer in ANSWERS
    ]
    local = load_engine("transformers", EngineOptions(model=str(judge_folder)))
    expected = run(local, requests)
    with endpoint(TinyBackend(judge_folder)) as server:
        engine = load(server, **({"tokenizer": str(judge_folder)} if tokenizer else {}))
        found = run(engine, requests)
        engine.close()
    for key, one in found.items():
        assert one.texts == expected[key].texts
        assert one.approximation == ""
        pairs = [
            (math.exp(a), math.exp(b))
            for a, b in zip(one.candidate_logprobs, expected[key].candidate_logprobs, strict=True)
        ]
        assert sum(b for _, b in pairs) > 0.9, "the judge writes score lines"
        assert sum(a > 0.02 for a, _ in pairs) > 3, "and is in doubt about them"
        assert all(a == pytest.approx(b, abs=1e-3) for a, b in pairs if a > 0)
        assert sum(b for a, b in pairs if a == 0) < 0.011


def test_over_completions_other_beginnings_are_asked_for():
    with endpoint(ScriptedBackend(SCRIPT)) as server:
        engine = load(server)
        before = len(server.bodies)
        found, approximation, done = scored(engine)
        assert found == pytest.approx(EXACT)
        assert approximation == ""
        assert done.texts == ("8 6",)
        assert done.completion_tokens == 3, "those of the reply alone"
        # one request for the reply, one each for what follows 7 and 9
        assert len(server.bodies) == before + 3
        assert [body["prompt"][-4:] for body in server.bodies[-2:]] == ["[S]7", "[S]9"]
        engine.close()


def test_what_is_negligible_is_not_asked_for():
    script = SCRIPT | {"": {"8": 0.99, "7": 0.008, "9": 0.002}}
    with endpoint(ScriptedBackend(script)) as server:
        engine = load(server)
        before = len(server.bodies)
        found, approximation, _ = scored(engine)
        assert found == pytest.approx([0.99 * 0.6, 0.99 * 0.4, 0, 0, 0, 0])
        assert approximation == ""
        assert len(server.bodies) == before + 1
        engine.close()


def test_over_chat_they_are_taken_from_the_replys_path_and_it_says_so():
    with endpoint(ScriptedBackend(SCRIPT)) as server:
        engine = load(server, api="chat")
        before = len(server.bodies)
        found, approximation, _ = scored(engine)
        # behind 7 and 9 as behind 8: 0.6 and 0.4
        assert found == pytest.approx([0.3, 0.2, 0.24, 0.16, 0.06, 0.04])
        assert approximation.startswith("0.50 of the probability lies on beginnings other than the reply's")
        assert len(server.bodies) == before + 1
        engine.close()


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_either_form_of_logprobs_is_read(api):
    with endpoint(ScriptedBackend({"": {"A": 0.7, "B": 0.3}}), chat_form=True) as server:
        engine = load(server, api=api)
        assert scored(engine, ("A", "B"))[0] == pytest.approx([0.7, 0.3])
        engine.close()


def test_tokens_below_the_listed_ones_are_mentioned():
    script = {"": {str(i): 0.1 for i in range(10)}}
    with endpoint(ScriptedBackend(script), most_logprobs=5) as server:
        engine = load(server)
        found, approximation, _ = scored(engine, ("0", "9"))
        assert found == pytest.approx([0.1, 0.0])
        # 9 has at most as much as the least likely of the five that are listed
        assert (
            approximation
            == "up to 0.10 of the probability may be missing: the server lists only the 5 most probable tokens"
        )
        assert engine.stats()["not_taken_by_server"] == ["many_logprobs"]
        assert server.bodies[-1]["logprobs"] == 5
        scored(engine, ("0", "9"))
        assert [body["logprobs"] for body in server.bodies[-2:]] == [5, 5], "20 was asked for once only"
        engine.close()


@pytest.mark.parametrize("switches", [{"logprobs": False}, {"refuses": ("logprobs",)}, {"most_logprobs": 0}])
@pytest.mark.parametrize("ignores_n", [False, True])
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_without_logprobs_replies_are_counted(api, switches, ignores_n):
    with endpoint(ScriptedBackend(SCRIPT), ignores_n=ignores_n, **switches) as server:
        engine = load(server, api=api, candidate_samples=64)
        found, approximation, done = scored(engine, seed=3)
        assert approximation == "frequencies of 64 sampled replies"
        assert done.texts == ("8 6",)
        assert sum(found) == pytest.approx(1)
        assert all(one * 64 == pytest.approx(round(one * 64)) for one in found)
        assert found == pytest.approx(EXACT, abs=0.2)  # 3 standard deviations of a share of 0.36 among 64 are 0.18
        engine.close()


class Thinking(ScriptedBackend):
    """Its log-probabilities begin with thoughts that are no part of the reply."""

    def generate(self, prompt, asked, number):
        reply = super().generate(prompt, asked, number)
        reply.steps.insert(0, ("hm", 0.0, {"hm": 0.0}))
        return reply


def test_logprobs_of_thoughts_are_not_taken_for_the_replys():
    with endpoint(Thinking(SCRIPT)) as server:
        engine = load(server, api="chat")
        found, approximation, _ = scored(engine)
        assert approximation == "frequencies of 16 sampled replies"
        assert sum(found) == pytest.approx(1)
        engine.close()
