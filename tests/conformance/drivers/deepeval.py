"""deepeval: G-Eval with steps of the user's own, with steps that it asks for, by a rubric, strict, and async.

With `kinds` in the request: other metrics of these names, most of which ask several times for each answer.
"""

import json
import os
import sys
from pathlib import Path

os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] = "YES"

from deepeval.metrics import (
    AnswerRelevancyMetric,
    BiasMetric,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ContextualRelevancyMetric,
    FaithfulnessMetric,
    GEval,
    HallucinationMetric,
    ToxicityMetric,
)
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
REST = {
    "answer relevancy": AnswerRelevancyMetric,
    "faithfulness": FaithfulnessMetric,
    "hallucination": HallucinationMetric,
    "bias": BiasMetric,
    "toxicity": ToxicityMetric,
    "contextual relevancy": ContextualRelevancyMetric,
    "contextual precision": ContextualPrecisionMetric,
    "contextual recall": ContextualRecallMetric,
}


def model():
    return OpenAIModel(model="gpt-4o", base_url=asked["base_url"], api_key="none")


def graded(options, one):
    metric = GEval(name="right", evaluation_params=FIELDS, model=model(), **options)
    metric.measure(case(one), _show_indicator=False)
    return {"score": metric.score, "success": metric.success}


def scored(name, one):
    """The score, or None if the client cannot read a reply."""
    metric = REST[name](model=model(), async_mode=False)
    try:
        return metric.measure(case(one), _show_indicator=False)
    except Exception as error:
        sys.stderr.write(f"{name}: {error!r}\n")
        return None


def case(one):
    texts = {"input": one["question"], "actual_output": one["answer"], "expected_output": one["reference"]}
    return LLMTestCase(**texts, context=[one["reference"]], retrieval_context=[one["reference"]])


if "kinds" in asked:
    found = {name: [scored(name, one) for one in asked["singles"]] for name in asked["kinds"]}
else:
    found = {kind: [graded(options, one) for one in asked["singles"]] for kind, options in KINDS.items()}
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
