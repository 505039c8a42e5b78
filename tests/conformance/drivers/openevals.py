"""openevals: its judge of correctness with a yes or no, a number, one of some choices; and through openai itself.

With `kinds` in the request: the prompts of these names.
"""

import json
import sys
from pathlib import Path

import openai
from openevals import prompts
from openevals.llm import create_llm_as_judge
from openevals.prompts import CORRECTNESS_PROMPT, TOXICITY_PROMPT

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
LANGCHAIN = {"model": "openai:known"}
OPENAI = {"model": "known", "judge": openai.OpenAI()}
KINDS = {
    "bool": LANGCHAIN,
    "continuous": LANGCHAIN | {"continuous": True},
    "choices": LANGCHAIN | {"choices": [0.0, 0.5, 1.0]},
    "openai": OPENAI,
    "no reasoning": OPENAI | {"continuous": True, "use_reasoning": False},
}


def verdicts():
    found = {}
    toxic = create_llm_as_judge(prompt=TOXICITY_PROMPT, feedback_key="score", **LANGCHAIN)
    found["toxic"] = [toxic(inputs=one["question"], outputs=one["answer"])["score"] for one in asked["singles"]]
    for kind, options in KINDS.items():
        judge = create_llm_as_judge(prompt=CORRECTNESS_PROMPT, feedback_key="score", **options)
        found[kind] = [
            judge(inputs=one["question"], outputs=one["answer"], reference_outputs=one["reference"])["score"]
            for one in asked["singles"]
        ]
    return found


def verdict(prompt, one):
    """The verdict, or None if the client cannot read the reply."""
    texts = {"inputs": one["question"], "outputs": one["answer"], "reference_outputs": one["reference"]}
    texts |= {"context": one["reference"], "plan": "1. Answer the question."}
    judge = create_llm_as_judge(prompt=prompt, feedback_key="score", **LANGCHAIN)
    try:
        return judge(**{name: text for name, text in texts.items() if f"{{{name}}}" in prompt})["score"]
    except Exception as error:
        sys.stderr.write(f"{prompt[:60]}: {error!r}\n")
        return None


if "kinds" in asked:
    found = {name: [verdict(getattr(prompts, name), one) for one in asked["singles"]] for name in asked["kinds"]}
else:
    found = verdicts()
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
