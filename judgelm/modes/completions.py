"""Helpers for parsing completions and building judgments."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec

from judgelm.modes.flow import Flow, Round, map_rounds
from judgelm.modes.mode import BatchMode
from judgelm.parsing.scores import grade_distribution
from judgelm.parsing.verdicts import StatedVerdict
from judgelm.records import (
    Completion,
    GradeDistribution,
    GradeVerdict,
    Judgment,
    LabelVerdict,
    Request,
    Sample,
    Scores,
    Shown,
    Span,
    Unparsed,
    Verdict,
    Winner,
)

P = ParamSpec("P")


def failure_of(completion: Completion) -> Unparsed | None:
    """Return the reason for a missing reply, or None if there is a reply."""
    match completion.finish_reasons[0]:
        case "error":
            return Unparsed("engine", completion.error)
        case "too_long" | "equal_after_cut" as code:
            return Unparsed(code, "", completion.error)
    only_thinking = all(reason == "thinking" for reason in completion.finish_reasons)
    return Unparsed("truncated", "", completion.error) if only_thinking else None


def cut_off(completion: Completion, max_tokens: int, text: str = "") -> Unparsed | None:
    """Return a failure if the reply reached its token limit."""
    if completion.finish_reasons[0] != "length":
        return None
    return Unparsed("truncated", text, f"the reply did not end within {max_tokens} tokens or the context window")


def thinking_of(completion: Completion, reply: int = 0) -> str | None:
    """Return the thinking before a reply, if any."""
    return (completion.thinking[reply] or None) if reply < len(completion.thinking) else None


def read_reply(
    completion: Completion,
    parse: Callable[[str], Scores | StatedVerdict | str | Unparsed],
    *,
    max_tokens: int,
    order: tuple[int, ...] = (0,),
    referenced: bool | None = None,
    needs_end: bool = True,
) -> Shown:
    """Parse a completion's only reply as scores or a label.

    If `needs_end` is set, a reply that was cut off is a failure even if it begins with a verdict.
    """
    text = completion.texts[0] if completion.texts else ""
    failure = failure_of(completion) or (cut_off(completion, max_tokens, text) if needs_end else None)
    result = failure or parse(text)
    return Shown(
        order=order,
        text=text,
        thinking=thinking_of(completion),
        referenced=referenced,
        scores=result.values if isinstance(result, Scores) else None,
        label=result.label if isinstance(result, StatedVerdict) else result if isinstance(result, str) else None,
        failure=result if isinstance(result, Unparsed) else None,
        truncations=completion.truncations,
    )


def grades_of(scores: Sequence[float], completion: Completion) -> GradeDistribution | None:
    """Return the distribution of grades, or None if there are no candidates or no probabilities."""
    if not scores or completion.candidate_logprobs is None:
        return None
    return grade_distribution(scores, completion.candidate_logprobs, completion.approximation)


def first_failure(shown: Sequence[Shown]) -> Unparsed | None:
    """Return the first failure, if any."""
    return next((reply.failure for reply in shown if reply.failure is not None), None)


def judged(mode: BatchMode, sample: Sample, shown: Sequence[Shown], verdict: Verdict | None, **others: Any) -> Judgment:
    """Build the judgment of a sample; `others` are additional fields of `Judgment`."""
    return Judgment(sample_id=sample.id, mode=mode.name, verdict=verdict, shown=tuple(shown), **others)


def graded(mode: BatchMode, sample: Sample, shown: Shown) -> Judgment:
    """Build the judgment of an answer from its score."""
    verdict = None if shown.scores is None else GradeVerdict(score=shown.scores[0])
    return judged(mode, sample, (shown,), verdict, scores=shown.scores, failure=shown.failure)


def labelled(mode: BatchMode, sample: Sample, shown: Shown) -> Judgment:
    """Build the judgment of an answer from its label."""
    if shown.label is None:
        return judged(mode, sample, (shown,), None, failure=shown.failure)
    return judged(mode, sample, (shown,), LabelVerdict(label=shown.label))


def agree(winners: Sequence[Winner]) -> bool | None:
    """Return whether both orders have the same winner, or None if either winner is missing."""
    return winners[0] == winners[1] if len(winners) == 2 else None


def in_sample_order(shown: Shown) -> tuple[float, float] | None:
    """Return the scores in sample order, if any."""
    return None if shown.scores is None else pair_in_sample_order(shown.order, shown.scores)


def pair_in_sample_order(order: tuple[int, ...], values: tuple[float, ...]) -> tuple[float, float]:
    """Reorder two values from display order to sample order."""
    first, second = values
    return (first, second) if order == (0, 1) else (second, first)


def with_usage(call: Callable[P, Flow]) -> Callable[P, Flow]:
    """Decorate `__call__` to add counts of tokens and sanitized markers to judgments."""

    @wraps(call)
    def counted(*args: P.args, **kwargs: P.kwargs) -> Flow:
        sanitized = prompt_tokens = completion_tokens = 0
        counted_spans: list[tuple[Span, ...]] = []

        def ask(requests: list[Request]) -> Round:
            nonlocal sanitized, prompt_tokens, completion_tokens
            completions = yield requests
            for request, completion in zip(requests, completions, strict=True):
                prompt_tokens += completion.prompt_tokens
                completion_tokens += completion.completion_tokens
                # reasons, retries, and label probabilities continue a prompt that was already counted
                if not any(request.prompt.spans is spans for spans in counted_spans):
                    counted_spans.append(request.prompt.spans)
                    sanitized += request.prompt.sanitized + completion.sanitized
            return completions

        judgment = yield from map_rounds(call(*args, **kwargs), ask)
        return replace(judgment, sanitized=sanitized, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)

    return counted
