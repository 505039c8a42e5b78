"""Keys and values of prompts just answered, for a reply that goes on from one: a reason behind its score line."""

from collections import OrderedDict

from judgelm.engines.packed_attention import KeyValues
from judgelm.engines.replies import Reply, Waiting

_MOST = 64


class RecentPrompts:
    """The latest prompts with their replies, at most `_MOST` and at most so many tokens of them."""

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._kept: OrderedDict[str, tuple[list[int], KeyValues]] = OrderedDict()
        self.reused_tokens = 0

    def keep(self, reply: Reply) -> None:
        """Keep a finished reply; its last token was never read, so it has neither keys nor values."""
        self._kept[reply.source.fitted.text] = (reply.source.fitted.ids + reply.ids[:-1], reply.store)
        while len(self._kept) > _MOST or self._tokens() > self._most_tokens:
            self._kept.popitem(last=False)

    def resume(self, waiting: Waiting) -> KeyValues:
        """A store for a new prompt: with what it has in common with the prompt it continues, or an empty one."""
        store = KeyValues(waiting.capacity)
        continuation = waiting.request.prompt.continuation
        kept = self._kept.get(waiting.fitted.text[: -len(continuation)]) if continuation else None
        if kept is None:
            return store
        ids, source = kept
        most = min(len(ids), len(waiting.fitted.ids) - 1)  # at least one token must be read, for its logits
        common = next((place for place in range(most) if ids[place] != waiting.fitted.ids[place]), most)
        self.reused_tokens += common
        store.take(source, common)
        return store

    def clear(self) -> None:
        """Give the memory back."""
        self._kept.clear()

    def _tokens(self) -> int:
        return sum(store.capacity for _, store in self._kept.values())
