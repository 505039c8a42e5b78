"""The tree of given replies, whose nodes must be evaluated for the probability of each reply.

Many replies begin alike (`8 6`, `8 7`), so their tokens form a tree. Only its inner nodes need a forward step, since a
token's probability is known at its parent. The hundred score lines of a pair have about twenty inner nodes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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
        paths: for each reply its steps, whose log-probabilities add up.
        longer: for each reply the indices of the next longer replies that begin with it.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    paths: tuple[tuple[Step, ...], ...]
    longer: tuple[tuple[int, ...], ...]

    @cached_property
    def node_behind(self) -> dict[Step, int]:
        """The inner node that each step leads to; a step that only ends replies has none."""
        return {(self.parents[node], token): node for node, token in enumerate(self.tokens)}

    @cached_property
    def children(self) -> dict[int, tuple[int, ...]]:
        """Token ids behind each node that continue a reply."""
        children: dict[int, dict[int, None]] = {}
        for path in self.paths:
            for node, token in path:
                children.setdefault(node, {})[token] = None
        return {node: tuple(tokens) for node, tokens in children.items()}

    @cached_property
    def vocabulary(self) -> tuple[int, ...]:
        """All its token ids, ascending."""
        return tuple(sorted({token for path in self.paths for _, token in path}))

    @cached_property
    def depth_below(self) -> dict[int, int]:
        """Tokens from each node to the end of the longest reply through it."""
        depths: dict[int, int] = {}
        for path in self.paths:
            for index, (node, _) in enumerate(path):
                depths[node] = max(depths.get(node, 0), len(path) - index)
        return depths

    @cached_property
    def visible(self) -> NDArray[np.bool_]:
        """Shape (nodes, nodes), True where a node (row) attends to a node: to itself and those above it."""
        visible = np.zeros((len(self.tokens), len(self.tokens)), np.bool_)
        for node in range(len(self.tokens)):
            visible[node, self.ancestors(node)] = True
        return visible

    def path_to(self, node: int) -> list[int]:
        """Token ids from the end of the prompt to the node."""
        return [self.tokens[ancestor] for ancestor in reversed(self.ancestors(node))]

    def ancestors(self, node: int) -> list[int]:
        """The node itself and all above it."""
        ancestors = []
        while node != ROOT:
            ancestors.append(node)
            node = self.parents[node]
        return ancestors

    def logprobs(self, steps: Mapping[Step, float]) -> tuple[float, ...]:
        """For each reply: log of the probability that a reply begins with it and with no longer one of the tree.

        Args:
            steps: log-probability of each step; a reply with a missing step gets -inf.
        """
        begun = [sum(steps.get(step, -math.inf) for step in path) for path in self.paths]
        known = {node for node, _ in steps}
        return tuple(
            total if not longer else _without(total, [begun[index] for index in longer]) if end in known else -math.inf
            for total, longer, end in zip(begun, self.longer, self._ends, strict=True)
        )

    @cached_property
    def _ends(self) -> tuple[int | None, ...]:
        """The node behind each reply's last token, where longer replies continue from it."""
        return tuple(self.node_behind.get(path[-1]) for path in self.paths)


def build_tree(replies: Sequence[Sequence[int]]) -> ScoreTree:
    """The tree of the replies' token ids; each reply has at least one token."""
    nodes: dict[tuple[int, ...], int] = {(): ROOT}
    for depth in range(1, max(len(reply) for reply in replies)):
        for reply in replies:
            if len(reply) > depth:
                nodes.setdefault(tuple(reply[:depth]), len(nodes) - 1)
    inner = [prefix for prefix in nodes if prefix]
    return ScoreTree(
        tokens=tuple(prefix[-1] for prefix in inner),
        parents=tuple(nodes[prefix[:-1]] for prefix in inner),
        depths=tuple(len(prefix) - 1 for prefix in inner),
        paths=tuple(
            tuple((nodes[tuple(reply[:depth])], reply[depth]) for depth in range(len(reply))) for reply in replies
        ),
        longer=_longer([tuple(reply) for reply in replies]),
    )


def _longer(replies: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    indices = {reply: index for index, reply in enumerate(replies)}
    longer: list[list[int]] = [[] for _ in replies]
    for index, reply in enumerate(replies):
        shorter = (indices[reply[:length]] for length in range(len(reply) - 1, 0, -1) if reply[:length] in indices)
        if (longest := next(shorter, None)) is not None:
            longer[longest].append(index)
    return tuple(map(tuple, longer))


def _without(total: float, longer: list[float]) -> float:
    """log(exp(total) - sum(exp(longer))), or -inf where rounding leaves nothing."""
    if total == -math.inf:
        return total
    share = sum(math.exp(part - total) for part in longer)
    return total + math.log1p(-share) if share < 1 else -math.inf
