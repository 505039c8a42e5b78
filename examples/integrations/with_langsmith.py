"""`evaluate` of LangSmith on local data, with openevals' judge behind `judgelm serve`; nothing is uploaded.

export OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=unused
python examples/integrations/with_langsmith.py
"""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

from langsmith import Client
from langsmith.schemas import Example
from openevals.llm import create_llm_as_judge
from openevals.prompts import CORRECTNESS_PROMPT

ROWS = [json.loads(line) for line in Path(__file__).with_name("answers.jsonl").read_text(encoding="utf-8").splitlines()]
judge = create_llm_as_judge(
    prompt=CORRECTNESS_PROMPT, model="openai:gpt-4o", feedback_key="correctness", continuous=True
)


def correctness(inputs: dict[str, str], outputs: dict[str, str], reference_outputs: dict[str, str]) -> Any:
    """Grade an answer from 0 to 1."""
    return judge(inputs=inputs["question"], outputs=outputs["answer"], reference_outputs=reference_outputs["reference"])


written = {row["question"]: row["answer"] for row in ROWS}
client = Client(api_key="unused", auto_batch_tracing=False)  # else it asks the service which limits it has
results = client.evaluate(
    lambda inputs: {"answer": written[inputs["question"]]},  # the application under evaluation
    data=[
        Example(
            id=uuid4(),
            inputs={"question": row["question"]},
            outputs={"reference": row["reference"]},
            metadata={"id": row["id"]},
        )
        for row in ROWS
    ],
    evaluators=[correctness],
    upload_runs=False,
    disable_evaluator_tracing=True,  # else LangChain's models upload what the judge is asked, whatever upload_runs says
    max_concurrency=4,
)
for result in results:
    for evaluation in result["evaluation_results"]["results"]:
        print(f"{result['example'].metadata['id']}\t{evaluation.score}")
