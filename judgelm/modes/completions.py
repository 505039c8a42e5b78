"""Completions become records here: a reply becomes a `Shown`, and what was shown a `Judgment`.

Modes read replies with `read_reply` and leave the counts to `with_usage`. A mode whose verdict follows from its
replies alone concludes with `graded`, `labelled` or `compared`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import ParamSpec, Protocol

from judgelm.modes.flow import Flow
from judgelm.parsing.scores import grade_distribution
from judgelm.parsing.verdicts import Verdict
from judgelm.records import (
    Completion,
    GradeDistribution,
    GradeVerdict,
    Judgment,
    LabelVerdict,
    PairVerdict,
    Request,
    Sample,
    Scores,
    Shown,
    Span,
    Unparsed,
    Winner,
)


class Named(Protocol):
    """A mode, as judgments name it."""

    @property
    def name(self) -> str:
        """The name in manifests."""
        ...


P = ParamSpec("P")


def failure_of(completion: Completion) -> Unparsed | None:
    """Return why a request has no reply; None where it has one.

    A reply that ended within its thinking is `truncated`. Of several replies one is enough.
    """
    match completion.finish_reasons[0]:
        case "error":
            return Unparsed("engine", completion.error)
        case "too_long" | "equal_after_cut" as code:
            return Unparsed(code, "", completion.error)
    endless = all(reason == "thinking" for reason in completion.finish_reasons)
    return Unparsed("truncated", "", completion.error) if endless else None


def cut_off(completion: Completion, max_tokens: int, text: str = "") -> Unparsed | None:
    """Return the failure of a reply that reached its limit of tokens; None where it came to its end.

    Args:
        completion: with a reply.
        max_tokens: the room that the reply had.
        text: the reply, where the failure should keep it.
    """
    if completion.finish_reasons[0] != "length":
        return None
    return Unparsed("truncated", text, f"no end within {max_tokens} tokens or the window")


def thinking_of(completion: Completion, reply: int = 0) -> str | None:
    """Return the thinking before a reply; None where there is none."""
    return (completion.thinking[reply] or None) if reply < len(completion.thinking) else None


def read_reply(
    completion: Completion,
    parse: Callable[[str], Scores | Verdict | str | Unparsed],
    *,
    max_tokens: int,
    order: tuple[int, ...] = (0,),
    referenced: bool | None = None,
    needs_end: bool = True,
) -> Shown:
    """Read the one reply of a completion.

    Args:
        completion: of one prompt.
        parse: reads the text as scores, as a label, or as neither.
        max_tokens: the room that the reply had.
        order: of the answers in the prompt.
        referenced: whether a reference stood in the prompt.
        needs_end: whether a reply that was cut off is a failure, even where it begins with a verdict.
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
        label=result.label if isinstance(result, Verdict) else result if isinstance(result, str) else None,
        failure=result if isinstance(result, Unparsed) else None,
        truncations=completion.truncations,
    )


def grades_of(scores: Sequence[float], completion: Completion) -> GradeDistribution | None:
    """The distribution over these candidates' scores; None where none were asked for or the engine gives none."""
    if not scores or completion.candidate_logprobs is None:
        return None
    return grade_distribution(scores, completion.candidate_logprobs, completion.approximation)


def first_failure(shown: Sequence[Shown]) -> Unparsed | None:
    """Return the failure of the first prompt that failed; None where none did."""
    return next((reply.failure for reply in shown if reply.failure is not None), None)


def graded(mode: Named, sample: Sample, shown: Shown) -> Judgment:
    """The judgment of one answer by its score."""
    return Judgment(
        sample_id=sample.id,
        mode=mode.name,
        verdict=None if shown.scores is None else GradeVerdict(score=shown.scores[0]),
        shown=(shown,),
        scores=shown.scores,
        failure=shown.failure,
    )


def labelled(mode: Named, sample: Sample, shown: Shown) -> Judgment:
    """The judgment of one answer by its label."""
    return Judgment(
        sample_id=sample.id,
        mode=mode.name,
        verdict=None if shown.label is None else LabelVerdict(label=shown.label),
        shown=(shown,),
        failure=shown.failure if shown.label is None else None,
    )


def compared(mode: Named, sample: Sample, shown: Sequence[Shown], *, accept_one_order: bool) -> Judgment:
    """The judgment of a pair by the label of each order: a tie where two orders name different winners.

    Args:
        mode: of the judgment.
        sample: with two answers.
        shown: each order.
        accept_one_order: when one of two orders failed, take the verdict of the other instead of failing.
    """
    winners = [winner for reply in shown if (winner := winner_shown(reply)) is not None]
    failure = None if winners and accept_one_order else first_failure(shown)
    return Judgment(
        sample_id=sample.id,
        mode=mode.name,
        verdict=None if failure else PairVerdict(winner=winners[0] if len(set(winners)) == 1 else "tie"),
        shown=tuple(shown),
        consistent=winners[0] == winners[1] if len(winners) == 2 else None,
        failure=failure,
    )


def winner_shown(shown: Shown) -> Winner | None:
    """Return the winner that one order's label names, in sample order; None where it has no label."""
    if shown.label is None:
        return None
    if shown.label == "tie":
        return "tie"
    return 1 if shown.order[int(shown.label) - 1] == 0 else 2


def with_usage(call: Callable[P, Flow]) -> Callable[P, Flow]:
    """Have a mode's judgments count the tokens of all its requests, and what was sanitized in their prompts."""

    @wraps(call)
    def counted(*args: P.args, **kwargs: P.kwargs) -> Flow:
        flow, usage = call(*args, **kwargs), _Usage()
        completions: list[Completion] | None = None
        try:
            while True:
                requests = next(flow) if completions is None else flow.send(completions)
                completions = yield requests
                usage.add(requests, completions)
        except StopIteration as finished:
            judgment: Judgment = finished.value
            return replace(
                judgment,
                sanitized=usage.sanitized,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
            )
        finally:
            flow.close()

    return counted


class _Usage:
    """The counts of one flow."""

    def __init__(self) -> None:
        self.sanitized = self.prompt_tokens = self.completion_tokens = 0
        self._counted: list[tuple[Span, ...]] = []

    def add(self, requests: Sequence[Request], completions: Sequence[Completion]) -> None:
        """Count requests; a reason, a retry or a label's probability continues a prompt that was counted."""
        for request, completion in zip(requests, completions, strict=True):
            self.prompt_tokens += completion.prompt_tokens
            self.completion_tokens += completion.completion_tokens
            if not any(request.prompt.spans is spans for spans in self._counted):
                self._counted.append(request.prompt.spans)
                self.sanitized += request.prompt.sanitized + completion.sanitized
