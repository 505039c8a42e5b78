"""One completion of a pair prompt, read."""

from judgelm.distribution import ScoreLines, pair_distribution
from judgelm.parsing import parse_pair
from judgelm.records import Completion, Scores, Shown, Unparsed


def read_reply(
    order: tuple[int, ...],
    completion: Completion,
    *,
    scale: tuple[float, float],
    max_tokens: int,
    lines: ScoreLines | None = None,
) -> Shown:
    """The score line of a reply; one that was cut off is a failure even where its beginning looks like scores.

    Args:
        order: of the answers in the prompt.
        completion: of that prompt.
        scale: lowest and highest score of the judge.
        max_tokens: the room that the reply had.
        lines: the candidates that were asked for; None when none were.
    """
    reason = completion.finish_reasons[0]
    if reason == "error":
        return Shown(order=order, text="", failure=Unparsed("engine", completion.error), cut=completion.cut)
    if reason == "too_long":
        return Shown(order=order, text="", failure=Unparsed("too_long", "", completion.error))
    text, logprobs = completion.texts[0], completion.candidate_logprobs
    parsed: Scores | Unparsed = Unparsed("truncated", text, f"no end of line within {max_tokens} tokens")
    if reason != "length":
        parsed = parse_pair(text, scale)
    found = None
    if lines is not None and logprobs is not None:
        found = pair_distribution(lines, logprobs, completion.approximation)
    if isinstance(parsed, Unparsed):
        return Shown(order=order, text=text, failure=parsed, distribution=found, cut=completion.cut)
    return Shown(order=order, text=text, scores=parsed.values, distribution=found, cut=completion.cut)
