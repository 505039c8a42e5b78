"""DSPy: a judge as a signature, with and without reasons.

With `kinds` in the request: a judge with two fields, by these adapters. A reply that the chat adapter cannot read makes
DSPy ask again by the JSON adapter, so this fallback is off.
"""

import json
import os
import sys
from pathlib import Path
from typing import Literal

import dspy

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
address = {"api_base": os.environ["OPENAI_BASE_URL"], "api_key": "unused", "cache": False, "num_retries": 0}
dspy.configure(lm=dspy.LM("openai/known", **address))


class IsRight(dspy.Signature):
    """Decide whether the answer is right."""

    question: str = dspy.InputField()
    answer: str = dspy.InputField()
    reference: str = dspy.InputField()
    is_right: bool = dspy.OutputField()


class Graded(dspy.Signature):
    """Grade the tone of the answer, and its clarity from 0 to 1."""

    question: str = dspy.InputField()
    answer: str = dspy.InputField()
    tone: Literal["polite", "neutral", "rude"] = dspy.OutputField()
    clarity: float = dspy.OutputField()


ADAPTERS = {
    "chat": {"adapter": dspy.ChatAdapter(use_json_adapter_fallback=False)},
    "json": {"adapter": dspy.JSONAdapter()},
    "json schema": {"adapter": dspy.JSONAdapter(), "lm": dspy.LM("openai/gpt-4o", **address)},  # known to support them
}


def graded(name, one):
    """Tone and clarity, or None if the client cannot read the reply."""
    try:
        with dspy.context(**ADAPTERS[name]):
            reply = dspy.ChainOfThought(Graded)(question=one["question"], answer=one["answer"])
        return [reply.tone, reply.clarity]
    except Exception as error:
        sys.stderr.write(f"{name}: {error!r}\n")
        return None


if "kinds" in asked:
    found = {name: [graded(name, one) for one in asked["singles"]] for name in asked["kinds"]}
else:
    modules = {"predict": dspy.Predict(IsRight), "reasons": dspy.ChainOfThought(IsRight)}
    found = {kind: [bool(module(**one).is_right) for one in asked["singles"]] for kind, module in modules.items()}
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
