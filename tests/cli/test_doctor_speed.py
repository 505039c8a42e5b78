"""`judgelm doctor --speed`."""

import json

from judgelm.engines.model_cache import CACHE_VARIABLE, read_speeds


def test_the_command_prints_keeps_and_writes_the_speeds(cli, pairs, tiny_judge, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr("judgelm.doctor.speed.importlib.util.find_spec", lambda name: None)  # vLLM takes long to load
    out = tmp_path / "speed.json"
    code, printed, said = cli(
        "judgelm", "doctor", "--speed", tiny_judge, "--pairs", pairs(20), "--seconds", "0.5", "--json", out
    )
    assert code == 0, said
    rows = json.loads(out.read_text())["speeds"]
    assert [row["dtype"] for row in rows][:2] == ["float32", "bfloat16"]
    assert all(row["prompt_tokens_per_s"] > 0 for row in rows)
    rates = [speed.prompt_tokens_per_s for speed in read_speeds(str(tiny_judge), None)]
    assert rates == [row["prompt_tokens_per_s"] for row in rows]
    assert "fastest: transformers" in printed
    assert "vllm: not installed" in printed


def test_pairs_without_a_judge_are_refused(cli, tmp_path):
    code, _, said = cli("judgelm", "doctor", "--pairs", tmp_path / "pairs.jsonl")
    assert code == 1
    assert "give it a judge" in said


def test_a_judge_that_can_read_no_pair_has_no_speed(cli, pairs, tiny_judge, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr("judgelm.doctor.speed.importlib.util.find_spec", lambda name: None)
    long = pairs(5, question="long " * 2000)
    code, printed, _ = cli("judgelm", "doctor", "--speed", tiny_judge, "--pairs", long, "--seconds", "0.5")
    assert code == 1
    assert "transformers float32 failed: it could read none of 5 pairs" in printed
    assert read_speeds(str(tiny_judge), None) == []
