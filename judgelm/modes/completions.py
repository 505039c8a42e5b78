"""From completions to records: replies, judgments, reasons, and the probabilities of labels.

Modes parse replies with `read_reply` and leave the counts to `with_usage`. A mode whose verdict follows from its
replies alone concludes with `graded`, `labelled` or `compared`.

A reason continues the judge's own score line. Only the requested judgments are explained, and no conclusion changes
with it. The probability of a label is asked for where the judge wrote it, or where it wrote none.

Source: JudgeLM, section 3.2 (grading, judging, and reasoning): scores first, the reason behind them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Literal, ParamSpec

from judgelm.modes.flow import BatchMode, Flow, RequestFlow, pair_orders, received_by, requests_of, sampling_for
from judgelm.parsing.scores import LEAST_ASSIGNED, grade_distribution
from judgelm.parsing.verdicts import StatedVerdict
from judgelm.records import (
    Completion,
    GradeDistribution,
    GradeVerdict,
    Judgment,
    LabelVerdict,
    PairVerdict,
    Prompt,
    Request,
    Sample,
    Sampling,
    Scores,
    Shown,
    Span,
    Unparsed,
    Winner,
)

if TYPE_CHECKING:
    from judgelm.modes.pairwise import Reasoned
    from judgelm.modes.self_reference import SelectiveSelfReference


P = ParamSpec("P")

PLACES: Mapping[str, str] = {"1": "1", "2": "2"}
"""Labels in `Shown.label`: the place, in the order shown, of the better answer."""


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
    parse: Callable[[str], Scores | StatedVerdict | str | Unparsed],
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
        label=result.label if isinstance(result, StatedVerdict) else result if isinstance(result, str) else None,
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


def graded(mode: BatchMode, sample: Sample, shown: Shown) -> Judgment:
    """The judgment of one answer by its score."""
    return Judgment(
        sample_id=sample.id,
        mode=mode.name,
        verdict=None if shown.scores is None else GradeVerdict(score=shown.scores[0]),
        shown=(shown,),
        scores=shown.scores,
        failure=shown.failure,
    )


def labelled(mode: BatchMode, sample: Sample, shown: Shown) -> Judgment:
    """The judgment of one answer by its label."""
    return Judgment(
        sample_id=sample.id,
        mode=mode.name,
        verdict=None if shown.label is None else LabelVerdict(label=shown.label),
        shown=(shown,),
        failure=shown.failure if shown.label is None else None,
    )


def compared(mode: BatchMode, sample: Sample, shown: Sequence[Shown], *, accept_one_order: bool) -> Judgment:
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


def compare_by_label(
    mode: "Reasoned | SelectiveSelfReference",
    sample: Sample,
    prompts: Sequence[Prompt],
    read: Callable[[str], StatedVerdict | Unparsed],
    *,
    stop: tuple[str, ...] = (),
    referenced: bool,
) -> Flow:
    """Ask for each order, conclude, then ask for the probability of the verdicts where the mode wants it.

    Args:
        mode: of the judgment.
        sample: with two answers.
        prompts: one for each order.
        read: finds the label in a reply.
        stop: strings that end a reply.
        referenced: whether a reference stands in the prompts.
    """
    room = mode.max_tokens
    sampling = sampling_for(mode, sample.id, room, stop=stop)
    replies = yield requests_of(prompts, sampling)
    shown = [
        read_reply(reply, read, max_tokens=room, order=order, referenced=referenced)
        for order, reply in zip(pair_orders(mode.both_orders), replies, strict=True)
    ]
    if mode.retry_unparseable:
        shown = yield from ask_missing_labels(shown, prompts, [PLACES] * len(shown), max_tokens=room)
    judgment = compared(mode, sample, shown, accept_one_order=mode.accept_one_order)
    if not mode.distribution:
        return judgment
    values = yield from ask_probabilities(shown, prompts, PLACES, read, max_tokens=room)
    probability = mean_probability(shown, values, accept_one_order=mode.accept_one_order)
    return replace(judgment, probability=None if judgment.failure else probability)


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
        sanitized = prompt_tokens = completion_tokens = 0
        counted_spans: list[tuple[Span, ...]] = []

        def count(requests: list[Request], completions: list[Completion]) -> list[Completion]:
            nonlocal sanitized, prompt_tokens, completion_tokens
            for request, completion in zip(requests, completions, strict=True):
                prompt_tokens += completion.prompt_tokens
                completion_tokens += completion.completion_tokens
                # a reason, a retry or a label's probability continues a prompt that was counted
                if not any(request.prompt.spans is spans for spans in counted_spans):
                    counted_spans.append(request.prompt.spans)
                    sanitized += request.prompt.sanitized + completion.sanitized
            return completions

        judgment = yield from received_by(call(*args, **kwargs), count)
        return replace(judgment, sanitized=sanitized, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)

    return counted


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


def _continued(prompt: Prompt, text: str) -> Prompt:
    """The prompt with the whole score line, the prompt's prefill included, as the beginning of the reply."""
    return replace(prompt, prefill=f"{prompt.prefill}{text}\n")


def explain(
    judgment: Judgment,
    indices: Sequence[int],
    prompts: Sequence[Prompt],
    sampling: Sampling,
    ask: Callable[[Prompt, str], Prompt] = _continued,
) -> Flow:
    """Ask for the reasons and put them into the judgment.

    Args:
        judgment: with a verdict.
        indices: of its prompts that are to be explained.
        prompts: all its prompts.
        sampling: of a reason.
        ask: from a prompt and the reply to it, the prompt that asks for the reason.

    Returns:
        The judgment with reasons; verdict, scores and texts as they were.
    """
    if not indices:
        return judgment
    completions = yield [
        Request(
            key=str(index),
            prompt=ask(prompts[index], judgment.shown[index].text),
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


_WITHOUT_VERDICT = ("off_grammar", "truncated")


def ask_probabilities(
    shown: Sequence[Shown],
    prompts: Sequence[Prompt],
    labels: Mapping[str, str],
    read: Callable[[str], StatedVerdict | Unparsed],
    *,
    max_tokens: int,
) -> RequestFlow[list[float | None]]:
    """Ask, for each reply with a label, how probable both labels were where it stands.

    The reasoning before the label is the judge's own and is taken as it is, so this is P(label | reasoning).

    Args:
        shown: all prompts shown.
        prompts: the prompts, in the same order.
        labels: two labels -> their words in the prompt.
        read: finds the label in a reply that has one.
        max_tokens: room that the replies had, so that the same answers are cut in the same way.

    Returns:
        P(first label) of each prompt, in [0, 1]; None where the reply has no label, where the engine gives no
        probabilities, or where both labels have less than `LEAST_ASSIGNED` together.
    """
    values: list[float | None] = [None] * len(shown)
    indices = [index for index, reply in enumerate(shown) if reply.label is not None]
    if not indices:
        return values
    completions = yield [
        _request(index, shown[index].text, prompts[index], labels, read, max_tokens) for index in indices
    ]
    for index, completion in zip(indices, completions, strict=True):
        values[index] = _share_of_first(completion)
    return values


def ask_missing_labels(
    shown: Sequence[Shown],
    prompts: Sequence[Prompt],
    labels: Sequence[Mapping[str, str]],
    *,
    max_tokens: int,
    form: tuple[str, str] = ("[[", "]]"),
) -> RequestFlow[list[Shown]]:
    """Ask, for each reply that has no readable verdict, which label is the most probable one behind it.

    The request continues the reply with the beginning of a verdict, so any judge names a label there, also one that had
    none in mind. So a reply that was mended in this way carries its failure in `repaired`, and is counted apart.

    Args:
        shown: all prompts shown.
        prompts: the prompts, in the same order.
        labels: of each prompt, the labels -> their words in it.
        max_tokens: room that the replies had, so that the same answers are cut in the same way.
        form: what stands before and behind the words in a verdict.

    Returns:
        The replies, with labels where the engine gives probabilities.
    """
    replies = list(shown)
    failed = [index for index, reply in enumerate(shown) if reply.failure and reply.failure.code in _WITHOUT_VERDICT]
    if not failed:
        return replies
    before, behind = form
    openings = {index: f"{shown[index].text.rstrip()}\n\n{before}".lstrip() for index in failed}
    sampling = Sampling(max_tokens=1, reserve=max_tokens)
    completions = yield [
        Request(
            key=f"missing {index}",
            prompt=replace(prompts[index], prefill=openings[index]),
            sampling=sampling,
            candidates=tuple(labels[index].values()),
        )
        for index in failed
    ]
    for index, completion in zip(failed, completions, strict=True):
        if completion.candidate_logprobs is None:
            continue
        _, label = max(zip(completion.candidate_logprobs, labels[index], strict=True))
        text = f"{openings[index]}{labels[index][label]}{behind}"
        replies[index] = replace(shown[index], text=text, label=label, failure=None, repaired=shown[index].failure)
    return replies


def mean_probability(shown: Sequence[Shown], values: Sequence[float | None], *, accept_one_order: bool) -> float | None:
    """P(the sample's first answer is better), the mean over the orders.

    Args:
        shown: the orders.
        values: P(the answer shown first is better) in each, as `ask_probabilities` returns them.
        accept_one_order: take the orders that have a value where others have none; else there is no mean.
    """
    known = [
        value if reply.order[0] == 0 else 1 - value
        for reply, value in zip(shown, values, strict=True)
        if value is not None
    ]
    if not known or (len(known) < len(values) and not accept_one_order):
        return None
    return sum(known) / len(known)


def _request(
    index: int,
    text: str,
    prompt: Prompt,
    labels: Mapping[str, str],
    read: Callable[[str], StatedVerdict | Unparsed],
    max_tokens: int,
) -> Request:
    """Both words are written in the case in which the judge wrote its own; in mixed case as the prompt has them."""
    verdict = read(text)
    assert not isinstance(verdict, Unparsed), "only replies with a label are asked about"
    cases = ((str.islower, str.lower), (str.isupper, str.upper), (str.istitle, str.title))
    change = next((change for has, change in cases if has(verdict.written)), str)
    return Request(
        key=f"label {index}",
        prompt=replace(prompt, prefill=text[: verdict.position]),
        sampling=Sampling(max_tokens=1, reserve=max_tokens),
        candidates=tuple(change(word) for word in labels.values()),
    )


def _share_of_first(completion: Completion) -> float | None:
    if completion.candidate_logprobs is None:
        return None
    first, second = (math.exp(logprob) for logprob in completion.candidate_logprobs)
    return first / (first + second) if first + second >= LEAST_ASSIGNED else None
