"""The tree of given replies: what must be evaluated to know the probability of each.

Many replies begin alike (`8 6`, `8 7`), so their tokens form a tree; only its inner nodes need a forward step, since a
token's probability is known at its parent. The hundred score lines of a pair have about twenty inner nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTree:
    """Inner nodes in order of depth, and the path of each reply.

    Attributes:
        tokens: each node's token id.
        parents: each node's parent, -1 for the end of the prompt.
        depths: 0 for the first token of a reply.
        paths: for each reply its (node before the token or -1, token id) pairs; their log-probabilities add up.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    paths: tuple[tuple[tuple[int, int], ...], ...]

    def ancestors(self, node: int) -> list[int]:
        """The node itself and all above it."""
        found = []
        while node >= 0:
            found.append(node)
            node = self.parents[node]
        return found


def build_tree(replies: Sequence[Sequence[int]]) -> ScoreTree:
    """The tree of the replies' token ids, each at least one token long."""
    numbers: dict[tuple[int, ...], int] = {(): -1}
    for depth in range(1, max(len(reply) for reply in replies)):
        for reply in replies:
            if len(reply) > depth:
                numbers.setdefault(tuple(reply[:depth]), len(numbers) - 1)
    inner = [prefix for prefix in numbers if prefix]
    return ScoreTree(
        tokens=tuple(prefix[-1] for prefix in inner),
        parents=tuple(numbers[prefix[:-1]] for prefix in inner),
        depths=tuple(len(prefix) - 1 for prefix in inner),
        paths=tuple(
            tuple((numbers[tuple(reply[:place])], reply[place]) for place in range(len(reply))) for reply in replies
        ),
    )
