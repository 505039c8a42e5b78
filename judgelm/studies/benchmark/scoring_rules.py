"""Scoring rule of each benchmark: credit of a judgment, sections, and the authors' further counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from judgelm.data.sources.pairs import LANGUAGES
from judgelm.data.sources.preference_sets import (
    RM_BENCH_SECTIONS,
    RMB_SECTIONS,
    SECOND_SUBSETS,
    SECTIONS,
    best_of_n_key,
)
from judgelm.errors import InputError
from judgelm.metrics.benchmark_scores import TiesPrompt, first_place_share, right_by_vote
from judgelm.metrics.resampling import Resampling
from judgelm.studies.benchmark.joined import JoinedJudgment, order_labels, truth_of
from judgelm.studies.benchmark.orders import (
    AuthorsReport,
    auto_j_report,
    every_order_right,
    fair_eval_label,
    fair_eval_report,
    llmbar_report,
)
from judgelm.studies.benchmark.styles import style_report
from judgelm.studies.benchmark.translators import translators_report
from judgelm.studies.pair_labels import label_of

TIES = "Ties"
_ADVERSARIAL = ("Neighbor", "GPTInst", "GPTOut", "Manual")
"""Folders of the published repository; copies of it name them Adversarial_Neighbor and so on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringRule:
    """The scoring rule of a benchmark.

    Attributes:
        credit: of one judgment, in [0, 1].
        sections: name -> subset -> weight; None: all subsets are one section, weighted by their numbers of prompts.
        both_orders: whether each pair is to be judged in both.
        ties: whether the subset Ties is scored by margins, and is a section of its own.
        averaged: whether the sections' mean is the benchmark's score.
        counts: further table that the benchmark's authors report.
        prompt_key: row id -> key that the pairs of one prompt share, which counts where all of them do; None: each
            pair is a prompt.
    """

    credit: Callable[[JoinedJudgment], float]
    sections: Mapping[str, Mapping[str, float]] | None = None
    both_orders: bool = True
    ties: bool = False
    averaged: bool = True
    counts: Callable[[Sequence[JoinedJudgment], Resampling], AuthorsReport | None] | None = None
    prompt_key: Callable[[str], str] | None = None


def _half_for_ties(joined: JoinedJudgment) -> float:
    winner = joined.judgment.winner
    if winner is None and joined.judgment.verdict is not None:
        raise InputError(f"judgment {joined.judgment.sample_id} is not of a pair; judge this benchmark with mode pair")
    return 0.5 if winner in (None, "tie") else float(label_of(winner) == truth_of(joined))


def _wins(joined: JoinedJudgment) -> float:
    """1 where the judge's verdict is the label, a tie among them; a failure is 0."""
    _half_for_ties(joined)  # raises where it is not of a pair
    winner = joined.judgment.winner
    return float(winner is not None and label_of(winner) == truth_of(joined))


def _vote(joined: JoinedJudgment) -> float:
    return float(right_by_vote(order_labels(joined), truth_of(joined)))


def _each_order(joined: JoinedJudgment) -> float:
    return float(np.mean([label == truth_of(joined) for label in order_labels(joined)]))


def _mean_right(joined: JoinedJudgment) -> float:
    return float(fair_eval_label(joined) == truth_of(joined))


def _best_of_four(joined: JoinedJudgment) -> float:
    right, scores = _right_places(joined), joined.judgment.scores
    if joined.judgment.failure is not None or scores is None:
        return 1 / len(joined.label.scores or ())
    return first_place_share(scores, right[0])


def _right_places(joined: JoinedJudgment) -> list[int]:
    """Indices of the right answers, which have the score 1 among the labels."""
    label, scores = joined.label.scores, joined.judgment.scores
    if label is None or (scores is not None and len(scores) != len(label)):
        raise InputError(
            f"judgment {joined.judgment.sample_id}: not the scores of {len(label or ())} answers; judge this benchmark "
            "with --mode multi"
        )
    return [index for index, score in enumerate(label) if score == 1]


def ties_prompt(joined: JoinedJudgment) -> TiesPrompt:
    """The rows' ids are `tied:N` and `ref:N`."""
    kind, colon, key = joined.label.sample_id.partition(":")
    if not colon or kind not in ("tied", "ref"):
        raise InputError(f'row {joined.label.sample_id}: expected an id "tied:N" or "ref:N" in {TIES}; import it anew')
    right, scores = _right_places(joined), joined.judgment.scores
    if scores is None:
        return TiesPrompt(key=key, tied=kind == "tied", right=None, wrong=None)
    return TiesPrompt(
        key=key,
        tied=kind == "tied",
        right=tuple(scores[index] for index in right),
        wrong=tuple(score for index, score in enumerate(scores) if index not in right),
    )


SCORING_RULES: Mapping[str, ScoringRule] = {
    "rewardbench": ScoringRule(credit=_half_for_ties, sections=SECTIONS, both_orders=False),
    "rewardbench-2": ScoringRule(
        credit=_best_of_four,
        sections={subset: {subset: 1.0} for subset in SECOND_SUBSETS if subset != TIES},
        both_orders=False,
        ties=True,
    ),
    "judgebench": ScoringRule(credit=_vote),
    "llmbar": ScoringRule(
        credit=_each_order,
        sections={
            "Natural": {"Natural": 1.0},
            "Adversarial": dict.fromkeys((*_ADVERSARIAL, *(f"Adversarial_{name}" for name in _ADVERSARIAL)), 1.0),
        },
        averaged=False,
        counts=llmbar_report,
    ),
    "auto-j": ScoringRule(credit=every_order_right, counts=auto_j_report),
    "faireval": ScoringRule(credit=_mean_right, counts=fair_eval_report),
    "rmb": ScoringRule(
        credit=_wins, sections={section: {section: 1.0} for section in RMB_SECTIONS}, prompt_key=best_of_n_key
    ),
    "rm-bench": ScoringRule(credit=_wins, sections=RM_BENCH_SECTIONS, counts=style_report),
    "wmt-side-by-side": ScoringRule(
        credit=_wins,
        sections={languages: {languages: 1.0} for languages in LANGUAGES.values()},
        averaged=False,
        counts=translators_report,
    ),
}
"""The benchmarks of pairs and of best-of-n that this study measures."""
