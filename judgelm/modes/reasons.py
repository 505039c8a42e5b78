"""Reasons for finished judgments: the judge continues its own score line.

Only the requested judgments are explained, and no conclusion changes with it.

Source: JudgeLM, section 3.2 (grading, judging, and reasoning): scores first, the reason behind them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from judgelm.modes.completions import cut_off, failure_of
from judgelm.modes.flow import Flow
from judgelm.records import Completion, Judgment, Prompt, Request, Sampling, Shown, Unparsed

Reasons = Literal["none", "all", "close", "flips"]
Explained = Literal["none", "all"]


def to_explain(judgment: Judgment, reasons: Reasons, close_threshold: float = 0) -> list[int]:
    """Indices of the prompts shown that are to be explained; none of a judgment without verdict.

    `all` and `close` (P(first better) within `close_threshold` of 0.5) explain the order given, or the one that could
    be read where the user accepts one order; `flips` explains both orders of a pair whose two winners differ.
    """
    if judgment.verdict is None:
        return []
    if reasons == "flips":
        return list(range(len(judgment.shown))) if judgment.consistent is False else []
    near = judgment.probability is not None and abs(judgment.probability - 0.5) <= close_threshold + 1e-9
    if reasons == "all" or (reasons == "close" and near):
        return [index for index, shown in enumerate(judgment.shown) if shown.failure is None][:1]
    return []


def explain(judgment: Judgment, indices: Sequence[int], prompts: Sequence[Prompt], sampling: Sampling) -> Flow:
    """Ask for the reasons and put them into the judgment.

    The judge continues the whole score line, the prompt's prefill included.

    Args:
        judgment: with a verdict.
        indices: of its prompts that are to be explained.
        prompts: all its prompts.
        sampling: of a reason.

    Returns:
        The judgment with reasons; verdict, scores and texts as they were.
    """
    if not indices:
        return judgment
    completions = yield [
        Request(
            key=str(index),
            prompt=replace(prompts[index], prefill=f"{prompts[index].prefill}{judgment.shown[index].text}\n"),
            sampling=sampling,
        )
        for index in indices
    ]
    shown = list(judgment.shown)
    for index, completion in zip(indices, completions, strict=True):
        shown[index] = _explained(shown[index], completion, sampling.max_tokens)
    return replace(judgment, shown=tuple(shown))


def _explained(shown: Shown, completion: Completion, max_tokens: int) -> Shown:
    """Add the reason or why there is none; a reason that has no end is kept and marked."""
    if (failure := failure_of(completion)) is not None:
        return replace(shown, reason_failure=failure)
    reason = completion.texts[0].strip()
    if not reason:
        return replace(shown, reason_failure=Unparsed("off_grammar", "", "nothing follows the score line"))
    failure = cut_off(completion, max_tokens)
    if failure is None and completion.truncations != shown.truncations:
        why = "the answers were cut further than for the scores, to make room for it"
        failure = Unparsed("too_long", "", why)
    return replace(shown, reason=reason, reason_failure=failure)
