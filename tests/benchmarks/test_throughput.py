"""The parts of `benchmarks.throughput`: its dummy model, its systems, and the results of their timings."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.dummy_model import SHAPES, made_up_pairs, make_dummy_model
from benchmarks.throughput.baselines import OriginalLoop, PaddedBatches, PlainModel
from benchmarks.throughput.engine import EngineSystem
from benchmarks.throughput.results import ratios, results_of, spread, table
from benchmarks.throughput.rounds import Timing
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


def timing(system, workload, number, *, seconds, pairs=10, written=30, after=1e9):
    return Timing(
        system=system, workload=workload, round=number, pairs=pairs, prompt_tokens=1000, completion_tokens=written,
        seconds=seconds, idle=None, metrics_s=None, peak_before=1e9, peak_after=after,
    )  # fmt: skip


def test_a_standing_is_the_median_over_rounds():
    timings = [timing("vllm", "score", number, seconds=seconds) for number, seconds in enumerate((1.0, 2.0, 5.0))]
    [one] = results_of(timings, parameters=100_000, price_per_hour=3.6)
    # 10 pairs in 1, 2 and 5 seconds; 2 * 1e5 * 1000 operations a timing, 2e8 / 1e9 of a second's peak
    assert (one.pairs_per_s.least, one.pairs_per_s.median, one.pairs_per_s.most) == (2, 5, 10)
    assert one.share.median == pytest.approx(0.1)
    # 5,000 pairs at 5 a second are 1,000 seconds; 3.6 an hour is 0.001 a second
    assert one.price == pytest.approx(1.0)


def test_the_larger_ceiling_counts_and_unequal_ones_show_other_work():
    [one] = results_of([timing("vllm", "score", 0, seconds=1.0, after=2e9)], parameters=100_000, price_per_hour=1)
    assert one.share.median == pytest.approx(0.1)
    assert one.disturbed == 1


def test_a_ratio_is_taken_within_a_round():
    timings = [timing("transformers", "score", 0, seconds=1.0), timing("original", "score", 0, seconds=3.0)]
    timings += [timing("transformers", "score", 1, seconds=4.0), timing("original", "score", 1, seconds=4.0)]
    found, aim = ratios(timings)["transformers / original loop"]
    assert (found.least, found.median, found.most, aim) == (1, 2, 3, 1.9)


def test_with_reasons_a_rate_is_of_written_tokens():
    timings = [
        timing("transformers", "reasons", 0, seconds=1.0, pairs=8, written=800),
        timing("transformers, one", "reasons", 0, seconds=1.0, pairs=1, written=100),
    ]
    found, _ = ratios(timings)["reasons: transformers / its batch of one"]
    assert found == spread([8.0])


def test_rows_without_a_share_leave_its_cell_empty():
    [one] = results_of([timing("vllm", "reasons", 0, seconds=1.0)], parameters=1, price_per_hour=1)
    assert one.share is None
    assert "| vllm | reasons | 10 (10 to 10) | 30 (30 to 30) |  |  |" in table([one])


@pytest.mark.slow
def test_the_benchmark_runs(tmp_path):
    command = [sys.executable, "-m", "benchmarks.throughput", "--quick", "--out", str(tmp_path)]
    subprocess.run([*command, "--only", "original,transformers"], check=True, capture_output=True, text=True)
    record = json.loads((tmp_path / "throughput.json").read_text())
    assert {one["system"] for one in record["results"]} == {
        "original", "original, fast", "original, padded", "original, reasons", "transformers", "transformers, one",
    }  # fmt: skip
    assert "transformers / original loop" in (tmp_path / "throughput.md").read_text()
    assert (tmp_path / "throughput.svg").read_text().startswith("<?xml")
