"""RM-Bench: rows in their published schema, and their files where JUDGELM_BENCHMARK_FILES says."""

import json

import pytest

from judgelm.data.sources.importer import import_benchmark
from judgelm.errors import InputError
from tests.support.benchmark_files import published

STYLES = {"id": 8, "prompt": "Why?", "chosen": ["c1", "c2", "c3"], "rejected": ["r1", "r2", "r3"], "error": "e"}


def test_rm_bench_compares_each_style_with_each(imported):
    _, rows = imported("rm-bench", STYLES, file="chat_filtered.json")
    by_id = {row["id"]: row for row in rows}
    assert len(rows) == 9
    # rows of the authors' matrix are the chosen styles: above the diagonal hard, below easy
    assert by_id["chat-8-concise-markdown"]["category"] == "Chat, hard"
    assert by_id["chat-8-detailed-detailed"]["category"] == "Chat, normal"
    assert by_id["chat-8-markdown-concise"]["category"] == "Chat, easy"
    hard = by_id["chat-8-concise-markdown"]
    assert (hard[f"answer_{hard['winner']}"], hard[f"answer_{3 - hard['winner']}"]) == ("c1", "r3")


def test_rm_benchs_domain_comes_from_the_row_else_the_files_name(imported):
    _, rows = imported("rm-bench", STYLES | {"domain": "safety-refuse"}, file="total_dataset.json")
    assert {row["category"] for row in rows} == {"Safety, easy", "Safety, normal", "Safety, hard"}
    with pytest.raises(InputError, match="begins with one of chat, math"):
        imported("rm-bench", STYLES, file="other.json")


def test_rm_benchs_equal_texts_are_rejects_one_by_one(imported, tmp_path):
    done, rows = imported("rm-bench", STYLES | {"rejected": ["c1", "r2", "r3"]}, file="code_filtered.json")
    assert (len(rows), len(done.rejects)) == (8, 1)
    assert "were not read" in json.loads((tmp_path / "out.protocol.json").read_text())["unverified"]


def test_the_published_files_of_rm_bench(tmp_path):
    done = import_benchmark("rm-bench", published("rm-bench", "data/chat_filtered.json"), tmp_path / "out.jsonl")
    assert done.rows == 9 * 129
