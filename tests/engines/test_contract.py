"""Requirements of all engines, their choice, the scripted engine and the limits of sampling parameters."""

import math
from dataclasses import replace
from functools import partial

import pytest

from judgelm.cluster import load_workers
from judgelm.cluster.plan import RayCluster
from judgelm.engines import catalog
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import choose_engine, load_engine, resolve_options
from judgelm.engines.grammars import follows
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, EngineError, ModelError
from judgelm.modes import make_mode
from judgelm.package import install_hint
from judgelm.prompts.catalog import get_template
from judgelm.prompts.prompt_file import read_prompt
from judgelm.records import Grammar, Request, Sample, Sampling, Span
from tests.support.driving import prompt_of, run
from tests.support.endpoint.backends import TinyBackend
from tests.support.endpoint.server import endpoint
from tests.support.tiny_judges import TEMPLATE, word_sample

ENGINES = ["scripted", "transformers", "vllm", "openai", pytest.param("ray", marks=pytest.mark.distributed)]


@pytest.fixture(scope="session")
def openai_engine(tiny_judge):
    """A client of a local server that runs `tiny_judge`."""
    with endpoint(TinyBackend(tiny_judge), window=512) as server:
        arguments = {"base_url": server.base_url, "tokenizer": str(tiny_judge)}
        engine = load_engine("openai", EngineOptions(model="tiny", engine_args=arguments))
        yield engine
        engine.close()


@pytest.fixture(scope="module")
def ray_engine(tiny_judge):
    """Two workers on Ray, each with `tiny_judge` on one core."""
    pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
    engine = load_workers("transformers", EngineOptions(model=str(tiny_judge)), RayCluster(workers=2, cores=1))
    yield engine
    engine.close()


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param in ("vllm", "openai", "ray"):
        yield request.getfixturevalue(f"{request.param}_engine")
        return
    judge = "3 1 since 4 1 5 9 2 6 5 3 5 8 9 7 9"
    model = judge if request.param == "scripted" else str(request.getfixturevalue("tiny_judge"))
    engine = load_engine(request.param, EngineOptions(model=model))
    yield engine
    engine.close()


def request_of(prompt, key="1", *, candidates=(), **sampling):
    """A request for a prompt, or for one with this answer."""
    prompt = prompt_of(prompt) if isinstance(prompt, str) else prompt
    return Request(key=key, prompt=prompt, sampling=Sampling(**{"max_tokens": 6} | sampling), candidates=candidates)


def requests_of(count=12, **sampling):
    return [request_of("a big fox " * (i % 5 + 1), str(i), **sampling) for i in range(count)]


def answer(engine, prompt, **options):
    [completion] = run(engine, [request_of(prompt, **options)]).values()
    return completion


def skip_without_window(engine):
    if engine.describe()["engine"] == "scripted":
        pytest.skip("the scripted engine has no window and does not read the prefill")


def test_order_of_submission_does_not_matter(engine):
    requests = requests_of()
    forward = run(engine, requests)
    backward = run(engine, requests[::-1])
    single = {key: value for request in requests for key, value in run(engine, [request]).items()}
    assert forward == backward == single


@pytest.mark.parametrize("included", [False, True])
def test_stop_string_is_excluded_or_included(engine, included):
    [free] = answer(engine, "a big fox ", max_tokens=12).texts
    middle = free[len(free) // 2 :][:2]
    stopped = answer(engine, "a big fox ", max_tokens=12, stop=(middle,), include_stop=included)
    assert (stopped.finish_reasons, stopped.texts) == (("stop",), (free[: free.index(middle) + 2 * included],))


def test_empty_first_line_does_not_end_a_reply(engine):
    # after its score line the judge begins with a newline
    if engine.describe()["engine"] == "scripted":
        engine = ScriptedEngine({"*": "\n \nboth are alike\nso"})
    prompt = replace(prompt_of("a big fox"), prefill="3 3")
    ask = partial(answer, engine, prompt, max_tokens=40)
    free = ask().texts[0]
    assert free.startswith("\n")
    visible = len(free) - len(free.lstrip())
    line = free[: free.find("\n", visible)] if "\n" in free[visible:] else free
    assert ask(stop=("\n",)).texts == (line,)
    word = free[: free.index(" ", visible)]
    assert ask(stop=("\n", " ")).texts == (word,)
    assert ask(stop=(" ",)).finish_reasons == ("stop",)
    assert ask(stop=(" ",), n=2).texts == (word,) * 2
    sampled = ask(stop=("\n",), n=2, temperature=0.2, seed=3)
    assert all(text.strip() and "\n" not in text.lstrip() for text in sampled.texts)
    assert ask(stop=(free[visible : visible + 2], "\n")).texts == (free[:visible],)


def test_reply_at_the_token_limit_has_finish_reason_length(engine):
    completion = answer(engine, "a big fox ", max_tokens=3)
    assert (completion.finish_reasons, completion.completion_tokens) == (("length",), 3)


def test_greedy_replies_are_equal(engine):
    three, single = answer(engine, "a big fox ", n=3), answer(engine, "a big fox ")
    assert three.texts == single.texts * 3
    assert three.completion_tokens == 3 * single.completion_tokens


def test_aborted_request_has_no_completion(engine):
    requests = requests_of(4)
    engine.submit(requests)
    engine.abort(["1", "2"])
    keys = set()
    for _ in range(100):
        keys |= {completion.key for completion in engine.collect(0.05)}
    assert keys == {"0", "3"}


GRAMMARS = {
    "choices": Grammar("regex", "better|worse|équal"),
    "regex": Grammar("regex", r"(yes|no) \d{2}"),
    "schema": Grammar(
        "json_schema",
        """{"type": "object", "properties": {"a\\"b": {"enum": [1, 2]}, "é": {"enum": ["日"]}},
        "required": ["a\\"b", "é"], "additionalProperties": false}""",
    ),
}


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
def test_constrained_replies_follow_their_grammar(engine, grammar):
    if not engine.supports_grammar or engine.describe()["engine"] == "scripted":
        pytest.skip("the test server and the scripted engine do not choose their replies")
    expected = run(engine, requests_of(3))
    sampled = request_of("a big fox", "sampled", max_tokens=60, temperature=1.0, n=3, seed=1, grammar=grammar)
    greedy = request_of("a dog", "greedy", max_tokens=60, grammar=grammar, candidates=("1", "2"))
    done = run(engine, [*requests_of(3), sampled, greedy])
    assert [text for key in ("sampled", "greedy") for text in done[key].texts if not follows(grammar, text)] == []
    assert {*done["sampled"].finish_reasons, *done["greedy"].finish_reasons} == {"stop"}
    assert {key: done[key] for key in expected} == expected
    single = run(engine, [greedy])["greedy"]
    # on some CPUs, one sequence and a batch differ by rounding (9.5e-7 measured, with and without a grammar)
    assert single.candidate_logprobs == pytest.approx(done["greedy"].candidate_logprobs, abs=1e-5)
    assert replace(single, candidate_logprobs=done["greedy"].candidate_logprobs) == done["greedy"]


def test_constrained_reply_ends_at_a_stop_string_or_the_token_limit(engine):
    if not engine.supports_grammar or engine.describe()["engine"] == "scripted":
        pytest.skip("the test server and the scripted engine do not choose their replies")
    grammar = Grammar("regex", "aaaa, (b|c){50}")
    stopped = answer(engine, "a big fox", max_tokens=60, grammar=grammar, stop=(",",))
    assert (stopped.texts, stopped.finish_reasons) == (("aaaa",), ("stop",))
    cut = answer(engine, "a big fox", max_tokens=8, grammar=grammar)
    assert cut.finish_reasons == ("length",)
    assert follows(grammar, cut.texts[0], whole=False)


UNUSABLE = [
    *(Grammar("regex", text) for text in ("(a", "(?=a)b", r"(a)\1", r"[^\s\S]", "a{100000}")),
    *(Grammar("json_schema", text) for text in ("{", "[]", '{"enum": []}', '{"not": {}}', '{"maxItems": 1000000000}')),
]


def test_unusable_grammars_fail_alone(engine):
    expected = run(engine, requests_of(2))
    bad = [request_of("a dog", f"bad {index}", grammar=grammar) for index, grammar in enumerate(UNUSABLE)]
    done = run(engine, [*bad, *requests_of(2)])
    assert {key: done[key] for key in expected} == expected
    assert {done[request.key].finish_reasons for request in bad} == {("error",)}
    assert all("regular expression" in done[each.key].error for each in bad if each.sampling.grammar.kind == "regex")
    assert all("JSON schema" in done[each.key].error for each in bad if each.sampling.grammar.kind == "json_schema")


def test_logprobs_belong_to_the_reply(engine):
    plain = answer(engine, "a big fox ", max_tokens=12)
    completion = answer(engine, "a big fox ", max_tokens=12, logprobs=3, n=2)
    assert (plain.logprobs, completion.texts) == (None, plain.texts * 2)
    for text, tokens in zip(completion.texts, completion.logprobs, strict=True):
        assert "".join(token.token for token in tokens) == text
        for token in tokens:
            assert token.candidates == tuple(sorted(token.candidates, key=lambda each: -each[1]))
            assert token.candidates[0][1] == token.logprob <= 0, "greedy"
            assert len(token.candidates) == (1 if engine.describe()["engine"] == "scripted" else 3)


def test_logprobs_end_with_the_reply(engine):
    [free] = answer(engine, "a big fox ", max_tokens=12).texts
    middle = free[len(free) // 2 :][:2]
    sampled = answer(engine, "a big fox ", max_tokens=12, stop=(middle,), logprobs=0, temperature=0.5, seed=3)
    [tokens] = sampled.logprobs
    assert "".join(token.token for token in tokens) == sampled.texts[0]
    assert {token.candidates for token in tokens} <= {()}


def test_logprobs_precede_the_grammar(engine):
    if engine.describe()["engine"] != "transformers":
        pytest.skip("vLLM applies the grammar first")
    free = answer(engine, "a big fox ", max_tokens=1, logprobs=2)
    held = answer(engine, "a big fox ", max_tokens=1, logprobs=2, grammar=Grammar("regex", "z{1,9}"))
    assert dict(held.logprobs[0][0].candidates) == pytest.approx(dict(free.logprobs[0][0].candidates))
    assert held.logprobs[0][0].logprob < free.logprobs[0][0].logprob


def test_progress_is_the_beginning_of_the_reply(engine):
    # an engine may return nothing
    requests = requests_of(4, max_tokens=12)
    engine.submit(requests)
    done, seen = {}, []
    while len(done) < 4:
        done |= {completion.key: completion.texts[0] for completion in engine.collect(0.001)}
        seen += engine.progress(["0", "2", "unknown"]).items()
    assert {key for key, _ in seen} <= {"0", "2"}
    assert all(done[key].startswith(text.rstrip("\ufffd")) for key, text in seen)
    assert engine.progress(["0", "2"]) == {}


def test_images_are_rejected_if_not_supported(engine, tmp_path):
    [request] = requests_of(1)
    showing = replace(request.prompt, spans=(*request.prompt.spans, Span(str(tmp_path / "cat.png"), "image")))
    assert engine.supports_images == (engine.describe()["engine"] in ("scripted", "openai"))
    if not engine.supports_images:
        with pytest.raises(EngineError, match="which this model does not support"):
            run(engine, [replace(request, prompt=showing)])


def test_unsupported_features_are_rejected(engine, tmp_path):
    [request] = requests_of(1)
    with pytest.raises((EngineError, ModelError), match="adapter"):
        run(engine, [replace(request, adapter=str(tmp_path))])


@pytest.mark.parametrize(
    "odd",
    [
        {"temperature": 1e-300, "seed": 1},
        {"temperature": 100.0, "seed": 2**62},
        {"temperature": 1.0, "n": 40},
        {"max_tokens": 2**31 - 1},
        {"stop": tuple("qxzjkvw")},
    ],
    ids=["cold", "hot", "many", "long", "stops"],
)
def test_extreme_sampling_does_not_affect_other_requests(engine, odd):
    expected = run(engine, requests_of(3))
    [hostile] = requests_of(1, **odd)
    done = run(engine, [*requests_of(3), replace(hostile, key="odd")])
    assert done.keys() == {"0", "1", "2", "odd"}
    assert {key: done[key].texts for key in expected} == {key: value.texts for key, value in expected.items()}
    assert run(engine, requests_of(3)) == expected


def test_sampled_replies_repeat_with_the_same_seed(engine):
    requests = requests_of(temperature=1.0, seed=5, n=2)
    assert run(engine, requests) == run(engine, requests[::-1])


def test_collect_without_requests_is_empty(engine):
    assert engine.collect(0.01) == []


def test_candidate_probabilities_sum_to_at_most_one(engine):
    lines = tuple(f"{first} {second}" for first in range(1, 11) for second in range(1, 11))
    done = run(engine, [replace(request, candidates=lines) for request in requests_of()])
    plain = run(engine, requests_of())
    for key, completion in done.items():
        assert completion.texts == plain[key].texts, "candidates must not change the reply"
        assert len(completion.candidate_logprobs) == 100
        assert 0.5 < math.fsum(map(math.exp, completion.candidate_logprobs)) <= 1 + 1e-4


def test_only_the_prompt_that_is_too_long_fails(engine):
    long = request_of(prompt_of("a", "what " * 5000), "long")
    done = run(engine, [*requests_of(2), long])
    scripted = engine.describe()["engine"] == "scripted"  # it has no window
    assert done["long"].finish_reasons == (("length",) if scripted else ("too_long",))
    assert scripted or done["long"].error
    assert done["0"].finish_reasons != ("too_long",)


def test_long_answer_is_truncated(engine):
    skip_without_window(engine)
    completion = answer(engine, "a big fox " * 500, max_tokens=4)
    assert [cut.answer for cut in completion.truncations] == [0]
    assert completion.prompt_tokens <= 512 - 4


def test_answers_equal_after_truncation_fail(engine):
    skip_without_window(engine)
    sample = Sample(id="1", question="what is it", answers=("a big fox " * 500 + "jumps", "a big fox " * 500 + "can"))
    prompt = get_template(TEMPLATE).render(sample, (0, 1), None)
    done = run(engine, [request_of(prompt, "equal", max_tokens=4), *requests_of(1)])
    assert (done["equal"].finish_reasons, done["0"].finish_reasons) == (("equal_after_cut",), ("length",))
    assert done["equal"].error == "answers 1 and 2 are identical after truncation"


def test_unknown_engine_and_zero_thinking_tokens_are_rejected():
    with pytest.raises(ConfigError, match="available: auto, transformers, vllm, openai, scripted"):
        load_engine("vlm", EngineOptions(model="x"))
    with pytest.raises(ConfigError, match="thinking_tokens is 0; it must be at least 1"):
        load_engine("scripted", EngineOptions(model="8 6", thinking_tokens=0))


def test_invalid_script_is_rejected_and_a_prompt_without_a_scripted_reply_fails(tmp_path):
    path = tmp_path / "script.json"
    path.write_text('{"q|a|b": 8}')
    with pytest.raises(ModelError, match="the script must be a JSON object"):
        load_engine("scripted", EngineOptions(model=str(path)))
    path.write_text('{"what is it|a dog|a red fox": "8 6\\n"}')
    engine = load_engine("scripted", EngineOptions(model=str(path)))
    done = run(engine, [request_of(answer, answer) for answer in ("a dog", "x")])
    assert (done["a dog"].texts, done["x"].finish_reasons) == (("8 6\n",), ("error",))
    assert "what is it|x|a red fox" in done["x"].error


def test_continued_reply_equals_one_long_reply(engine):
    # with a given first line, the rest equals that of one long reply
    skip_without_window(engine)
    prompts = [get_template(TEMPLATE).render(word_sample(i), (0, 1), None) for i in range(20)]

    def ask(prompts, **sampling):
        return run(engine, [request_of(prompt, str(i), **sampling) for i, prompt in enumerate(prompts)])

    whole = ask(prompts, max_tokens=30)
    lines = ask(prompts, max_tokens=24, stop=("\n",))
    begun = [replace(prompt, prefill=f"{lines[str(i)].texts[0]}\n") for i, prompt in enumerate(prompts)]
    continued = ask(begun, max_tokens=100, reserve=24)
    for key, completion in continued.items():
        reply = f"{lines[key].texts[0]}\n{completion.texts[0]}"
        assert reply.startswith(whole[key].texts[0])
        assert completion.prompt_tokens > lines[key].prompt_tokens


def test_continued_reply_after_a_full_window(engine):
    # the answers are truncated as for the score line; the reason gets the remaining room
    skip_without_window(engine)
    prompt = prompt_of("a big fox " * 500)
    first = answer(engine, prompt, max_tokens=24)
    second = answer(engine, replace(prompt, prefill="8 6\n"), max_tokens=300, reserve=24)
    assert second.truncations == first.truncations
    assert second.prompt_tokens + second.completion_tokens <= 512
    assert second.finish_reasons in (("length",), ("stop",))


@pytest.mark.parametrize(
    ("reply", "single", "pair"),
    [("8 6", "8", "8 6"), ("7.5 3 1\n", "7.5", "7.5 3"), ("10 1", "10", "10 1"), ("8 6 since", *["8 6 since"] * 2)],
)
def test_fixed_reply_has_as_many_scores_as_the_candidates(reply, single, pair):
    grades = ("1", "7.5", "8", "10")
    lines = tuple(f"{first} {second}" for first in grades for second in ("1", "3", "6"))
    engine = ScriptedEngine({"*": reply})
    completions = [engine.answer(request_of("x", max_tokens=9, candidates=each)) for each in (grades, lines)]
    assert [completion.texts[0].rstrip("\n") for completion in completions] == [single, pair]


def test_fixed_score_continues_the_prompts_line():
    completion = ScriptedEngine({"*": "8 6"}).answer(request_of("x", candidates=(" 6", " 8")))
    assert (completion.texts, completion.candidate_logprobs) == ((" 8",), (-math.inf, 0.0))


def test_scripted_reply_must_match_the_grammar():
    engine = ScriptedEngine({"*": '{"score": 8}'})
    number = Grammar("json_schema", '{"properties": {"score": {"type": "integer"}}, "required": ["score"]}')
    assert answer(engine, "x", grammar=number, logprobs=1).finish_reasons == ("stop",)
    assert answer(engine, "x", grammar=number, max_tokens=1).finish_reasons == ("length",)
    failed = answer(engine, "x", grammar=Grammar("regex", "yes|no"))
    assert (failed.texts, failed.finish_reasons) == ((), ("error",))
    assert "does not match the grammar" in failed.error


@pytest.mark.parametrize("devices", [0, 1, 8])
def test_auto_uses_vllm_on_gpus_if_it_is_installed(tiny_model, monkeypatch, devices):
    monkeypatch.setattr("torch.cuda.is_available", lambda: devices > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: devices)
    monkeypatch.setattr(catalog.importlib.util, "find_spec", lambda name: object())
    assert choose_engine()[0] == ("vllm" if devices else "transformers")
    monkeypatch.setattr(catalog.importlib.util, "find_spec", lambda name: None if name == "vllm" else object())
    (engine, why), advised = choose_engine(), devices > 0
    assert engine == "transformers"
    assert (install_hint("vllm") in why) is advised
    assert "vllm is not installed" in why
    # Ray workers choose for themselves, and the driver prints their note
    options = EngineOptions(model=str(tiny_model), device="cpu")
    assert (why in resolve_options("auto", options)[1]) is advised
    assert install_hint("vllm") not in resolve_options("transformers", options)[1]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("logprobs", [-1, 21]),
        ("temperature", [math.nan, math.inf, -math.inf, -0.1, 101, 1e308, 10**400]),
        ("max_tokens", [0, -1, 2**31, 10**400]),
        ("n", [0, -1, 10_001]),
        ("seed", [-1, 2**62 + 1, 2**64, 10**400]),
        ("reserve", [-1, 2**31]),
        ("stop", [("",), ("a", "")]),
    ],
)
def test_values_out_of_range_are_rejected(field, values):
    for value in values:
        with pytest.raises(ConfigError, match=field):
            Sampling(**({"max_tokens": 8} | {field: value}))


@pytest.mark.parametrize(
    ("given", "used"), [(0, 0), (1e-300, 0.01), (5e-324, 0.01), (0.01, 0.01), (0.7, 0.7), (100, 100)]
)
def test_very_low_temperature_is_raised(given, used):
    assert Sampling(max_tokens=8, temperature=given).temperature == used


# Prompt files

PROMPTS = {
    "label": "Context: {context}\nAnswer: {answer}\nGood?\nreply: Yes/No\n",
    "grade": "Answer: {answer}\nGrade it.\nreply: 1-10\n",
    "forced": (
        "prompt: 'Answer: {answer}'\nreply: {label: {fulfilled: big fox, failed: big}, text: 'It is a {verdict}'}\n"
    ),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_word_probabilities_equal_those_of_the_joint_tokens(tiny_chat, tmp_path, name):
    engine = load_engine("transformers", EngineOptions(model=str(tiny_chat), dtype="float32"))
    [request] = verdict_requests(tmp_path, PROMPTS[name])
    [completion] = run(engine, [request]).values()
    engine.close()
    begun = BegunWords(tiny_chat, request.prompt)
    for word, logprob in zip(request.candidates, completion.candidate_logprobs, strict=True):
        assert math.exp(logprob) == pytest.approx(begun.share(word, request.candidates), rel=1e-4, abs=1e-9), word


def test_engines_agree_on_the_words_of_a_prompt(engine, tmp_path):
    [request] = verdict_requests(tmp_path, PROMPTS["grade"])
    prompt = replace(request.prompt, chat=False)  # this model has no chat template
    [completion] = run(engine, [replace(request, prompt=prompt)]).values()
    shares = [math.exp(logprob) for logprob in completion.candidate_logprobs]
    assert len(shares) == len(request.candidates)
    assert 0 <= math.fsum(shares) <= 1 + 1e-4


def verdict_requests(folder, text):
    """The requests for a sample's verdict."""
    path = folder / ("prompt.yaml" if text.startswith("prompt:") else "prompt.txt")
    path.write_text(text)
    prompt = read_prompt(path)
    mode = make_mode(prompt.modes[0], {}, {"prompt": prompt, "template": "", "scale": prompt.reply.scale})
    sample = Sample(id="1", question="", answers=("a big fox",), metadata={"context": "lazy dogs"})
    return next(mode(sample))


class BegunWords:
    """Probabilities of the tokens of words after a prompt, computed with one pass per word."""

    def __init__(self, folder, prompt):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
        messages = [{"role": "user", "content": "".join(span.text for span in prompt.spans)}]
        chat = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        self.text = chat + prompt.prefill

    def ids(self, text):
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def begun(self, word):
        import torch

        before, whole = self.ids(self.text), self.ids(self.text + word)
        after = whole[len(before) :] if whole[: len(before)] == before else self.ids(word)
        with torch.inference_mode():
            logprobs = torch.log_softmax(self.model(torch.tensor([before + after])).logits[0].double(), -1)
        steps = [float(logprobs[len(before) + index - 1, token]) for index, token in enumerate(after)]
        return tuple(after), math.exp(math.fsum(steps))

    def share(self, word, words):
        """P(word), without the longer words that begin with its tokens."""
        ids, share = self.begun(word)
        others = {other: self.begun(other) for other in words if other != word}
        longer = [each for each in others.values() if each[0][: len(ids)] == ids and len(each[0]) > len(ids)]
        nearest = [each for each in longer if not any(each[0][: len(other)] == other != each[0] for other, _ in longer)]
        return share - math.fsum(share for _, share in dict(nearest).items())
