"""PandaLM, LLMBar, JudgeBench and Auto-J, in the shapes in which they are published."""

import json
from collections import Counter

from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.source import protocol_of
from tests.support.benchmark_files import imported


def written(path, rows, lines=True):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows) if lines else json.dumps(rows)
    path.write_text(text, encoding="utf-8")
    return str(path)


PANDALM = {
    "idx": 0,
    "motivation_app": "Gmail",
    "cmp_key": "opt-7b_pythia-6.9b",
    "instruction": "Sum up.",
    "input": "A long text.",
    "response1": "Text.",
    "response2": True,
    "annotator1": 1,
    "annotator2": 0,
    "annotator3": 1,
}


def test_pandalm_takes_the_majority_and_keeps_the_input_apart(tmp_path):
    path = written(
        tmp_path / "testset-v1.json", [PANDALM, PANDALM | {"idx": 1, "input": "", "annotator3": 2}], lines=False
    )
    done, [first, second] = imported("pandalm", tmp_path, path)
    # votes 1, tie, 1: two of three; votes 1, tie, 2: no majority
    assert (first["winner"], first["votes"]) == (1, [1, "tie", 1])
    assert (first["question"], first["answer_2"]) == ("Sum up.\n\nA long text.", "True")
    assert first["metadata"]["instruction"] == "Sum up."
    assert first["metadata"]["input"] == "A long text."
    assert "winner" not in second
    assert "input" not in second["metadata"]
    assert (done.winners, done.unlabelled) == ({"1": 1}, 1)


def test_llmbars_sets_are_named_by_their_folders(tmp_path):
    row = {"input": "Say a.", "output_1": "b", "output_2": "a", "label": 2}
    paths = [written(tmp_path / name / "dataset.json", [row], lines=False) for name in ("Natural", "GPTInst")]
    _, rows = imported("llmbar", tmp_path, *paths)
    assert [(row["id"], row["category"], row["winner"]) for row in rows] == [
        ("Natural-1", "Natural", 2),
        ("GPTInst-1", "GPTInst", 2),
    ]


def judgebench_row(number, source, label):
    return {
        "pair_id": f"p{number}",
        "original_id": "7",
        "source": source,
        "question": "q",
        "response_model": "gpt-4o-2024-05-13",
        "response_A": "a",
        "response_B": "b",
        "label": label,
    }


def test_judgebench_has_four_categories(tmp_path):
    sources = ("mmlu-pro-law", "livebench-reasoning", "livebench-math", "livecodebench")
    rows = [judgebench_row(number, source, "B>A") for number, source in enumerate(sources)]
    done, found = imported("judgebench", tmp_path, written(tmp_path / "pairs.jsonl", rows))
    assert [row["category"] for row in found] == ["knowledge", "reasoning", "math", "coding"]
    assert {row["winner"] for row in found} == {2}
    assert found[0]["answer_models"] == ["gpt-4o-2024-05-13"] * 2
    assert "one does and the other says tie" in protocol_of(done.benchmark).metric


def test_a_judgebench_row_without_a_known_label_is_a_reject(tmp_path):
    rows = [judgebench_row(1, "livecodebench", "A>B"), judgebench_row(2, "livecodebench", "A=B")]
    done, found = imported("judgebench", tmp_path, written(tmp_path / "pairs.jsonl", rows))
    assert len(found) == 1
    assert 'expected one of A>B, B>A, got "A=B"' in done.rejects[0].message
    assert json.loads((tmp_path / "out.rejects.jsonl").read_text())["line"] == 2


def test_auto_js_labels_count_from_0_and_2_is_a_tie(tmp_path):
    base = {"scenario": "chitchat", "prompt": "Hi.", "response 1": "Hello.", "response 2": "Yes?"}
    path = written(tmp_path / "testdata_pairwise.jsonl", [base | {"label": label} for label in (0, 1, 2)])
    _, rows = imported("auto-j", tmp_path, path)
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
