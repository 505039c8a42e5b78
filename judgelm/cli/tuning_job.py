"""The labels, candidates, and run files of `judgelm tune`."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgelm.cli.console import console, printed_rejects
from judgelm.cli.options import EngineFlags, LabelOptions
from judgelm.engines.base import MODEL_ENGINES, EngineOptions
from judgelm.errors import ConfigError, InputError, RunError
from judgelm.modes import Pairwise
from judgelm.prompts.catalog import Template
from judgelm.prompts.judge_card import find_card
from judgelm.prompts.prompt_template import PromptTemplate
from judgelm.records import Judgment

if TYPE_CHECKING:
    from judgelm.data.labelled_set import LabelledSet
    from judgelm.engines.recorded_states import RecordedStates
    from judgelm.judge import Judge
    from judgelm.judges.resolve import ResolvedJudge
    from judgelm.studies.tuning import TuningLabels

RUNS = "candidates"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningJob:
    """Labelled pairs, candidates by name (starting with the default), and the output folder."""

    labels: Path
    folder: Path
    candidates: Mapping[str, Template]
    criterion: str | None
    rows: LabelOptions
    overwrite: bool = False

    def run(self, name: str) -> Path:
        """Return the run file for a candidate."""
        return self.folder / RUNS / f"{name}.jsonl"

    def mode(self, name: str) -> Pairwise:
        """Return the mode for a candidate."""
        template = self.candidates[name]
        criterion = self.criterion if template.takes_criterion else None
        if isinstance(template, PromptTemplate):
            prompt = template.judge_prompt
            return Pairwise(prompt=prompt, scale=prompt.reply.scale, tie_threshold=0.0, criterion=criterion)
        return Pairwise(template=template.id, tie_threshold=0.0, criterion=criterion)


def labelled_pairs(job: TuningJob, limit: int | None) -> "LabelledSet":
    """Load the first `limit` labelled pairs."""
    from judgelm.data.labelled_set import read_labels
    from judgelm.studies.pair_labels import pair_winner

    with printed_rejects("label skipped") as rejects:
        labelled = read_labels(str(job.labels), on_reject=rejects, reading=job.rows.reading)
    for label in labelled.labels.values():
        pair_winner(label)
    pairs = {name: sample for name, sample in labelled.samples.items() if name in labelled.labels}
    if not pairs:
        raise InputError(f"{job.labels}: the labels have no texts; expected a file with questions, answers, and labels")
    names = list(pairs)[:limit]
    labels = {name: labelled.labels[name] for name in names}
    return replace(labelled, samples={name: pairs[name] for name in names}, labels=labels)


def tuning_labels(labelled: "LabelledSet") -> "TuningLabels":
    """Convert labelled pairs."""
    import numpy as np

    from judgelm.studies.pair_labels import label_of, pair_winner
    from judgelm.studies.tuning import TuningLabels

    names = list(labelled.samples)
    return TuningLabels(
        truth=np.array([label_of(pair_winner(labelled.labels[name])) for name in names], dtype=np.int_),
        questions=[labelled.samples[name].question for name in names],
        lengths=np.array([[len(answer) for answer in labelled.samples[name].answers] for name in names]),
    )


def make_folder(job: TuningJob) -> None:
    """Create the output folder, or raise an error if it contains a trained judge."""
    if job.folder.is_dir() and (card := find_card(str(job.folder))) is not None and card.model is None:
        raise ConfigError(f"-o {job.folder}: this folder contains a trained judge; choose a different folder")
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
    if not has_states and all(judgment.probability is None for judgment in judgments):
        why = next((each.failure.why or each.failure.text for each in judgments if each.failure is not None), "")
        finding = f"none of the candidates judged a pair{why and f': {why}'}"
        raise InputError(f"{finding}; use a model and engine that return probabilities")
    return runs, labelled


def reading_candidates(
    job: TuningJob, runs: "Mapping[str, Mapping[str, Judgment]]", labelled: "LabelledSet"
) -> dict[str, Any]:
    """Return the candidates that read a reply, by name."""
    import numpy as np

    from judgelm.runs.run_files import read_manifest
    from judgelm.studies.tuning import ReadingCandidate, strength_difference, tie_probability

    candidates = {}
    for candidate, run in runs.items():
        sessions = (read_manifest(job.run(candidate)) or {}).get("sessions", ())
        judged = sum(session.get("judged", 0) for session in sessions)
        agree = [each.consistent for each in run.values() if each.consistent is not None]
        candidates[candidate] = ReadingCandidate(
            differences=np.array([strength_difference(run.get(name)) for name in labelled.samples]),
            ties=np.array([tie_probability(run.get(name)) for name in labelled.samples]),
            orders_agree=sum(agree) / len(agree) if agree else None,
            seconds=sum(session.get("judge_s", 0.0) for session in sessions) / judged if judged else None,
        )
    return candidates
