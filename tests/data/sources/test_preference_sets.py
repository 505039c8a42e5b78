"""Preference sets: RewardBench 1 and 2, RM-Bench, PPE, SafeRLHF, UltraFeedback, and sets in general."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.preference_sets import SECTIONS
from judgelm.errors import InputError
from tests.support.benchmark_files import published

FIRST = {
    "prompt": "Say a.", "chosen": "a", "chosen_model": "m1", "rejected": "b", "rejected_model": "m2",
    "subset": "alpacaeval-easy", "id": 3,
}  # fmt: skip
SECOND = {
    "id": "12", "prompt": "Say a.", "chosen": ["a"], "rejected": ["b", "c", "d"], "subset": "Focus",
    "models": ["m1", "m2", "m3", "m4"], "additional_metadata": {"index": float("nan")},
}  # fmt: skip


def test_rewardbench_rows_know_subset_and_section_which_are_in_the_protocol_file(imported, tmp_path):
    _, [row] = imported("rewardbench", FIRST)
    winner = row["winner"]
    assert (row["id"], row["category"], row["metadata"]["section"]) == ("alpacaeval-easy-3", "alpacaeval-easy", "Chat")
    assert (row[f"answer_{winner}"], row["answer_models"][winner - 1]) == ("a", "m1")
    protocol = json.loads((tmp_path / "out.protocol.json").read_text())
    assert protocol["details"]["sections"]["Safety"]["donotanswer"] == 136
    assert sum(len(subsets) for subsets in SECTIONS.values()) == 23


def test_rewardbench_as_parquet(tmp_path):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([FIRST, FIRST | {"id": 4}]), tmp_path / "in.parquet")
    assert import_benchmark("rewardbench", [str(tmp_path / "in.parquet")], tmp_path / "out.jsonl").rows == 2


def test_rewardbench_and_its_second_version_are_not_mixed_up(imported):
    with pytest.raises(InputError, match="import the file as rewardbench-2"):
        imported("rewardbench", SECOND)
    with pytest.raises(InputError, match="import rows with one string as rewardbench"):
        imported("rewardbench-2", FIRST)
    with pytest.raises(InputError, match="not in RewardBench"):
        imported("rewardbench", FIRST | {"subset": "mine"})


def test_best_of_four_stands_in_an_order_that_does_not_tell_which_was_chosen(imported, tmp_path):
    other = SECOND | {"chosen": ["c"], "rejected": ["a", "b", "d"], "models": ["m3", "m1", "m2", "m4"], "id": "13"}
    _, [row, same] = imported("rewardbench-2", SECOND, other)
    assert (row["answers"], row["answer_models"]) == (same["answers"], same["answer_models"])
    assert sorted(row["scores"]) == [0, 0, 0, 1]
    assert [each["answers"][each["scores"].index(1)] for each in (row, same)] == ["a", "c"]
    assert row["metadata"]["additional_metadata"] == {"index": None}  # NaN is not JSON
    labelled = read_labels(str(tmp_path / "out.jsonl"))
    assert (labelled.labels["12"].winner, sum(labelled.labels["12"].scores)) == (None, 1)
    assert labelled.groups["category"]["12"] == "Focus"


def test_only_ties_has_several_right_answers(imported):
    several = SECOND | {"chosen": ["a", "A"], "models": None}
    _, [row] = imported("rewardbench-2", several | {"subset": "Ties", "id": "tied:0"})
    assert sorted(row["scores"]) == [0, 0, 0, 1, 1]
    with pytest.raises(InputError, match="expected 1 string, except in the subset Ties, got 2"):
        imported("rewardbench-2", several)


def test_preference_sets_in_general(imported):
    scored = {"prompt": "q", "chosen": "a", "rejected": "b", "score_chosen": 9, "score_rejected": 2}
    _, [row] = imported("preferences", scored)
    assert (sorted(row["scores"]), row["scores"].index(9)) == ([2, 9], row["winner"] - 1)
    battle = {"prompt": "q", "response_a": "a", "response_b": "b"}
    tie = {"winner_model_a": 0, "winner_model_b": 0, "winner_tie": 1}
    assert imported("preferences", battle | tie)[1][0]["winner"] == "tie"
    with pytest.raises(InputError, match="recognised as plain; expected"):
        imported("preferences", {"question": "q", "answer_1": "a", "answer_2": "b"})


STYLES = {"id": 8, "prompt": "Why?", "chosen": ["c1", "c2", "c3"], "rejected": ["r1", "r2", "r3"], "error": "e"}


def test_rm_bench_compares_each_style_with_each(imported):
    _, rows = imported("rm-bench", STYLES, file="chat_filtered.json")
    levels = {row["id"]: row["category"] for row in rows}
    assert len(rows) == 9
    # rows of the authors' matrix are the chosen styles: above the diagonal hard, below easy
    matrix = {"concise-markdown": "hard", "detailed-detailed": "normal", "markdown-concise": "easy"}
    assert levels.items() >= {f"chat-8-{styles}": f"Chat, {level}" for styles, level in matrix.items()}.items()
    [hard] = [row for row in rows if row["id"] == "chat-8-concise-markdown"]
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


def test_ppe_votes(labelled):
    row = {"question_id": "p1", "prompt": "Name a metal.", "response_1": "Tin", "response_2": "Oak"}
    found, _ = labelled(row | {"winner": "model_b", "model_a": "m1", "model_b": "m2"})
    [sample] = found.samples.values()
    assert (sample.id, sample.answers, sample.answer_models) == ("p1", ("Tin", "Oak"), ("m1", "m2"))
    assert found.labels["p1"].winner == 2


def test_safe_rlhf_counts_from_zero_and_keeps_who_is_safer(imported):
    row = {"prompt": "q", "response_0": "a", "response_1": "b", "better_response_id": 1, "safer_response_id": 0}
    _, [made] = imported("preferences", row)
    assert (made["answer_1"], made["winner"], made["metadata"]) == ("a", 2, {"safer_response_id": 0})


def test_ultrafeedback_takes_the_mean_of_the_ratings_and_not_the_overall_score(labelled):
    completions = [
        {"model": f"m{overall}", "response": "r", "fine-grained_score": mean, "overall_score": overall}
        for mean, overall in ((4.5, 8), (1.0, 10), (3.0, 6))
    ]
    [label] = labelled({"source": "s", "instruction": "q", "completions": completions})[0].labels.values()
    assert label.scores == (4.5, 1.0, 3.0)


def test_a_later_row_without_a_field_of_the_first_is_a_reject(labelled):
    row = {"prompt": "q", "response_0": "a", "response_1": "b", "better_response_id": 0}
    found, [message] = labelled(row, {"prompt": "r", "response_0": "a", "better_response_id": 0})
    assert len(found.labels) == 1
    assert message.endswith('field "response_1": missing, although it is in the first row; remove the row')
