"""flow-judge: a rubric of 1 to 5 and one of 0 and 1; the model behind it is asked through the openai package."""

import json
import sys
from pathlib import Path

import openai
from flow_judge import EvalInput, FlowJudge
from flow_judge.metrics import RESPONSE_CORRECTNESS_BINARY, RESPONSE_FAITHFULNESS_5POINT
from flow_judge.models.common import BaseFlowJudgeModel

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
client = openai.OpenAI(base_url=asked["base_url"], api_key="none")


class Asking(BaseFlowJudgeModel):
    """The client has no model that speaks OpenAI's API, so this one does."""

    def __init__(self):
        super().__init__("known", "openai", {})

    def _generate(self, prompt):
        messages = [{"role": "user", "content": prompt}]
        return client.chat.completions.create(model="known", messages=messages).choices[0].message.content

    def _batch_generate(self, prompts, use_tqdm=True, **_):
        return [self._generate(prompt) for prompt in prompts]


found = {}
for name, metric in (("binary", RESPONSE_CORRECTNESS_BINARY), ("five", RESPONSE_FAITHFULNESS_5POINT)):
    texts = {"query": "question", "context": "reference", "reference_answer": "reference"}
    inputs = [
        EvalInput(
            inputs=[{one: single[texts[one]]} for one in metric.required_inputs],
            output={metric.required_output: single["answer"]},
        )
        for single in asked["singles"]
    ]
    judge = FlowJudge(metric=metric, model=Asking())
    found[name] = [one.score for one in judge.batch_evaluate(inputs, save_results=False)]
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
