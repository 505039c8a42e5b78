"""Candidates' probabilities from servers, exact or with a note on the approximation."""

import math

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.records import Request, Sampling
from tests.support.driving import prompt_of, run
from tests.support.endpoint.backends import ScriptedBackend, TinyBackend
from tests.support.endpoint.client import ask, client
from tests.support.endpoint.server import endpoint

SCORE_LINES = tuple(f"{first} {second}\n" for first in range(1, 11) for second in range(1, 11))
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
    done = ask(engine, candidates=candidates, **sampling)
    return [math.exp(logprob) for logprob in done.candidate_logprobs], done.approximation, done


@pytest.mark.parametrize("tokenizer", [True, False])
def test_completions_equal_the_local_engine(tiny_judge, tokenizer):
    sampling = Sampling(max_tokens=8, stop=("\n",))
    requests = [Request(key=answer, prompt=prompt_of(answer), sampling=sampling, candidates=SCORE_LINES)
                for answer in ("a big dog", "a red fox", "lazy")]  # fmt: skip
    expected = run(load_engine("transformers", EngineOptions(model=str(tiny_judge))), requests)
    arguments = {"tokenizer": str(tiny_judge)} if tokenizer else {}
    with endpoint(TinyBackend(tiny_judge)) as server, client(server, **arguments) as engine:
        completions = run(engine, requests)
    for key, completion in completions.items():
        assert (completion.texts, completion.approximation) == (expected[key].texts, "")
        ours, local = (list(map(math.exp, done.candidate_logprobs)) for done in (completion, expected[key]))
        assert sum(local) > 0.8, "the judge writes score lines"
        listed = [expected for share, expected in zip(ours, local, strict=True) if share > 0]
        assert [share for share in ours if share > 0] == pytest.approx(listed, abs=1e-3)
        assert sum(b for a, b in zip(ours, local, strict=True) if a == 0) < 0.011


def test_other_beginnings_are_requested_on_completions():
    with endpoint(ScriptedBackend(SCRIPT)) as server, client(server) as engine:
        before = len(server.bodies)
        shares, approximation, done = scored(engine)
        assert shares == pytest.approx(EXACT)
        assert approximation == ""
        assert done.texts == ("8 6",)
        assert done.completion_tokens == 3, "only the reply's"
        # one request for the reply, and one each after 7 and 9
        assert len(server.bodies) == before + 3
        assert [body["prompt"][-4:] for body in server.bodies[-2:]] == ["[S]7", "[S]9"]


def test_negligible_beginnings_are_not_requested():
    script = SCRIPT | {"": {"8": 0.99, "7": 0.008, "9": 0.002}}
    with endpoint(ScriptedBackend(script)) as server, client(server) as engine:
        before = len(server.bodies)
        shares, approximation, _ = scored(engine)
        assert shares == pytest.approx([0.99 * 0.6, 0.99 * 0.4, 0, 0, 0, 0])
        assert approximation == ""
        assert len(server.bodies) == before + 1


def test_chat_borrows_continuations_with_a_note():
    with endpoint(ScriptedBackend(SCRIPT)) as server, client(server, api="chat") as engine:
        before = len(server.bodies)
        shares, approximation, _ = scored(engine)
        # after 7 and 9 as after 8: 0.6 and 0.4
        assert shares == pytest.approx([0.3, 0.2, 0.24, 0.16, 0.06, 0.04])
        assert approximation.startswith("0.50 of the probability is on other prefixes")
        assert len(server.bodies) == before + 1


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_chat_form_of_logprobs(api):
    backend = ScriptedBackend({"": {"A": 0.7, "B": 0.3}})
    with endpoint(backend, chat_form=True) as server, client(server, api=api) as engine:
        assert scored(engine, ("A", "B"))[0] == pytest.approx([0.7, 0.3])


def test_note_on_unlisted_tokens():
    script = {"": {str(i): 0.1 for i in range(10)}}
    with endpoint(ScriptedBackend(script), most_logprobs=5) as server, client(server) as engine:
        shares, approximation, _ = scored(engine, ("0", "9"))
        assert shares == pytest.approx([0.1, 0.0])
        # 9 has at most the probability of the last listed token
        assert approximation.startswith("up to 0.10 ")
        assert engine.stats()["not_taken_by_server"] == ["many_logprobs"]
        assert server.bodies[-1]["logprobs"] == 5
        scored(engine, ("0", "9"))
        assert [body["logprobs"] for body in server.bodies[-2:]] == [5, 5], "20 is only requested once"


@pytest.mark.parametrize("switches", [{"logprobs": False}, {"refuses": ("logprobs",)}, {"most_logprobs": 0}])
@pytest.mark.parametrize("ignores_n", [False, True])
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_candidates_are_counted_without_logprobs(api, switches, ignores_n):
    with (
        endpoint(ScriptedBackend(SCRIPT), ignores_n=ignores_n, **switches) as server,
        client(server, api=api, candidate_samples=64) as engine,
    ):
        shares, approximation, done = scored(engine, seed=3)
        assert approximation == "frequencies of 64 sampled replies"
        assert done.texts == ("8 6",)
        assert sum(shares) == pytest.approx(1)
        assert all(share * 64 == pytest.approx(round(share * 64)) for share in shares)
        assert shares == pytest.approx(EXACT, abs=0.2)  # 3 standard deviations of a share of 0.36 among 64 are 0.18


class Thinking(ScriptedBackend):
    """Its log-probabilities begin with those of its thinking."""

    def generate(self, prompt, asked, number):
        reply = super().generate(prompt, asked, number)
        reply.steps.insert(0, ("hm", 0.0, {"hm": 0.0}))
        return reply


def test_logprobs_of_thinking_are_not_used():
    with endpoint(Thinking(SCRIPT)) as server, client(server, api="chat") as engine:
        shares, approximation, _ = scored(engine)
        assert approximation == "frequencies of 16 sampled replies"
        assert sum(shares) == pytest.approx(1)
