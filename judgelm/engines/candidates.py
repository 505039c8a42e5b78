"""Compute the probabilities of predefined replies.

Replies share prefixes (such as `8 6` and `8 7`), so their tokens form a tree. Only inner nodes need a forward pass.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from judgelm.errors import EngineError
from judgelm.prompts.truncation import Tokenizer

ROOT = -1

Step = tuple[int, int]
"""A node and the id of the next token."""
FOLLOWED_MASS = 0.99
_TAIL_CHARACTERS = 32


@dataclass(frozen=True, kw_only=True)
class ScoreTree:
    """The inner nodes, sorted by depth, and the path for each reply.

    Attributes:
        depths: 0 for the first token of a reply.
        longer: for each reply, the indices of the next-longest replies that start with it.
        repeated: indices of replies with the same tokens as an earlier reply; they have no probability of their own.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    paths: tuple[tuple[Step, ...], ...]
    longer: tuple[tuple[int, ...], ...]
    repeated: frozenset[int] = frozenset()

    @cached_property
    def node_behind(self) -> dict[Step, int]:
        """The inner node that each step leads to, if any."""
        return {(self.parents[node], token): node for node, token in enumerate(self.tokens)}

    @cached_property
    def children(self) -> dict[int, tuple[int, ...]]:
        """The token ids that can follow each node."""
        children: dict[int, dict[int, None]] = {}
        for path in self.paths:
            for node, token in path:
                children.setdefault(node, {})[token] = None
        return {node: tuple(tokens) for node, tokens in children.items()}

    @cached_property
    def vocabulary(self) -> tuple[int, ...]:
        """All token ids in ascending order."""
        return tuple(sorted({token for path in self.paths for _, token in path}))

    @cached_property
    def depth_below(self) -> dict[int, int]:
        """Number of tokens from each node to the end of its longest reply."""
        depths: dict[int, int] = {}
        for path in self.paths:
            for index, (node, _) in enumerate(path):
                depths[node] = max(depths.get(node, 0), len(path) - index)
        return depths

    @cached_property
    def visible(self) -> NDArray[np.bool_]:
        """Attention mask of shape (nodes, nodes)."""
        visible = np.zeros((len(self.tokens), len(self.tokens)), np.bool_)
        for node in range(len(self.tokens)):
            visible[node, self.ancestors(node)] = True
        return visible

    def path_to(self, node: int) -> list[int]:
        """Return the token ids on the path from the prompt to the node."""
        return [self.tokens[ancestor] for ancestor in reversed(self.ancestors(node))]

    def ancestors(self, node: int) -> list[int]:
        """Return the node and its ancestors."""
        ancestors = []
        while node != ROOT:
            ancestors.append(node)
            node = self.parents[node]
        return ancestors

    def logprobs(self, steps: Mapping[Step, float]) -> tuple[float, ...]:
        """Return the log-probability of each reply, excluding longer replies that start with it."""
        begun = [sum(steps.get(step, -math.inf) for step in path) for path in self.paths]
        known = {node for node, _ in steps}
        totals = [
            total if not longer else _without(total, [begun[index] for index in longer]) if end in known else -math.inf
            for total, longer, end in zip(begun, self.longer, self._ends, strict=True)
        ]
        return tuple(-math.inf if index in self.repeated else total for index, total in enumerate(totals))

    @cached_property
    def _ends(self) -> tuple[int | None, ...]:
        return tuple(self.node_behind.get(path[-1]) for path in self.paths)


def build_tree(replies: Sequence[Sequence[int]]) -> ScoreTree:
    """Build the tree. Replies must not be empty."""
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
        repeated=frozenset(range(len(replies))) - frozenset(_first_indices(replies).values()),
    )


def _longer(replies: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    indices = _first_indices(replies)
    longer: list[list[int]] = [[] for _ in replies]
    for index, reply in enumerate(replies):
        shorter = (indices[reply[:length]] for length in range(len(reply) - 1, 0, -1) if reply[:length] in indices)
        if (longest := next(shorter, None)) is not None and indices[reply] == index:
            longer[longest].append(index)
    return tuple(map(tuple, longer))


def _first_indices(replies: Sequence[Sequence[int]]) -> dict[tuple[int, ...], int]:
    return {tuple(reply): index for index, reply in reversed(list(enumerate(replies)))}


def _without(total: float, longer: list[float]) -> float:
    """Return log(exp(total) - sum(exp(longer)))."""
    if total == -math.inf:
        return total
    share = sum(math.exp(part - total) for part in longer)
    return total + math.log1p(-share) if share < 1 else -math.inf


class CandidateSearch:
    """Searches the tree for one prompt until at least `mass` of the probability is covered."""

    def __init__(self, tree: ScoreTree, mass: float = FOLLOWED_MASS) -> None:
        self.tree = tree
        self._left_out = 1 - mass
        self._steps: dict[Step, float] = {}
        self._open: dict[int, float] = {ROOT: 0.0}

    def add(self, node: int, reply: Sequence[int], logprobs: Sequence[Mapping[int, float]]) -> None:
        """Add the log-probabilities at each token of a reply that continues from `node`."""
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
        """Return the nodes to continue from, most probable first."""
        by_mass = sorted(self._open, key=lambda node: self._open[node], reverse=True)
        left_out = 0.0
        while by_mass and (left_out := left_out + math.exp(self._open[by_mass[-1]])) <= self._left_out:
            by_mass.pop()
        return by_mass

    def logprobs(self) -> tuple[float, ...]:
        """Return `Completion.candidate_logprobs`. Unexplored branches are -inf."""
        return self.tree.logprobs(self._steps)


def longest_candidate(reply: str, candidates: Sequence[str]) -> str | None:
    """Return the longest candidate that the reply starts with, if any."""
    return max((candidate for candidate in candidates if reply.startswith(candidate)), key=len, default=None)


class CandidateTokenizer:
    """Tokenises replies as continuations of a prompt."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._trees: dict[tuple[str, tuple[str, ...]], ScoreTree] = {}

    def tree(self, prompt: str, replies: tuple[str, ...]) -> ScoreTree:
        """Return the token tree for replies to this prompt."""
        key = (prompt[-_TAIL_CHARACTERS:], replies)
        if key not in self._trees:
            self._trees[key] = build_tree(self._ids_after(*key))
        return self._trees[key]

    def _ids_after(self, tail: str, replies: tuple[str, ...]) -> list[list[int]]:
        before, *wholes = self._ids([tail, *(tail + reply for reply in replies)])
        all_ids = [whole[len(before) :] if whole[: len(before)] == before else [] for whole in wholes]
        for index, reply in enumerate(replies):
            if not all_ids[index]:
                [all_ids[index]] = self._ids([reply])
            if not all_ids[index]:
                raise EngineError(f"the tokenizer returns no tokens for the candidate {reply!r}")
        first = _first_indices(all_ids)
        for ids, reply in zip(all_ids, replies, strict=True):
            if (other := replies[first[tuple(ids)]]).strip() != reply.strip():
                raise EngineError(f"the tokenizer reads {other!r} and {reply!r} as the same tokens; choose other words")
        return all_ids

    def _ids(self, texts: list[str]) -> list[list[int]]:
        return list(self._tokenizer(texts, add_special_tokens=False)["input_ids"])
