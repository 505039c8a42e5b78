"""A task of inspect_ai whose scorer asks a judge behind `judgelm serve`: C (correct) or I (incorrect).

export OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=unused
python examples/integrations/with_inspect_ai.py
"""

import json
from pathlib import Path

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import model_graded_qa
from inspect_ai.solver import Generate, Solver, TaskState, solver

ROWS = [json.loads(line) for line in Path(__file__).with_name("answers.jsonl").read_text(encoding="utf-8").splitlines()]


@solver
def as_written() -> Solver:
    """The model under evaluation; here its answers are already written. Else: `generate()`."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.output = ModelOutput.from_content("written", state.metadata["answer"])
        return state

    return solve


task = Task(
    dataset=[
        Sample(id=row["id"], input=row["question"], target=row["reference"], metadata={"answer": row["answer"]})
        for row in ROWS
    ],
    solver=as_written(),
    scorer=model_graded_qa(model="openai/gpt-4o"),
)
[log] = eval(task, model="none/none", display="none")
for sample in log.samples or []:
    print(f"{sample.id}\t{sample.scores['model_graded_qa'].value}")
