r"""Probabilities of given replies, from the text and log-probability of single tokens.

An endpoint says which tokens were likeliest at each place of a reply, as texts, and mostly not by which ids. So the
tree's nodes are texts, the beginnings of candidates: a reply is at node `8 ` however it was split into tokens, and
tokens that lead to the same text add up. A token may overshoot a candidate (`6\n` ends in `8 6` as well as `6` does).

Texts are compared as they are. A reply that begins with a blank does not begin with `8 6`: the local engines, which
compare token ids behind the prompt, do not count it either.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NEGLIGIBLE = 0.01
"""So much probability may stay unexplored altogether."""


@dataclass(frozen=True, slots=True)
class TokenStep:
    """One place of a reply: the token that stands there, and the likeliest ones with their probabilities."""

    token: str
    tops: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateShares:
    """Where the probability lies.

    Attributes:
        candidates: probability of each candidate that has any.
        open: nodes that must still be asked for, and what each holds; its largest candidate is credited with it.
        unlisted: what candidates may have on tokens that the server did not list: for each next character of a
            candidate of which no listed token tells, at most as much as the least likely listed token has.
    """

    candidates: Mapping[str, float]
    open: Mapping[str, float]
    unlisted: float


class TextTree:
    """The beginnings of candidates and what is known to follow each.

    Args:
        candidates: replies whose probabilities are wanted.
    """

    def __init__(self, candidates: Sequence[str]) -> None:
        self._candidates = tuple(candidates)
        self._whole = frozenset(candidates)
        inner = {one[:end] for one in self._whole for end in range(len(one))}
        self._inner = sorted(inner, key=len)
        self._suffixes = {
            node: frozenset(one[len(node) :] for one in self._whole if one.startswith(node) and one != node)
            for node in inner
        }
        self._known: dict[str, Mapping[str, float]] = {}
        self._borrowed: dict[str, Mapping[str, float]] = {}

    def follow(self, node: str, text: str, steps: Sequence[TokenStep]) -> None:
        """Learn from a reply that went on from a node.

        Args:
            node: the beginning that the reply was asked to go on from; empty for the prompt's end.
            text: the reply as the server gave it, to see blanks that its detokeniser left out of single tokens.
            steps: the reply token by token.
        """
        place, reach = 0, 1.0
        follows: dict[str, float] = {}
        for number, step in enumerate(steps):
            if node not in self._suffixes:
                return
            blank = _dropped_blank(text, place, step.token)
            piece = blank + step.token
            place += len(piece)
            stays = not piece and number + 1 < len(steps)
            for token, probability in step.tops:
                if not (stays and token == step.token):
                    follows[blank + token] = follows.get(blank + token, 0.0) + reach * probability
            if stays:  # a token without text, such as SentencePiece's lone blank: what follows it follows the node
                reach *= sum(probability for token, probability in step.tops if token == step.token)
                continue
            self._known.setdefault(node, follows)
            node, reach, follows = node + piece, 1.0, {}

    def close(self, node: str) -> None:
        """No more is to be had about a node: what it holds is unlisted if nothing is known by now."""
        self._known.setdefault(node, {})

    def borrow(self) -> bool:
        """Take for each open node what follows the known one with the most endings in common.

        Returns:
            Whether anything was open, so that the next nodes may be.
        """
        needed = self.needed()
        for node in needed:
            lender = max(self._known, key=lambda known: len(self._suffixes[known] & self._suffixes[node]), default="")
            alike = lender in self._known and self._suffixes[lender] & self._suffixes[node]
            self._borrowed[node] = self._known[lender] if alike else {}
        return bool(needed)

    def needed(self) -> list[str]:
        """The fewest open nodes that must be asked for, so that what stays open is negligible."""
        open_ = self.shares().open
        left = sum(open_.values())
        needed = []
        for node in sorted(open_, key=lambda one: -open_[one]):
            if left <= NEGLIGIBLE:
                break
            needed.append(node)
            left -= open_[node]
        return needed

    def shares(self) -> CandidateShares:
        """Spread the probability over the tree as far as it is known."""
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
            untold = {suffix[0] for suffix in self._suffixes[node]} - {piece[:1] for piece in follows}
            unlisted += here * min(rest, len(untold) * min(follows.values(), default=1.0))
        return CandidateShares(candidates=credited, open=open_, unlisted=unlisted)

    def logprobs(self) -> tuple[float, ...]:
        """For each candidate what `Completion.candidate_logprobs` says."""
        shares = self.shares().candidates
        return tuple(_log(shares.get(one, 0.0)) for one in self._candidates)

    def _longest(self, text: str) -> str | None:
        return next((text[:end] for end in range(len(text), 0, -1) if text[:end] in self._whole), None)


def frequencies(candidates: Sequence[str], replies: Sequence[str]) -> tuple[float, ...]:
    """Natural log of the share of replies that begin with each candidate and with no longer one."""
    longest = [max((one for one in candidates if reply.startswith(one)), key=len, default=None) for reply in replies]
    return tuple(_log(longest.count(one) / len(replies)) for one in candidates)


def _dropped_blank(text: str, place: int, token: str) -> str:
    """The blank that stands in the reply before this token, but that the server's text of the token lacks."""
    return " " if not text.startswith(token, place) and text.startswith(" " + token, place) else ""


def _log(probability: float) -> float:
    return math.log(min(probability, 1.0)) if probability > 0 else -math.inf
