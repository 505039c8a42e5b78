"""The parts of `benchmarks.throughput`, the verdicts that a numeric format changes, and useful tokens of training."""

import json

import numpy as np
import pytest
import torch

from benchmarks.dummy_model import SHAPES, made_up_pairs, make_dummy_model
from benchmarks.formats_agree import compared
from benchmarks.throughput.baselines import OriginalLoop, PaddedBatches, PlainModel
from benchmarks.throughput.engine import EngineSystem
from benchmarks.throughput.layer_products import needed_tokens
from benchmarks.throughput.results import Ceiling, ratios, results_of
from benchmarks.throughput.systems import Timing
from benchmarks.useful_tokens import useful_share
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.parsing.scores import parse_pair
from judgelm.records import Scores


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
    runner.judge(samples, "distribution")
    distribution = runner.judgments[0].shown[0].distribution
    # made to give 8 with 0.30 twice over: 0.09 for "8 8", whatever the layers add
    assert distribution.likeliest[0] == (8, 8, pytest.approx(0.09, abs=0.04))
    assert distribution.unassigned < 0.02


def test_all_read_the_same_tokens_and_score_alike(generating, runner, samples, tmp_path):
    out = tmp_path / "fast.jsonl"
    full = OriginalLoop(generating, tmp_path / "full.jsonl", fast=False, max_new_tokens=16).judge(samples, "score")
    fast = OriginalLoop(generating, out, fast=True, max_new_tokens=16).judge(samples, "score")
    here, padded = runner.judge(samples, "score"), PaddedBatches(generating, batch=3).judge(samples, "score")
    assert here.prompt_tokens == full.prompt_tokens == fast.prompt_tokens == padded.prompt_tokens
    # the original writes all its tokens, its fast way stops at the line
    assert [work.completion_tokens for work in (full, fast, here, padded)] == [4 * 16, 4 * 3, 4 * 3, 4 * 3]
    written = [json.loads(line) for line in out.read_text().splitlines()]
    lines = {one["question_id"]: parse_pair(one["pred_text"] + "\n", (1, 10)) for one in written}
    judged = runner.judgments
    assert lines == {one.sample_id: Scores(one.scores) for one in judged}
    assert runner.judge(samples, "both").completion_tokens == 2 * here.completion_tokens


def timing(system, workload, number=0, *, seconds, format="bfloat16", pairs=10, written=30):
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
    # the larger ceiling counts, and unequal ones show other work
    [result] = results_of(timings[:1], [ceiling("vLLM", after=4000.0)])
    assert (result.share.median, result.disturbed) == (pytest.approx(0.2), 1)


ROUNDS = [
    timing(name, "score", number, seconds=seconds)
    for name, rounds in (("judgelm", (1.0, 4.0)), ("vLLM", (3.0, 4.0)))
    for number, seconds in enumerate(rounds)
]
PEERS = {
    ("judgelm", "float32"): 1.0, ("judgelm on vLLM", "float32"): 0.1, ("vLLM", "float32"): 2.0, ("vLLM", "W8A8"): 0.2,
    ("llama.cpp", "F16"): 4.0,
}  # fmt: skip
FORMATS = [timing(name, "score", seconds=seconds, format=kind) for (name, kind), seconds in PEERS.items()]
ALONE = timing("judgelm, one", "reasons", seconds=1.0, pairs=1, written=100)
BATCHED = timing("judgelm", "reasons", seconds=1.0, pairs=8, written=800)


@pytest.mark.parametrize(
    ("timings", "name", "expected"),
    [
        # within a round and a format
        ([*ROUNDS, timing("vLLM", "score", seconds=9.0, format="float32")], "judgelm / vLLM (bfloat16)", (1, 2, 3)),
        # against the fastest peer in floating point: not judgelm itself, and not W8A8
        (FORMATS, "judgelm / best peer in floating point (float32)", (2, 2, 2)),
        # of written tokens
        ([BATCHED, ALONE], "reasons: judgelm / its batch of one (bfloat16)", (8, 8, 8)),
    ],
    ids=["format", "best peer", "reasons"],
)
def test_a_ratio_is_taken_within_a_round(timings, name, expected):
    spread, _ = ratios(timings)[name]
    assert (spread.least, spread.median, spread.most) == expected


def test_needed_tokens_count_a_shared_beginning_once():
    assert needed_tokens([(1, 2, 3), (1, 2, 4, 5), (1, 2, 3), (9,)]) == 3 + 2 + 0 + 1


def test_a_changed_verdict_is_one_that_names_another_answer():
    before = {"a": 0.9, "b": 0.51, "c": 0.2, "only here": 0.5}
    after = {"a": 0.7, "b": 0.49, "c": 0.1, "only there": 0.5}
    cells = [cell.strip() for cell in compared(before, after).split("|")]
    assert cells[0] == "3"
    assert cells[1].startswith("33.3 (")
    assert cells[2:] == ["0.1067", "0.200"]


@pytest.mark.parametrize(
    ("ranks", "padded", "share"),
    [
        (1, True, 30 / 38),  # passes of 2 rows: 2 x 4 + 2 x 8 + 2 x 7 computed
        (1, False, 1.0),
        (2, True, 16 / 32),  # the third pass of one rank is no whole pass; both ranks wait for 2 x 8
        (2, False, 16 / 20),  # 6 and 10 tokens: both ranks take 10
    ],
)
def test_useful_tokens_are_those_of_rows_among_all_that_ranks_wait_for(ranks, padded, share):
    lengths = np.array([2, 4, 8, 2, 7, 7])
    assert useful_share(lengths, per_device=2, ranks=ranks, padded=padded) == pytest.approx(share)
