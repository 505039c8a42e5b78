"""A judge that is read off words, with strengths that stand in the answers: an engine with probabilities."""

import hashlib
import math
from dataclasses import replace
from pathlib import Path

from judgelm.engines.scripted import ScriptedEngine


def chances(prompt, words):
    """Word -> probability, without blanks."""
    answers = [span.text for span in prompt.spans if span.kind == "answer"]
    if any(answer == "mute" for answer in answers):
        return {}
    strengths = [tuple(map(float, answer.split())) for answer in answers]
    if len(answers) == 2:
        first = 1 / (1 + math.exp(strengths[1][1] - strengths[0][1]))
        return {"A": first, "B": 1 - first}
    if "Yes" in words:
        yes = 1 / (1 + math.exp(-strengths[0][0]))
        return {"Yes": yes, "No": 1 - yes}
    return {f"{round(5 + strengths[0][0])}": 1.0}


class WordEngine(ScriptedEngine):
    """See the module; `model` is a file, whose bytes identify the model, and `asked` the number of requests."""

    asked = 0
    breaks_at = math.inf

    def __init__(self, options=None):
        super().__init__({"*": "Yes"})
        self.model = None if options is None else Path(options.model)

    def describe(self):
        sha = hashlib.sha256(self.model.read_bytes() if self.model else b"").hexdigest()
        return super().describe() | {"model": {"path": str(self.model), "sha": sha}}

    def answer(self, request):
        WordEngine.asked += 1
        if WordEngine.asked >= WordEngine.breaks_at:
            raise KeyboardInterrupt
        known = chances(request.prompt, request.candidates)
        completion = super().answer(request)
        masses = [0.0 if word.startswith(" ") else known.get(word, 0.0) for word in request.candidates]
        logprobs = tuple(math.log(mass) if mass else -math.inf for mass in masses)
        return replace(completion, candidate_logprobs=logprobs)
