"""deepeval: G-Eval with steps of the user's own, with steps that it asks for, by a rubric, strict, and async."""

import json
import os
import sys
from pathlib import Path

os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] = "YES"

from deepeval.metrics import GEval
from deepeval.metrics.g_eval import Rubric
from deepeval.models import OpenAIModel
from deepeval.test_case import LLMTestCase, SingleTurnParams

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
FIELDS = [SingleTurnParams.INPUT, SingleTurnParams.ACTUAL_OUTPUT, SingleTurnParams.EXPECTED_OUTPUT]
STEPS = {"evaluation_steps": ["Is it right?", "Is it complete?"]}
RUBRIC = [
    Rubric(score_range=(0, 4), expected_outcome="The answer is wrong."),
    Rubric(score_range=(5, 10), expected_outcome="The answer is right."),
]
KINDS = {
    "steps": STEPS | {"async_mode": False},
    "criteria": {"criteria": "Is the actual output right?", "async_mode": False},
    "rubric": STEPS | {"rubric": RUBRIC, "async_mode": False},
    "strict": STEPS | {"strict_mode": True, "async_mode": False},
    "async": STEPS,
}
found = {}
for kind, options in KINDS.items():
    found[kind] = []
    for one in asked["singles"]:
        model = OpenAIModel(model="gpt-4o", base_url=asked["base_url"], api_key="none")
        metric = GEval(name="right", evaluation_params=FIELDS, model=model, **options)
        case = LLMTestCase(input=one["question"], actual_output=one["answer"], expected_output=one["reference"])
        metric.measure(case, _show_indicator=False)
        found[kind].append({"score": metric.score, "success": metric.success})
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
