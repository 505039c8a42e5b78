"""What an endpoint's replies cost, what those under way may still cost, and a cap that is not passed.

A request is paid for at its worst as long as nobody says otherwise: while it is under way, and for good when its
reply was cut off, came too late or stated no usage, since the server may bill it all the same.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from judgelm.engines.openai.options import EndpointOptions
from judgelm.engines.openai.response import Usage

_WRAPPING_TOKENS = 64
_PER_MESSAGE_TOKENS = 16
_IMAGE_TOKENS = 50_000


class OverBudgetError(Exception):
    """A request was not sent, since it might have cost more than is left."""


@dataclass(slots=True)
class CostEntry:
    """One request on the bill.

    Attributes:
        usage: what the server stated; None where it stated nothing.
        free: the server certainly did no work for it.
    """

    usage: Usage | None = None
    free: bool = False


class CostTracker:
    """Counts one endpoint's tokens. Lives in the endpoint's event loop.

    Args:
        options: the prices, and the most that may be spent.

    Attributes:
        stated: tokens as the server billed them, also those of replies that were thrown away.
        assumed: the most that was billed for requests of which the server did not say it.
        unstated: how many those were.
    """

    def __init__(self, options: EndpointOptions) -> None:
        self._options = options
        self.stated = Usage()
        self.assumed = Usage()
        self.unstated = 0
        self._reserved = Usage()
        self._settled = asyncio.Event()

    @asynccontextmanager
    async def item(self, body: Mapping[str, Any]) -> AsyncIterator[CostEntry]:
        """Enter a request, for as long as it is under way.

        Raises:
            OverBudgetError: it may cost more than is left, whatever those under way turn out to cost.
        """
        most = max_usage(body)
        await self._room_for(most)
        self._reserved += most
        item = CostEntry()
        try:
            yield item
        finally:
            self._reserved -= most
            if item.usage is not None:
                self.stated += item.usage
            elif not item.free:
                self.assumed += most
                self.unstated += 1
            self._settled.set()

    def usd(self, usage: Usage) -> float:
        """What so many tokens cost; 0 without prices."""
        paid_in = usage.prompt_tokens * (self._options.price_in or 0.0)
        return (paid_in + usage.completion_tokens * (self._options.price_out or 0.0)) / 1e6

    def row(self) -> dict[str, Any]:
        """Tokens and cost so far, as `Engine.stats` tells them."""
        counted: dict[str, Any] = {
            "prompt_tokens": self.stated.prompt_tokens,
            "completion_tokens": self.stated.completion_tokens,
            "replies_of_unknown_cost": self.unstated,
        }
        if self._options.price_in is not None:
            counted["cost_usd"] = round(self.usd(self.stated), 6)
            counted["cost_usd_at_most"] = round(self.usd(self.stated + self.assumed), 6)
        if self._options.max_cost_usd is not None:
            counted["max_cost_usd"] = self._options.max_cost_usd
        return counted

    async def _room_for(self, most: Usage) -> None:
        """Wait while it is only the requests under way that may take what is left."""
        cap = self._options.max_cost_usd
        while cap is not None and self.usd(self.stated + self.assumed + self._reserved + most) > cap:
            spent = self.stated + self.assumed
            if self.usd(spent + most) > cap:
                raise OverBudgetError(
                    f"not sent: {self.usd(spent):.6f} USD of max_cost_usd={cap:g} are spent, and this request may cost "
                    f"{self.usd(most):.6f}; raise --engine-arg max_cost_usd=... and run the same command again to have "
                    "the rest judged"
                )
            self._settled.clear()
            await self._settled.wait()


def max_usage(body: Mapping[str, Any]) -> Usage:
    """The most tokens that a request can be billed with.

    Of text that is a token for each byte of UTF-8, which no tokenizer that falls back to bytes exceeds, and what a
    server may put around it; of an image as many as the most expensive model of OpenAI's takes for its largest.
    """
    prompt = body["prompt"] if "prompt" in body else body["messages"]
    if isinstance(prompt, str):
        tokens = len(prompt.encode()) + _WRAPPING_TOKENS
    elif prompt and isinstance(prompt[0], Mapping):
        tokens = sum(_most_of(one["content"]) + _PER_MESSAGE_TOKENS for one in prompt) + _WRAPPING_TOKENS
    else:
        tokens = len(prompt)
    each = body["max_tokens"] if "max_tokens" in body else body["max_completion_tokens"]
    return Usage(prompt_tokens=tokens, completion_tokens=each * body.get("n", 1))


def _most_of(content: str | Sequence[Mapping[str, Any]]) -> int:
    """Of a message's content: a text, or a list of texts and images."""
    if isinstance(content, str):
        return len(content.encode())
    return sum(len(part["text"].encode()) if part["type"] == "text" else _IMAGE_TOKENS for part in content)
