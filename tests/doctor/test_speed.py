"""`doctor --speed`: a judge by engine and numeric format."""

import json
from dataclasses import replace

import pytest

from judgelm.doctor.speed import (
    SAMPLED_PAIRS,
    Variant,
    VariantSpeed,
    change_between,
    read_pairs,
    tokens_per_pair,
    variants_of,
)
from judgelm.errors import InputError
from judgelm.package import EVERYDAY_PAIRS


def _speed(verdicts):
    return VariantSpeed(
        variant=Variant(engine="transformers", dtype="float32"), pairs=20, seconds=4.0, prompt_tokens=100, load_s=3.0,
        verdicts=verdicts,
    )  # fmt: skip


def test_variants_are_compared_by_their_tokens():
    slow = replace(_speed({}), pairs=2, prompt_tokens=400)
    assert _speed({}).prompt_tokens_per_s == 25.0
    assert slow.to_measured().prompt_tokens_per_s == 100.0
    assert tokens_per_pair([slow, _speed({})]) == 5.0  # the mean of the larger round


def test_verdicts_are_compared_where_both_have_one():
    change = change_between(
        _speed({"a": "1", "b": "2", "c": "tie", "d": None}), _speed({"a": "1", "b": "1", "c": "tie", "d": "1"})
    )
    assert (change.n, change.changed) == (3, 1)
    # Wilson's interval of 1 of 3
    assert (change.low, change.high) == (pytest.approx(0.0615, abs=1e-4), pytest.approx(0.7923, abs=1e-4))
    assert change_between(_speed({"a": "1"}), _speed({"b": "1"})) is None


def test_pairs_of_a_large_file_are_drawn_from_all_of_it(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"id": str(i), "question": "q", "answer_1": "a", "answer_2": str(i)} for i in range(2000)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    samples, total = read_pairs(path)
    assert (len(samples), total) == (SAMPLED_PAIRS, 2000)
    late = sum(int(sample.id) >= 1000 for sample in samples)
    assert 90 < late < 166
    assert read_pairs(path)[0] == samples


def test_a_file_without_a_pair_is_refused(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"id": "1", "question": "q"}\n')
    with pytest.raises(InputError, match=r"pairs\.jsonl"):
        read_pairs(path)


def test_the_everyday_pairs_come_with_the_package():
    samples, total = read_pairs(EVERYDAY_PAIRS)
    assert len(samples) == total == 60


def test_a_float32_model_is_measured_in_every_format_of_a_cpu(tiny_model):
    variants, _ = variants_of(str(tiny_model))
    formats = [variant.format for variant in variants if variant.engine == "transformers"]
    assert formats[:2] == ["float32", "bfloat16"]
