"""Verdicts given as labels in the reply, such as `[[1]]` or `Correct`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from judgelm.modes.completions import agree, first_failure, judged, read_reply
from judgelm.modes.flow import Flow, RequestFlow, requests_of
from judgelm.modes.mode import BatchMode, SampledMode, pair_orders, sampling_for
from judgelm.parsing.scores import MIN_ASSIGNED
from judgelm.parsing.verdicts import StatedVerdict
from judgelm.records import Judgment, PairVerdict, Prompt, Request, Sample, Sampling, Shown, Unparsed, Winner

PLACES: Mapping[str, str] = {"1": "1", "2": "2"}
"""Labels for a pair: the position of the better answer in the order shown."""


def _winner(label: str, order: tuple[int, ...]) -> Winner:
    if label == "tie":
        return "tie"
    return 1 if order[int(label) - 1] == 0 else 2


def compared(mode: BatchMode, sample: Sample, shown: Sequence[Shown], *, accept_one_order: bool) -> Judgment:
    """Build the judgment of a pair from its replies. If the orders disagree, the verdict is a tie."""
    winners = [_winner(reply.label, reply.order) for reply in shown if reply.label is not None]
    failure = None if winners and accept_one_order else first_failure(shown)
    verdict = None if failure else PairVerdict(winner=winners[0] if len(set(winners)) == 1 else "tie")
    return judged(mode, sample, shown, verdict, consistent=agree(winners), failure=failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPairMode(SampledMode):
    """Base class for pair modes whose replies end with `1` or `2`."""

    both_orders: bool = False
    accept_one_order: bool = False
    distribution: bool = False
    retry_unparseable: bool = False
    max_tokens: int = 1024


def compare_by_label(
    mode: LabelPairMode,
    sample: Sample,
    prompts: Sequence[Prompt],
    read: Callable[[str], StatedVerdict | Unparsed],
    *,
    stop: tuple[str, ...] = (),
    referenced: bool,
) -> Flow:
    """Judge the pair in each order, and request label probabilities if `distribution` is set."""
    room = mode.max_tokens
    replies = yield requests_of(prompts, sampling_for(mode, sample.id, room, stop=stop))
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


def ask_probabilities(
    shown: Sequence[Shown],
    prompts: Sequence[Prompt],
    labels: Mapping[str, str],
    read: Callable[[str], StatedVerdict | Unparsed],
    *,
    max_tokens: int,
) -> RequestFlow[list[float | None]]:
    """Return P(first label) at the position of each reply's label, given the reasoning before it.

    The value is None if the reply has no label, the engine returns no probabilities, or the labels' total probability
    is below `MIN_ASSIGNED`. Pass the same `max_tokens` as for the replies, so that answers are cut in the same way.
    """
    values: list[float | None] = [None] * len(shown)
    indices = [index for index, reply in enumerate(shown) if reply.label is not None]
    if not indices:
        return values
    completions = yield [_request(index, shown[index], prompts[index], labels, read, max_tokens) for index in indices]
    for index, completion in zip(indices, completions, strict=True):
        if completion.candidate_logprobs is not None:
            first, second = map(math.exp, completion.candidate_logprobs)
            values[index] = first / (first + second) if first + second >= MIN_ASSIGNED else None
    return values


def ask_missing_labels(
    shown: Sequence[Shown],
    prompts: Sequence[Prompt],
    labels: Sequence[Mapping[str, str]],
    *,
    max_tokens: int,
    form: tuple[str, str] = ("[[", "]]"),
) -> RequestFlow[list[Shown]]:
    """Request the most probable label after each unparseable reply.

    The prompt ends with the start of a verdict, so even an undecided judge must choose a label. The original failure is
    therefore kept in `repaired`. `form` is the text before and after the label in a verdict.
    """
    replies, (before, after) = list(shown), form
    codes = ("off_grammar", "truncated")
    failed = [index for index, reply in enumerate(shown) if reply.failure and reply.failure.code in codes]
    if not failed:
        return replies
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
        text = f"{openings[index]}{labels[index][label]}{after}"
        replies[index] = replace(shown[index], text=text, label=label, failure=None, repaired=shown[index].failure)
    return replies


def mean_probability(shown: Sequence[Shown], values: Sequence[float | None], *, accept_one_order: bool) -> float | None:
    """Average P(first better) over the orders. `values` are in display order, the result is in sample order."""
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
    shown: Shown,
    prompt: Prompt,
    labels: Mapping[str, str],
    read: Callable[[str], StatedVerdict | Unparsed],
    max_tokens: int,
) -> Request:
    verdict = read(shown.text)
    assert not isinstance(verdict, Unparsed), "only replies with a label are asked about"
    cases = ((str.islower, str.lower), (str.isupper, str.upper), (str.istitle, str.title))
    change = next((change for has, change in cases if has(verdict.written)), str)
    return Request(
        key=f"label {index}",
        prompt=replace(prompt, prefill=shown.text[: verdict.position]),
        sampling=Sampling(max_tokens=1, reserve=max_tokens),
        candidates=tuple(change(word) for word in labels.values()),
    )
