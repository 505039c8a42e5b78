"""The parts of `benchmarks.throughput`: its dummy model, its systems, and the results of their timings."""

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig

from benchmarks.dummy_model import SHAPES, made_up_pairs, make_dummy_model
from benchmarks.throughput.baselines import OriginalLoop, PaddedBatches, PlainModel
from benchmarks.throughput.checkpoints import write_gguf, write_w8a8
from benchmarks.throughput.engine import EngineSystem
from benchmarks.throughput.layer_products import ceiling_tokens_per_s, layer_sizes, needed_tokens
from benchmarks.throughput.page import page
from benchmarks.throughput.record import Measurement
from benchmarks.throughput.results import Ceiling, ratios, results_of
from benchmarks.throughput.systems import Timing
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import EngineError
from judgelm.parsing.scores import parse_pair
from judgelm.records import Scores

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def samples():
    return list(made_up_pairs(4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, samples):
    folder = tmp_path_factory.mktemp("dummy_model")
    make_dummy_model(samples, folder, SHAPES["tiny"], torch.float32, "cpu")
    return folder


@pytest.fixture(scope="module")
def runner(folder):
    return EngineSystem(load_engine("transformers", EngineOptions(model=str(folder))))


@pytest.fixture(scope="module")
def generating(folder):
    return PlainModel.load(folder, torch.float32, "cpu")


def test_the_dummy_model_writes_a_score_line_and_then_words_without_end(runner, samples):
    work = runner.judge(samples, "reasons")
    assert all(one.scores is not None for one in runner.judgments)
    # a score, a space with a score, the end of the line: three tokens; then 256 of the reason
    assert work.completion_tokens == 4 * (3 + 256)


def test_the_dummy_model_is_unsure_of_its_scores(runner, samples):
    runner.judge(samples, "distribution")
    distribution = runner.judgments[0].shown[0].distribution
    # made to give 8 with 0.30 twice over: 0.09 for "8 8", whatever the layers add
    assert distribution.likeliest[0][:2] == (8, 8)
    assert distribution.likeliest[0][2] == pytest.approx(0.09, abs=0.04)
    assert distribution.unassigned < 0.02


def test_both_orders_are_twice_the_prompts(runner, samples):
    one, both = runner.judge(samples, "score"), runner.judge(samples, "both")
    assert both.pairs == one.pairs == 4
    assert both.completion_tokens == 2 * one.completion_tokens


def test_pairs_that_are_not_judged_are_no_rate():
    with pytest.raises(EngineError, match="2 of 2 pairs were not judged"):
        EngineSystem(ScriptedEngine({"*": "no scores here"})).judge(list(made_up_pairs(2)), "score")


def test_the_original_writes_all_its_tokens_and_its_fast_way_stops_at_the_line(generating, samples, tmp_path):
    full = OriginalLoop(generating, tmp_path / "full.jsonl", fast=False, max_new_tokens=16).judge(samples, "score")
    fast = OriginalLoop(generating, tmp_path / "fast.jsonl", fast=True, max_new_tokens=16).judge(samples, "score")
    assert (full.completion_tokens, fast.completion_tokens) == (4 * 16, 4 * 3)
    assert full.prompt_tokens == fast.prompt_tokens


def test_all_read_the_same_tokens_and_score_alike(generating, runner, samples, tmp_path):
    out = tmp_path / "fast.jsonl"
    there = OriginalLoop(generating, out, fast=True, max_new_tokens=16).judge(samples, "score")
    here, padded = runner.judge(samples, "score"), PaddedBatches(generating, batch=3).judge(samples, "score")
    assert here.prompt_tokens == there.prompt_tokens == padded.prompt_tokens
    assert here.completion_tokens == there.completion_tokens == padded.completion_tokens
    written = [json.loads(line) for line in out.read_text().splitlines()]
    lines = {one["question_id"]: parse_pair(one["pred_text"] + "\n", (1, 10)) for one in written}
    assert lines == {one.sample_id: Scores(one.scores) for one in runner.judgments}


def timing(system, workload, number, *, seconds, format="bfloat16", pairs=10, written=30):
    return Timing(
        system=system, format=format, workload=workload, round=number, pairs=pairs, prompt_tokens=1000,
        needed_tokens=800, completion_tokens=written, seconds=seconds, idle=None, load_s=1.0,
    )  # fmt: skip


def ceiling(system, number=0, *, after=2000.0):
    return Ceiling(system=system, format="bfloat16", round=number, before=2000.0, after=after)


def test_a_result_is_the_median_over_rounds():
    timings = [timing("vLLM", "score", number, seconds=seconds) for number, seconds in enumerate((1.0, 2.0, 5.0))]
    [result] = results_of(timings, [ceiling("vLLM", number) for number in range(3)])
    # 10 pairs in 1, 2 and 5 seconds; 800 tokens where 2,000 a second are the ceiling
    assert (result.pairs_per_s.least, result.pairs_per_s.median, result.pairs_per_s.most) == (2, 5, 10)
    assert (result.share.least, result.share.median, result.share.most) == pytest.approx((0.08, 0.2, 0.4))


def test_the_larger_ceiling_counts_and_unequal_ones_show_other_work():
    [result] = results_of([timing("vLLM", "score", 0, seconds=1.0)], [ceiling("vLLM", after=4000.0)])
    assert result.share.median == pytest.approx(0.2)
    assert result.disturbed == 1


def test_a_ratio_is_taken_within_a_round_and_a_format():
    timings = [timing("judgelm", "score", 0, seconds=1.0), timing("vLLM", "score", 0, seconds=3.0)]
    timings += [timing("judgelm", "score", 1, seconds=4.0), timing("vLLM", "score", 1, seconds=4.0)]
    timings += [timing("vLLM", "score", 0, seconds=9.0, format="float32")]
    compared = ratios(timings)
    spread, aim = compared["judgelm / vLLM (bfloat16)"]
    assert (spread.least, spread.median, spread.most, aim) == (1, 2, 3, 1.05)
    assert "judgelm / vLLM (float32)" not in compared


def test_int8_stands_against_the_fastest_peer_in_floating_point():
    timings = [
        timing("judgelm", "score", 0, seconds=1.0, format="int8"),
        timing("judgelm", "score", 0, seconds=0.1, format="float32"),  # no peer
        timing("vLLM", "score", 0, seconds=2.0, format="float32"),
        timing("vLLM", "score", 0, seconds=0.2, format="W8A8"),  # not in floating point
        timing("llama.cpp", "score", 0, seconds=4.0, format="F16"),
    ]
    spread, _ = ratios(timings)["judgelm int8 / best peer in floating point"]
    assert spread.median == 2


def test_with_reasons_a_rate_is_of_written_tokens():
    timings = [
        timing("judgelm", "reasons", 0, seconds=1.0, pairs=8, written=800),
        timing("judgelm, one", "reasons", 0, seconds=1.0, pairs=1, written=100),
    ]
    spread, _ = ratios(timings)["reasons: judgelm / its batch of one (bfloat16)"]
    assert spread.median == 8.0


def measurement(machine, timings):
    ceilings = [Ceiling(system=one.system, format=one.format, round=one.round, before=2000.0, after=2000.0)
                for one in timings]  # fmt: skip
    return Measurement(
        machine=machine, instruction_sets=["avx2"], threads=2, judge="a judge", parameters=135, layer_parameters=106,
        pairs="pairs.json", count=10, rounds=1, versions=["torch 2"], date="2026-11-24", left_out=["llama.cpp: gone"],
        timings=timings, ceilings=ceilings,
    )  # fmt: skip


def test_a_page_has_a_column_for_each_machine_and_empty_cells_where_nothing_was_measured():
    first = [timing("vLLM", "score", 0, seconds=1.0), timing("vLLM", "reasons", 0, seconds=1.0)]
    second = [timing("vLLM", "score", 0, seconds=2.0), timing("judgelm", "score", 0, seconds=1.0)]
    text = page([measurement("one CPU", first), measurement("another CPU", second)])
    # 10 pairs a second, and 800 of the ceiling's 2,000 tokens; with reasons 30 written tokens a second, and no share
    assert "| vLLM | bfloat16 | 10 (10 to 10), 0.40 | 5 (5 to 5), 0.20 |" in text
    assert "| vLLM | bfloat16 | 30 (30 to 30) |  |" in text
    assert "| judgelm / vLLM (bfloat16) | 1.05 |  | 2 (2 to 2) |" in text
    assert "Left out: llama.cpp: gone." in text


def test_a_measurement_comes_back_from_its_file(tmp_path):
    written = measurement("one CPU", [timing("vLLM", "score", 0, seconds=1.0)])
    written.write(tmp_path / "one.json")
    assert Measurement.read(tmp_path / "one.json") == written


def test_needed_tokens_count_a_shared_beginning_once():
    assert needed_tokens([(1, 2, 3), (1, 2, 4, 5), (1, 2, 3), (9,)]) == 3 + 2 + 0 + 1


def test_the_ceiling_multiplies_the_models_own_matrices():
    config = LlamaConfig(hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2)
    sizes = [(64, 64), (64, 32), (64, 32), (64, 64), (64, 96), (64, 96), (96, 64)]
    assert layer_sizes(config) == sizes
    assert ceiling_tokens_per_s(config, "float32", "cpu", 0.001) > 0


@pytest.mark.parametrize("kind", ["F16", "Q8_0"])
def test_a_gguf_of_the_judge_holds_its_weights(folder, tmp_path, kind):
    write_gguf(folder, tmp_path / "judge.gguf", kind)
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    written = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "judge.gguf").tensors}
    down = gguf.dequantize(written["blk.1.ffn_down.weight"].data, written["blk.1.ffn_down.weight"].tensor_type)
    expected = loaded.model.layers[1].mlp.down_proj.weight.detach().numpy()
    assert np.abs(down - expected).max() <= 0.02 * np.abs(expected).max()
    assert len(written) == len(loaded.state_dict())


def test_w8a8_weights_are_integers_with_a_scale_for_each_output(folder, tmp_path):
    write_w8a8(folder, tmp_path / "w8a8")
    tensors = load_file(tmp_path / "w8a8" / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    expected = load_file(folder / "model.safetensors")[name].float()
    restored = tensors[name].float() * tensors[f"{name}_scale"]
    assert tensors[name].dtype == torch.int8
    assert tensors["lm_head.weight"].dtype == torch.float32
    assert (restored - expected).abs().max() <= expected.abs().max() / 127


@pytest.mark.slow
def test_the_benchmark_runs(tmp_path):
    command = [sys.executable, "-m", "benchmarks.throughput", "--quick", "--out", str(tmp_path)]
    only = ["--only", "original loop", "--only", "judgelm"]
    subprocess.run([*command, *only], check=True, capture_output=True, text=True)
    measured = Measurement.read(tmp_path / "throughput.json")
    assert {timing.system for timing in measured.timings} == {"original loop", "judgelm"}
    assert "judgelm / original loop" in (tmp_path / "throughput.md").read_text()
    assert (tmp_path / "throughput.svg").read_text().startswith("<?xml")
