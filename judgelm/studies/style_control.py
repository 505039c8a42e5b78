"""Agreement controlled for style, and the effect of style on the judge and the labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from judgelm.errors import InputError
from judgelm.metrics.resampling import Estimate, mean, share
from judgelm.metrics.win_rate import Control, StyleDifferences, control_style, style_differences
from judgelm.records import Judgment, Label, Sample
from judgelm.studies.evaluation import Evaluation, EvaluationOptions
from judgelm.studies.pair_labels import by_id, join


@dataclass(frozen=True, slots=True, kw_only=True)
class StyleTerm:
    """Coefficients of a style feature for verdicts and labels; positive if more of the feature is preferred."""

    term: str
    judge: Estimate | None
    labels: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledAgreement:
    """Effect of style on verdicts, and agreement without this effect.

    Attributes:
        without_answers: number of labelled pairs with a verdict but without answers.
        soft: whether P(first better) is controlled instead of the verdict.
        controlled: agreement after control, or the reason why it is not possible; `plain` is before control.
        changed: number of verdicts changed by the control.
        unadjusted: number of pairs left unchanged because a model always or never wins.
        constant: features without a term, because they are equal in every pair.
    """

    control: Control
    n: int
    without_answers: int
    soft: bool
    tie_threshold: float
    terms: tuple[StyleTerm, ...]
    plain: Estimate
    controlled: Estimate | str
    difference: Estimate | None
    changed: int
    unadjusted: int
    constant: tuple[str, ...]
    labels_reason: str

    def sentence(self) -> str:
        """Summarise the effect in a sentence."""
        basis = "P(first better)" if self.soft else "verdicts"
        missing = f"; {self.without_answers:,} pairs have no answers in the labels file"
        left_out = missing if self.without_answers else ""
        if isinstance(self.controlled, str):
            return f"Controlling for {self.control} is not possible: {self.controlled} (n = {self.n:,}{left_out})."
        unadjusted = f"; {self.unadjusted:,} pairs are unchanged because a model always or never wins"
        same = f" No pair differs in {', '.join(self.constant)}." if self.constant else ""
        return (
            f"Controlling for {self.control} changes {self.changed:,} of {self.n:,} verdicts (based on {basis}; values "
            f"within {self.tie_threshold:g} of 0.5 are ties{left_out}{unadjusted if self.unadjusted else ''}).{same}"
        )


def controlled_agreement(
    judgments: Mapping[str, Judgment],
    labels: Mapping[str, Label],
    samples: Mapping[str, Sample],
    evaluation: Evaluation,
    *,
    control: Control,
    options: EvaluationOptions,
    reverse: Mapping[str, Judgment] | None = None,
) -> ControlledAgreement:
    """Control the verdicts of an evaluation for style; failed judgments are excluded.

    Raises:
        InputError: fewer than two judged pairs have both answers in the samples.
    """
    clusters = {key: sample.question or key for key, sample in samples.items()}
    rule, threshold = evaluation.order_rule, options.tie_threshold
    rows = join(by_id(judgments), labels, reverse or {}, clusters, rule, threshold)
    judged = [row for row in rows if row.judged is not None]
    usable = [row for row in judged if row.id in samples and len(samples[row.id].answers) == 2]
    if len(usable) < 2:
        raise InputError(
            f"--control {control}: the labels file contains the answers of only {len(usable)} of {len(judged)} judged "
            "pairs; pass labelled pairs with both answers"
        )
    soft = all(row.judgment.probability is not None for row in usable)
    keys = [row.cluster for row in usable]
    differences, models = pair_styles([samples[row.id] for row in usable], control)
    preferences = np.array([row.judgment.probability if soft else ((row.judged or 0) + 1) / 2 for row in usable], float)
    truth = np.array([row.truth for row in usable])
    fit = control_style(preferences, differences, keys, models)
    by_labels = control_style((truth + 1) / 2, differences, keys, models)
    judge_terms, label_terms = ({} if isinstance(each, str) else each.terms for each in (fit, by_labels))
    before = _verdicts(preferences, threshold)
    after = before if isinstance(fit, str) else _verdicts(fit.adjusted, threshold)
    gains = (after == truth).astype(np.float64) - (before == truth)
    return ControlledAgreement(
        control=control,
        n=len(usable),
        without_answers=len(judged) - len(usable),
        soft=soft,
        tie_threshold=threshold,
        terms=tuple(
            StyleTerm(term=term, judge=judge_terms.get(term), labels=label_terms.get(term))
            for term in differences.terms
        ),
        plain=share(before == truth, keys, options.resampling),
        controlled=fit if isinstance(fit, str) else share(after == truth, keys, options.resampling),
        difference=None if isinstance(fit, str) else mean(gains, keys, options.resampling),
        changed=int((before != after).sum()),
        unadjusted=0 if isinstance(fit, str) else fit.unadjusted,
        constant=differences.constant,
        labels_reason=by_labels if isinstance(by_labels, str) else "",
    )


def pair_styles(samples: Sequence[Sample], control: Control) -> tuple[StyleDifferences, list[tuple[str, str]] | None]:
    """Return the style differences and model names of the pairs; the names are None if any is missing."""
    differences = style_differences([(sample.answers[0], sample.answers[1]) for sample in samples], control)
    names = [sample.answer_models for sample in samples]
    return differences, [(pair[0], pair[1]) for pair in names] if all(len(pair) == 2 for pair in names) else None


def _verdicts(preferences: NDArray[np.float64], threshold: float) -> NDArray[np.int_]:
    lead = preferences - 0.5
    return np.where(np.abs(lead) <= threshold + 1e-9, 0, np.sign(lead)).astype(np.int_)
