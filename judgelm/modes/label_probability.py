"""The probability of a label that a reply ends in, asked for where the judge wrote it, or where it wrote none."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from judgelm.modes.flow import RequestFlow
from judgelm.parsing.scores import LEAST_ASSIGNED
from judgelm.parsing.verdicts import Verdict
from judgelm.records import Completion, Prompt, Request, Sampling, Shown, Unparsed

_WITHOUT_VERDICT = ("off_grammar", "truncated")


def ask_probabilities(
    shown: Sequence[Shown],
    prompts: Sequence[Prompt],
    labels: Mapping[str, str],
    read: Callable[[str], Verdict | Unparsed],
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
    read: Callable[[str], Verdict | Unparsed],
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
