"""Keys and values of the latest prompts, for those that begin alike.

Prompts of one question share it and often an answer, both orders of a pair share its question, a reason goes on from
its score line: what two prompts have in common is computed once.
"""

from collections import OrderedDict
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from judgelm.engines.transformers.packed_attention import KVCache
from judgelm.engines.transformers.sequences import QueuedRequest, RunningSequence

_MOST = 64
_LOOKED_AT = 32

MIN_SHARED_TOKENS = 32
"""Fewer tokens in common are read again: to copy them costs about as much, and nobody waits for them."""

_Key = tuple[str, tuple[str, ...]]
"""A prompt's text and its images: texts alike may be about different ones."""


class CachedPrefix(NamedTuple):
    """The first tokens of a prompt, as far as another has them too, and that one's keys and values."""

    tokens: int
    kv: KVCache | None


class PrefixCache:
    """The latest prompts, read and perhaps answered, at most `_MOST` and at most so many tokens of them."""

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._kept: OrderedDict[_Key, tuple[NDArray[np.int32], KVCache]] = OrderedDict()
        self.reused_tokens = 0

    def keep(self, reply: RunningSequence) -> None:
        """Keep a prompt that was just read, or a finished reply; its last token was never read."""
        tokenized = reply.source.tokenized
        key = tokenized.text, tokenized.images
        ids = np.concatenate((reply.source.ids, np.array(reply.ids[:-1], np.int32)))
        self._kept[key] = (ids, reply.kv)
        self._kept.move_to_end(key)
        while len(self._kept) > _MOST or self._tokens() > self._most_tokens:
            self._kept.popitem(last=False)

    def known(self, waiting: QueuedRequest) -> CachedPrefix:
        """The most that one of the latest prompts has in common with this one."""
        going_on = self._kept.get(self._continued(waiting))
        latest = islice(reversed(self._kept.items()), _LOOKED_AT)
        found = [one for (_, images), one in latest if images == waiting.tokenized.images]
        best = CachedPrefix(0, None)
        for ids, kv in found if going_on is None else [going_on]:
            tokens = shared_tokens(ids, waiting)
            if tokens > best.tokens and (tokens >= MIN_SHARED_TOKENS or going_on is not None):
                best = CachedPrefix(tokens, kv)
        return best

    def goes_on(self, waiting: QueuedRequest) -> bool:
        """Whether a prompt goes on from one that is kept."""
        return self._continued(waiting) in self._kept

    def resume(self, waiting: QueuedRequest, known: CachedPrefix) -> KVCache:
        """A kv for a new prompt, with what is known of it."""
        kv = KVCache(waiting.capacity, len(waiting.ids))
        if known.kv is not None:
            self.reused_tokens += known.tokens
            kv.take(known.kv, known.tokens)
        return kv

    def clear(self) -> None:
        """Give the memory back."""
        self._kept.clear()

    def _continued(self, waiting: QueuedRequest) -> _Key:
        """Of the prompt without the reply that it is forced to begin with."""
        prefill, tokenized = waiting.request.prompt.prefill, waiting.tokenized
        return (tokenized.text.removesuffix(prefill) if prefill else "", tokenized.images)

    def _tokens(self) -> int:
        return sum(kv.capacity for _, kv in self._kept.values())


def shared_tokens(ids: NDArray[np.int32], waiting: QueuedRequest) -> int:
    """How many of a prompt's first tokens these are too, but for the last, which must be read for its logits.

    0 where that ends before the prompt's last image does: what stands for images is read whole or not at all.
    """
    most = min(len(ids), len(waiting.ids) - 1)
    differ = np.flatnonzero(ids[:most] != waiting.ids[:most])
    tokens = int(differ[0]) if len(differ) else most
    return tokens if tokens >= waiting.images_end else 0
