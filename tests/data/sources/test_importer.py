"""What every import writes and refuses; benchmarks of pairs and preference sets as published."""

import json
from collections import Counter

import pyarrow
import pyarrow.parquet
import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.preference_sets import SECTIONS
from judgelm.data.sources.registry import benchmarks
from judgelm.data.sources.source import protocol_of
from judgelm.errors import ConfigError, InputError, RunError
from tests.support import benchmark_files
from tests.support.benchmark_files import published

AUTO_J = {"scenario": "chitchat", "label": 0, "prompt": "Hi.", "response 1": "Hello.", "response 2": "Yes?"}


@pytest.fixture
def auto_j(write):
    return write(AUTO_J, name="testdata_pairwise.jsonl")


def test_the_protocol_is_written_next_to_the_rows(auto_j, tmp_path):
    done = import_benchmark("auto-j", [auto_j], tmp_path / "out.jsonl")
    assert [path.name for path in done.paths] == ["out.jsonl", "out.protocol.json"]
    protocol = json.loads((tmp_path / "out.protocol.json").read_text())
    assert protocol["protocol"] == protocol_of(benchmarks()["auto-j"]).metric
    assert (protocol["rows"], protocol["labels"], protocol["rejected"]) == (1, {"1": 1}, 0)
    [file] = protocol["files"]
    assert (file["name"], len(file["sha256"])) == ("testdata_pairwise.jsonl", 64)
    assert str(tmp_path) not in json.dumps(protocol)


def test_an_earlier_import_is_replaced_only_on_request_and_by_a_whole_one(auto_j, tmp_path):
    out = tmp_path / "out.jsonl"
    import_benchmark("auto-j", [auto_j], out)
    before = out.read_bytes()
    with pytest.raises(RunError, match="already exists; use --overwrite"):
        import_benchmark("auto-j", [auto_j], out)
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(InputError):
        import_benchmark("auto-j", [str(tmp_path / "other.jsonl")], out, overwrite=True)
    assert out.read_bytes() == before
    assert not list(tmp_path.glob("*.partial"))
    assert import_benchmark("auto-j", [auto_j], out, overwrite=True).rows == 1


JUDGEBENCH = {"pair_id": "p", "source": "livecodebench", "question": "q", "response_A": "a", "response_B": "b"}


def test_a_file_given_twice_is_refused(write, tmp_path):
    with pytest.raises(InputError, match="repeated id 'p'"):
        import_benchmark("judgebench", [write(JUDGEBENCH | {"label": "A>B"})] * 2, tmp_path / "out.jsonl")


@pytest.mark.parametrize(
    ("name", "out", "error", "finding"),
    [
        ("pandaml", "out.jsonl", ConfigError, "did you mean pandalm"),
        ("auto-j", "out.json", ConfigError, "expected the extension .jsonl"),
        ("auto-j", "testdata_pairwise.jsonl", ConfigError, "would overwrite the input"),
        ("auto-j", "nowhere/out.jsonl", RunError, "no such folder"),
    ],
)
def test_invalid_arguments_are_refused(auto_j, tmp_path, name, out, error, finding):
    with pytest.raises(error, match=finding):
        import_benchmark(name, [auto_j], tmp_path / out)


@pytest.mark.parametrize(
    ("files", "finding"), [([], r"expected testdata_pairwise\.jsonl"), (["-"], "save it as a file first")]
)
def test_no_file_and_standard_input_are_refused(tmp_path, files, finding):
    with pytest.raises(ConfigError, match=finding):
        import_benchmark("auto-j", files, tmp_path / "out.jsonl")


PANDALM = {
    "idx": 0, "motivation_app": "Gmail", "cmp_key": "opt-7b_pythia-6.9b", "instruction": "Sum up.",
    "input": "A long text.", "response1": "Text.", "response2": True, "annotator1": 1, "annotator2": 0, "annotator3": 1,
}  # fmt: skip


def test_pandalm_takes_the_majority_and_keeps_the_input_apart(write, tmp_path):
    path = write(PANDALM, PANDALM | {"idx": 1, "input": "", "annotator3": 2})
    done, [first, second] = benchmark_files.imported("pandalm", tmp_path, path)
    # votes 1, tie, 1: two of three; votes 1, tie, 2: no majority
    assert (first["winner"], first["votes"]) == (1, [1, "tie", 1])
    assert (first["question"], first["answer_2"]) == ("Sum up.\n\nA long text.", "True")
    assert (first["metadata"]["instruction"], first["metadata"]["input"]) == ("Sum up.", "A long text.")
    assert ("winner" in second, "input" in second["metadata"]) == (False, False)
    assert (done.winners, done.unlabelled) == ({"1": 1}, 1)


def test_llmbars_sets_are_named_by_their_folders(write, tmp_path):
    row = {"input": "Say a.", "output_1": "b", "output_2": "a", "label": 2}
    paths = [write(row, name=f"{name}/dataset.json") for name in ("Natural", "GPTInst")]
    _, rows = benchmark_files.imported("llmbar", tmp_path, *paths)
    names = [(row["id"], row["category"], row["winner"]) for row in rows]
    assert names == [("Natural-1", "Natural", 2), ("GPTInst-1", "GPTInst", 2)]


def test_judgebench_has_four_categories_and_two_labels(write, tmp_path):
    row = JUDGEBENCH | {"response_model": "gpt-4o-2024-05-13", "label": "B>A"}
    sources = ("mmlu-pro-law", "livebench-reasoning", "livebench-math", "livecodebench")
    rows = [row | {"pair_id": f"p{number}", "source": source} for number, source in enumerate(sources)]
    path = write(*rows, rows[3] | {"pair_id": "p4", "label": "A=B"})
    done, made = benchmark_files.imported("judgebench", tmp_path, path)
    assert [row["category"] for row in made] == ["knowledge", "reasoning", "math", "coding"]
    assert [(row["winner"], row["answer_models"]) for row in made] == [(2, ["gpt-4o-2024-05-13"] * 2)] * 4
    assert 'expected one of A>B, B>A, got "A=B"' in done.rejects[0].message
    assert json.loads((tmp_path / "out.rejects.jsonl").read_text())["line"] == 5


def test_auto_js_labels_count_from_0_and_2_is_a_tie(write, tmp_path):
    _, rows = benchmark_files.imported("auto-j", tmp_path, write(*(AUTO_J | {"label": label} for label in (0, 1, 2))))
    assert [(row["id"], row["winner"]) for row in rows] == [("auto-j-1", 1), ("auto-j-2", 2), ("auto-j-3", "tie")]
    assert rows[0]["category"] == "chitchat"


def test_the_real_pandalm_says_what_reading_it_directly_says(shared_data, tmp_path):
    path = str(shared_data / "pandalm" / "testset-v1.json")
    done, _ = benchmark_files.imported("pandalm", tmp_path, path)
    assert done.winners == {"tie": 105, "1": 422, "2": 472}
    ours, direct = read_labels(str(tmp_path / "out.jsonl")), read_labels(path)
    assert ours.labels == direct.labels
    for name, sample in direct.samples.items():
        for field in ("question", "answers", "answer_models", "category"):
            assert getattr(ours.samples[name], field) == getattr(sample, field)


def test_the_real_llmbar(shared_data, tmp_path):
    sets = ("Natural", "Adversarial_Neighbor")
    benchmark_files.imported(
        "llmbar", tmp_path, *(str(shared_data / "llmbar" / name / "dataset.json") for name in sets)
    )
    labelled = read_labels(str(tmp_path / "out.jsonl"))
    assert Counter(labelled.groups["category"].values()) == {"Natural": 100, "Adversarial_Neighbor": 134}
    assert (len(labelled.labels), labelled.unlabelled) == (234, 0)


OUTPUTS = {"instruction": "q", "output_1": "a", "output_2": "b", "generator_1": "base", "generator_2": "m"}
ANNOTATION = OUTPUTS | {"annotator": "judge", "dataset": "koala"}


def test_annotations_become_labelled_rows_with_models_annotator_and_preference(write, tmp_path):
    others = ({"preference": preference, "instruction": str(preference)} for preference in (2, 1.5, 0, None))
    path = write(ANNOTATION | {"preference": 1.25}, *(ANNOTATION | other for other in others))
    result, rows = benchmark_files.imported("alpaca-eval", tmp_path, path)
    row = rows[0]
    assert (row["question"], row["answer_1"], row["answer_models"]) == ("q", "a", ["base", "m"])
    assert row["category"] == "koala"
    assert (row["winner"], row["preference"], row["metadata"]) == (1, 0.75, {"annotator": "judge"})
    # 2 is the second answer; 1.5, and 0 in older files, a tie; without a preference there is no label
    preferences = [0.75, 0.0, 0.5, 0.5]
    assert [row["preference"] for row in rows] == preferences
    assert (result.winners, len(result.rejects)) == ({"1": 1, "2": 1, "tie": 2}, 1)
    assert [label.preference for label in read_labels(str(tmp_path / "out.jsonl")).labels.values()] == preferences


def test_one_annotator_judges_a_pair_once_and_another_again(write, tmp_path):
    others = [ANNOTATION | {"preference": 2}, OUTPUTS | {"annotator": "other", "preference": 2}]
    result, rows = benchmark_files.imported("alpaca-eval", tmp_path, write(ANNOTATION | {"preference": 1}, *others))
    assert [(row["metadata"]["annotator"], row["winner"]) for row in rows] == [("judge", 1), ("other", 2)]
    assert "already judged this pair" in result.rejects[0].reason


def test_a_folder_of_three_tables_gives_the_same_rows(write, tmp_path):
    _, rows = benchmark_files.imported("alpaca-eval", tmp_path, write(ANNOTATION | {"preference": 1.25}))
    judgment = ANNOTATION | {"instruction": 0, "output_1": 0, "output_2": 1, "preference": 1.25}
    outputs = [{"instruction": 0, "generator": name, "text": text} for name, text in (("base", "a"), ("m", "b"))]
    tables = {"instructions": [{"instruction": "q"}], "outputs": outputs}
    (tmp_path / "tables").mkdir()
    for name, table in (tables | {"judgments": [judgment, judgment | {"output_2": 5}]}).items():
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), tmp_path / "tables" / f"{name}.parquet")
    result, from_tables = benchmark_files.imported("alpaca-eval", tmp_path, tmp_path / "tables")
    assert from_tables == rows
    assert 'field "output_2": expected a row number below 2, got the number 5' in result.rejects[0].reason
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: no Parquet files in this folder; pass the files"):
        benchmark_files.imported("alpaca-eval", tmp_path, tmp_path / "empty")


def test_right_and_wrong_solutions_of_gsm8k_become_pairs(write, tmp_path):
    solutions = {"m": (True, "A: 4"), "n": (False, "A: 5"), "b": (False, "A: 6")}
    row = {"question": "2 + 2?", "ground_truth": "A: 4"}
    row |= {name: {"is_correct": right, "solution": text} for name, (right, text) in solutions.items()}
    _, rows = benchmark_files.imported("gsm8k-pairs", tmp_path, write(row))
    # models in the order of their names; b and n are both wrong
    assert [(row["answer_models"], row["winner"]) for row in rows] == [(["b", "m"], 2), (["m", "n"], 1)]
    assert {"reference", "metadata"}.isdisjoint(rows[0])


FIRST = {
    "prompt": "Say a.", "chosen": "a", "chosen_model": "m1", "rejected": "b", "rejected_model": "m2",
    "subset": "alpacaeval-easy", "id": 3,
}  # fmt: skip
SECOND = {
    "id": "12", "prompt": "Say a.", "chosen": ["a"], "rejected": ["b", "c", "d"], "subset": "Focus",
    "models": ["m1", "m2", "m3", "m4"], "additional_metadata": {"index": float("nan")},
}  # fmt: skip


def test_rewardbench_rows_and_protocol_contain_subset_and_section_also_from_parquet(imported, tmp_path):
    _, [row] = imported("rewardbench", FIRST)
    winner = row["winner"]
    assert (row["id"], row["category"], row["metadata"]["section"]) == ("alpacaeval-easy-3", "alpacaeval-easy", "Chat")
    assert (row[f"answer_{winner}"], row["answer_models"][winner - 1]) == ("a", "m1")
    protocol = json.loads((tmp_path / "out.protocol.json").read_text())
    assert protocol["details"]["sections"]["Safety"]["donotanswer"] == 136
    assert sum(len(subsets) for subsets in SECTIONS.values()) == 23
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([FIRST, FIRST | {"id": 4}]), tmp_path / "in.parquet")
    assert import_benchmark("rewardbench", [str(tmp_path / "in.parquet")], tmp_path / "new.jsonl").rows == 2


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
