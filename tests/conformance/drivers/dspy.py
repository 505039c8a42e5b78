"""DSPy: a judge as a signature, with and without reasons."""

import json
import os
import sys
from pathlib import Path

import dspy

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
model = dspy.LM("openai/known", api_base=os.environ["OPENAI_BASE_URL"], api_key="unused", cache=False, num_retries=0)
dspy.configure(lm=model)


class IsRight(dspy.Signature):
    """Decide whether the answer is right."""

    question: str = dspy.InputField()
    answer: str = dspy.InputField()
    reference: str = dspy.InputField()
    is_right: bool = dspy.OutputField()


found = {}
for kind, module in (("predict", dspy.Predict(IsRight)), ("reasons", dspy.ChainOfThought(IsRight))):
    found[kind] = [bool(module(**{**one, "reference": one["reference"]}).is_right) for one in asked["singles"]]
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
