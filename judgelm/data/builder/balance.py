"""Balance."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from judgelm.data.labelled_pair import LabelledPair, uniform_hash
from judgelm.records import Winner

Balance = Literal["position", "models", "length"]

LENGTH_STRATA = (25, 75, 150, 300)
"""Default bounds of the strata of the difference in length, in characters."""


class PairFacts(NamedTuple):
    """The facts of a pair that sampling needs; `longer` is the first answer's characters less the second's."""

    id: str
    source: str
    question: bytes
    models: tuple[str, ...]
    longer: int
    winner: Winner | None


def pair_facts(pair: LabelledPair, question: bytes) -> PairFacts:
    """The facts of a pair; `question` is the digest of its question."""
    first, second = pair.sample.answers
    models = pair.sample.answer_models
    known = models if len(set(models)) == 2 else ()
    return PairFacts(pair.sample.id, pair.source, question, known, len(first) - len(second), pair.winner)


def over_limit(pairs: Sequence[tuple[int, PairFacts]], most: int, *, seed: int) -> set[int]:
    """Indices of pairs beyond the `most` of each question, those with the highest hashes.

    Args:
        pairs: index and facts of each pair.
        most: pairs of a question that stay.
        seed: another seed draws other pairs.
    """
    by_question: dict[bytes, list[tuple[int, PairFacts]]] = defaultdict(list)
    for index, facts in pairs:
        by_question[facts.question].append((index, facts))
    return {index for group in by_question.values() for index in _drawn(group, seed, "limit")[most:]}


def over_balance(
    pairs: Sequence[tuple[int, PairFacts]],
    by: Iterable[Balance],
    strata: Sequence[int],
    *,
    seed: int,
    longer_share: float = 0.5,
) -> set[int]:
    """Indices of pairs to leave out so that models or lengths, or both, win equally often.

    Args:
        pairs: index and facts of each pair of one set.
        by: `models`, `length` or both; `position` changes nothing here.
        strata: ascending bounds of the strata of the difference in length, in characters.
        seed: another seed draws other pairs.
        longer_share: how often the longer answer wins in each stratum, for `length` alone; between 0 and 1.
    """
    groups: dict[tuple[object, ...], dict[bool, list[tuple[int, PairFacts]]]] = defaultdict(
        lambda: {True: [], False: []}
    )
    for index, facts in pairs:
        group = _group(facts, frozenset(by), strata)
        if group is not None:
            key, outcome = group
            groups[key][outcome].append((index, facts))
    out: set[int] = set()
    for sides in groups.values():
        shares = {True: longer_share, False: 1 - longer_share}
        whole = min(len(side) / shares[outcome] for outcome, side in sides.items())
        for outcome, side in sides.items():
            out.update(_drawn(side, seed, "balance")[round(whole * shares[outcome]) :])
    return out


def to_swap(pairs: Sequence[tuple[int, PairFacts]], *, seed: int) -> set[int]:
    """Indices of pairs to swap so that the better answer stands first as often as second."""
    decided = {index: facts for index, facts in pairs if facts.winner in (1, 2)}
    order = _drawn(list(decided.items()), seed, "position")
    return {index for rank, index in enumerate(order) if decided[index].winner != 1 + rank % 2}


def _group(facts: PairFacts, by: frozenset[Balance], strata: Sequence[int]) -> tuple[tuple[object, ...], bool] | None:
    """The group of a pair and which of its two outcomes the pair has; None for a pair that stays in any case."""
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
    """Indices of pairs in the order of their hashes."""
    return [
        index for index, facts in sorted(pairs, key=lambda pair: (uniform_hash(seed, pair[1].id, purpose), pair[1].id))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """Agreement of rules that read no answer with the labels of a set of pairs that are no tie.

    Attributes:
        set: `train`, `validation` or `test`.
        stage: `before` or `after` sampling and swaps.
        pairs: all pairs.
        decided: those that are no tie.
        first: share of them whose first answer wins.
        longer: share whose longer answer wins; equal lengths count one half.
        model: share whose winner is the model that wins more often in the training pairs before sampling; pairs
            without models, and equal shares, count one half.
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
    """Baselines of a set.

    Args:
        pairs: of the set.
        rates: win rate of each model, of `win_rates`.
        set_name: name of the set.
        stage: `before` or `after`.
        swapped: whether each pair is swapped.
    """
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
    """Win rate of the first answer's model less that of the second's; 0 where one is unknown."""
    if not facts.models or any(model not in rates for model in facts.models):
        return 0.0
    return rates[facts.models[0]] - rates[facts.models[1]]


def win_rates(pairs: Iterable[PairFacts]) -> dict[str, float]:
    """Share of its decided pairs that each model wins."""
    wins: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for facts in pairs:
        if facts.models and facts.winner in (1, 2):
            seen.update(facts.models)
            wins[facts.models[0 if facts.winner == 1 else 1]] += 1
    return {model: wins[model] / count for model, count in seen.items()}
