"""Keys and values of recent prompts, reused by prompts that begin alike.

Prompts of one question share it and often an answer, both orders of a pair share its question, and a reason continues
from its score line. The shared tokens are computed once.
"""

from collections import OrderedDict
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from judgelm.engines.transformers.packed_attention import KVCache
from judgelm.engines.transformers.sequences import QueuedRequest, RunningSequence

_MAX_ENTRIES = 64
_MAX_COMPARED = 32

MIN_SHARED_TOKENS = 32
"""Shorter shared prefixes are computed again: copying them costs about as much."""

_Key = tuple[str, tuple[str, ...]]
"""A prompt's text and its images: equal texts may show different ones."""


class CachedPrefix(NamedTuple):
    """The number of tokens that a prompt shares with an earlier one, and the earlier one's keys and values."""

    tokens: int
    kv: KVCache | None


class PrefixCache:
    """The most recent prompts, with or without a reply, at most `_MAX_ENTRIES`.

    Args:
        max_tokens: maximum tokens of all entries together.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._entries: OrderedDict[_Key, tuple[NDArray[np.int32], KVCache]] = OrderedDict()
        self.reused_tokens = 0

    def add(self, sequence: RunningSequence) -> None:
        """Add a prompt that was just read, or a finished reply, without its last token, which was never read."""
        tokenized = sequence.parent.tokenized
        key = tokenized.text, tokenized.images
        ids = np.concatenate((sequence.parent.ids, np.array(sequence.ids[:-1], np.int32)))
        self._entries[key] = (ids, sequence.kv)
        self._entries.move_to_end(key)
        while len(self._entries) > _MAX_ENTRIES or self._tokens() > self._max_tokens:
            self._entries.popitem(last=False)

    def longest_prefix(self, queued: QueuedRequest) -> CachedPrefix:
        """The longest prefix that a recent prompt shares with this one."""
        continued = self._entries.get(self._continued_key(queued))
        recent = islice(reversed(self._entries.items()), _MAX_COMPARED)
        entries = [entry for (_, images), entry in recent if images == queued.tokenized.images]
        best = CachedPrefix(0, None)
        for ids, kv in entries if continued is None else [continued]:
            tokens = shared_tokens(ids, queued)
            if tokens > best.tokens and (tokens >= MIN_SHARED_TOKENS or continued is not None):
                best = CachedPrefix(tokens, kv)
        return best

    def has_continued(self, queued: QueuedRequest) -> bool:
        """True if the prompt continues a cached one."""
        return self._continued_key(queued) in self._entries

    def new_kv(self, queued: QueuedRequest, prefix: CachedPrefix) -> KVCache:
        """Keys and values for a new prompt, filled with its cached prefix."""
        kv = KVCache(queued.capacity, len(queued.ids))
        if prefix.kv is not None:
            self.reused_tokens += prefix.tokens
            kv.copy_prefix(prefix.kv, prefix.tokens)
        return kv

    def clear(self) -> None:
        """Free the memory."""
        self._entries.clear()

    def _continued_key(self, queued: QueuedRequest) -> _Key:
        """The key of the prompt without its prefilled reply."""
        prefill, tokenized = queued.request.prompt.prefill, queued.tokenized
        return (tokenized.text.removesuffix(prefill) if prefill else "", tokenized.images)

    def _tokens(self) -> int:
        return sum(kv.capacity for _, kv in self._entries.values())


def shared_tokens(ids: NDArray[np.int32], queued: QueuedRequest) -> int:
    """Number of leading tokens that both share, at most all but the prompt's last, whose logits are needed.

    0 where the shared tokens end before the prompt's last image: images are read whole or not at all.
    """
    most = min(len(ids), len(queued.ids) - 1)
    differ = np.flatnonzero(ids[:most] != queued.ids[:most])
    tokens = int(differ[0]) if len(differ) else most
    return tokens if tokens >= queued.images_end else 0
