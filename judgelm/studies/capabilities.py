"""Grades of models' answers by the capabilities that the questions ask for, alone and in combination.

One run of judgments is of one model's answers. The mean is over the questions that have a grade; failures are counted
beside it and never taken for a grade (MM-Vet's own evaluator gives an unreadable one 0). `rescaled` is the mean with
the lowest grade of the scale at 0 and the highest at 1, which MM-Vet's figures, out of 100, can be laid beside.

Source: MM-Vet (Yu et al. 2023), section 3 and Tables 2 to 5 (per capability, per combination); JudgeLM, section 6.4
and Figures 20 to 23, where JudgeLM grades MM-Vet.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from judgelm.data.sources.graded import VisualQuestion
from judgelm.errors import InputError
from judgelm.metrics.benchmark_scores import (
    Graded,
    GroupScore,
    by_capability,
    by_combination,
    capability_order,
    combination_order,
    mean_score,
)
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.records import GradeVerdict, Judgment
from judgelm.studies.pair_labels import grouped
from judgelm.studies.result import Bars, HeatMap, Layouts, Row, StudyResult, Table, Value, bars, point
from judgelm.studies.sentences import format_number

_ALL = "all questions"
LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityOptions:
    """Options of the study.

    Attributes:
        scales: lowest and highest grade of each model's judge, by the name of the run.
        resampling: seed and number of resamples of every interval; questions about one image are drawn together.
    """

    scales: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    resampling: Resampling = field(default_factory=Resampling)

    def scale(self, model: str) -> tuple[float, float]:
        """The scale of a model's judge; 1 to 10 by default."""
        return self.scales.get(model, (1, 10))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """One model's graded questions, and its scores overall, by capability and by combination."""

    name: str
    scale: tuple[float, float]
    graded: tuple[Graded, ...]
    unknown: int
    unjudged: int
    overall: GroupScore
    alone: Sequence[GroupScore]
    together: Sequence[GroupScore]


def capability_study(
    runs: Mapping[str, Mapping[str, Judgment]],
    questions: Mapping[str, VisualQuestion],
    options: CapabilityOptions | None = None,
) -> StudyResult:
    """Mean grades per capability and per combination, for each model.

    Args:
        runs: judgments by sample id, by the name of the model whose answers they grade; a run over several models'
            answers, as the questions tell, is taken apart.
        questions: by sample id.
        options: the defaults when None.

    Raises:
        InputError: a run holds other verdicts than grades, or nothing that joins with the questions.
    """
    options = options or CapabilityOptions()
    judged = {sample_id for judgments in runs.values() for sample_id in judgments}
    asked_for = [frozenset(question.capabilities) for key, question in questions.items() if key in judged]
    names, combinations = capability_order(asked_for), combination_order(asked_for)
    models = []
    for run, whole in runs.items():
        for name, judgments in _by_model(run, whole, questions, alone=len(runs) == 1).items():
            graded = _graded(name, judgments, questions)
            answering = {questions[key].model for key in judgments if key in questions}
            models.append(
                _Model(
                    name=name,
                    scale=options.scale(run),
                    graded=graded,
                    unknown=len(judgments) - len(graded),
                    unjudged=sum(other.model in (None, *answering) for other in questions.values()) - len(graded),
                    overall=mean_score((), graded, options.resampling),
                    alone=by_capability(graded, names, options.resampling),
                    together=by_combination(graded, combinations, options.resampling),
                )
            )
    return StudyResult(
        study="capabilities",
        title="Grades by capability",
        protocol=_protocol(options),
        findings=tuple(_findings(models)),
        counts=_counts(models, questions),
        tables=(
            _table("capabilities", [(m, group) for m in models for group in (m.overall, *m.alone)]),
            _table("combinations", [(m, g) for m in models for g in m.together]),
        ),
        figures=(_bars(models, names), _heat_map(models, combinations)),
        warnings=tuple(_warnings(models)),
    )


def _by_model(
    run: str, judgments: Mapping[str, Judgment], questions: Mapping[str, VisualQuestion], *, alone: bool
) -> dict[str, dict[str, Judgment]]:
    """A run by the models whose answers it grades; as it is where the questions name at most one."""
    parts = grouped(judgments, lambda key: questions[key].model if key in questions else None)
    if sum(model is not None for model in parts) < 2:
        return {run: dict(judgments)}
    prefix = "" if alone else f"{run}: "
    return {
        f"{prefix}{model or 'no model named'}": {key: judgments[key] for key in keys} for model, keys in parts.items()
    }


def _graded(
    name: str, judgments: Mapping[str, Judgment], questions: Mapping[str, VisualQuestion]
) -> tuple[Graded, ...]:
    graded = []
    for sample_id, judgment in judgments.items():
        if sample_id not in questions:
            continue
        if judgment.verdict is not None and not isinstance(judgment.verdict, GradeVerdict):
            raise InputError(
                f"{name}: judgment {sample_id} is not a grade; give runs of mode multimodal, or another that grades"
            )
        question = questions[sample_id]
        graded.append(
            Graded(
                score=None if judgment.verdict is None else judgment.verdict.score,
                capabilities=frozenset(question.capabilities),
                cluster=question.image or ("question", sample_id),
            )
        )
    if not graded:
        raise InputError(f"{name}: none of its {len(judgments)} judgments has the id of a question; check --questions")
    return tuple(graded)


def _protocol(options: CapabilityOptions) -> str:
    return (
        "Mean grade over the questions that ask for a capability, alone or with others, and over those that ask "
        "for exactly a combination; judgments and questions are joined by id alone, their texts are not compared; "
        "failed judgments are left out and counted; intervals are 95 % from "
        f"{options.resampling.resamples} resamples of images (seed {options.resampling.seed})."
    )


def _counts(models: Sequence[_Model], questions: Mapping[str, VisualQuestion]) -> dict[str, int]:
    return {
        "models": len(models),
        "questions": len(questions),
        "judged": sum(len(model.graded) for model in models),
        "failed": sum(answer.score is None for model in models for answer in model.graded),
        "questions_without_judgment": sum(model.unjudged for model in models),
        "judgments_without_question": sum(model.unknown for model in models),
    }


def _findings(models: Sequence[_Model]) -> list[str]:
    lines = []
    for model in models:
        low, high = model.scale
        lines.append(f"{model.name}: mean grade {_mean_text(model.overall.mean)} on a scale of {low:g} to {high:g}.")
        known = [(mean, group) for group in model.alone if (mean := point(group.mean)) is not None]
        if len(known) > 1:
            best, worst = (choose(known, key=lambda pair: pair[0])[1] for choose in (max, min))
            lines.append(
                f"{model.name}: highest on {best.capabilities[0]}, {_mean_text(best.mean)}; lowest on "
                f"{worst.capabilities[0]}, {_mean_text(worst.mean)}."
            )
    return lines


def _warnings(models: Sequence[_Model]) -> list[str]:
    lines = []
    for model in models:
        failed = sum(answer.score is None for answer in model.graded)
        if failed:
            lines.append(
                f"{model.name}: {failed} of {len(model.graded)} judgments failed and are in no mean; where harder "
                "questions fail more often, the means are too high."
            )
        if model.unjudged:
            lines.append(f"{model.name}: {model.unjudged} questions have no judgment.")
    if len({model.scale for model in models}) > 1:
        lines.append("The judges' scales differ: compare the rescaled means, not the grades.")
    if len({frozenset(Counter(answer.capabilities for answer in model.graded).items()) for model in models}) > 1:
        lines.append("The models were not graded on the same number of questions of each kind.")
    return lines


def _table(name: str, groups: Sequence[tuple[_Model, GroupScore]]) -> Table:
    def cells(model: _Model, score: GroupScore) -> Row:
        name, scaled = " + ".join(score.capabilities) or _ALL, rescaled(score.mean, model.scale)
        return (model.name, name, score.n, score.failed, score.mean, scaled)

    return LAYOUTS.table(name, [cells(*group) for group in groups])


def _bars(models: Sequence[_Model], names: Sequence[str]) -> Bars:
    return bars(
        {
            model.name: [rescaled(group.mean, model.scale) for group in (*model.alone, model.overall)]
            for model in models
        },
        (*names, _ALL),
        **LAYOUTS.figure("capability-grades"),
    )


def _heat_map(models: Sequence[_Model], combinations: Sequence[tuple[str, ...]]) -> HeatMap:
    return HeatMap(
        **LAYOUTS.figure("combination-grades"),
        rows=tuple(" + ".join(combination) for combination in combinations),
        columns=tuple(model.name for model in models),
        values=tuple(
            tuple(point(rescaled(model.together[row].mean, model.scale)) for model in models)
            for row in range(len(combinations))
        ),
    )


def rescaled(mean: Value, scale: tuple[float, float]) -> Value:
    """A mean grade with the lowest grade at 0 and the highest at 1; its interval alike."""
    low, high = scale
    if mean is None:
        return None
    if not isinstance(mean, Estimate):
        return (mean - low) / (high - low)
    value, below, above = ((bound - low) / (high - low) for bound in (mean.value, mean.low, mean.high))
    return replace(mean, value=value, low=below, high=above)


def _mean_text(mean: Value) -> str:
    if mean is None:
        return "unknown, since every judgment failed"
    return format_number(mean, ".2f") if isinstance(mean, Estimate) else f"{mean:.2f} (no interval)"
