"""opik: its metrics for single answers, and G-Eval with criteria of its own."""

import json
import os
import sys
from pathlib import Path

os.environ["OPIK_TRACK_DISABLE"] = "true"
os.environ["OPIK_SENTRY_ENABLE"] = "false"

from opik.evaluation.metrics import AnswerRelevance, GEval, Hallucination, Moderation, Usefulness
from opik.evaluation.models import LiteLLMChatModel

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
model = LiteLLMChatModel(model_name="openai/gpt-4o", api_base=asked["base_url"], api_key="none", track=False)
OPTIONS = {"model": model, "track": False}
METRICS = {
    "hallucination": Hallucination(**OPTIONS),
    "hallucination with context": Hallucination(**OPTIONS),
    "answer relevance": AnswerRelevance(require_context=False, **OPTIONS),
    "usefulness": Usefulness(**OPTIONS),
    "moderation": Moderation(**OPTIONS),
    "g-eval": GEval(task_introduction="You grade answers.", evaluation_criteria="Is the answer right?", **OPTIONS),
}


def value(name, metric, one):
    """The score, or None if the client cannot read the reply."""
    context = {"context": [one["reference"]]} if name.endswith("context") else {}
    try:
        return metric.score(input=one["question"], output=one["answer"], **context).value
    except Exception as error:
        sys.stderr.write(f"{name}: {error!r}\n")
        return None


found = {name: [value(name, METRICS[name], one) for one in asked["singles"]] for name in asked.get("kinds", METRICS)}
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
