"""Finds the probabilities of given replies with few requests, for engines that can only continue from a prefix.

A reply's log-probabilities cover the tree's nodes along its path. Further requests follow the other branches, the most
probable first, until the branches not followed have at most 0.01 of the probability.
"""

import math
from collections.abc import Mapping, Sequence

from judgelm.engines.score_tree import ROOT, ScoreTree, Step

FOLLOWED_MASS = 0.99
"""Share of the probability that must be followed to the end of the replies."""


class CandidateSearch:
    """The known part of one prompt's tree.

    Args:
        tree: the replies.
        mass: where to stop; 1 follows every branch.
    """

    def __init__(self, tree: ScoreTree, mass: float = FOLLOWED_MASS) -> None:
        self.tree = tree
        self._left_out = 1 - mass
        self._steps: dict[Step, float] = {}
        self._open: dict[int, float] = {ROOT: 0.0}

    def add(self, node: int, reply: Sequence[int], logprobs: Sequence[Mapping[int, float]]) -> None:
        """Add the log-probabilities of a reply.

        Args:
            node: the node that the reply continues from.
            reply: its token ids.
            logprobs: for each token the log-probabilities of (at least) the tree's tokens at its position.
        """
        for token, alternatives in zip(reply, logprobs, strict=False):
            if node in self._open:
                self._close(node, alternatives)
            follower = self.tree.node_behind.get((node, token))
            if follower is None:
                return
            node = follower

    def _close(self, node: int, logprobs: Mapping[int, float]) -> None:
        above = self._open.pop(node)
        for token in self.tree.children[node]:
            self._steps[node, token] = logprobs[token]
            if (inner := self.tree.node_behind.get((node, token))) is not None:
                self._open[inner] = above + logprobs[token]

    def open_nodes(self) -> list[int]:
        """Nodes to continue from, most probable first; none when enough is known."""
        by_mass = sorted(self._open, key=lambda node: self._open[node], reverse=True)
        left_out = 0.0
        while by_mass and (left_out := left_out + math.exp(self._open[by_mass[-1]])) <= self._left_out:
            by_mass.pop()
        return by_mass

    def logprobs(self) -> tuple[float, ...]:
        """The values of `Completion.candidate_logprobs`; -inf for branches not followed."""
        return self.tree.logprobs(self._steps)
