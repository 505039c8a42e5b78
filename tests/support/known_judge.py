"""A judge whose opinion of every answer is known, as a real engine with probabilities."""

import hashlib
import math
import re
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

from judgelm.engines.scripted import ScriptedEngine
from judgelm.judge import Judge
from judgelm.runs.engine_worker import EngineWorker
from judgelm.serving.handler import HandlerOptions, JudgeHandler

_TURN = re.compile(r"\[Turn (\d+)\]")


def quality(answer):
    """From 2 to 9."""
    return 2 + hashlib.sha256(re.sub(r"[\W_]", "", answer).encode()).digest()[0] % 8


CHANCES = {0: 0.5, 1: 0.8125, 2: 0.96875, -1: 0.1875, -2: 0.03125}
"""P(first is better, ties half) by the difference of the qualities; beyond 2 it is certain."""


def of_quality(wanted, nth=0):
    """An answer of this quality, and others of it."""
    found = (text for number in range(10_000) if quality(text := f"This is answer number {number}.") == wanted)
    return [text for _, text in zip(range(nth + 1), found, strict=False)][-1]


def judged(prompt):
    """The answers that a prompt asks to judge: of a dialogue those of its last turn."""
    labels = [found for span in prompt.spans if span.kind == "template" for found in _TURN.findall(span.text)]
    turns = max(map(int, labels), default=1)
    return [span.text for span in prompt.spans if span.kind == "answer"][turns - 1 :: turns]


def opinion(prompt):
    blank = " " if prompt.prefill else ""
    spread = [
        [(quality(one) + step, share) for step, share in ((-1, 0.25), (0, 0.5), (1, 0.25))] for one in judged(prompt)
    ]
    return {
        blank + " ".join(str(score) for score, _ in line): math.prod(share for _, share in line)
        for line in product(*spread)
    }


def word_opinion(prompt):
    qualities = [quality(answer.rpartition("Assistant: ")[2]) for answer in judged(prompt)]
    if len(qualities) == 1:
        share = (qualities[0] - 1) / 9
        return {"Yes": share, "No": 1 - share}
    weights = [2.0**each for each in qualities]
    return {letter: weight / sum(weights) for letter, weight in zip("ABCDEFGH", weights, strict=False)}


class KnownEngine(ScriptedEngine):
    """Writes the likeliest line of an opinion, and knows how probable all are."""

    def __init__(self, opinion=opinion, *, logprobs=True, approximation="", reason="It is the better one."):
        super().__init__(self.write)
        self.opinion = opinion
        self.logprobs = logprobs
        self.approximation = approximation
        self.reason = reason
        self.prompts = []

    def write(self, prompt):
        self.prompts.append(prompt)
        if prompt.prefill.endswith("\n"):
            return self.reason
        lines = self.opinion(prompt)
        return max(lines, key=lines.get) + "\n"

    def answer(self, request):
        completion = super().answer(request)
        if not request.candidates or completion.candidate_logprobs is None:
            return completion
        lines = self.opinion(request.prompt)
        known = tuple(math.log(lines[one]) if one in lines else -math.inf for one in request.candidates)
        return replace(
            completion, candidate_logprobs=known if self.logprobs else None, approximation=self.approximation
        )


def known_judge(engine=None, **options):
    judge = Judge("8 6", engine="scripted", **options)
    judge.engine = engine or KnownEngine()
    return judge


@contextmanager
def handler_of(engine=None, *, scale=None, template=None, **options):
    judge = known_judge(engine)
    if scale is not None:
        judge.format = replace(judge.format, scale=scale)
    if template is not None:
        judge.format = replace(judge.format, template=template)
    worker = EngineWorker(judge.engine)
    try:
        yield JudgeHandler(judge, worker, HandlerOptions(**options))
    finally:
        worker.close()
