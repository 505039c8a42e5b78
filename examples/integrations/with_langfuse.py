"""An experiment of Langfuse whose evaluator asks a judge behind `judgelm serve`, without Langfuse's service.

export OPENAI_BASE_URL=http://127.0.0.1:8000/v1
python examples/integrations/with_langfuse.py

With the keys of a Langfuse project and without `tracing_enabled=False`, the same scores go to that project.
"""

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

from langfuse import Evaluation, Langfuse

JUDGE = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1") + "/judge"
ROWS = [json.loads(line) for line in Path(__file__).with_name("answers.jsonl").read_text(encoding="utf-8").splitlines()]


def answer(*, item: dict[str, Any], **_: Any) -> str:
    """The application under evaluation; here its answers are already written."""
    return str(item["metadata"]["answer"])


def judge(*, input: str, output: str, expected_output: str, **_: Any) -> list[Evaluation]:
    """Grade an answer from 1 to 10; a failed judgment gives no score, so that no mean counts it."""
    sample = {"question": input, "answer": output, "reference": expected_output}
    body = {"mode": "single", "options": {"against": "reference"}, **sample}
    with urllib.request.urlopen(JUDGE, data=json.dumps(body).encode(), timeout=600) as reply:
        judgment = json.load(reply)
    if judgment["verdict"] is None:
        return []
    return [Evaluation(name="judge_score", value=judgment["verdict"]["score"])]


langfuse = Langfuse(public_key="unused", secret_key="unused", tracing_enabled=False)
result = langfuse.run_experiment(
    name="judged answers",
    data=[{"input": row["question"], "expected_output": row["reference"], "metadata": row} for row in ROWS],
    task=answer,
    evaluators=[judge],
)
for item_result in result.item_results:
    for evaluation in item_result.evaluations:
        print(f"{item_result.item['metadata']['id']}\t{evaluation.value}")
