"""Sample pairs so that position, model, or length does not predict the winner, separately in each set.

- **models and length**: a group has pairs of the same two models with the same longer answer and a length difference in
  the same stratum. Both models win equally often in it, because surplus pairs with the highest hashes are removed. With
  only `length`, or if models are unknown, groups are strata.
- **position**: in hash order, pairs are swapped so that the better answer is alternately first and second.

Ties and pairs without a group are kept.
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
    """Facts of a pair for sampling; `longer` is the first answer's length minus the second's."""

    id: str
    source: str
    question: bytes
    models: tuple[str, ...]
    longer: int
    winner: Winner | None


def pair_facts(pair: LabelledPair, question: bytes) -> PairFacts:
    """Return the facts of a pair."""
    first, second = pair.sample.answers
    models = pair.sample.answer_models
    known = models if len(set(models)) == 2 else ()
    return PairFacts(pair.sample.id, pair.source, question, known, len(first) - len(second), pair.winner)


def over_limit(pairs: Sequence[tuple[int, PairFacts]], maximum: int, *, seed: int) -> set[int]:
    """Return the indices of pairs with the highest hashes beyond `maximum` pairs per question."""
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
    """Return the indices of pairs to remove so that models, lengths, or both win equally often.

    `strata` are ascending bounds of the length differences. For `length` without `models`, `longer_share` is the share
    of pairs in each stratum won by the longer answer.
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
    """Return the indices of pairs to swap so that the better answer is equally often first and second."""
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
    """Agreement of rules that read no answer with the labels, on pairs that are not ties.

    Attributes:
        stage: `before` or `after` sampling and swaps.
        first: share won by the first answer.
        longer: share won by the longer answer; equal lengths count one half.
        model: share won by the model with the higher win rate in the training pairs before sampling.
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
    """Return the baselines of a set, given the models' win rates."""
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
    """Return each model's share of wins in its decided pairs."""
    wins: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for facts in pairs:
        if facts.models and facts.winner in (1, 2):
            seen.update(facts.models)
            wins[facts.models[0 if facts.winner == 1 else 1]] += 1
    return {model: wins[model] / count for model, count in seen.items()}
