"""deepeval: G-Eval with steps of the user's own, with steps that it asks for, and strict."""

import json
import os
import sys
from pathlib import Path

os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] = "YES"

from deepeval.metrics import GEval
from deepeval.models import GPTModel
from deepeval.test_case import LLMTestCase

try:
    from deepeval.test_case import SingleTurnParams as Params
except ImportError:
    from deepeval.test_case import LLMTestCaseParams as Params

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
FIELDS = [Params.INPUT, Params.ACTUAL_OUTPUT, Params.EXPECTED_OUTPUT]
KINDS = {
    "steps": {"evaluation_steps": ["Is it right?", "Is it complete?"]},
    "criteria": {"criteria": "Is the actual output right?"},
    "strict": {"evaluation_steps": ["Is it right?"], "strict_mode": True},
}
found = {}
for kind, options in KINDS.items():
    scores = []
    for one in asked["singles"]:
        metric = GEval(
            name="right",
            evaluation_params=FIELDS,
            model=GPTModel(model="gpt-4o", base_url=asked["base_url"], api_key="none"),
            async_mode=False,
            **options,
        )
        metric.measure(
            LLMTestCase(input=one["question"], actual_output=one["answer"], expected_output=one["reference"]),
            _show_indicator=False,
        )
        scores.append(metric.score)
    found[kind] = scores
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
