"""From judgments to a claim: the rate at which one model really beats another, from a run and labels on some pairs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from judgelm.errors import InputError
from judgelm.jsonl import json_ready
from judgelm.metrics.resampling import Estimate
from judgelm.metrics.style_control import Control, StyleControl, control_style, style_differences
from judgelm.metrics.true_win_rate import FEWEST_LABELS, JudgedPairs, TrueWinRate, labels_needed, true_win_rate
from judgelm.records import Judgment, Label, Sample, Winner
from judgelm.studies.pair_labels import pair_winner
from judgelm.studies.sentences import format_share

_SIGNIFICANT = 0.01
_VALUES: Mapping[Winner, float] = {1: 1.0, "tie": 0.5, 2: 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOptions:
    """Options of an estimate.

    Attributes:
        model: whose wins are counted; None for the model of the first pair's first answer where the run has two
            models, and for the first answer where models are not named.
        against: only pairs against this model; None for all.
        control: style whose effect is taken out of the judge's verdicts.
        width: wanted width of the interval, in [0, 1]; None asks for no number of labels.
    """

    model: str | None = None
    against: str | None = None
    control: Control | None = None
    width: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCounts:
    """Numbers of judgments by outcome; every pair that is in no estimate is counted here.

    `unnamed` pairs are those without models' names in a run where others have them; `other_models` have no answer of
    the model, or not its opponent's.
    """

    judgments: int
    unnamed: int
    other_models: int
    failed: int
    used: int
    labels: int
    labels_of_failed: int
    labels_without_judgment: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRateClaim:
    """A model's win rate by the judge and by people.

    Attributes:
        opponent: the other model; None for several, or where models are not named.
        soft: whether the judge's P(better) is used, which every judgment has, and not its verdict.
        estimates: of it; their `judge` is the controlled rate where a control was asked for.
        uncontrolled: the judge's rate without control; None without a control.
        control: the fitted terms, or why there are none; None where none was asked for.
        labels_needed: labels for the wanted width; None where none was asked for, or a sentence.
    """

    model: str
    opponent: str | None
    counts: ClaimCounts
    soft: bool
    estimates: TrueWinRate
    uncontrolled: Estimate | str | None
    control: StyleControl | str | None
    width: float | None
    labels_needed: int | str | None
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Plain values, ready for `json.dumps`, without the adjusted preference of each pair."""
        plain = asdict(self)
        if isinstance(self.control, StyleControl):
            del plain["control"]["adjusted"]
        return dict(json_ready(plain))

    def rows(self) -> list[tuple[str, Estimate | str]]:
        """The estimates with their names, the most trustworthy last."""
        judge = "judge's P(better)" if self.soft else "judge's verdicts"
        plain = [] if self.uncontrolled is None else [(f"{judge}, not controlled", self.uncontrolled)]
        controlled = f"{judge}, controlled" if isinstance(self.control, StyleControl) else judge
        return [
            *plain,
            (controlled, self.estimates.judge),
            ("labels alone", self.estimates.labels),
            ("Rogan-Gladen", self.estimates.rogan_gladen),
            ("PPI++", self.estimates.ppi),
        ]

    @property
    def name(self) -> str:
        """The model and its opponent."""
        return f"{self.model} against {self.opponent or 'the others'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    judgment: Judgment
    sample: Sample | None
    first: bool
    """True where the model wrote the first answer."""

    @property
    def won(self) -> float:
        """1 where the judge prefers the model's answer, 0.5 for a tie; only of pairs with a verdict."""
        assert self.judgment.winner is not None  # failures are left out before
        return _side(self, _VALUES[self.judgment.winner])

    @property
    def probability(self) -> float | None:
        """The judge's P(the model's answer is better); None where it has none."""
        return None if self.judgment.probability is None else _side(self, self.judgment.probability)


def claim_win_rate(
    judgments: Mapping[str, Judgment],
    labels: Mapping[str, Label],
    samples: Mapping[str, Sample],
    options: ClaimOptions | None = None,
) -> WinRateClaim:
    """Estimate how often a model really beats another; a tie is half a win.

    Verdicts are the run's own. Failed judgments, labelled or not, are left out and counted: the estimate is for the
    pairs that the judge can judge.

    Args:
        judgments: of pairs, by sample id.
        labels: by sample id, on some of them, drawn at random.
        samples: by id; with the models' names, questions (clusters) and, for a control, answers.
        options: the defaults when None.

    Raises:
        InputError: nothing is judged, the model is not named, or the control has no answers.
    """
    options = options or ClaimOptions()
    model, opponent, pairs = _sides(judgments, samples, options)
    unnamed = _unnamed(judgments, samples)
    judged = [pair for pair in pairs if pair.judgment.winner is not None]
    if not judged:
        raise InputError(f"win rate of {model}: none of {len(pairs)} judgments has a verdict on a pair")
    soft = all(pair.probability is not None for pair in judged)
    columns = _columns(judged, labels, soft)
    uncontrolled, control = None, None
    if options.control is not None:
        uncontrolled = true_win_rate(columns).judge
        control = _control(judged, columns, options.control)
        if isinstance(control, StyleControl):
            columns = _adjusted(columns, control)
    estimates = true_win_rate(columns)
    known = {pair.judgment.sample_id for pair in judged}
    failed = {pair.judgment.sample_id for pair in pairs} - known
    counts = ClaimCounts(
        judgments=len(judgments),
        unnamed=unnamed,
        other_models=len(judgments) - unnamed - len(pairs),
        failed=len(failed),
        used=len(judged),
        labels=int(columns.labelled.sum()),
        labels_of_failed=len(failed & labels.keys()),
        labels_without_judgment=len(labels.keys() - judgments.keys()),
    )
    return WinRateClaim(
        model=model,
        opponent=opponent,
        counts=counts,
        soft=soft,
        estimates=estimates,
        uncontrolled=uncontrolled,
        control=control,
        width=options.width,
        labels_needed=None if options.width is None else _needed(columns, options.width),
        warnings=tuple(_warnings(counts, estimates)),
    )


def _sides(
    judgments: Mapping[str, Judgment], samples: Mapping[str, Sample], options: ClaimOptions
) -> tuple[str, str | None, list[_Pair]]:
    """The model, its opponent where there is one only, and the pairs between them."""
    named = {key: samples[key].answer_models for key in judgments if key in samples and samples[key].answer_models}
    if not named:
        if options.model is not None or options.against is not None:
            raise InputError("win rate: the pairs do not name the models of their answers; leave the model out")
        pairs = [_Pair(judgment=judgment, sample=samples.get(key), first=True) for key, judgment in judgments.items()]
        return "answer 1", "answer 2", pairs
    models = list(dict.fromkeys(name for names in named.values() for name in names))
    if options.model is None and len(models) > 2:
        raise InputError(f"win rate: the pairs are of {len(models)} models ({', '.join(models[:5])}, ...); name one")
    for name in (options.model, options.against):
        if name is not None and name not in models:
            raise InputError(f"win rate: no judged pair has an answer of {name}; available: {', '.join(models[:20])}")
    model = options.model or models[0]
    others = {name: {other for other in names if other != model} for name, names in named.items() if model in names}
    chosen = [
        key
        for key, opponents in others.items()
        if len(opponents) == 1 and (options.against is None or options.against in opponents)
    ]
    opponents = {name for key in chosen for name in others[key]}
    pairs = [
        _Pair(judgment=judgments[key], sample=samples[key], first=samples[key].answer_models[0] == model)
        for key in chosen
    ]
    return model, next(iter(opponents)) if len(opponents) == 1 else None, pairs


def _unnamed(judgments: Mapping[str, Judgment], samples: Mapping[str, Sample]) -> int:
    """Judgments without models' names, where others have them."""
    named = sum(key in samples and bool(samples[key].answer_models) for key in judgments)
    return len(judgments) - named if named else 0


def _columns(pairs: list[_Pair], labels: Mapping[str, Label], soft: bool) -> JudgedPairs:
    verdicts = np.array([pair.won for pair in pairs])
    proxy = np.array([pair.probability for pair in pairs], dtype=np.float64) if soft else verdicts
    known = [labels.get(pair.judgment.sample_id) for pair in pairs]
    truth = [
        float("nan") if label is None else _side(pair, _VALUES[pair_winner(label)])
        for pair, label in zip(pairs, known, strict=True)
    ]
    clusters = [pair.judgment.sample_id if pair.sample is None else pair.sample.question for pair in pairs]
    return JudgedPairs(verdicts=verdicts, proxy=proxy, labels=np.array(truth), clusters=clusters)


def _side(pair: _Pair, first_better: float) -> float:
    return first_better if pair.first else 1 - first_better


def _control(pairs: list[_Pair], columns: JudgedPairs, control: Control) -> StyleControl | str:
    answers = []
    for pair in pairs:
        if pair.sample is None or len(pair.sample.answers) != 2:
            raise InputError(
                f"control of {control}: no answers of pair {pair.judgment.sample_id}; give the judged pairs (--samples)"
            )
        first, second = pair.sample.answers
        answers.append((first, second) if pair.first else (second, first))
    if len(answers) < 2:
        return "one pair has no spread of style"
    return control_style(columns.proxy, style_differences(answers, control), columns.clusters)


def _adjusted(columns: JudgedPairs, control: StyleControl) -> JudgedPairs:
    """The same pairs by controlled preferences; a verdict changes where its preference crosses one half."""
    moved = np.where(columns.verdicts == 0.5, 0.5, (np.sign(control.adjusted - 0.5) + 1) / 2)
    return JudgedPairs(verdicts=moved, proxy=control.adjusted, labels=columns.labels, clusters=columns.clusters)


def _needed(columns: JudgedPairs, width: float) -> int | str:
    if columns.labelled.sum() < FEWEST_LABELS:
        return f"at least {FEWEST_LABELS} labels are needed to know how much labels and judge differ"
    needed = labels_needed(columns, width)
    if needed is None:
        return f"even a label on each of the {len(columns.labels):,} pairs leaves a wider interval; judge more pairs"
    return needed


def _warnings(counts: ClaimCounts, estimates: TrueWinRate) -> list[str]:
    lines = []
    if counts.failed:
        lines.append(
            f"{counts.failed:,} judgments failed and are left out, {counts.labels_of_failed:,} of them with a label: "
            "the estimates are for the pairs that the judge could judge."
        )
    if estimates.drift is not None and estimates.drift < _SIGNIFICANT:
        lines.append(
            f"The judge's values on labelled and on unlabelled pairs differ (Welch's test, p = {estimates.drift:.2g}): "
            "the labelled pairs do not look like a random sample, which Rogan-Gladen and PPI++ need."
        )
    return lines


def claim_sentences(claim: WinRateClaim) -> list[str]:
    """The claim in words, the most important first."""
    name = f"How often {claim.model} beats {claim.opponent or 'the others'}"
    estimates = claim.estimates
    basis = f"{claim.counts.labels:,} labels and {claim.counts.used:,} judged pairs"
    if isinstance(estimates.ppi, Estimate):
        first = f"{name}: {format_share(estimates.ppi)} by PPI++ from {basis}."
    elif isinstance(estimates.labels, Estimate):
        first = f"{name}: {format_share(estimates.labels)} by the labels alone (PPI++: {estimates.ppi})."
    else:
        first = f"{name}: not known from {basis}: {estimates.labels}."
    if isinstance(claim.labels_needed, int):
        needed = f"An interval {100 * (claim.width or 0):g} points wide needs about {claim.labels_needed:,} labels."
    else:
        needed = "" if claim.labels_needed is None else f"Labels for that width: {claim.labels_needed}."
    return [first, *([needed] if needed else [])]
