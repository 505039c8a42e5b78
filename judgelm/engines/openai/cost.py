"""Track billed tokens, and stop before the cost limit is exceeded.

Requests in flight, and requests without reported usage, are counted at their maximum cost.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from judgelm.engines.openai.options import EndpointOptions

_WRAPPING_TOKENS = 64
_PER_MESSAGE_TOKENS = 16
_IMAGE_TOKENS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledTokens:
    """Counts of billed tokens."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "BilledTokens") -> "BilledTokens":
        prompt, completion = self.prompt_tokens + other.prompt_tokens, self.completion_tokens + other.completion_tokens
        return BilledTokens(prompt_tokens=prompt, completion_tokens=completion)

    def __sub__(self, other: "BilledTokens") -> "BilledTokens":
        return self + BilledTokens(prompt_tokens=-other.prompt_tokens, completion_tokens=-other.completion_tokens)


class OverBudgetError(Exception):
    """Raised if a request is not sent because of the cost limit."""


@dataclass(slots=True)
class CostEntry:
    """The reported usage, or `unbilled` if the server did not process the request."""

    usage: BilledTokens | None = None
    unbilled: bool = False


class CostTracker:
    """Tracks token usage. `assumed` covers requests whose usage was not reported."""

    def __init__(self, options: EndpointOptions) -> None:
        self._options = options
        self.billed = BilledTokens()
        self.assumed = BilledTokens()
        self.unknown_count = 0
        self._reserved = BilledTokens()
        self._settled = asyncio.Event()

    @asynccontextmanager
    async def track(self, body: Mapping[str, Any]) -> AsyncIterator[CostEntry]:
        """Reserve the maximum cost, then record the actual cost."""
        maximum = max_usage(body)
        await self._wait_for_budget(maximum)
        self._reserved += maximum
        entry = CostEntry()
        try:
            yield entry
        finally:
            self._reserved -= maximum
            if entry.usage is not None:
                self.billed += entry.usage
            elif not entry.unbilled:
                self.assumed += maximum
                self.unknown_count += 1
            self._settled.set()

    def usd(self, usage: BilledTokens) -> float:
        """Return the cost in USD, or 0 if no prices are set."""
        input_cost = usage.prompt_tokens * (self._options.price_in or 0.0)
        return (input_cost + usage.completion_tokens * (self._options.price_out or 0.0)) / 1e6

    def stats(self) -> dict[str, Any]:
        """Return the token counts and cost so far."""
        stats: dict[str, Any] = {
            "prompt_tokens": self.billed.prompt_tokens,
            "completion_tokens": self.billed.completion_tokens,
            "replies_of_unknown_cost": self.unknown_count,
        }
        if self._options.price_in is not None:
            stats["cost_usd"] = round(self.usd(self.billed), 6)
            stats["cost_usd_at_most"] = round(self.usd(self.billed + self.assumed), 6)
        if self._options.max_cost_usd is not None:
            stats["max_cost_usd"] = self._options.max_cost_usd
        return stats

    async def _wait_for_budget(self, maximum: BilledTokens) -> None:
        limit = self._options.max_cost_usd
        while limit is not None and self.usd(self.billed + self.assumed + self._reserved + maximum) > limit:
            spent = self.billed + self.assumed
            if self.usd(spent + maximum) > limit:
                raise OverBudgetError(
                    f"not sent: the cost so far is {self.usd(spent):.6f} USD, and this request may cost up to "
                    f"{self.usd(maximum):.6f} USD, which would exceed max_cost_usd={limit:g}; "
                    "raise --engine-arg max_cost_usd=... and run the same command again"
                )
            self._settled.clear()
            await self._settled.wait()


def max_usage(body: Mapping[str, Any]) -> BilledTokens:
    """Return an upper bound: one token per UTF-8 byte, and OpenAI's maximum per image."""
    prompt = body["prompt"] if "prompt" in body else body["messages"]
    if isinstance(prompt, str):
        tokens = len(prompt.encode()) + _WRAPPING_TOKENS
    elif prompt and isinstance(prompt[0], Mapping):
        tokens = sum(_max_tokens(message["content"]) + _PER_MESSAGE_TOKENS for message in prompt) + _WRAPPING_TOKENS
    else:
        tokens = len(prompt)
    per_reply = body["max_tokens"] if "max_tokens" in body else body["max_completion_tokens"]
    return BilledTokens(prompt_tokens=tokens, completion_tokens=per_reply * body.get("n", 1))


def _max_tokens(content: str | Sequence[Mapping[str, Any]]) -> int:
    if isinstance(content, str):
        return len(content.encode())
    return sum(len(part["text"].encode()) if part["type"] == "text" else _IMAGE_TOKENS for part in content)
