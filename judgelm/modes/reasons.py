"""Reasons for judgments that stand: the judge goes on from the score line that it wrote.

Only what was asked for is explained, and nothing that was concluded changes with it.

Source: JudgeLM, section 3.2 (grading, judging, and reasoning): scores first, the reason behind them.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Literal

from judgelm.modes.completions import failure_of
from judgelm.records import Completion, Judgment, Prompt, Request, Sampling, Shown, Unparsed

Reasons = Literal["none", "all", "close", "flips"]

Explaining = Generator[list[Request], list[Completion], Judgment]


def places_to_explain(judgment: Judgment, which: Reasons, close_band: float) -> list[int]:
    """Which of the prompts shown to explain; none of a judgment without verdict.

    `all` and `close` (P(first better) within `close_band` of 0.5) explain the order given, or the one that could be
    read where the user accepts one order; `flips` explains both orders of a pair whose orders name different winners.
    """
    if judgment.verdict is None:
        return []
    if which == "flips":
        return list(range(len(judgment.shown))) if judgment.consistent is False else []
    near = judgment.probability is not None and abs(judgment.probability - 0.5) <= close_band + 1e-9
    if which == "all" or (which == "close" and near):
        return [place for place, one in enumerate(judgment.shown) if one.failure is None][:1]
    return []


def explain(judgment: Judgment, places: Sequence[int], prompts: Sequence[Prompt], sampling: Sampling) -> Explaining:
    """Ask for the reasons and put them into the judgment.

    Args:
        judgment: with a verdict.
        places: which of its prompts to explain.
        prompts: all its prompts.
        sampling: of a reason.

    Returns:
        The judgment with reasons and their tokens; verdict, scores and texts as they were.
    """
    if not places:
        return judgment
    completions = yield [
        Request(
            key=str(place),
            prompt=replace(prompts[place], prefill=f"{judgment.shown[place].text}\n"),
            sampling=sampling,
        )
        for place in places
    ]
    shown = list(judgment.shown)
    for place, completion in zip(places, completions, strict=True):
        shown[place] = _explained(shown[place], completion, sampling.max_tokens)
    return replace(
        judgment,
        shown=tuple(shown),
        prompt_tokens=judgment.prompt_tokens + sum(one.prompt_tokens for one in completions),
        completion_tokens=judgment.completion_tokens + sum(one.completion_tokens for one in completions),
    )


def _explained(shown: Shown, completion: Completion, max_tokens: int) -> Shown:
    """What was shown, with its reason or why there is none; a reason that has no end is kept and marked."""
    if (failure := failure_of(completion)) is not None:
        return replace(shown, reason_failure=failure)
    reason = completion.texts[0].strip()
    if not reason:
        return replace(shown, reason_failure=Unparsed("off_grammar", "", "nothing follows the score line"))
    lacks = None
    if completion.finish_reasons[0] == "length":
        lacks = Unparsed("truncated", "", f"no end within {max_tokens} tokens or the window")
    elif completion.truncations != shown.truncations:
        lacks = Unparsed("too_long", "", "the answers were cut further than for the scores, to make room for it")
    return replace(shown, reason=reason, reason_failure=lacks)
