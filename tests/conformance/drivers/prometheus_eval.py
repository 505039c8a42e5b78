"""prometheus-eval: grades of 1 to 5 by a rubric, and the better of two responses."""

import json
import sys
from pathlib import Path

from prometheus_eval import PrometheusEval
from prometheus_eval.litellm import AsyncLiteLLM, LiteLLM
from prometheus_eval.prompts import ABSOLUTE_PROMPT, RELATIVE_PROMPT, SCORE_RUBRIC_TEMPLATE

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
MODELS = {
    "one by one": LiteLLM("openai/known", api_base=asked["base_url"]),
    "at once": AsyncLiteLLM("openai/known", api_base=asked["base_url"]),
}
levels = {f"score{level}_description": f"level {level}" for level in range(1, 6)}
rubric = SCORE_RUBRIC_TEMPLATE.format(criteria="Is it a good answer?", **levels)
singles, pairs = asked["singles"], asked["pairs"]
found = {}
for name, model in MODELS.items():
    judge = PrometheusEval(
        model=model, absolute_grade_template=ABSOLUTE_PROMPT, relative_grade_template=RELATIVE_PROMPT
    )
    _, grades = judge.absolute_grade(
        instructions=[one["question"] for one in singles],
        responses=[one["answer"] for one in singles],
        rubric=rubric,
        reference_answers=[one["reference"] for one in singles],
    )
    _, winners = judge.relative_grade(
        instructions=[one["question"] for one in pairs],
        responses_A=[one["first"] for one in pairs],
        responses_B=[one["second"] for one in pairs],
        rubric="Is it a good answer?",
        reference_answers=[one["question"] for one in pairs],
    )
    found[name] = {"grades": grades, "winners": winners}
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
