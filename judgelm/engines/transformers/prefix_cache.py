"""Cache prompts to reuse their keys and values."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from judgelm.engines.transformers.batch import NewPrompt
from judgelm.engines.transformers.decode_blocks import DecodeBlocks
from judgelm.engines.transformers.kv_cache import KVCache
from judgelm.engines.transformers.pass_thread import is_out_of_memory
from judgelm.engines.transformers.sequences import QueuedRequest, RunningSequence

_MAX_ENTRIES = 64
_MAX_COMPARED = 32
_REPLY_TOKENS = 64
MIN_SHARED_TOKENS = 32
"""Copying shorter prefixes takes about as long as computing them."""

_Key = tuple[str, tuple[str | None, tuple[str, ...]]]
"""Text, adapter, and images."""


class SharedPrefix(NamedTuple):
    """The prefix shared with an earlier prompt."""

    tokens: int
    kv: KVCache | None


class PrefixCache:
    """Caches the most recent prompts, up to `max_tokens` in total."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._entries: OrderedDict[_Key, tuple[NDArray[np.int32], KVCache]] = OrderedDict()
        self.reused_tokens = 0

    def add(self, queued: QueuedRequest, kv: KVCache, reply: Sequence[int] = ()) -> None:
        """Add a prompt, optionally with its reply."""
        key = _key(queued)
        self._entries[key] = np.concatenate((queued.ids, np.array(reply, np.int32))), kv
        self._entries.move_to_end(key)
        while len(self._entries) > _MAX_ENTRIES or self._tokens() > self._max_tokens:
            self._entries.popitem(last=False)

    def add_reply(self, sequence: RunningSequence, decoding: DecodeBlocks) -> None:
        """Add a finished reply to its prompt's entry."""
        queued, reply = sequence.parent, sequence.ids[:-1]
        _, kv = self._entries.get(_key(queued), (None, None))
        if kv is None or kv.length != len(queued.ids):
            if len(reply) < MIN_SHARED_TOKENS:
                return
            kv = KVCache(sequence.read_tokens)
        try:
            decoding.copy(sequence, kv)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            self.clear()
        else:
            self.add(queued, kv, reply)

    def longest_prefix(self, queued: QueuedRequest, fresh: Sequence[NewPrompt]) -> SharedPrefix:
        """Return the longest prefix shared with a prompt in the cache or the same pass."""
        continued = self._entries.get(self._continued_key(queued))
        recent = islice(reversed(self._entries.items()), _MAX_COMPARED)
        entries = [entry for (_, context), entry in recent if context == queued.context]
        entries += [(new.queued.ids, new.kv) for new in fresh if new.queued.context == queued.context]
        best = SharedPrefix(0, None)
        for ids, kv in entries if continued is None else [continued]:
            tokens = shared_tokens(ids, queued)
            if tokens > best.tokens and (tokens >= MIN_SHARED_TOKENS or continued is not None):
                best = SharedPrefix(tokens, kv)
        return best

    def has_continued(self, queued: QueuedRequest) -> bool:
        """Return True if the prompt continues a cached prompt."""
        return self._continued_key(queued) in self._entries

    def new_kv(self, queued: QueuedRequest, prefix: SharedPrefix) -> KVCache:
        """Create the KV cache for a new prompt."""
        reply = min(queued.request.sampling.max_tokens, _REPLY_TOKENS)
        self.reused_tokens += prefix.tokens
        return KVCache(len(queued.ids) + max(queued.tree_nodes, reply), prefix.kv, prefix.tokens)

    def clear(self) -> None:
        """Clear the cache."""
        self._entries.clear()

    def _continued_key(self, queued: QueuedRequest) -> _Key:
        prefill = queued.request.prompt.prefill
        return (queued.tokenized.text.removesuffix(prefill) if prefill else "", queued.context)

    def _tokens(self) -> int:
        return sum(max(kv.expected, kv.length) for _, kv in self._entries.values())


def _key(queued: QueuedRequest) -> _Key:
    return queued.tokenized.text, queued.context


def shared_tokens(ids: NDArray[np.int32], queued: QueuedRequest) -> int:
    """Count shared leading tokens, excluding the prompt's last token. Return 0 if a later token belongs to an image."""
    limit = min(len(ids), len(queued.ids) - 1)
    differ = np.flatnonzero(ids[:limit] != queued.ids[:limit])
    tokens = int(differ[0]) if len(differ) else limit
    return tokens if tokens >= queued.images_end else 0
