"""Prompts that repeat a dialect's own fixed texts ten thousand times: recognised in time linear in their length.

Without this a single request of 2 MB, which the server takes, would hold up all others for seconds.
"""

import re
import time
from dataclasses import replace

import pytest

from judgelm.dialects import (
    benchmarks,
    catalog,
    deepeval,
    instruction_following,
    judge_models,
    openevals,
    promptfoo,
    ragas,
)
from judgelm.dialects.contract import Dialect
from judgelm.dialects.splits import Pattern, latest_split, resolve_split
from tests.support import captures

SMALL, LARGE = 500_000, 2_000_000
ABSOLUTE_S, NOISE_S = 1.0, 0.05
TIMES = 8  # four times the text; quadratic time would be sixteen times as long
FAMILIES = (benchmarks, deepeval, instruction_following, judge_models, openevals, promptfoo, ragas)
BLOCKS = tuple(
    (f"[The Start of Assistant {name}'s Answer]", f"[The End of Assistant {name}'s Answer]") for name in "12AB"
)


def patterns(value):
    """All patterns in a module's constants, however they are put together."""
    if isinstance(value, Pattern):
        yield value
    elif isinstance(value, Dialect):
        yield from value.templates
    elif isinstance(value, dict | tuple | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from patterns(item)


def units(repeated):
    """What to repeat: each fixed text of these patterns, and several in a row."""
    for pattern in repeated:
        yield from (*pattern.anchors, "x".join(pattern.anchors), "x".join(pattern.anchors[1:-1]))


def check(work, unit, place):
    """See that work on a text that holds the unit over and over takes little time, and four times as much for four
    times the text.
    """

    def seconds(size):
        began = time.process_time()
        work(unit * (size // len(unit)))
        return time.process_time() - began

    if seconds(LARGE) > NOISE_S:  # measured again: another process on the same cores slows single measurements down
        small, large = (min(seconds(size) for _ in range(3)) for size in (SMALL, LARGE))
        assert large < ABSOLUTE_S, (place, unit[:80], large)
        assert large < TIMES * small + NOISE_S, (place, unit[:80], small, large)


@pytest.mark.slow  # it measures time
@pytest.mark.parametrize("family", FAMILIES, ids=lambda module: module.__name__)
def test_a_text_full_of_its_own_borders_is_split_in_linear_time(family):
    for pattern in dict.fromkeys(patterns(tuple(vars(family).values()))):
        ways = [lambda text, by=pattern: by.split(text)]
        if not pattern.anywhere:
            ways += [
                lambda text, by=pattern: resolve_split(by, text, blocks=BLOCKS),
                lambda text, by=pattern: latest_split(by, text),
            ]
        for unit in dict.fromkeys(filter(None, units([pattern]))):
            first, *others = pattern.anchors
            for way in ways:
                check(lambda text, way=way: way(first + text + "x".join(others)), unit, family.__name__)  # noqa: B023


@pytest.mark.slow
def test_captured_requests_full_of_their_own_borders_are_recognised_in_linear_time(shared_data):
    for path in sorted(shared_data.glob("dialects/*/requests.jsonl")):
        for item, request in captures.requests(shared_data, path.parent.name):
            answer = item["answers"][-1] if isinstance(item, dict) and item.get("answers") else None
            is_shown = answer and any(answer in message.text for message in request.messages)
            known = catalog.recognise(request) if is_shown else None
            if known is None:
                continue
            texts = sorted(map(re.escape, filter(None, (item["question"], *item["answers"]))), key=len, reverse=True)
            pieces = [piece for message in request.messages for piece in re.split("|".join(texts), message.text)]
            for unit in dict.fromkeys(filter(None, (*pieces, *units(known[0].templates)))):
                check(lambda text: recognise_with(request, answer, text), unit, path.parent.name)  # noqa: B023
            break


def recognise_with(request, answer, text):
    messages = tuple(replace(message, text=message.text.replace(answer, text, 1)) for message in request.messages)
    return catalog.recognise(replace(request, messages=messages))
