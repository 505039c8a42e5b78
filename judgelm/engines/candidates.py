r"""Probabilities of given replies, whether an engine sees token ids or only the texts that an endpoint lists.

Many replies begin alike (`8 6`, `8 7`), so their tokens form a tree, of which only the inner nodes need a forward step,
since a token's probability is known at its parent: the hundred score lines of a pair have about twenty. The
transformers engine evaluates all nodes at once. vLLM can only continue from a prefix, so a search follows the most
probable branches first, until the others have at most 0.01 of the probability.

An endpoint lists the most probable tokens at each position of a reply as texts, and usually without their ids. There
the tree's nodes are texts, the beginnings of candidates: a reply is at node `8 ` however it was split into tokens, and
tokens that lead to the same text add up. A token may go beyond a candidate (`6\n` completes `8 6` as `6` does). Texts
are compared exactly: a reply that begins with a blank does not begin with `8 6`, as for the engines that compare ids.
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
"""The end of the prompt, as a node."""

Step = tuple[int, int]
"""A token behind a node: (node, token id)."""
FOLLOWED_MASS = 0.99
"""Share of the probability that must be followed to the end of the replies."""
NEGLIGIBLE = 0.01
"""Maximum probability that may stay unexplored in total."""
_TAIL_CHARACTERS = 32


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


@dataclass(frozen=True, slots=True)
class TokenStep:
    """One position of a reply: the chosen token, and the most probable ones with their probabilities."""

    token: str
    tops: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateShares:
    """Distribution of the probability over the tree.

    Attributes:
        candidates: probability of each candidate above 0.
        open: nodes not yet requested, with their probability, which counts for their longest complete candidate.
        unlisted: upper bound of the candidates' probability on tokens that the server did not list: for each next
            character of a candidate that no listed token begins with, the least probable listed token's.
    """

    candidates: Mapping[str, float]
    open: Mapping[str, float]
    unlisted: float


class TextTree:
    """The beginnings of candidates, with the known continuations of each.

    Args:
        candidates: replies whose probabilities are requested.
    """

    def __init__(self, candidates: Sequence[str]) -> None:
        self._candidates = tuple(candidates)
        self._whole = frozenset(candidates)
        inner = {reply[:end] for reply in self._whole for end in range(len(reply))}
        self._inner = sorted(inner, key=len)
        self._suffixes = {
            node: frozenset(reply[len(node) :] for reply in self._whole if reply.startswith(node) and reply != node)
            for node in inner
        }
        self._known: dict[str, Mapping[str, float]] = {}
        self._borrowed: dict[str, Mapping[str, float]] = {}

    def follow(self, node: str, text: str, steps: Sequence[TokenStep]) -> None:
        """Add the tokens of a reply that continues from a node.

        Args:
            node: the beginning that the reply continues from; empty for the prompt's end.
            text: the reply as the server gave it, to find blanks that its detokeniser dropped from single tokens.
            steps: the reply token by token.
        """
        position, reach = 0, 1.0
        follows: dict[str, float] = {}
        for index, step in enumerate(steps):
            if node not in self._suffixes:
                return
            blank = _dropped_blank(text, position, step.token)
            piece = blank + step.token
            position += len(piece)
            stays = not piece and index + 1 < len(steps)
            for token, probability in step.tops:
                if not (stays and token == step.token):
                    follows[blank + token] = follows.get(blank + token, 0.0) + reach * probability
            if stays:  # a token without text, such as SentencePiece's lone blank: its continuations belong to the node
                reach *= sum(probability for token, probability in step.tops if token == step.token)
                continue
            self._known.setdefault(node, follows)
            node, reach, follows = node + piece, 1.0, {}

    def close(self, node: str) -> None:
        """Mark a node as requested: without known continuations its probability is unlisted."""
        self._known.setdefault(node, {})

    def borrow(self) -> bool:
        """Give each open node the continuations of the known node with the most endings in common.

        Returns:
            Whether a node was open; further nodes may be open now.
        """
        needed = self.needed()
        for node in needed:
            source = max(self._known, key=lambda known: len(self._suffixes[known] & self._suffixes[node]), default="")
            alike = source in self._known and self._suffixes[source] & self._suffixes[node]
            self._borrowed[node] = self._known[source] if alike else {}
        return bool(needed)

    def needed(self) -> list[str]:
        """The fewest open nodes to request, so that the probability left open is negligible."""
        open_ = self.shares().open
        left = sum(open_.values())
        needed = []
        for node in sorted(open_, key=lambda node: -open_[node]):
            if left <= NEGLIGIBLE:
                break
            needed.append(node)
            left -= open_[node]
        return needed

    def shares(self) -> CandidateShares:
        """Distribute the probability over the known part of the tree."""
        mass = {"": 1.0}
        credited: dict[str, float] = {}
        open_: dict[str, float] = {}
        unlisted = 0.0

        def credit(text: str, probability: float) -> None:
            longest = self._longest(text)
            if longest is not None:
                credited[longest] = credited.get(longest, 0.0) + probability

        for node in self._inner:  # the shortest first: a token only ever leads to a longer text
            here = mass.get(node, 0.0)
            if here <= 0:
                continue
            follows = self._known.get(node, self._borrowed.get(node))
            if follows is None:
                open_[node] = here
                credit(node, here)
                continue
            for piece, probability in follows.items():
                text = node + piece
                if piece and text in self._suffixes:
                    mass[text] = mass.get(text, 0.0) + here * probability
                else:
                    credit(text, here * probability)
            rest = max(0.0, 1.0 - sum(follows.values()))
            credit(node, here * rest)
            unlisted_starts = {suffix[0] for suffix in self._suffixes[node]} - {piece[:1] for piece in follows}
            unlisted += here * min(rest, len(unlisted_starts) * min(follows.values(), default=1.0))
        return CandidateShares(candidates=credited, open=open_, unlisted=unlisted)

    def logprobs(self) -> tuple[float, ...]:
        """The values of `Completion.candidate_logprobs`."""
        shares = self.shares().candidates
        return tuple(_log(shares.get(candidate, 0.0)) for candidate in self._candidates)

    def _longest(self, text: str) -> str | None:
        return next((text[:end] for end in range(len(text), 0, -1) if text[:end] in self._whole), None)


def frequencies(candidates: Sequence[str], replies: Sequence[str]) -> tuple[float, ...]:
    """Natural log of the share of replies that begin with each candidate and with no longer one."""
    longest = [longest_candidate(reply, candidates) for reply in replies]
    return tuple(_log(longest.count(candidate) / len(replies)) for candidate in candidates)


def longest_candidate(reply: str, candidates: Sequence[str]) -> str | None:
    """The longest candidate that the reply begins with."""
    return max((candidate for candidate in candidates if reply.startswith(candidate)), key=len, default=None)


def _dropped_blank(text: str, position: int, token: str) -> str:
    """The blank before this token in the reply that the server's text of the token lacks."""
    return " " if not text.startswith(token, position) and text.startswith(" " + token, position) else ""


def _log(probability: float) -> float:
    return math.log(min(probability, 1.0)) if probability > 0 else -math.inf


class CandidateTokenizer:
    """Token ids of replies as they would follow a prompt; cached, since a run repeats the same ones."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._trees: dict[tuple[str, tuple[str, ...]], ScoreTree] = {}

    def tree(self, prompt: str, replies: tuple[str, ...]) -> ScoreTree:
        """The tree of the replies that follow this prompt."""
        key = (prompt[-_TAIL_CHARACTERS:], replies)
        if key not in self._trees:
            self._trees[key] = build_tree(self._ids_after(*key))
        return self._trees[key]

    def _ids_after(self, tail: str, replies: tuple[str, ...]) -> list[list[int]]:
        """Ids of each reply after the prompt's end; tokenised alone where a token would span the boundary."""
        before, *wholes = self._ids([tail, *(tail + reply for reply in replies)])
        all_ids = [whole[len(before) :] if whole[: len(before)] == before else [] for whole in wholes]
        for index, reply in enumerate(replies):
            if not all_ids[index]:
                [all_ids[index]] = self._ids([reply])
            if not all_ids[index]:
                raise EngineError(f"candidate {reply!r} has no tokens")
        return all_ids

    def _ids(self, texts: list[str]) -> list[list[int]]:
        return list(self._tokenizer(texts, add_special_tokens=False)["input_ids"])
