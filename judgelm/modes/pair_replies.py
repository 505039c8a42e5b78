"""One completion of a pair prompt, read."""

from judgelm.modes.completions import failure_of, thinking_of
from judgelm.parsing.distribution import ScoreLines, pair_distribution
from judgelm.parsing.scores import parse_pair
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
    thinking = thinking_of(completion)
    if (failure := failure_of(completion)) is not None:
        return Shown(order=order, text="", thinking=thinking, failure=failure, truncations=completion.truncations)
    text, logprobs = completion.texts[0], completion.candidate_logprobs
    parsed: Scores | Unparsed = Unparsed("truncated", text, f"no end of line within {max_tokens} tokens")
    if completion.finish_reasons[0] != "length":
        parsed = parse_pair(text, scale)
    found = None
    if lines is not None and logprobs is not None:
        found = pair_distribution(lines, logprobs, completion.approximation)
    return Shown(
        order=order,
        text=text,
        thinking=thinking,
        scores=parsed.values if isinstance(parsed, Scores) else None,
        failure=parsed if isinstance(parsed, Unparsed) else None,
        distribution=found,
        truncations=completion.truncations,
    )
