"""A second try for replies that could not be read: the same prompt, the reply held to the grammar of score lines.

The grammar makes any judge write scores, also one that had none in mind. So a repaired reply carries the failure that
it mends, and is counted apart everywhere.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace

from judgelm.modes.pair_replies import read_reply
from judgelm.records import Completion, FailureCode, Prompt, Request, Sampling, Shown, Unparsed

Repair = Generator[list[Request], list[Completion], tuple[tuple[Shown, ...], list[Completion]]]

_MENDABLE: tuple[FailureCode, ...] = ("off_grammar", "out_of_range", "truncated")


def retry_unreadable(
    shown: tuple[Shown, ...],
    prompts: Sequence[Prompt],
    *,
    grammar: str,
    scale: tuple[float, float],
    max_tokens: int,
) -> Repair:
    """Ask once more, greedily, for each reply that is the judge's failure.

    Args:
        shown: all that were shown.
        prompts: of each of them.
        grammar: regular expression of the score lines.
        scale: lowest and highest score of the judge.
        max_tokens: room for the score line.

    Returns:
        What was shown, repaired where the retry could be read; and the retries' completions.
    """
    places = [place for place, one in enumerate(shown) if one.failure is not None and one.failure.code in _MENDABLE]
    if not places:
        return shown, []
    sampling = Sampling(max_tokens=max_tokens, stop=("\n",), grammar=grammar)
    retries = yield [Request(key=str(place), prompt=prompts[place], sampling=sampling) for place in places]
    mended = list(shown)
    for place, retry in zip(places, retries, strict=True):
        reread = read_reply(shown[place].order, retry, scale=scale, max_tokens=max_tokens)
        mended[place] = _mended(shown[place], reread)
    return tuple(mended), retries


def _mended(first: Shown, retry: Shown) -> Shown:
    """The first reply with the retry's scores; the first failure, which then says so, where the retry failed too."""
    assert first.failure is not None, "only failures are repaired"
    if retry.failure is None:
        return replace(first, text=retry.text, scores=retry.scores, failure=None, repaired=first.failure)
    again = f"a retry held to the grammar failed too: {retry.failure.code}, {retry.failure.why or retry.failure.text}"
    why = "; ".join(part for part in (first.failure.why, again) if part)
    return replace(first, failure=Unparsed(first.failure.code, first.failure.text, why))
