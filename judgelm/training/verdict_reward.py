"""The reward of a judge that reasons first: a right verdict in this order and in the other, with a price on form.

    reward = right * (share of right verdicts in the other order) + form_weight * form + length_weight * length

`right` is 1 for a well-formed reply whose verdict is right, else 0; `form` is 0 for a well-formed reply, else -1;
`length` falls from 0 at `soft` tokens to -1 at the limit. The second factor is the mean, over all replies to the same
pair with its answers exchanged, of J1's reward for a pair of replies (1 if both are right): without scaling by each
group's own deviation, the policy gradient is that of P(right in both orders). Form and length only take away, so a
policy that always names one side, writes no verdict, no reason or an endless one earns nothing.

Pure: no torch, no trainer, no other process. Source: J1 (Whitehouse et al. 2025), its consistency reward; the linear
price on length is that of DAPO (Yu et al. 2025).
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

from judgelm.modes.pairwise import read_pair_verdict
from judgelm.parsing.thinking import separate
from judgelm.records import Unparsed


class Attempt(NamedTuple):
    """The outcome of one reply.

    Attributes:
        pair: number of the pair.
        order: 0 for the given order, 1 for the answers exchanged.
        right: whether the reply is well-formed and names the better answer.
    """

    pair: int
    order: int
    right: bool


class Verdict(NamedTuple):
    """A well-formed reply's verdict: the place, in the order shown, of the better answer."""

    better: Literal[1, 2]


def read_form(text: str, *, ended: bool, least_letters: int) -> Verdict | Unparsed:
    """Read a reply: its verdict where it is well-formed, else the flaw.

    Args:
        text: the reply, thinking included.
        ended: whether the judge ended it, rather than the limit of tokens.
        least_letters: letters that reasons have at least; thinking counts.
    """
    if not ended:
        return Unparsed("truncated", text, "no end within the limit of tokens")
    reply = separate(text)
    if not reply.closed:
        return Unparsed("truncated", text, "the thinking has no end")
    verdict = read_pair_verdict(reply.reply)
    if isinstance(verdict, Unparsed):
        return verdict
    reasons = (reply.thinking or "") + reply.reply[: verdict.position]
    if sum(map(str.isalpha, reasons)) < least_letters:
        return Unparsed("off_grammar", text, f"fewer than {least_letters} letters of reasons before the verdict")
    return Verdict(1 if verdict.label == "1" else 2)


def both_orders_right(attempts: Sequence[Attempt]) -> list[float | None]:
    """Reward each attempt by the verdicts in both orders.

    Args:
        attempts: all replies to the pairs, of all processes, in any sequence.

    Returns:
        For each attempt 0 where it is wrong, else the share of right ones among those to the same pair in the other
        order, in [0, 1]; None where there are none, since nothing is known of them.
    """
    groups: dict[tuple[int, int], list[bool]] = defaultdict(list)
    for attempt in attempts:
        groups[attempt.pair, attempt.order].append(attempt.right)
    shares = {key: sum(rights) / len(rights) for key, rights in groups.items()}
    rewards = []
    for attempt in attempts:
        share = shares.get((attempt.pair, 1 - attempt.order))
        rewards.append(None if share is None else share if attempt.right else 0.0)
    return rewards


def length_penalty(tokens: int, *, soft: int, limit: int) -> float:
    """The price of a reply's length: 0 up to `soft` tokens, then linearly to -1 at `limit`.

    Args:
        tokens: of the reply.
        soft: number up to which length costs nothing; less than `limit`.
        limit: the most tokens of a reply.
    """
    return -min(1.0, max(0, tokens - soft) / (limit - soft))
