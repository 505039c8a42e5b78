"""inspect_ai: its model-graded scorers grade replies that were written before."""

import json
import sys
import tempfile
from pathlib import Path

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import model_graded_fact, model_graded_qa

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
found = {}
for name, scorer in (("qa", model_graded_qa), ("fact", model_graded_fact)):
    answers = [ModelOutput.from_content("mockllm/model", one["answer"]) for one in asked["singles"]]
    task = Task(
        dataset=[Sample(input=one["question"], target=one["reference"]) for one in asked["singles"]],
        scorer=scorer(model="openai/known"),
    )
    solver = get_model("mockllm/model", custom_outputs=answers)
    with tempfile.TemporaryDirectory() as logs:
        [log] = eval(task, model=solver, log_dir=logs, display="none", max_connections=1, max_samples=1)
    assert log.status == "success", log.error
    found[name] = [next(iter(sample.scores.values())).value for sample in log.samples]
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
