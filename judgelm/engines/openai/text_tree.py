r"""Compute candidate probabilities from token strings, because endpoints do not return token ids.

Nodes are prefixes of candidates, regardless of tokenisation. A token may extend past a candidate (`6\n` completes
`8 6`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from judgelm.engines.candidates import longest_candidate

NEGLIGIBLE = 0.01
"""Maximum total probability that may remain unexplored."""


@dataclass(frozen=True, slots=True)
class TokenStep:
    """The chosen token, and the most probable tokens with their probabilities."""

    token: str
    tops: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateShares:
    """The distribution of probability over the tree.

    Attributes:
        open: nodes that have not been requested yet.
        unlisted: upper bound on the probability of candidates that start with unlisted tokens.
    """

    candidates: Mapping[str, float]
    open: Mapping[str, float]
    unlisted: float


class TextTree:
    """Candidate prefixes and their known continuations."""

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
        """Add the tokens of a reply that continues from `node`. Missing spaces are restored from `text`."""
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
            if stays:  # an empty token, such as SentencePiece's blank; its continuations belong to the node
                reach *= sum(probability for token, probability in step.tops if token == step.token)
                continue
            self._known.setdefault(node, follows)
            node, reach, follows = node + piece, 1.0, {}

    def close(self, node: str) -> None:
        """Mark a node as requested."""
        self._known.setdefault(node, {})

    def borrow(self) -> bool:
        """Copy continuations from similar known nodes to open nodes. Return False if no nodes were open."""
        needed = self.needed()
        for node in needed:
            source = max(self._known, key=lambda known: len(self._suffixes[known] & self._suffixes[node]), default="")
            alike = source in self._known and self._suffixes[source] & self._suffixes[node]
            self._borrowed[node] = self._known[source] if alike else {}
        return bool(needed)

    def needed(self) -> list[str]:
        """Return the fewest nodes to request so that the remaining probability is negligible."""
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
        """Distribute the probability over the known tree."""
        mass = {"": 1.0}
        credited: dict[str, float] = {}
        open_: dict[str, float] = {}
        unlisted = 0.0

        def credit(text: str, probability: float) -> None:
            longest = self._longest(text)
            if longest is not None:
                credited[longest] = credited.get(longest, 0.0) + probability

        for node in self._inner:  # shortest first, because tokens only lengthen the text
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
        """Return `Completion.candidate_logprobs`."""
        shares = self.shares().candidates
        return tuple(_log(shares.get(candidate, 0.0)) for candidate in self._candidates)

    def _longest(self, text: str) -> str | None:
        return next((text[:end] for end in range(len(text), 0, -1) if text[:end] in self._whole), None)


def frequencies(candidates: Sequence[str], replies: Sequence[str]) -> tuple[float, ...]:
    """Return the log of each candidate's share of the replies."""
    longest = [longest_candidate(reply, candidates) for reply in replies]
    return tuple(_log(longest.count(candidate) / len(replies)) for candidate in candidates)


def _dropped_blank(text: str, position: int, token: str) -> str:
    return " " if not text.startswith(token, position) and text.startswith(" " + token, position) else ""


def _log(probability: float) -> float:
    return math.log(min(probability, 1.0)) if probability > 0 else -math.inf
