"""`judgelm.integrations` in the frameworks themselves, with a judge that always says 7, and one that says nothing."""

import json
import math
import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput
from inspect_ai.solver import solver
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.requests import Doc

from judgelm.integrations import inspect_scorer, lighteval_metric, lm_eval_results

SEVEN, NOTHING = ("7\n", "what\n")


@solver
def as_written():
    async def solve(state, generate):
        state.output = ModelOutput.from_content("written", state.metadata["answer"])
        return state

    return solve


def by_inspect(reply):
    dataset = [Sample(id=1, input="q", target="r", metadata={"answer": "a"})]
    task = Task(dataset=dataset, solver=as_written(), scorer=inspect_scorer(reply, engine="scripted"))
    [log] = eval(task, model="none/none", display="none")
    score = log.samples[0].scores["judgelm"]
    return None if math.isnan(score.value) else score.value, score.reason


def by_lighteval(reply):
    metric = lighteval_metric(reply, engine="scripted")
    doc = Doc(query="q", choices=["a"], gold_index=0)
    row = metric.compute_sample(doc=doc, model_response=ModelResponse(text=["b"]))
    means = metric.get_corpus_aggregations()
    return means["judge_score"]([row["judge_score"], 7.0]), row["judge_failed"]


def by_lm_eval(reply):
    return lm_eval_results(reply, target="ref", engine="scripted")({"question": "q", "ref": "a"}, ["b"])


json.dump([[run(reply) for reply in (SEVEN, NOTHING)] for run in (by_inspect, by_lm_eval, by_lighteval)], sys.stdout)
