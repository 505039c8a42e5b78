"""The tree of given replies: what must be evaluated to know the probability of each.

Many replies begin alike (`8 6`, `8 7`), so their tokens form a tree; only its inner nodes need a forward step, since a
token's probability is known at its parent. The hundred score lines of a pair have about twenty inner nodes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

ROOT = -1
"""The end of the prompt, as a node."""

Step = tuple[int, int]
"""A token behind a node: (node, token id)."""


@dataclass(frozen=True, kw_only=True)
class ScoreTree:
    """Inner nodes in order of depth, and the path of each reply.

    Attributes:
        tokens: each node's token id.
        parents: each node's parent, `ROOT` for the end of the prompt.
        depths: 0 for the first token of a reply.
        paths: for each reply its steps; their log-probabilities add up.
        longer: for each reply the places of the replies that go on from it, without those that go on from these.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    paths: tuple[tuple[Step, ...], ...]
    longer: tuple[tuple[int, ...], ...]

    @cached_property
    def node_behind(self) -> dict[Step, int]:
        """The inner node that a step leads to; a step that only ends replies has none."""
        return {(self.parents[node], token): node for node, token in enumerate(self.tokens)}

    @cached_property
    def children(self) -> dict[int, tuple[int, ...]]:
        """Token ids behind each node that begin or go on with a reply."""
        found: dict[int, dict[int, None]] = {}
        for path in self.paths:
            for node, token in path:
                found.setdefault(node, {})[token] = None
        return {node: tuple(tokens) for node, tokens in found.items()}

    @cached_property
    def vocabulary(self) -> tuple[int, ...]:
        """All token ids in it, ascending."""
        return tuple(sorted({token for path in self.paths for _, token in path}))

    @cached_property
    def depth_below(self) -> dict[int, int]:
        """Tokens from each node to the end of the longest reply behind it."""
        found: dict[int, int] = {}
        for path in self.paths:
            for place, (node, _) in enumerate(path):
                found[node] = max(found.get(node, 0), len(path) - place)
        return found

    def way_to(self, node: int) -> list[int]:
        """Token ids from the end of the prompt to the node."""
        return [self.tokens[one] for one in reversed(self.ancestors(node))]

    def ancestors(self, node: int) -> list[int]:
        """The node itself and all above it."""
        found = []
        while node != ROOT:
            found.append(node)
            node = self.parents[node]
        return found

    def logprobs(self, steps: Mapping[Step, float]) -> tuple[float, ...]:
        """For each reply: log of the probability that a reply begins with it and with no longer one of the tree.

        Args:
            steps: log-probability of each step; what needs one that is missing is -inf.
        """
        begun = [sum(steps.get(step, -math.inf) for step in path) for path in self.paths]
        known = {node for node, _ in steps}
        return tuple(
            alone if not longer else _without(alone, [begun[place] for place in longer]) if end in known else -math.inf
            for alone, longer, end in zip(begun, self.longer, self._ends, strict=True)
        )

    @cached_property
    def _ends(self) -> tuple[int | None, ...]:
        """The node behind each reply's last token, where longer ones go on from it."""
        return tuple(self.node_behind.get(path[-1]) for path in self.paths)


def build_tree(replies: Sequence[Sequence[int]]) -> ScoreTree:
    """The tree of the replies' token ids, each at least one token long."""
    numbers: dict[tuple[int, ...], int] = {(): ROOT}
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
        longer=_longer([tuple(reply) for reply in replies]),
    )


def _longer(replies: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    places = {reply: place for place, reply in enumerate(replies)}
    found: list[list[int]] = [[] for _ in replies]
    for place, reply in enumerate(replies):
        shorter = (places[reply[:length]] for length in range(len(reply) - 1, 0, -1) if reply[:length] in places)
        if (nearest := next(shorter, None)) is not None:
            found[nearest].append(place)
    return tuple(tuple(longer) for longer in found)


def _without(alone: float, longer: list[float]) -> float:
    """log(exp(alone) - sum(exp(longer))); rounding can leave nothing."""
    if alone == -math.inf:
        return alone
    share = sum(math.exp(one - alone) for one in longer)
    return alone + math.log1p(-share) if share < 1 else -math.inf
