"""The 999 pairs of PandaLM's test set through every engine, both orders, a reason where the orders disagree."""

import subprocess
import sys
from pathlib import Path

import pytest

from judgelm.jsonl import read_jsonl
from tests.support.endpoint.backends import TinyBackend
from tests.support.endpoint.server import endpoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
BATCH = Path(sys.executable).parent / "judgelm-batch"


def judged(engine, model, out, pairs, *more):
    command = [BATCH, pairs, "-o", out, "--model", model, "--engine", engine, "--both-orders", "--reasons", "flips"]
    command += ["--reason-tokens", "40", "--max-failure-rate", "1", "--template", "judgelm-compact", *more]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {row["id"]: row for _, row in read_jsonl(out)}


@pytest.fixture(scope="module")
def pandalm(shared_data):
    return shared_data / "pandalm" / "testset-v1.json"


@pytest.fixture(scope="module")
def by_transformers(tiny_judge, pandalm, tmp_path_factory):
    return judged("transformers", tiny_judge, tmp_path_factory.mktemp("pandalm") / "out.jsonl", pandalm)


def check(rows):
    """Nothing lost; a reason for both orders of exactly the pairs whose orders disagree."""
    assert len(rows) == 999
    flips = [row for row in rows.values() if row["consistent"] is False and row["verdict"]]
    assert len(flips) > 20, "the judge hardly ever changes its mind, so this shows little"
    for row in rows.values():
        flipped = row["consistent"] is False and row["verdict"] is not None
        for shown in row["shown"]:
            assert ("reason" in shown or "reason_failure" in shown) == flipped


def essence(row):
    return (row["verdict"], row["scores"], row["failure"], [(one["text"], one.get("reason")) for one in row["shown"]])


def test_transformers(by_transformers):
    check(by_transformers)
    assert any(row["consistent"] for row in by_transformers.values()), "pairs without a reason must occur as well"


def test_reasons_change_no_score(by_transformers, tiny_judge, pandalm, tmp_path):
    plain = judged("transformers", tiny_judge, tmp_path / "out.jsonl", pandalm, "--reasons", "none")
    for name, row in plain.items():
        assert essence(row)[:3] == essence(by_transformers[name])[:3]


def test_vllm_says_the_same(by_transformers, tiny_judge, pandalm, tmp_path):
    rows = judged(
        "vllm", tiny_judge, tmp_path / "out.jsonl", pandalm, "--engine-arg", "kv_cache_memory_bytes=268435456"
    )
    check(rows)
    assert {name: essence(row) for name, row in rows.items()} == {
        name: essence(row) for name, row in by_transformers.items()
    }


def test_an_endpoint_says_the_same(by_transformers, tiny_judge, pandalm, tmp_path):
    with endpoint(TinyBackend(tiny_judge), window=512) as server:
        arguments = ["--engine-arg", f"base_url={server.base_url}", "--engine-arg", f"tokenizer={tiny_judge}"]
        rows = judged("openai", "tiny", tmp_path / "out.jsonl", pandalm, *arguments)
    check(rows)
    assert {name: essence(row) for name, row in rows.items()} == {
        name: essence(row) for name, row in by_transformers.items()
    }
