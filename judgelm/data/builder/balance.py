"""Balance each set so that position, model, or length does not predict the winner.

- **models and length**: pairs are grouped by the two models, by the model that wrote the longer answer, and by the
  stratum of the length difference. Surplus pairs with the highest hashes are removed, so that both models win equally
  often in each group. If only `length` is balanced or the models are unknown, pairs are grouped by stratum alone.
- **position**: pairs are swapped so that the better answer alternates between first and second in hash order.

Ties and pairs that belong to no group are kept.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from judgelm.data.labelled_pair import LabelledPair, uniform_hash
from judgelm.records import Winner

Balance = Literal["position", "models", "length"]

LENGTH_STRATA = (25, 75, 150, 300)
"""Default bounds of the length-difference strata, in characters."""


class PairFacts(NamedTuple):
    """The properties of a pair used for balancing; `longer` is the first answer's length minus the second answer's."""

    id: str
    source: str
    question: bytes
    models: tuple[str, ...]
    longer: int
    winner: Winner | None


def pair_facts(pair: LabelledPair, question: bytes) -> PairFacts:
    """Return a pair's properties."""
    first, second = pair.sample.answers
    models = pair.sample.answer_models
    known = models if len(set(models)) == 2 else ()
    return PairFacts(pair.sample.id, pair.source, question, known, len(first) - len(second), pair.winner)


def over_limit(pairs: Sequence[tuple[int, PairFacts]], maximum: int, *, seed: int) -> set[int]:
    """Return the indices of pairs that exceed `maximum` per question; pairs with the lowest hashes are kept."""
    by_question: dict[bytes, list[tuple[int, PairFacts]]] = defaultdict(list)
    for index, facts in pairs:
        by_question[facts.question].append((index, facts))
    return {index for group in by_question.values() for index in _drawn(group, seed, "limit")[maximum:]}


def over_balance(
    pairs: Sequence[tuple[int, PairFacts]],
    by: Iterable[Balance],
    strata: Sequence[int],
    *,
    seed: int,
    longer_share: float = 0.5,
) -> set[int]:
    """Return the indices of pairs to remove in order to balance models, lengths, or both.

    `strata` are ascending bounds of the length differences. If `length` is balanced without `models`, `longer_share` is
    the share of pairs in each stratum that the longer answer wins.
    """
    groups: dict[tuple[object, ...], dict[bool, list[tuple[int, PairFacts]]]] = {}
    for index, facts in pairs:
        group = _group(facts, frozenset(by), strata)
        if group is not None:
            key, outcome = group
            groups.setdefault(key, {True: [], False: []})[outcome].append((index, facts))
    out, shares = set[int](), {True: longer_share, False: 1 - longer_share}
    for sides in groups.values():
        whole = min(len(side) / shares[outcome] for outcome, side in sides.items())
        for outcome, side in sides.items():
            out.update(_drawn(side, seed, "balance")[round(whole * shares[outcome]) :])
    return out


def to_swap(pairs: Sequence[tuple[int, PairFacts]], *, seed: int) -> set[int]:
    """Return the indices of pairs to swap so that the better answer is first in half of the pairs."""
    decided = {index: facts for index, facts in pairs if facts.winner in (1, 2)}
    order = _drawn(list(decided.items()), seed, "position")
    return {index for rank, index in enumerate(order) if decided[index].winner != 1 + rank % 2}


def _group(facts: PairFacts, by: frozenset[Balance], strata: Sequence[int]) -> tuple[tuple[object, ...], bool] | None:
    if facts.winner not in (1, 2):
        return None
    first_wins = facts.winner == 1
    stratum = bisect_right(strata, abs(facts.longer)) if "length" in by else 0
    if "models" in by and facts.models:
        turned = facts.models[0] > facts.models[1]
        longer = (-facts.longer if turned else facts.longer) if "length" in by else 0
        sign = (longer > 0) - (longer < 0)
        return (*sorted(facts.models), sign, stratum), first_wins != turned
    if "length" in by and facts.longer:
        return (stratum,), first_wins == (facts.longer > 0)
    return None


def _drawn(pairs: Sequence[tuple[int, PairFacts]], seed: int, purpose: str) -> list[int]:
    drawn = sorted(pairs, key=lambda pair: (uniform_hash(seed, pair[1].id, purpose), pair[1].id))
    return [index for index, _ in drawn]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """Agreement of content-blind rules with the labels, on pairs that are not ties.

    Attributes:
        stage: `before` or `after` balancing.
        first: share of pairs won by the first answer.
        longer: share of pairs won by the longer answer; equal lengths count as 0.5.
        model: share of pairs won by the model with the higher win rate in the training pairs before balancing.
    """

    set: str
    stage: str
    pairs: int
    decided: int
    first: float | None
    longer: float | None
    model: float | None


def baselines(
    pairs: Sequence[PairFacts], rates: dict[str, float], *, set_name: str, stage: str, swapped: Sequence[bool]
) -> Baselines:
    """Compute the baselines of a set from the models' win rates."""
    decided = [(facts, turned) for facts, turned in zip(pairs, swapped, strict=True) if facts.winner in (1, 2)]

    def share(leads: list[float]) -> float | None:
        return sum((lead > 0) + (lead == 0) / 2 for lead in leads) / len(leads) if leads else None

    signs = [1 if facts.winner == 1 else -1 for facts, _ in decided]
    ahead = [_rate(facts, rates) for facts, _ in decided]
    return Baselines(
        set=set_name,
        stage=stage,
        pairs=len(pairs),
        decided=len(decided),
        first=share([-sign if turned else sign for sign, (_, turned) in zip(signs, decided, strict=True)]),
        longer=share([sign * facts.longer for sign, (facts, _) in zip(signs, decided, strict=True)]),
        model=share([sign * lead for sign, lead in zip(signs, ahead, strict=True)]),
    )


def _rate(facts: PairFacts, rates: dict[str, float]) -> float:
    if not facts.models or any(model not in rates for model in facts.models):
        return 0.0
    return rates[facts.models[0]] - rates[facts.models[1]]


def win_rates(pairs: Iterable[PairFacts]) -> dict[str, float]:
    """Return each model's win rate over its pairs that are not ties."""
    wins: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for facts in pairs:
        if facts.models and facts.winner in (1, 2):
            seen.update(facts.models)
            wins[facts.models[0 if facts.winner == 1 else 1]] += 1
    return {model: wins[model] / count for model, count in seen.items()}
