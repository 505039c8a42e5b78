"""The transformers engine against transformers' own forward pass; marked `gpu`: on a device (JUDGELM_GPU_TESTS=cpu)."""

import gc
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, TaskType, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.transformers.attention import PromptSegment
from judgelm.engines.transformers.engine import TransformersEngine
from judgelm.engines.transformers.kv_cache import KVCache
from judgelm.errors import ConfigError, EngineError, ModelError
from judgelm.modes import Pairwise
from judgelm.records import Request, Sampling
from judgelm.runs.runner import judge
from tests.support.driving import prompt_of, reward_requests, run
from tests.support.flows import text_of
from tests.support.tiny_judges import TEMPLATE, make_reward_model, word_sample

SCORE_LINES = tuple(f"{first} {second}\n" for first in range(1, 11) for second in range(1, 11))


def varied_requests(count=60, **sampling):
    settings = {"max_tokens": 10} | sampling
    prompts = [prompt_of("a big fox jumps " * (i % 7 + 1), f"what {i}") for i in range(count)]
    return [Request(key=str(i), prompt=prompt, sampling=Sampling(**settings)) for i, prompt in enumerate(prompts)]


def load(model, **options) -> TransformersEngine:
    return load_engine("transformers", EngineOptions(model=str(model), **options))


@pytest.mark.parametrize("options", [*({"max_num_batched_tokens": tokens} for tokens in (1, 64)), {"max_num_seqs": 3}])
def test_batch_limits_do_not_change_replies(tiny_model, options):
    requests = [replace(request, candidates=("8 6\n", "10 10\n")) for request in varied_requests()]
    whole, limited = run(load(tiny_model), requests), run(load(tiny_model, **options), requests)
    for key, completion in whole.items():
        assert limited[key].texts == completion.texts
        assert limited[key].candidate_logprobs == pytest.approx(completion.candidate_logprobs, abs=1e-4)


def test_candidate_logprobs_equal_a_plain_forward_pass(tiny_model):
    model, tokenizer = (auto.from_pretrained(tiny_model) for auto in (AutoModelForCausalLM, AutoTokenizer))
    prompt = prompt_of("a lazy dog")
    request = Request(key="1", prompt=prompt, sampling=Sampling(max_tokens=2), candidates=SCORE_LINES)
    [completion] = run(load(tiny_model), [request]).values()
    for reply in ("1 1\n", "8 6\n", "10 9\n", "10 10\n"):
        start = len(tokenizer(text_of(prompt))["input_ids"])
        ids = tokenizer(text_of(prompt) + reply, return_tensors="pt").input_ids
        with torch.no_grad():
            logprobs = torch.log_softmax(model(ids).logits[0].float(), -1)
        expected = sum(float(logprobs[i - 1, ids[0, i]]) for i in range(start, ids.shape[1]))
        assert completion.candidate_logprobs[SCORE_LINES.index(reply)] == pytest.approx(expected, abs=1e-4)


def test_reply_along_the_tree_needs_fewer_passes(tiny_model):
    plain = [replace(request, sampling=Sampling(max_tokens=8)) for request in varied_requests(6)]
    engine = Counting.load(EngineOptions(model=str(tiny_model)))
    alone = run(engine, plain)
    decoded, engine.decoded = engine.decoded, 0
    scored = [replace(request, candidates=(alone[request.key].texts[0], "8 6\n", "10 10\n")) for request in plain]
    completions = run(engine, scored)
    assert all(completions[key].texts == completion.texts for key, completion in alone.items())
    assert engine.decoded < decoded


class Counting(TransformersEngine):
    """Counts the tokens of running replies in all passes."""

    decoded = 0

    def run_pass(self, row, embeddings=None):
        self.decoded += len(self._decoding)
        return super().run_pass(row, embeddings)


def test_finished_requests_free_their_keys_and_values(tiny_model):
    # without the garbage collector
    engine = load(tiny_model)
    gc.collect()
    gc.disable()
    try:
        counts = []
        for turn in range(4):
            requests = varied_requests(60, n=2, temperature=1.0)
            run(engine, [replace(request, key=f"{turn}-{request.key}") for request in requests])
            counts.append(sum(type(value) is KVCache for value in gc.get_objects()))
    finally:
        gc.enable()
    assert counts[-1] == counts[1] <= 2 * 64, "only the latest prompts'"


class Short(TransformersEngine):
    """Has memory for `most` sequences per pass."""

    most = 1

    def run_pass(self, row, embeddings=None):
        prompts = sum(isinstance(segment, PromptSegment) for segment in row.segments)
        if len(self._decoding) + prompts > self.most or len(row.ids) > 2000:
            raise torch.OutOfMemoryError("no memory for this")
        return super().run_pass(row, embeddings)


def test_replies_that_never_fit_fail(tiny_model):
    engine = Short.load(EngineOptions(model=str(tiny_model)))
    done = run(engine, varied_requests(3, n=2, temperature=1.0))
    assert all(each.finish_reasons == ("error",) and "out of memory" in each.error for each in done.values())


def test_low_memory_does_not_change_replies(tiny_model):
    engine = Short.load(EngineOptions(model=str(tiny_model)))
    engine.most = 2
    requests = [replace(each, candidates=SCORE_LINES) for each in varied_requests(12, n=2, temperature=1.0)]
    completions, expected = run(engine, requests), run(load(tiny_model), requests)
    assert engine.halvings > 0
    assert all(completions[key].texts == completion.texts for key, completion in expected.items())


def breaking(engine, is_at_fault, error):
    """Make passes with a request at fault fail."""
    forward = engine._forward

    def fail(fresh):
        if any(is_at_fault(new.queued.request) for new in fresh):
            raise error
        return forward(fresh)

    engine._forward = fail
    return engine


def test_only_the_request_at_fault_fails(tiny_model):
    requests = varied_requests(8, max_tokens=6)
    expected = run(load(tiny_model), requests)
    engine = load(tiny_model)
    run(engine, requests[:1])  # the model can be run
    completions = run(breaking(engine, lambda request: request.key == "5", ValueError("odd")), requests)
    assert completions["5"].finish_reasons == ("error",)
    assert "odd" in completions["5"].error
    assert all(completions[key].texts == expected[key].texts for key in completions.keys() - {"5"})
    assert run(engine, requests[:1]) == {requests[0].key: expected[requests[0].key]}


@pytest.mark.parametrize(("words", "has_worked"), [("CUDA error: device-side assert", True), ("no such kernel", False)])
def test_lost_device_or_unsupported_model_breaks_the_engine(tiny_model, words, has_worked):
    engine = load(tiny_model)
    if has_worked:
        run(engine, varied_requests(1))
    breaking(engine, lambda request: True, RuntimeError(words))
    with pytest.raises(EngineError, match=words):
        run(engine, varied_requests(2))


def test_only_replies_that_cannot_be_sampled_fail(tiny_model):
    [greedy], [drawn] = varied_requests(1), varied_requests(1, temperature=1.0, n=2)
    engine = load(tiny_model)
    forward = engine._forward
    engine._forward = lambda fresh: forward(fresh).index_fill(1, torch.tensor([3]), math.nan)
    completions = run(engine, [greedy, replace(drawn, key="drawn")])
    assert completions["drawn"].finish_reasons == ("error",)
    assert "not finite" in completions["drawn"].error
    assert completions[greedy.key].finish_reasons != ("error",)


def first_tokens(engine, **sampling):
    """The different first tokens of 64 replies, and the probabilities of the most probable tokens."""
    [request] = varied_requests(1, max_tokens=1, temperature=1.0, n=64, logprobs=20, **sampling)
    [completion] = run(engine, [request]).values()
    first = [reply[0] for reply in completion.logprobs if reply]  # the others ended immediately
    return {each.token for each in first}, first[0].candidates


def test_top_k_and_top_p_limit_the_tokens_that_can_be_drawn(tiny_model):
    engine = load(tiny_model)
    unlimited, likely = first_tokens(engine)
    best = [token for token, _ in likely]
    assert not unlimited <= set(best[:3])
    above_two = math.exp(likely[0][1]) + 1.01 * math.exp(likely[1][1])
    for limits in ({"top_k": 3}, {"top_p": above_two}):
        drawn, _ = first_tokens(engine, **limits)
        assert len(drawn) > 1
        assert drawn <= set(best[:3])
    for limits in ({"top_k": 1}, {"top_p": 0.0}):
        assert first_tokens(engine, **limits)[0] == {best[0]}


def edit(folder, name="config.json", **values):
    """Change values of a folder's JSON file."""
    (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | values))


def spoil(folder, name, value):
    """Set a value in a weight, or remove the weight."""
    weights = load_file(folder / "model.safetensors")
    if value is None:
        weights.pop(name)
    else:
        weights[name].view(-1)[5] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("break_it", "finding"),
    [
        (lambda f: [p.unlink() for p in f.glob("tokenizer*")], "no tokenizer"),
        (lambda f: (f / "config.json").unlink(), "config.json not found"),
        (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), r"pytorch_model\.bin: torch cannot load"),
        (lambda f: (f / "model.safetensors").write_bytes(b"torn"), "cannot load the model"),
        (lambda f: (f / "config.json").write_text('{"model_type": "nonesuch"}'), "load the model's config"),
        (lambda f: (f / "config.json").write_text("[" * 100_000), "nested|cannot"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "cannot load the tokenizer: 'added_tokens'"),
        (lambda f: edit(f, hidden_size="64"), "Validation error for field 'hidden_size': .* expected int, got str"),
        (lambda f: edit(f, num_attention_heads=0), "cannot load the tokenizer: integer modulo by zero"),
        (lambda f: edit(f, num_hidden_layers=-1), "num_hidden_layers is -1; copy or download"),
        (lambda f: edit(f, rms_norm_eps=float("nan")), "rms_norm_eps is NaN"),
        (lambda f: edit(f, rope_parameters={"rope_type": "default", "rope_theta": float("nan")}), "rope_theta is NaN"),
        (lambda f: edit(f, max_position_embeddings=-5), "max_position_embeddings is -5; expected a token count"),
        (lambda f: edit(f, "tokenizer_config.json", model_max_length="x"), "model_max_length is 'x'"),
        (lambda f: edit(f, "tokenizer_config.json", model_max_length=float("nan")), "model_max_length is nan"),
        (lambda f: edit(f, intermediate_size=300), "cannot load the model"),
        (lambda f: spoil(f, "model.layers.1.mlp.up_proj.weight", None), "1 weights are missing"),
        (lambda f: spoil(f, "model.layers.1.mlp.up_proj.weight", math.nan), r"1.mlp.up_proj.weight contains NaN"),
        (lambda f: spoil(f, "model.embed_tokens.weight", math.inf), r"embed_tokens.weight contains NaN or infinity"),
        # quantised weights would be read without their scales
        (lambda f: edit(f, quantization_config={"quant_method": "fp8"}), r"weights \(fp8\).*use --engine vllm"),
        (lambda f: edit(f, quantization_config={"quant_method": "bitsandbytes"}), "and --quantization 4bit"),
    ],
)
def test_broken_model_folder_is_rejected(tiny_model, tmp_path, break_it, finding):
    folder = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    break_it(folder)
    with pytest.raises(ModelError, match=finding):
        load(folder)


@pytest.mark.parametrize(
    ("option", "value", "finding"),
    [
        ("quantization", "3bit", "quantization '3bit' does not exist; available: 4bit, 8bit"),
        ("dtype", "float64x", "dtype 'float64x' does not exist"),
        ("device", "gpux", "device 'gpux' does not exist"),
        ("device", "cuda", "0 CUDA devices"),
    ],
)
def test_unknown_options_are_rejected(tiny_model, option, value, finding):
    if option == "quantization":
        pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: pip install -e '.[train]'")
    if value == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(ConfigError, match=finding):
        load(tiny_model, **{option: value})


ANSWERS = ("paris", "a big red fox jumps over lazy dogs", "london " * 40, "paris because it can")


def rewards_of(folder, *answers, **options):
    completions = run(load(folder, dtype="float32", **options), reward_requests(*answers))
    return [completions[str(index)].reward for index in range(len(answers))]


def plain_rewards(model, folder, answers):
    """One forward pass per answer."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rewards, question = [], {"role": "user", "content": "what is the capital of france"}
    for answer in answers:
        chat = [question, {"role": "assistant", "content": answer}]
        ids = tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True)["input_ids"]
        with torch.no_grad():
            rewards.append(float(model(ids).logits[0, 0]))
    return rewards


def test_rewards_equal_transformers(tiny_reward_model):
    model = AutoModelForSequenceClassification.from_pretrained(tiny_reward_model).eval()
    expected = plain_rewards(model, tiny_reward_model, ANSWERS)
    assert rewards_of(tiny_reward_model, *ANSWERS) == pytest.approx(expected, abs=1e-4)
    assert max(expected) - min(expected) > 0.05  # else equality would prove nothing
    assert load(tiny_reward_model).describe()["head"] == "reward"


@pytest.mark.parametrize("options", [{"max_num_batched_tokens": 1}, {"max_num_seqs": 1}])
def test_batch_limits_do_not_change_rewards(tiny_reward_model, options):
    whole = rewards_of(tiny_reward_model, *ANSWERS)
    assert rewards_of(tiny_reward_model, *ANSWERS, **options) == pytest.approx(whole, abs=1e-5)


def test_trailing_padding_tokens_are_ignored(tiny_model, tiny_reward_model, tmp_path):
    # transformers uses the last token that is not padding; a template may end in padding tokens
    chat = "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }}{% endfor %}<pad><pad>"
    padded = make_reward_model(tiny_model, tmp_path / "padded", chat=chat)
    model = AutoModelForSequenceClassification.from_pretrained(padded).eval()
    assert AutoTokenizer.from_pretrained(padded).convert_tokens_to_ids("<pad>") == model.config.pad_token_id
    expected = plain_rewards(model, padded, ANSWERS[::3])
    assert rewards_of(padded, *ANSWERS[::3]) == pytest.approx(expected, abs=1e-4)


def test_long_answer_is_truncated(tiny_reward_model):
    [completion] = run(load(tiny_reward_model), reward_requests("fox " * 600)).values()
    assert math.isfinite(completion.reward)
    [cut] = completion.truncations
    assert cut.tokens_after < cut.tokens_before
    assert completion.prompt_tokens <= 511


def test_adapter_with_a_reward_head(tiny_model, tmp_path):
    base = make_reward_model(tiny_model, tmp_path / "base")
    model = AutoModelForSequenceClassification.from_pretrained(base)
    adapted = get_peft_model(model, LoraConfig(r=4, task_type=TaskType.SEQ_CLS, init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    causal = shutil.copytree(tiny_model, tmp_path / "causal")  # the adapter brings the head
    for path in (base / "tokenizer_config.json", *base.glob("chat_template*")):
        shutil.copy(path, causal)
    expected = plain_rewards(adapted.eval(), base, ANSWERS[:2])
    rewards = rewards_of(causal, *ANSWERS[:2], adapter=str(tmp_path / "adapter"))
    assert rewards == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["InternLM2ForRewardModel"]}, "InternLM2ForRewardModel is not a causal language model"),
        ({"architectures": ["X"], "auto_map": {"AutoModelForSequenceClassification": "m.X"}}, "X is not a causal"),
        ({"architectures": ["DebertaV2ForSequenceClassification"]}, "is not a causal language model"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, "has 3 outputs instead of one"),
        ({"id2label": None}, "has 2 outputs"),  # transformers' default
    ],
)
def test_unsupported_heads_are_rejected(tiny_reward_model, tmp_path, config, message):
    folder = shutil.copytree(tiny_reward_model, tmp_path / "model")
    edit(folder, **config)
    with pytest.raises(ModelError, match=message):
        load(folder)


def test_missing_head_weights_are_rejected(tiny_model, tiny_reward_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    shutil.copy(tiny_reward_model / "config.json", folder)
    with pytest.raises(ModelError, match=r"1 weights are missing \(score.weight"):
        load(folder)


def test_rewards_and_replies_need_the_right_model(tiny_model, tiny_reward_model):
    with pytest.raises(EngineError, match=r"needs a reply, .* only returns rewards"):
        load(tiny_reward_model).submit([Request(key="1", prompt=prompt_of("paris"), sampling=Sampling(max_tokens=1))])
    with pytest.raises(EngineError, match=r"needs a reward, .* only generates text"):
        load(tiny_model).submit(reward_requests("paris"))


def judged(device, model, **options):
    """Thirty pairs of word counts, both orders, with P(first better)."""
    engine = load(model, device=device, **options)
    mode = Pairwise(template=TEMPLATE, both_orders=True, distribution=True)
    samples = [word_sample(seed) for seed in range(30)]
    judgments = {judgment.sample_id: judgment for judgment in judge(samples, mode, engine)}
    engine.close()
    assert all(judgment.failure is None for judgment in judgments.values())
    return judgments


@pytest.mark.gpu
def test_float32_equals_the_cpu(device, tiny_judge):
    on_cpu, on_device = (judged(place, tiny_judge, dtype="float32") for place in ("cpu", device))
    for name, expected in on_cpu.items():
        assert [reply.text for reply in on_device[name].shown] == [reply.text for reply in expected.shown]
        assert on_device[name].probability == pytest.approx(expected.probability, abs=1e-3)


@pytest.mark.gpu
def test_bfloat16_keeps_nearly_all_verdicts_of_float32(device, tiny_judge):
    full, half = (judged(device, tiny_judge, dtype=dtype) for dtype in ("float32", "bfloat16"))
    apart = [abs(half[name].probability - judgment.probability) for name, judgment in full.items()]
    # 8 bits of mantissa: some near-ties fall the other way, and a probability moves by some hundredths
    assert sum(half[name].verdict == judgment.verdict for name, judgment in full.items()) >= 24
    assert sum(apart) / len(apart) < 0.1


@pytest.mark.gpu
def test_an_adapter_runs_in_bfloat16(device, tiny_judge, tiny_adapters):
    adapters = (None, str(tiny_adapters[0]))
    engines = (load(tiny_judge, device=device, dtype="bfloat16", adapter=adapter) for adapter in adapters)
    plain, adapted = (run(engine, varied_requests(8)) for engine in engines)
    assert {completion.finish_reasons for completion in adapted.values()} <= {("stop",), ("length",)}
    assert [adapted[key].texts for key in adapted] != [plain[key].texts for key in adapted]
