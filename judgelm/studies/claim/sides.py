"""The pairs of a run from the side of one model, whichever answer it wrote."""

from collections.abc import Mapping
from dataclasses import dataclass

from judgelm.errors import InputError
from judgelm.records import Judgment, Sample, Winner

VALUES: Mapping[Winner, float] = {1: 1.0, "tie": 0.5, 2: 0.0}
"""P(first better) of a verdict; a tie is half a win."""

_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPair:
    """A judged pair; `first` is True where the model wrote the first answer."""

    id: str
    judgment: Judgment
    question: str
    first: bool

    def side(self, first_better: float) -> float:
        """P(the model's answer is better) from P(first better)."""
        return first_better if self.first else 1 - first_better

    @property
    def won(self) -> float:
        """1 where the judge prefers the model's answer, 0.5 for a tie; only of pairs with a verdict."""
        return self.side(first_better(self.judgment, False))

    @property
    def probability(self) -> float:
        """The judge's P(the model's answer is better); only of pairs that have it."""
        return self.side(first_better(self.judgment, True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """A run from the side of one model.

    Attributes:
        opponent: None for several.
        pairs: of the model and its opponents, failed ones too.
        judged: those with a verdict.
        unnamed: judgments without models' names, in a run where others have them.
        soft: whether every verdict of the run has a probability.
    """

    model: str
    opponent: str | None
    pairs: tuple[ModelPair, ...]
    judged: tuple[ModelPair, ...]
    unnamed: int
    soft: bool


def first_better(judgment: Judgment, soft: bool) -> float:
    """P(first better) of a judgment with a verdict: its probability where `soft`, else 1, 0.5 or 0.

    Raises:
        ValueError: it has none; a failure is no number.
    """
    value = judgment.probability if soft else None if judgment.winner is None else VALUES[judgment.winner]
    if value is None:
        raise ValueError(f"judgment {judgment.sample_id}: no verdict, or no probability")
    return value


def model_sides(
    judgments: Mapping[str, Judgment], samples: Mapping[str, Sample], model: str | None, against: str | None
) -> Sides:
    """The pairs of a model; without models' names all pairs, from the side of the first answer.

    Args:
        judgments: of pairs, by sample id.
        samples: by id.
        model: None for the first of two.
        against: only pairs against this model; None for all.

    Raises:
        InputError: the pairs are of several models and none is chosen, or a chosen model has no pair.
    """
    named = {key: samples[key].answer_models for key in judgments if key in samples and samples[key].answer_models}
    soft = all(judgment.probability is not None for judgment in judgments.values() if judgment.winner is not None)
    if not named:
        if model is not None or against is not None:
            raise InputError("win rate: the pairs do not name the models of their answers; choose no model")
        pairs = tuple(_pair(judgment, samples.get(key), True) for key, judgment in judgments.items())
        return _sides("answer 1", "answer 2", pairs, 0, soft)
    model = _chosen(named, model, against)
    opponents = {key: set(names) - {model} for key, names in named.items() if model in names}
    chosen = [key for key, others in opponents.items() if len(others) == 1 and (against is None or against in others)]
    if not chosen:
        raise InputError(f"win rate: no judged pair of {model} against {against or 'another model'}")
    met = set().union(*(opponents[key] for key in chosen))
    pairs = tuple(_pair(judgments[key], samples[key], named[key][0] == model) for key in chosen)
    return _sides(model, met.pop() if len(met) == 1 else None, pairs, len(judgments) - len(named), soft)


def _chosen(named: Mapping[str, tuple[str, ...]], model: str | None, against: str | None) -> str:
    models = list(dict.fromkeys(name for names in named.values() for name in names))
    available = ", ".join(models[:_SHOWN]) + (", ..." if len(models) > _SHOWN else "")
    for name in (model, against):
        if name is not None and name not in models:
            raise InputError(f"win rate: no judged pair has an answer of {name}; available: {available}")
    if model is None and len(models) > 2:
        raise InputError(
            f"win rate: the pairs are of {len(models)} models; choose one with judgelm estimate --model ({available})"
        )
    return model or next((name for name in models if name != against), models[0])


def _pair(judgment: Judgment, sample: Sample | None, first: bool) -> ModelPair:
    """A pair whose question is unknown is a cluster of its own."""
    question = judgment.sample_id if sample is None else sample.question
    return ModelPair(id=judgment.sample_id, judgment=judgment, question=question, first=first)


def _sides(model: str, opponent: str | None, pairs: tuple[ModelPair, ...], unnamed: int, soft: bool) -> Sides:
    judged = tuple(pair for pair in pairs if pair.judgment.winner is not None)
    return Sides(model=model, opponent=opponent, pairs=pairs, judged=judged, unnamed=unnamed, soft=soft)
