"""PandaLM, LLMBar, JudgeBench and Auto-J, in the shapes in which they are published."""

import json
from collections import Counter

from judgelm.data.labelled_set import read_labels
from tests.support.benchmark_files import imported

PANDALM = {
    "idx": 0, "motivation_app": "Gmail", "cmp_key": "opt-7b_pythia-6.9b", "instruction": "Sum up.",
    "input": "A long text.", "response1": "Text.", "response2": True, "annotator1": 1, "annotator2": 0, "annotator3": 1,
}  # fmt: skip


def test_pandalm_takes_the_majority_and_keeps_the_input_apart(write, tmp_path):
    path = write(PANDALM, PANDALM | {"idx": 1, "input": "", "annotator3": 2})
    done, [first, second] = imported("pandalm", tmp_path, path)
    # votes 1, tie, 1: two of three; votes 1, tie, 2: no majority
    assert (first["winner"], first["votes"]) == (1, [1, "tie", 1])
    assert (first["question"], first["answer_2"]) == ("Sum up.\n\nA long text.", "True")
    assert (first["metadata"]["instruction"], first["metadata"]["input"]) == ("Sum up.", "A long text.")
    assert ("winner" in second, "input" in second["metadata"]) == (False, False)
    assert (done.winners, done.unlabelled) == ({"1": 1}, 1)


def test_llmbars_sets_are_named_by_their_folders(write, tmp_path):
    row = {"input": "Say a.", "output_1": "b", "output_2": "a", "label": 2}
    paths = [write(row, name=f"{name}/dataset.json") for name in ("Natural", "GPTInst")]
    _, rows = imported("llmbar", tmp_path, *paths)
    found = [(row["id"], row["category"], row["winner"]) for row in rows]
    assert found == [("Natural-1", "Natural", 2), ("GPTInst-1", "GPTInst", 2)]


def test_judgebench_has_four_categories_and_two_labels(write, tmp_path):
    row = {"question": "q", "response_model": "gpt-4o-2024-05-13", "response_A": "a", "response_B": "b", "label": "B>A"}
    sources = ("mmlu-pro-law", "livebench-reasoning", "livebench-math", "livecodebench")
    rows = [row | {"pair_id": f"p{number}", "source": source} for number, source in enumerate(sources)]
    done, found = imported("judgebench", tmp_path, write(*rows, rows[3] | {"pair_id": "p4", "label": "A=B"}))
    assert [row["category"] for row in found] == ["knowledge", "reasoning", "math", "coding"]
    assert {row["winner"] for row in found} == {2}
    assert found[0]["answer_models"] == ["gpt-4o-2024-05-13"] * 2
    assert 'expected one of A>B, B>A, got "A=B"' in done.rejects[0].message
    assert json.loads((tmp_path / "out.rejects.jsonl").read_text())["line"] == 5


def test_auto_js_labels_count_from_0_and_2_is_a_tie(write, tmp_path):
    base = {"scenario": "chitchat", "prompt": "Hi.", "response 1": "Hello.", "response 2": "Yes?"}
    _, rows = imported("auto-j", tmp_path, write(*(base | {"label": label} for label in (0, 1, 2))))
    assert [(row["id"], row["winner"]) for row in rows] == [("auto-j-1", 1), ("auto-j-2", 2), ("auto-j-3", "tie")]
    assert rows[0]["category"] == "chitchat"


def test_the_real_pandalm_says_what_reading_it_directly_says(shared_data, tmp_path):
    path = str(shared_data / "pandalm" / "testset-v1.json")
    done, _ = imported("pandalm", tmp_path, path)
    assert done.winners == {"tie": 105, "1": 422, "2": 472}
    ours, direct = read_labels(str(tmp_path / "out.jsonl")), read_labels(path)
    assert ours.labels == direct.labels
    for name, sample in direct.samples.items():
        found = ours.samples[name]
        assert (found.question, found.answers) == (sample.question, sample.answers)
        assert (found.answer_models, found.category) == (sample.answer_models, sample.category)


def test_the_real_llmbar(shared_data, tmp_path):
    sets = ("Natural", "Adversarial_Neighbor")
    imported("llmbar", tmp_path, *(str(shared_data / "llmbar" / name / "dataset.json") for name in sets))
    labelled = read_labels(str(tmp_path / "out.jsonl"))
    assert Counter(labelled.groups["category"].values()) == {"Natural": 100, "Adversarial_Neighbor": 134}
    assert (len(labelled.labels), labelled.unlabelled) == (234, 0)
