"""The labels, candidates, and run files of `judgelm tune`."""

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from judgelm.cli.console import console, printed_rejects
from judgelm.cli.options import EngineFlags, LabelOptions
from judgelm.data.label_codes import is_missing, label_text
from judgelm.data.readers.rows import RejectCounts
from judgelm.engines.base import MODEL_ENGINES, EngineOptions
from judgelm.errors import ConfigError, InputError, RunError
from judgelm.modes import BatchMode, Pairwise
from judgelm.modes.checklist import CRITERIA_FIELD, Checklist
from judgelm.modes.label import PromptLabel
from judgelm.modes.readings import ReadingMode
from judgelm.modes.single import Single
from judgelm.prompts.catalog import Template
from judgelm.prompts.judge_card import find_card
from judgelm.prompts.passages import CONTEXT
from judgelm.prompts.prompt_template import PromptTemplate
from judgelm.records import Judgment, Label, Sample

if TYPE_CHECKING:
    from judgelm.data.labelled_set import LabelledSet
    from judgelm.engines.recorded_states import RecordedStates
    from judgelm.judge import Judge
    from judgelm.judges.resolve import ResolvedJudge
    from judgelm.studies.tuning import TuningLabels

RUNS = "candidates"
_ENOUGH_GROUPS = 10


LabelKind = Literal["pair", "label", "grade", "checklist"]
KIND_MODES: Mapping[LabelKind, str] = {"pair": "pair", "label": "label", "grade": "single", "checklist": "checklist"}
"""The mode that judges what is labelled."""

_TRUTHS = {
    **dict.fromkeys(("yes", "true", "1", "correct", "pass", "good", "supported"), 1.0),
    **dict.fromkeys(("no", "false", "0", "incorrect", "fail", "bad", "unsupported"), 0.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningJob:
    """Labels, candidates by name (starting with the default), and the output folder.

    Attributes:
        scale: lowest and highest grade.
    """

    labels: Path
    folder: Path
    candidates: Mapping[str, Template]
    criterion: str | None
    rows: LabelOptions
    kind: LabelKind = "pair"
    scale: tuple[float, float] = (1, 10)
    overwrite: bool = False

    def run(self, name: str) -> Path:
        """Return the run file for a candidate."""
        return self.folder / RUNS / f"{name}.jsonl"

    def mode(self, name: str) -> BatchMode:
        """Return the mode for a candidate."""
        template = self.candidates[name]
        criterion = self.criterion if template.takes_criterion else None
        if self.kind == "checklist":
            return Checklist()
        prompt = template.judge_prompt if isinstance(template, PromptTemplate) else None
        options: dict[str, Any] = {"criterion": criterion}
        options |= {"template": template.id} if prompt is None else {"prompt": prompt, "scale": prompt.reply.scale}
        if self.kind == "pair":
            return Pairwise(tie_threshold=0.0, **options)
        if self.kind == "label":
            return PromptLabel(**options)
        return Single(**{"scale": self.scale} | options)

    def questions(self, name: str, sample: Sample) -> list[ReadingMode]:
        """Return the mode for each question about a sample: one, or one for each criterion of a checklist."""
        mode = self.mode(name)
        if isinstance(mode, Checklist):
            return [mode.question(criterion) for criterion in mode.criteria_of(sample)]
        assert isinstance(mode, ReadingMode), "all other modes read words"
        return [mode]


def read_items(path: Path, rows: LabelOptions, limit: int | None) -> "tuple[LabelledSet, LabelKind]":
    """Load the first `limit` labelled pairs or answers.

    For `label` and `checklist`, the scores of a label are 1 (yes) or 0 (no), one for each criterion.

    Raises:
        InputError: labels are missing or invalid, or pairs and single answers are mixed.
    """
    from judgelm.data.labelled_set import read_labelled_set, read_labels
    from judgelm.studies.pair_labels import pair_winner

    labelled, kind = _yes_no_labels(path, rows)
    if labelled is None:
        with printed_rejects("label skipped") as rejects:
            whole = read_labelled_set(str(path), on_reject=rejects, reading=rows.reading)
            labelled = whole if whole.labels else read_labels(str(path), reading=rows.reading)  # raises an error
        kind = (
            "grade"
            if all(each.winner is None and len(each.scores or ()) == 1 for each in labelled.labels.values())
            else "pair"
        )
        for label in labelled.labels.values() if kind == "pair" else ():
            pair_winner(label)
    items = {name: sample for name, sample in labelled.samples.items() if name in labelled.labels}
    if not items:
        raise InputError(f"{path}: the labels have no texts; expected a file with questions, answers, and labels")
    names = list(items)[:limit]
    labels = {name: labelled.labels[name] for name in names}
    return replace(labelled, samples={name: items[name] for name in names}, labels=labels), kind


def _yes_no_labels(path: Path, rows: LabelOptions) -> "tuple[LabelledSet | None, LabelKind]":
    """Read `label` (yes or no) or `met` in `criteria`; None if the rows are pairs or have neither."""
    from judgelm.data.labelled_set import LabelledSet
    from judgelm.data.samples import SampleStream

    samples: dict[str, Sample] = {}
    labels: dict[str, Label] = {}
    kinds: set[LabelKind] = set()
    unlabelled, rejects = 0, RejectCounts()
    stream = SampleStream([str(path)], on_reject=rejects, reading=rows.reading, repeats="votes", label_rows=True)
    for sample in stream:
        if len(sample.answers) != 1:
            kinds.add("pair")
            continue
        scores, kind = _yes_no(sample, path)
        if scores is None:
            unlabelled += 1
            continue
        if sample.id in labels and labels[sample.id].scores != scores:
            raise InputError(f"{path}: sample {sample.id} has different labels in several rows; keep one of them")
        samples[sample.id], labels[sample.id] = sample, Label(sample_id=sample.id, winner=None, scores=scores)
        kinds.add(kind)
    if not labels:
        return None, "pair"
    if len(kinds) > 1:
        listed = ", ".join(sorted(kinds))
        raise InputError(f"{path}: the labels are of different kinds ({listed}); tune with labels of one kind")
    console.messages(f"label skipped: {line}" for line in rejects.lines())
    if unlabelled:
        console.message(f"{path}: {unlabelled} rows have no {' or '.join(kinds)} and are not used")
    return LabelledSet(samples=samples, labels=labels, groups={}, read=stream.read), kinds.pop()


def _yes_no(sample: Sample, path: Path) -> "tuple[tuple[float, ...] | None, LabelKind]":
    if not is_missing(value := sample.metadata.get("label")):
        return (_truth(value, f"{path}: sample {sample.id}"),), "label"
    if sample.metadata.get(CRITERIA_FIELD) is None:
        return None, "label"
    criteria = Checklist().criteria_of(sample)
    if all(each.met is None for each in criteria):
        return None, "checklist"
    if (missing := next((each for each in criteria if each.met is None), None)) is not None:
        finding = f"sample {sample.id}: criterion {missing.text!r:.60} has no label"
        raise InputError(f'{path}: {finding}; add "met": true or false to each criterion')
    return tuple(float(bool(each.met)) for each in criteria), "checklist"


def _truth(value: object, place: str) -> float:
    truth = _TRUTHS.get(label_text(value).strip('"'))
    if truth is None:
        finding = f"{place}: label is {value!r:.40}; expected yes or no (or true, false, 1, 0, supported, unsupported)"
        raise InputError(f"{finding}. Put grades into a field score")
    return truth


def tuning_labels(labelled: "LabelledSet", job: TuningJob) -> "TuningLabels":
    """Convert labels, with one item for each criterion of a checklist.

    Raises:
        InputError: a grade is outside the scale, the same texts have different labels, or the winner is always in the
            same place.
    """
    import numpy as np

    from judgelm.studies.pair_labels import label_of, pair_winner
    from judgelm.studies.tuning import TuningLabels

    truth: list[float] = []
    seen: dict[tuple[Any, ...], tuple[str, tuple[float, ...]]] = {}
    questions, lengths, criteria = [], [], []
    groups = _groups(tuple(labelled.samples.values()))
    for group, (name, sample) in zip(groups, labelled.samples.items(), strict=True):
        label = labelled.labels[name]
        if job.kind == "pair":
            own: tuple[float, ...] = (label_of(pair_winner(label)),)
        else:
            own = label.scores or ()
            low, high = job.scale
            if job.kind == "grade" and not low <= own[0] <= high:
                finding = f"the grade {own[0]:g} is not between {low:g} and {high:g}"
                raise InputError(f"{job.labels}: sample {name}: {finding}; set --scale")
        if job.kind in ("label", "checklist"):
            own = tuple(2 * each - 1 for each in own)
        if job.kind != "grade":
            _check_repeated(sample, own, job, seen)
        truth += own
        questions += [group] * len(own)
        lengths += [[len(answer) for answer in sample.answers]] * len(own)
        if job.kind == "checklist":
            criteria += [each.text for each in Checklist().criteria_of(sample)]
    winners = set(truth) - {0}
    if job.kind == "pair" and len(winners) == 1:
        side = "first" if 1 in winners else "second"
        finding = f"the winner is always the {side} answer, so a judge that does not read the answers is right"
        raise InputError(f"{job.labels}: {finding}; swap the two answers in about half of the rows")
    return TuningLabels(
        truth=np.array(truth, dtype=np.float64),
        questions=questions,
        lengths=np.array(lengths),
        kind="label" if job.kind == "checklist" else job.kind,
        scale=job.scale,
        criteria=criteria,
    )


def _groups(samples: Sequence[Sample]) -> list[str]:
    """Group samples by question or by context: the fewest groups that are enough for all folds."""
    questions = [sample.question or sample.id for sample in samples]
    contexts = [
        str(sample.metadata.get(CONTEXT) or question) for sample, question in zip(samples, questions, strict=True)
    ]
    by_count = {len(set(each)): each for each in (contexts, questions)}
    return by_count[min((count for count in by_count if count >= _ENOUGH_GROUPS), default=max(by_count))]


def _check_repeated(
    sample: Sample, label: tuple[float, ...], job: TuningJob, seen: dict[tuple[Any, ...], tuple[str, tuple[float, ...]]]
) -> None:
    """Refuse another label for the same texts, which may be in the other order."""
    answers = sorted(sample.answers)
    if job.kind == "pair" and answers != list(sample.answers):
        label = (-label[0],)
    prompts = [each.judge_prompt for each in job.candidates.values() if isinstance(each, PromptTemplate)]
    slots = sorted({slot for prompt in prompts for slot in prompt.slots})
    shown = (sample.question, *answers, sample.reference, *(str(sample.metadata.get(slot)) for slot in slots))
    if job.kind == "checklist":
        shown = (*shown, *(each.text for each in Checklist().criteria_of(sample)))
    first, before = seen.setdefault(shown, (sample.id, label))
    if before != label:
        finding = f"samples {first} and {sample.id} have the same texts, but different labels"
        raise InputError(f"{job.labels}: {finding}; keep one of them, or give both the same id to count them as votes")


def make_folder(job: TuningJob) -> None:
    """Create the output folder, or raise an error if it contains a trained judge or a model."""
    card = find_card(str(job.folder)) if job.folder.is_dir() else None
    if (card is not None and card.model is None) or (job.folder / "config.json").exists():
        raise ConfigError(f"-o {job.folder}: contains a trained judge or a model; choose a different folder")
    try:
        (job.folder / RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"-o {job.folder}: could not create the folder: {error.strerror}") from error


def load_model(job: TuningJob, resolved: "ResolvedJudge", flags: EngineFlags) -> "Judge":
    """Load the model, and check that it is a chat model and no released judge."""
    from judgelm.cli.run import announce
    from judgelm.judge import Judge
    from judgelm.runs.batch import run_dtype, run_engine

    model = resolved.model
    if (released := resolved.recognition.judge) is not None:
        finding = f"{model} is {released.name}, a judge that comes with its own prompts"
        raise ConfigError(f"{finding}; use it without tuning or add --ignore-card")
    if resolved.tuned is not None and resolved.tuned.head is not None:
        raise ConfigError(f"{model} is a judge with a head; tune the model that it was made of: {resolved.weights}")
    engine, dtype = flags.engine, flags.dtype
    for batch in (_batch_job(job, name, ()) for name in job.candidates):
        engine = run_engine(batch, engine)
        dtype = run_dtype(batch, dtype, engine)
    resolved = resolved.with_engine(engine)
    announce(resolved)
    judge = Judge(resolved, template=next(iter(job.candidates)), **flags.judge_arguments() | {"dtype": dtype})
    if resolved.engine in MODEL_ENGINES and resolved.named is None and not _is_chat_model(resolved.weights, flags):
        judge.close()
        raise ConfigError(f"{model}: the tokenizer has no chat template, which tuning requires; use an instruct model")
    console.messages(judge.notes)
    return judge


def _is_chat_model(weights: str, flags: EngineFlags) -> bool:
    from judgelm.engines.model_files import has_chat_template  # loads transformers

    return has_chat_template(EngineOptions(model=weights, adapter=flags.adapter, revision=flags.revision))


def _batch_job(job: TuningJob, name: str, ids: Sequence[str]) -> Any:
    from judgelm.runs.batch import BatchJob

    wanted = frozenset(ids)
    return BatchJob(
        inputs=(str(job.labels),),
        out=str(job.run(name)),
        reading=job.rows.reading,
        overwrite=job.overwrite,
        parts=lambda sample: (sample,) if sample.id in wanted else (),
    )


def judge_pairs(
    job: TuningJob, name: str, judge: "Judge", ids: Sequence[str], recorder: "RecordedStates | None" = None
) -> None:
    """Judge labelled pairs with a candidate, and write its run file; `recorder` also keeps the model's states."""
    from judgelm.cli.run import judge_watched

    console.message(f"{name}: {len(ids)} pairs")
    if recorder is not None:
        judge = copy(judge)
        judge.engine = recorder
    judge_watched(_batch_job(job, name, ids), job.mode(name), judge, len(ids))


def read_runs(
    job: TuningJob, labelled: "LabelledSet", *, has_states: bool
) -> "tuple[dict[str, dict[str, Judgment]], LabelledSet]":
    """Read the run files of all candidates, and match the labels to them."""
    from judgelm.data.labelled_set import match_labels_of_runs
    from judgelm.runs.run_files import read_judgments

    runs = {
        name: {key: each for key, each in read_judgments(job.run(name)).items() if key in labelled.samples}
        for name in job.candidates
    }
    labelled, _ = match_labels_of_runs(runs, labelled, name=str(job.labels))
    judgments = [judgment for run in runs.values() for judgment in run.values()]
    if not has_states and all(judgment.failure is not None for judgment in judgments):
        why = next((each.failure.why or each.failure.text for each in judgments if each.failure is not None), "")
        item = "a pair" if job.kind == "pair" else "an answer"
        finding = f"none of the candidates judged {item}{why and f': {why}'}"
        raise InputError(f"{finding}; use a model and engine that return probabilities")
    return runs, labelled


def reading_candidates(
    job: TuningJob, runs: "Mapping[str, Mapping[str, Judgment]]", labelled: "LabelledSet"
) -> dict[str, Any]:
    """Return the candidates that read a reply, by name."""
    import numpy as np

    from judgelm.runs.run_files import read_manifest
    from judgelm.studies.tuning import ReadingCandidate, strength_difference, tie_probability

    def values(judgment: Judgment | None, count: int) -> list[float]:
        if job.kind == "pair":
            return [strength_difference(judgment)]
        if judgment is None or judgment.failure is not None:
            return [math.nan] * count
        if job.kind == "grade":
            return [math.nan if judgment.scores is None else judgment.scores[0]]
        return [math.nan if shown.log_odds is None else shown.log_odds for shown in judgment.shown]

    counts = {name: len(labelled.labels[name].scores or ()) for name in labelled.samples}
    candidates = {}
    for candidate, run in runs.items():
        sessions = (read_manifest(job.run(candidate)) or {}).get("sessions", ())
        judged = sum(session.get("judged", 0) for session in sessions)
        agree = [each.consistent for each in run.values() if each.consistent is not None]
        candidates[candidate] = ReadingCandidate(
            differences=np.array([each for name, count in counts.items() for each in values(run.get(name), count)]),
            ties=np.array([tie_probability(run.get(name)) for name in counts]) if job.kind == "pair" else None,
            orders_agree=sum(agree) / len(agree) if agree else None,
            seconds=sum(session.get("judge_s", 0.0) for session in sessions) / judged if judged else None,
        )
    return candidates
