"""inspect_ai: its model-graded scorers grade replies that were written before."""

import json
import sys
import tempfile
from pathlib import Path

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import model_graded_fact, model_graded_qa
from inspect_ai.solver import solver

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
SCORERS = {
    "qa": model_graded_qa(model="openai/gpt-4o"),
    "fact": model_graded_fact(model="openai/gpt-4o"),
    "partial": model_graded_qa(model="openai/gpt-4o", partial_credit=True),
}


@solver
def as_written():
    async def solve(state, generate):
        state.output = ModelOutput.from_content("written", state.metadata["answer"])
        return state

    return solve


dataset = [
    Sample(input=one["question"], target=one["reference"], metadata={"answer": one["answer"]})
    for one in asked["singles"]
]
found = {}
for name, scorer in SCORERS.items():
    with tempfile.TemporaryDirectory() as logs:
        task = Task(dataset=dataset, solver=as_written(), scorer=scorer)
        [log] = eval(task, model="none/none", log_dir=logs, display="none")
        assert log.status == "success", log.error
        found[name] = {"grades": [next(iter(sample.scores.values())).value for sample in log.samples]}
        found[name] |= {metric.name: metric.value for metric in log.results.scores[0].metrics.values()}
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
