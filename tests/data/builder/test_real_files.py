"""The builder on real judgments: GPT-4's reviews of Vicuna and three preference sets, every decision counted."""

import json
import subprocess
import sys
from pathlib import Path

from judgelm.data.builder.options import build_options
from judgelm.data.builder.pipeline import build

ROOT = Path(__file__).parents[3]
WINNER_SCORES = [8, 4, 6]


def test_real_reviews_and_preferences(shared_data, tmp_path):
    reviews = shared_data / "vicuna_reviews"
    command = [sys.executable, ROOT / "data_tools" / "convert.py", "reviews", "-o", tmp_path / "reviews.jsonl",
               "--questions", reviews / "question.jsonl", "--answers", *sorted((reviews / "answer").iterdir()),
               "--reviews", *sorted((reviews / "review").iterdir())]  # fmt: skip
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    preferences = {
        "pandalm": "pandalm/testset-v1.json",
        "natural": "llmbar/Natural/dataset.json",
        "neighbor": "llmbar/Adversarial_Neighbor/dataset.json",
    }
    inputs = [str(tmp_path / "reviews.jsonl")] + [
        {"path": str(shared_data / path), "name": name, "winner_scores": WINNER_SCORES}
        for name, path in preferences.items()
    ]
    values = {"inputs": inputs, "out": str(tmp_path / "out"), "validation": 0.1, "subsets": [500], "swap": "both"}
    done = build(build_options(values, "test"))
    counts = done.counts
    assert counts.read == {"reviews": 640, "pandalm": 999, "natural": 100, "neighbor": 134}
    assert counts.dropped == {
        ("reviews", "scores outside the scale"): 2,  # GPT-4 wrote `0 9` on a scale of 1 to 10
        ("pandalm", "exact duplicate"): 148,
        ("pandalm", "near duplicate"): 6,
    }
    assert counts.before.pairs == 640 + 999 + 100 + 134 - 2 - 148 - 6
    assert counts.ambiguous == {}
    assert counts.swapped == {"swapped": counts.before.pairs - counts.validation.pairs}
    winners = counts.train.winners
    assert winners["1"] == winners["2"], "both orders of every pair"
    for line in (tmp_path / "out" / "train-500.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert row["text"].split("\n")[0] == " ".join(f"{score:g}" for score in row["score"])
