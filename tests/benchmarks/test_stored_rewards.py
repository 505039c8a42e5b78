"""The published rewards on JudgeBench: verdicts of stored rewards, and the stored results."""

import json

from benchmarks.stored_rewards import OUT, TABLE_3, accuracies, verdicts


def row(number, label, scores, source="mmlu-pro-law"):
    judgment = {"judgment": {"scores": scores}, "decision": ""}
    return {"pair_id": f"p{number}", "question": "q", "label": label, "source": source, "judgments": [judgment]}


def test_stored_rewards_become_verdicts_and_accuracies():
    rows = [
        row(1, "A>B", [1.5, -2]),
        row(2, "A>B", [3, 4], "livebench-math"),
        row(3, "B>A", [5.0, 5.0], "livebench-reasoning"),
        row(4, "B>A", [5.0, 6.0], "livecodebench"),
    ]
    winners = verdicts(rows)
    assert winners == [1, 2, "tie", 2]
    # by the authors' rule a tie is the second answer: right in 3 of 4
    assert accuracies(rows, winners, tie=2) == {
        "Knowledge": 100.0, "Math": 0.0, "Reasoning": 100.0, "Coding": 100.0, "Overall": 75.0,
    }  # fmt: skip
    assert accuracies(rows, winners, tie="tie")["Overall"] == 50.0


def test_the_stored_results_equal_the_published_table():
    results = json.loads(OUT.read_text(encoding="utf-8"))
    assert results.keys() == TABLE_3.keys()
    for name, result in results.items():
        assert result["pairs"] == 350
        assert tuple(result["by_authors_rule"].values()) == TABLE_3[name]
