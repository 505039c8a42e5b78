"""The metric of judged_answers.yaml: the score of a judge behind `judgelm serve`, from 1 to 10."""

import os
from typing import Any

import requests

JUDGE = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1") + "/judge"


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Grade one answer. Without a verdict there is no score: the mean is over judged answers only."""
    sample = {"question": doc["question"], "answer": results[0], "reference": doc["reference"]}
    reply = requests.post(JUDGE, json={"mode": "single", "options": {"against": "reference"}, **sample}, timeout=600)
    reply.raise_for_status()
    verdict = reply.json()["verdict"]
    if verdict is None:
        return {"judge_failed": 1.0}
    return {"judge_failed": 0.0, "judge_score": verdict["score"]}
