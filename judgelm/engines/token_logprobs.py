"""Turn token ids and log-probabilities into `TokenLogprobs`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from judgelm.records import TokenLogprobs, tokens_between

if TYPE_CHECKING:
    from judgelm.prompts.truncation import Tokenizer


class LogprobStep(NamedTuple):
    """A sampled token, and the most probable tokens at its position."""

    token: int
    logprob: float
    candidates: tuple[tuple[int, float], ...]


def reply_logprobs(steps: Sequence[LogprobStep], text: str, tokenizer: "Tokenizer") -> tuple[TokenLogprobs, ...]:
    """Return the tokens of a reply. Together, they are `text`.

    The text of an incomplete character is empty until its last token.
    """
    return tokens_between(tuple(_decoded(steps, tokenizer)), 0, len(text))


def _decoded(steps: Sequence[LogprobStep], tokenizer: "Tokenizer") -> Iterator[TokenLogprobs]:
    """Decode tokens after others, because some tokenizers drop the first space of a text."""
    anchor = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    anchor_text = tokenizer.decode(anchor, skip_special_tokens=False)
    texts: dict[int, str] = {}
    ids = [step.token for step in steps]
    context = begun = 0
    for index, step in enumerate(steps):
        known = tokenizer.decode(ids[context:begun], skip_special_tokens=True)
        text = tokenizer.decode(ids[context : index + 1], skip_special_tokens=True)
        piece = "" if text.endswith("\ufffd") and index + 1 < len(ids) else text[len(known) :]
        for token in {token for token, _ in step.candidates} - texts.keys():
            texts[token] = tokenizer.decode([*anchor, token], skip_special_tokens=False)[len(anchor_text) :]
        candidates = tuple((texts[token], logprob) for token, logprob in step.candidates)
        yield TokenLogprobs(token=piece, logprob=step.logprob, candidates=candidates)
        if piece:
            context, begun = begun, index + 1
