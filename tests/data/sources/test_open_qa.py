"""EVOUNA: rows in its published schema."""

from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.qa import MODELS
from tests.support.benchmark_files import published

ROW = {
    "question": "Who wrote it?",
    "golden_answer": "A. Author/The Author",
    **{f"answer_{model}": f"By {model}." for model in MODELS},
    **{f"judge_{model}": model != "fid" for model in MODELS},
    "improper": False,
}


def test_each_models_answer_is_a_row(imported, tmp_path):
    _, rows = imported("evouna", ROW, file="NQ.json")
    assert [row["id"] for row in rows] == [f"NQ-1-{model}" for model in MODELS]
    assert rows[0]["reference"] == "A. Author"
    assert rows[0]["metadata"]["references"] == ["A. Author", "The Author"]
    assert rows[0]["category"] == "NQ fid"
    labels = read_labels(str(tmp_path / "out.jsonl")).labels
    assert (labels["NQ-1-fid"].scores, labels["NQ-1-gpt4"].scores) == ((0.0,), (1.0,))


def test_improper_questions_and_answers_without_a_verdict_are_rejects(imported):
    done, rows = imported("evouna", ROW, ROW | {"improper": True}, ROW | {"judge_gpt4": None}, file="NQ.json")
    assert len(rows) == 9
    reasons = " ".join(reject.reason for reject in done.rejects)
    assert "marked as improper" in reasons
    assert "the answer was not judged" in reasons


def test_the_published_files(tmp_path):
    done = import_benchmark("evouna", published("evouna", "EVOUNA/TQ.json"), tmp_path / "out.jsonl")
    # 62 of 2,000 questions are improper
    assert done.rows == 5 * 1938
