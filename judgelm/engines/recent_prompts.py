"""Keys and values of prompts just answered, for a reply that goes on from one: a reason behind its score line."""

from collections import OrderedDict

from judgelm.engines.packed_attention import KeyValues
from judgelm.engines.replies import Reply, Waiting

_MOST = 64

_Key = tuple[str, tuple[str, ...]]
"""A prompt's text and its images: texts alike may be about different ones."""


class RecentPrompts:
    """The latest prompts with their replies, at most `_MOST` and at most so many tokens of them."""

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._kept: OrderedDict[_Key, tuple[list[int], KeyValues]] = OrderedDict()
        self.reused_tokens = 0

    def keep(self, reply: Reply) -> None:
        """Keep a finished reply; its last token was never read, so it has neither keys nor values."""
        fitted = reply.source.fitted
        self._kept[fitted.text, fitted.images] = (fitted.ids + reply.ids[:-1], reply.store)
        while len(self._kept) > _MOST or self._tokens() > self._most_tokens:
            self._kept.popitem(last=False)

    def resume(self, waiting: Waiting) -> KeyValues:
        """A store for a new prompt: with what it has in common with the prompt it continues, or an empty one."""
        store = KeyValues(waiting.capacity)
        continuation, fitted = waiting.request.prompt.continuation, waiting.fitted
        kept = self._kept.get((fitted.text[: -len(continuation)], fitted.images)) if continuation else None
        if kept is None:
            return store
        ids, source = kept
        most = min(len(ids), len(fitted.ids) - 1)  # at least one token must be read, for its logits
        common = next((place for place in range(most) if ids[place] != fitted.ids[place]), most)
        if common < waiting.images_end:
            return store  # what stands for an image is read whole or not at all
        self.reused_tokens += common
        store.take(source, common)
        return store

    def clear(self) -> None:
        """Give the memory back."""
        self._kept.clear()

    def _tokens(self) -> int:
        return sum(store.capacity for _, store in self._kept.values())
