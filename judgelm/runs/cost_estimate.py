"""The cost of a run through a paid endpoint: an estimate of the run, and the cost of its earlier sessions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgelm.engines.base import EngineOptions
from judgelm.errors import ConfigError
from judgelm.jsonl import read_jsonl
from judgelm.records import Request
from judgelm.runs.run_files import read_manifest

GPT4_REVIEW_TOKENS = 170
"""Assumed tokens of a reply: 1,694 published reviews by GPT-4 have 657 characters on average, 1,218 at the 95th
percentile and 2,363 at most; a token of English has about 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """USD per million tokens."""

    prompt: float
    reply: float

    def usd(self, prompt_tokens: float, reply_tokens: float) -> float:
        """The cost of tokens."""
        return (prompt_tokens * self.prompt + reply_tokens * self.reply) / 1e6


def prices_of(arguments: Mapping[str, Any]) -> Prices | None:
    """The prices among an engine's arguments, None where there are none.

    Raises:
        ConfigError: only one of them, or no number.
    """
    prices = [arguments.get(name) for name in ("price_in", "price_out")]
    if prices == [None, None]:
        return None
    if not all(isinstance(price, int | float) and price >= 0 for price in prices):
        raise ConfigError("price_in and price_out go together: two numbers, USD per million tokens; 0 is allowed")
    return Prices(prompt=float(prices[0] or 0), reply=float(prices[1] or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Requests of a run, and the tokens of their prompts and replies, before anything is sent.

    Attributes:
        expected_reply: assumed tokens of a reply.
        most_reply: maximum tokens of a reply.
    """

    requests: int
    prompt_tokens: int
    expected_reply: int
    most_reply: int

    def usd(self, prices: Prices) -> tuple[float, float]:
        """The cost with replies of the assumed length, and of the maximum length; each request once."""
        expected, most = (
            prices.usd(self.prompt_tokens, self.requests * each) for each in (self.expected_reply, self.most_reply)
        )
        return expected, most


def estimate(
    requests: Iterable[Request], tokens_of: Callable[[str], float], *, expected_reply: int, most_reply: int
) -> Estimate:
    """Measure the prompts. Requests that are repeated because a billed reply was lost are not included.

    Args:
        requests: of the run.
        tokens_of: counts the tokens of a text.
        expected_reply: assumed tokens of a reply.
        most_reply: maximum tokens of a reply.
    """
    count = 0
    tokens = 0.0
    for request in requests:
        count += 1
        tokens += tokens_of("".join(span.text for span in request.prompt.spans))
    return Estimate(
        requests=count,
        prompt_tokens=round(tokens),
        expected_reply=min(expected_reply, most_reply),
        most_reply=most_reply,
    )


def spent_usd(out: Path, prices: Prices) -> float:
    """The cost of the earlier sessions of a run; an upper bound, as far as it is known.

    It is the cost of the judgments at these prices, and what sessions were billed beyond them for lost replies. For a
    killed session the manifest lacks up to half a minute of lost replies, and the requests in flight.

    Raises:
        RunError: its manifest cannot be read.
    """
    manifest = read_manifest(out)
    if manifest is None or not out.is_file():
        return 0.0
    judged = sum(_usd_of(row, prices) for _, row in read_jsonl(out))
    lost = (
        max(0.0, (session.get("engine", {}).get("cost_usd_at_most") or 0.0) - _usd_of(session, prices))
        for session in manifest["sessions"]
    )
    return judged + sum(lost)


def _usd_of(counted: Mapping[str, Any], prices: Prices) -> float:
    """The cost of the tokens of a judgment, or of all judgments of a session."""
    return prices.usd(counted.get("prompt_tokens", 0), counted.get("completion_tokens", 0))


def token_counter(tokenizer: str | None, characters_per_token: float) -> Callable[[str], float]:
    """A function that counts the tokens of a text: with a tokenizer (folder or hub id), else by its length.

    Raises:
        ModelError: no such tokenizer.
    """
    if tokenizer is None:
        return lambda text: len(text) / characters_per_token
    from judgelm.engines.model_files import load_tokenizer  # transformers takes seconds, and most need no tokenizer

    loaded = load_tokenizer(tokenizer, None, EngineOptions(model=tokenizer))
    return lambda text: len(loaded(text, verbose=False)["input_ids"])
