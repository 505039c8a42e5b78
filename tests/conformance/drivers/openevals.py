"""openevals: its judge of correctness, with a yes or no, a number, and one of some choices."""

import json
import sys
from pathlib import Path

from openevals.llm import create_llm_as_judge
from openevals.prompts import CORRECTNESS_PROMPT

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
KINDS = {"bool": {}, "continuous": {"continuous": True}, "choices": {"choices": [0.0, 0.5, 1.0]}}
found = {}
for kind, options in KINDS.items():
    judge = create_llm_as_judge(prompt=CORRECTNESS_PROMPT, model="openai:known", feedback_key="score", **options)
    found[kind] = [
        judge(inputs=one["question"], outputs=one["answer"], reference_outputs=one["reference"])["score"]
        for one in asked["singles"]
    ]
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
