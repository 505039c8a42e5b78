"""G-Eval of DeepEval behind `judgelm serve`: each answer from 0 to 1.

export OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=unused
python examples/integrations/with_deepeval.py
"""

import json
import os
from pathlib import Path

os.environ.setdefault("DEEPEVAL_TELEMETRY_OPT_OUT", "YES")

from deepeval.metrics import GEval
from deepeval.models import OpenAIModel
from deepeval.test_case import LLMTestCase, SingleTurnParams

ROWS = [json.loads(line) for line in Path(__file__).with_name("answers.jsonl").read_text(encoding="utf-8").splitlines()]
metric = GEval(
    name="correctness",
    criteria="The actual output answers the input as the expected output does.",
    evaluation_params=[SingleTurnParams.INPUT, SingleTurnParams.ACTUAL_OUTPUT, SingleTurnParams.EXPECTED_OUTPUT],
    model=OpenAIModel(model="gpt-4o", base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")),
)
for row in ROWS:
    case = LLMTestCase(input=row["question"], actual_output=row["answer"], expected_output=row["reference"])
    metric.measure(case, _show_indicator=False)
    print(f"{row['id']}\t{metric.score}")
