"""Replies that reason first and end in a verdict: how one is read, and how probable its label was."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from judgelm.modes.completions import failure_of, thinking_of
from judgelm.modes.flow import Asking
from judgelm.parsing.distribution import LEAST_ASSIGNED
from judgelm.parsing.final_answers import read_verdict
from judgelm.records import Completion, Prompt, Request, Sampling, Shown, Unparsed


def read_labelled(
    order: tuple[int, ...], completion: Completion, labels: Mapping[str, str], *, max_tokens: int, referenced: bool
) -> Shown:
    """What was shown and the label that the reply ends in.

    A reply that was cut off is a failure even where a verdict stands in it: the judge had not come to its last one.

    Args:
        order: of the answers in the prompt.
        completion: of that prompt.
        labels: label -> its word in the prompt.
        max_tokens: the room that the reply had.
        referenced: whether a reference stood in the prompt.
    """
    text = completion.texts[0] if completion.texts else ""
    shown = Shown(
        order=order,
        text=text,
        thinking=thinking_of(completion),
        referenced=referenced,
        truncations=completion.truncations,
    )
    if (failure := failure_of(completion)) is not None:
        return replace(shown, failure=failure)
    if completion.finish_reasons[0] == "length":
        failure = Unparsed("truncated", text, f"no end within {max_tokens} tokens or the window")
        return replace(shown, failure=failure)
    found = read_verdict(text, labels)
    if isinstance(found, Unparsed):
        return replace(shown, failure=found)
    return replace(shown, label=found.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelProbabilities:
    """P(first label) of each prompt shown, and what asking for it cost.

    Attributes:
        values: in [0, 1], by the two labels' probabilities where the judge wrote its label; None where it wrote none,
            where the engine gives no probabilities, or where both labels have less than `LEAST_ASSIGNED` together.
    """

    values: tuple[float | None, ...]
    completions: tuple[Completion, ...] = ()


class _Place(NamedTuple):
    """Where a label stands in a reply, and the words that could stand there."""

    before: str
    words: tuple[str, str]


def ask_probabilities(
    shown: Sequence[Shown], prompts: Sequence[Prompt], labels: Mapping[str, str], *, max_tokens: int
) -> Asking[LabelProbabilities]:
    """Ask, for each reply with a label, how probable both labels were where it stands.

    The reasoning that came before is the judge's own and is taken as it is, so this is P(label | reasoning).

    Args:
        shown: all prompts shown.
        prompts: they.
        labels: two labels -> their words in the prompt.
        max_tokens: room that the replies had, so that the same answers are cut in the same way.
    """
    places = {number: _place(one, labels) for number, one in enumerate(shown) if one.label is not None}
    if not places:
        return LabelProbabilities(values=(None,) * len(shown))
    sampling = Sampling(max_tokens=1, reserve=max_tokens)
    completions = yield [
        Request(
            key=f"label {number}",
            prompt=replace(prompts[number], prefill=place.before),
            sampling=sampling,
            candidates=place.words,
        )
        for number, place in places.items()
    ]
    values: list[float | None] = [None] * len(shown)
    for number, completion in zip(places, completions, strict=True):
        values[number] = share_of_first(completion)
    return LabelProbabilities(values=tuple(values), completions=tuple(completions))


def _place(shown: Shown, labels: Mapping[str, str]) -> _Place:
    """Both words are written as the judge wrote its own: in lower case, in capitals, or as the prompt has them."""
    found = read_verdict(shown.text, labels)
    assert not isinstance(found, Unparsed), "only replies with a label are asked about"
    first, second = labels.values()
    if found.written.islower():
        first, second = first.lower(), second.lower()
    elif found.written.isupper():
        first, second = first.upper(), second.upper()
    return _Place(shown.text[: found.place], (first, second))


def share_of_first(completion: Completion) -> float | None:
    """P(first of two candidates), in [0, 1], by their probabilities alone.

    None where the engine gives none, or where both have less than `LEAST_ASSIGNED` together.
    """
    if completion.candidate_logprobs is None:
        return None
    first, second = (math.exp(one) for one in completion.candidate_logprobs)
    return first / (first + second) if first + second >= LEAST_ASSIGNED else None
