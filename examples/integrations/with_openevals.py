"""openevals' judge of correctness behind `judgelm serve`: each answer from 0 to 1.

export OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=unused
python examples/integrations/with_openevals.py
"""

import json
from pathlib import Path

from openevals.llm import create_llm_as_judge
from openevals.prompts import CORRECTNESS_PROMPT

ROWS = [json.loads(line) for line in Path(__file__).with_name("answers.jsonl").read_text(encoding="utf-8").splitlines()]
judge = create_llm_as_judge(
    prompt=CORRECTNESS_PROMPT, model="openai:gpt-4o", feedback_key="correctness", continuous=True
)
for row in ROWS:
    result = judge(inputs=row["question"], outputs=row["answer"], reference_outputs=row["reference"])
    print(f"{row['id']}\t{result['score']}")
