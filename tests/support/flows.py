"""Driving a mode's generator by hand: what it asks, what it is told, what it concludes."""

import math

from judgelm.parsing.scores import score_lines
from judgelm.records import Completion, Sample

SAMPLE = Sample(id="1", question="q", answers=("a", "b"))


def text_of(prompt):
    return "".join(span.text for span in prompt.spans)


def logs(*probabilities):
    return tuple(math.log(one) if one else -math.inf for one in probabilities)


def reply(text, *, finish="stop", lines=None, shares=None, **fields):
    """A completion; `lines` are probabilities by score line of the scale 1 to 10, `shares` those of its candidates."""
    if lines is not None:
        shares = [lines.get(line, 0) for line in score_lines((1, 10), 1).texts]
    logprobs = None if shares is None else logs(*shares)
    fields = {"prompt_tokens": 10, "completion_tokens": 3} | fields
    return Completion(key="", texts=(text,), finish_reasons=(finish,), candidate_logprobs=logprobs, **fields)


def yes(probability, *, unassigned=0.0, **fields):
    """A reply to a question of yes or no with this P(yes); each word has six spellings."""
    mass = 1 - unassigned
    return reply("Yes", shares=[probability * mass, *[0] * 5, (1 - probability) * mass, *[0] * 5], **fields)


def broken(reason="error", error="out of order"):
    return Completion(key="", texts=(), finish_reasons=(reason,), error=error)


def drive(mode, *rounds, sample=SAMPLE):
    """All requests asked, round by round, and the judgment."""
    flow = mode(sample)
    asked = [next(flow)]
    for place, completions in enumerate(rounds):
        assert len(completions) == len(asked[-1]), f"round {place} asks {len(asked[-1])} requests"
        try:
            asked.append(flow.send(list(completions)))
        except StopIteration as finished:
            assert place == len(rounds) - 1, "the flow ended early"
            return asked, finished.value
    raise AssertionError(f"the flow goes on and asks {asked[-1]}")
