"""Finds the probabilities of given replies with few requests, for engines that can only go on from a prefix.

A reply's own log-probabilities already tell those of the tree's nodes along its path. The other branches are followed
by further requests, the most probable first, until what was not followed has at most 0.01 of the mass.
"""

import math
from collections.abc import Mapping, Sequence

from judgelm.engines.score_tree import ROOT, ScoreTree, Step

FOLLOWED_MASS = 0.99
"""Share of the probability that must be followed to the end of its replies."""


class CandidateSearch:
    """What is known of one prompt's tree.

    Args:
        tree: the replies.
        mass: where to stop; 1 follows every branch.
    """

    def __init__(self, tree: ScoreTree, mass: float = FOLLOWED_MASS) -> None:
        self.tree = tree
        self._left_out = 1 - mass
        self._steps: dict[Step, float] = {}
        self._open: dict[int, float] = {ROOT: 0.0}

    def learn(self, node: int, reply: Sequence[int], logprobs: Sequence[Mapping[int, float]]) -> None:
        """Take what a reply from a node tells.

        Args:
            node: where the reply begins.
            reply: its token ids.
            logprobs: for each of them the log-probabilities of (at least) the tree's tokens at its place.
        """
        for token, known in zip(reply, logprobs, strict=False):
            if node in self._open:
                self._close(node, known)
            follower = self.tree.node_behind.get((node, token))
            if follower is None:
                return
            node = follower

    def _close(self, node: int, known: Mapping[int, float]) -> None:
        above = self._open.pop(node)
        for token in self.tree.children[node]:
            self._steps[node, token] = known[token]
            if (inner := self.tree.node_behind.get((node, token))) is not None:
                self._open[inner] = above + known[token]

    def open_nodes(self) -> list[int]:
        """Nodes to go on from, most probable first; none when enough is known."""
        by_mass = sorted(self._open, key=lambda node: self._open[node], reverse=True)
        left_out = 0.0
        while by_mass and (left_out := left_out + math.exp(self._open[by_mass[-1]])) <= self._left_out:
            by_mass.pop()
        return by_mass

    def logprobs(self) -> tuple[float, ...]:
        """As `Completion.candidate_logprobs` has them; -inf for what was not followed."""
        return self.tree.logprobs(self._steps)
