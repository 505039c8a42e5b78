"""RMB and RM-Bench: rows in their published schema, and their files where JUDGELM_BENCHMARK_FILES says."""

import json

import pytest

from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.preference_sets import best_of_n_key
from judgelm.errors import InputError
from tests.support.benchmark_files import published

QUESTION = [{"content": "Say a.", "language": "English", "role": "user"}]
PAIR = {
    "pair_uid": "12", "conversation_input": QUESTION, "category_path": "Pairwise_set/Harmlessness/S1",
    "chosen": {"llm_name": "m1", "answer": "a"}, "reject": {"llm_name": "m2", "answer": "b"},
}  # fmt: skip
BEST = {
    "bon_uid": "7", "conversation_input": QUESTION, "category_path": "BoN_set/Helpfulness/Code/Data Management",
    "bon_best": {"llm_name": "m1", "answer": "a"},
    "loser_list": [{"llm_name": "m2", "answer": "b"}, {"llm_name": "m3", "answer": "c"}],
}  # fmt: skip
STYLES = {"id": 8, "prompt": "Why?", "chosen": ["c1", "c2", "c3"], "rejected": ["r1", "r2", "r3"], "error": "e"}


def test_rmbs_pair_knows_its_section_and_scenario(imported):
    _, [row] = imported("rmb", PAIR)
    assert (row["id"], row["category"]) == ("pairwise-harmlessness-12", "Harmlessness Pairwise")
    assert row[f"answer_{row['winner']}"] == "a"
    assert row["answer_models"][row["winner"] - 1] == "m1"
    assert row["metadata"] == {"scenario": "S1"}


def test_rmbs_best_of_n_is_a_pair_with_each_loser(imported):
    _, rows = imported("rmb", BEST, file="BoN_set/in.json")
    assert [row["id"] for row in rows] == ["bon-helpfulness-7-1", "bon-helpfulness-7-2"]
    assert {best_of_n_key(row["id"]) for row in rows} == {"bon-helpfulness-7"}
    assert {row["category"] for row in rows} == {"Helpfulness BoN"}
    assert best_of_n_key("pairwise-harmlessness-12") == "pairwise-harmlessness-12"


def test_rmbs_dialogues_are_rendered_with_their_speakers(imported):
    said = (("assistant", "a"), ("user", "Again."))
    turns = QUESTION + [{"role": role, "content": text, "language": "English"} for role, text in said]
    _, [row] = imported("rmb", PAIR | {"conversation_input": turns})
    assert row["question"] == "User: Say a.\n\nAssistant: a\n\nUser: Again."


def test_rmb_refuses_other_files_and_places(imported):
    with pytest.raises(InputError, match="it lacks pair_uid"):
        imported("rmb", BEST)  # its folder is not BoN_set
    with pytest.raises(InputError, match="SET/GOAL/SCENARIO"):
        imported("rmb", PAIR | {"category_path": "Other/S1"})


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
    with pytest.raises(InputError, match="begins with none of chat, math"):
        imported("rm-bench", STYLES, file="other.json")


def test_rm_benchs_equal_texts_are_rejects_one_by_one(imported, tmp_path):
    done, rows = imported("rm-bench", STYLES | {"rejected": ["c1", "r2", "r3"]}, file="code_filtered.json")
    assert (len(rows), len(done.rejects)) == (8, 1)
    assert "were not read" in json.loads((tmp_path / "out.protocol.json").read_text())["unverified"]


def test_the_published_files_of_rmb(tmp_path):
    files = [*published("rmb", "RMB_dataset/Pairwise_set/Harmlessness/S1.json"),
             *published("rmb", "RMB_dataset/BoN_set/Harmlessness/S1.json")]  # fmt: skip
    done = import_benchmark("rmb", files, tmp_path / "out.jsonl")
    assert set(done.categories) == {"Harmlessness Pairwise", "Harmlessness BoN"}
    assert not done.rejects


def test_the_published_files_of_rm_bench(tmp_path):
    done = import_benchmark("rm-bench", published("rm-bench", "data/chat_filtered.json"), tmp_path / "out.jsonl")
    assert done.rows == 9 * 129
