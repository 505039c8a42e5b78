"""`judgelm tune`: choose a prompt for an open model and calibrate it with labelled pairs."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from judgelm.cli.console import PlainConsole, Results, console, printed_rejects, write_text
from judgelm.cli.help import essential
from judgelm.cli.options import Config, EngineFlags, LabelOptions, Labels
from judgelm.data.readers.inputs import input_files
from judgelm.engines.base import MODEL_ENGINES, EngineOptions
from judgelm.errors import ConfigError, InputError, RunError, not_found
from judgelm.modes import Pairwise
from judgelm.package import VERSION
from judgelm.prompts.catalog import Template
from judgelm.prompts.judge_card import (
    MODEL_CARD_NAME,
    Card,
    HeadCard,
    PromptSource,
    find_card,
    model_hashes,
    write_card,
)
from judgelm.prompts.prompt_file import read_prompts
from judgelm.prompts.prompt_template import PromptTemplate, check_fields, prompt_template
from judgelm.records import HeadTerms, Judgment
from judgelm.yaml_files import read_yaml

if TYPE_CHECKING:
    from judgelm.data.labelled_set import LabelledSet
    from judgelm.engines.recorded_states import RecordedStates
    from judgelm.judge import Judge
    from judgelm.judges.resolve import ResolvedJudge
    from judgelm.metrics.resampling import Estimate
    from judgelm.studies.heads import HeadCandidate
    from judgelm.studies.tuning import CandidateScores, TuningResult

_RUNS = "candidates"
_READINGS = ("letters", "yes-no", "grade")
HEAD, HEAD_FILE = "head", "head.safetensors"
HEAD_LAYERS = (0.5, 0.57, 0.64, 0.71, 0.79, 0.86, 1.0)
"""Layers whose states are used, as shares of the number of layers."""


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
        return self.folder / _RUNS / f"{name}.jsonl"

    def mode(self, name: str) -> Pairwise:
        """Return the mode for a candidate."""
        template = self.candidates[name]
        criterion = self.criterion if template.takes_criterion else None
        if isinstance(template, PromptTemplate):
            prompt = template.judge_prompt
            return Pairwise(prompt=prompt, scale=prompt.reply.scale, tie_threshold=0.0, criterion=criterion)
        return Pairwise(template=template.id, tie_threshold=0.0, criterion=criterion)


@essential("labels out prompt reading criterion limit quick engine column label_code overwrite json_out quiet config")
def tune_command(
    model: Annotated[str, typer.Argument()],
    labels: Labels,
    out: Annotated[Path, typer.Option(metavar="FOLDER")],
    prompt: Annotated[list[Path] | None, typer.Option(metavar="FILE")] = None,
    reading: Annotated[list[str] | None, typer.Option(metavar="NAME", autocompletion=lambda: [*_READINGS])] = None,
    criterion: str | None = None,
    folds: Annotated[int, typer.Option(min=2)] = 5,
    limit: Annotated[int | None, typer.Option(min=1)] = None,
    seed: int = 0,
    overwrite: bool = False,
    quick: bool = False,
    *,
    rows: LabelOptions,
    engine_flags: EngineFlags,
    results: Results,
    config: Config = None,
) -> None:
    """Turn an open model into a judge of your labels, with cross-validation on 50 to 200 labelled pairs.

    Chooses between prompts, and fits a linear head to the states of the model, which stays unchanged.

    Options:
        model: The model: a folder, GGUF file, hub id, name, or name on a server.
        out: Folder for the judge; pass it to other commands as --model.
        prompt: Also try your own prompt (see judgelm prompts new). Repeatable. A prompt that asks for a reason first
            takes longer.
        reading: Try only this built-in reading: letters, yes-no, or grade. Repeatable. Default: all.
        criterion: Judging criterion, in your own words; also tries templates that ask about a criterion.
        folds: Number of cross-validation folds; each question is in only one fold.
        limit: Use only the first N labelled pairs.
        seed: Seed for the folds and intervals.
        overwrite: Judge all candidates again.
        quick: Only choose a prompt, without a head on the model's states.

    Examples:
        judgelm tune owner/name -l labelled.jsonl -o my-judge
        judgelm tune my-model -l labels.csv -o my-judge --prompt my_prompt.txt
        judgelm tune my-model -l labels.jsonl -o kind --criterion "It is kind."
        judgelm-batch pairs.jsonl -o out.jsonl --model my-judge

    Run the same command again to resume an interrupted run. Exit codes: 0 done, 1 usage or input error, 2 too many
    unreadable labels (--max-reject-rate), 130 interrupted (resumable).
    """
    resolved = engine_flags.resolve(model)
    input_files(str(labels))  # report a mistyped path before the slow imports
    from judgelm.metrics.resampling import Resampling
    from judgelm.studies.tuning import TuningOptions, check_labels, tune

    tried = _candidates(reading or _READINGS, prompt or (), criterion)
    job = TuningJob(labels=labels, folder=out, candidates=tried, criterion=criterion, rows=rows, overwrite=overwrite)
    labelled = labelled_pairs(job, limit)
    check_labels(_tuning_labels(labelled), folds)
    _check_slots(job, labelled.samples.keys())
    make_folder(job)
    with closing(_load(job, resolved, engine_flags)) as judge:
        recorders = {} if quick else _recorders(job, judge)
        for name in tried:
            judge_pairs(job, name, judge, tuple(labelled.samples), recorders.get(name))
        runs, labelled = _read_runs(job, labelled, has_states=bool(recorders))
        options = TuningOptions(default=next(iter(tried)), folds=folds, resampling=Resampling(seed=seed))
        candidates, known = _differences(job, runs, labelled), _tuning_labels(labelled)
        if recorders:
            candidates[HEAD] = _head_candidate(job, recorders, candidates, known, labelled)
        tuned = tune(candidates, known, options)
        weights = resolved.named.card.name if resolved.named else resolved.weights
        card = _card(job, weights, judge, tuned, candidates)
    _write(job, card, tuned)
    if results.write(tuned.to_json() | {"judge": str(out), "template": card.template}):
        _print(job, tuned, engine_flags)
    rows.check_rejected(labels, labelled.rejected, labelled.read)


def _candidates(readings: Sequence[str], prompts: Sequence[Path], criterion: str | None) -> dict[str, Template]:
    from judgelm.judges.resolve import DEFAULT_READING
    from judgelm.prompts.catalog import TEMPLATES, criterion_template, get_template

    for name in readings:
        if name not in _READINGS:
            raise not_found("reading", name, _READINGS)
    if criterion is not None and not criterion.strip():
        raise ConfigError("--criterion is empty; describe the criterion or remove the option")
    chosen = [
        each
        for each in TEMPLATES.values()
        if each.reading in readings and (criterion is not None or not each.takes_criterion)
    ]
    default = get_template(DEFAULT_READING) if criterion is None else criterion_template(get_template(DEFAULT_READING))
    candidates: dict[str, Template] = {each.id: each for each in sorted(chosen, key=lambda each: each.id != default.id)}
    for path in prompts:
        for prompt in read_prompts(path, known=[*candidates, *TEMPLATES]):
            if "pair" not in prompt.modes:
                raise ConfigError(f"--prompt {path}: {prompt.name} shows more than two answers, but labels are pairs")
            candidates[prompt.name] = prompt_template(prompt)
    return candidates


def _check_slots(job: TuningJob, names: Collection[str]) -> None:
    """Check that each labelled pair has a value for each slot, before the model is loaded."""
    from judgelm.data.samples import SampleStream

    for name in job.candidates:
        if (prompt := job.mode(name).prompt) is None:
            continue
        stream = SampleStream(
            [str(job.labels)], on_reject=lambda reject: None, prompt=prompt, reading=job.rows.reading, repeats="skip"
        )
        for sample in stream:
            if sample.id in names:
                try:
                    check_fields(sample, prompt, job.criterion)
                except InputError as error:
                    raise InputError(f"{job.labels}: {error}") from None


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


def _tuning_labels(labelled: "LabelledSet") -> Any:
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
        (job.folder / _RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"-o {job.folder}: could not create the folder: {error.strerror}") from error


def _load(job: TuningJob, resolved: "ResolvedJudge", flags: EngineFlags) -> "Judge":
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


def _recorders(job: TuningJob, judge: "Judge") -> "dict[str, RecordedStates]":
    """Return a recorder for each prompt that shows one answer; empty if the engine has no states."""
    from judgelm.engines.recorded_states import RecordedStates

    described = judge.engine.describe()
    if not (count := getattr(judge.engine, "state_layers", 0)):
        console.message(f"no head: the {described['engine']} engine returns no states; use --engine transformers")
    layers = tuple(sorted({max(1, round(share * count)) for share in HEAD_LAYERS}))
    model = json.dumps(described, sort_keys=True, default=str)
    return {
        name: RecordedStates(judge.engine, layers, job.folder / _RUNS / f"{name}.states.npz", model)
        for name, each in job.candidates.items()
        if count and each.reads_alone and (each.verdict is None or each.verdict.reason_tokens is None)
    }


def _head_candidate(
    job: TuningJob,
    recorders: "Mapping[str, RecordedStates]",
    candidates: Mapping[str, Any],
    known: Any,
    labelled: "LabelledSet",
) -> Any:
    from judgelm.modes.readings import prompts_alone
    from judgelm.studies.heads import HeadCandidate, PromptStates

    states, seconds = {}, 0.0
    for name, recorder in recorders.items():
        mode = job.mode(name)
        prompts = [prompt for sample in labelled.samples.values() for prompt in prompts_alone(mode, sample)]
        both = recorder.states(prompts).astype("float64")
        first, second = both[0::2], both[1::2]
        differences = {layer: first[:, place] - second[:, place] for place, layer in enumerate(recorder.layers)}
        log_odds = candidates[name].differences
        if job.candidates[name].reading != "yes-no":  # they are differences between grades
            log_odds = log_odds * 0
        states[name] = PromptStates(differences=differences, log_odds=log_odds)
        seconds = max(seconds, candidates[name].seconds or 0.0)
    return HeadCandidate(
        prompts=states, targets=(known.truth + 1) / 2, questions=known.questions, seconds=seconds or None
    )


def _read_runs(
    job: TuningJob, labelled: "LabelledSet", *, has_states: bool
) -> "tuple[dict[str, dict[str, Judgment]], LabelledSet]":
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


def _differences(
    job: TuningJob, runs: "Mapping[str, Mapping[str, Judgment]]", labelled: "LabelledSet"
) -> dict[str, Any]:
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


def _card(job: TuningJob, weights: str, judge: "Judge", tuned: "TuningResult", candidates: Mapping[str, Any]) -> Card:
    from judgelm.runs.run_files import input_identities

    head, name = None, tuned.chosen
    if name == HEAD:
        head, name = _write_head(job, candidates[HEAD])
    template, fit = job.candidates[name], tuned.candidates[tuned.chosen].fit
    prompt = template.judge_prompt if isinstance(template, PromptTemplate) else None
    described = judge.engine.describe()
    return Card(
        model=str(Path(weights).resolve()) if Path(weights).exists() else weights,
        identity=model_hashes(described["model"]),
        template=template.id,
        template_sha=template.sha,
        reading=template.reading,
        criterion=job.criterion if template.takes_criterion else None,
        tie_threshold=fit.tie_threshold,
        calibration_temperature=fit.temperature,
        scale=(1, 10) if prompt is None else prompt.reply.scale,
        head=head,
        prompt=None if prompt is None else PromptSource.of(prompt),
        prompt_format="chat" if template.chat else "text",
        thinking=judge.engine.thinking.mode,
        training={
            "judgelm": VERSION,
            "engine": {name: described[name] for name in ("engine", "dtype", "quantization") if name in described},
            "labels": input_identities([str(job.labels)]),
            "tuning": tuned.to_json(),
        },
    )


def _write_head(job: TuningJob, candidate: "HeadCandidate") -> tuple[HeadCard, str]:
    """Fit the head to all pairs, write it, and return its card and the name of its prompt."""
    import numpy as np

    from judgelm.engines.heads import write_head

    everything = np.ones(len(candidate.targets), dtype=np.bool_)
    setting, _ = candidate.choose(everything)
    weights, log_odds = candidate.weights(setting, everything)
    path = job.folder / HEAD_FILE
    write_head(path, weights)
    terms = HeadTerms(kind="pair", log_odds=log_odds)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return HeadCard(layer=setting.layer, terms=terms, file=HEAD_FILE, sha256=sha256), setting.prompt


def _write(job: TuningJob, card: Card, tuned: "TuningResult") -> None:
    rows = [f"| {name} | {_share(each.accuracy)} | {each.failed} |" for name, each in tuned.candidates.items()]
    own = "" if card.prompt is None else f", with the prompt {card.prompt.name} from {card.prompt.file}"
    text = read_yaml(Path(__file__).with_suffix(".yaml"))["readme"].format(
        own=own,
        name=job.folder.resolve().name,
        folder=job.folder,
        count=len(tuned.candidates),
        n=tuned.n,
        decided=tuned.decided,
        questions=tuned.questions,
        sentences="\n".join(tuned.sentences()),
        rows="\n".join(rows),
    )
    write_card(job.folder, card)
    write_text(job.folder / MODEL_CARD_NAME, text)


def _print(job: TuningJob, tuned: "TuningResult", flags: EngineFlags) -> None:
    out = PlainConsole()
    title = f"{tuned.n} pairs, {tuned.decided} with a winner, {tuned.questions} questions"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    names = (" candidate", "accuracy\n(95 %)", "against\ndefault", "log\nloss", "ECE", "both\nagree", "picks\nlong")
    for index, name in enumerate((*names, "s/\npair", "fail")):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    for name, each in tuned.candidates.items():
        table.add_row(f"{'*' if name == tuned.chosen else ' '}{name}", *_cells(each))
    for name, accuracy in tuned.baselines.items():
        table.add_row(f" {name}", _share(accuracy))
    out.print(table)
    out.lines(tuned.sentences())
    fit = tuned.candidates[tuned.chosen].fit
    ties = f" and ties within {fit.tie_threshold:.2g} of P = 0.5" if fit.tie_threshold else ""
    out.print(f"*: chosen, with calibration temperature {fit.temperature:.3g}{ties}. Default: {tuned.default}.")
    options = "".join(f" {option}" for option in _repeated(flags))
    out.message(f"to use it: judgelm-batch pairs.jsonl -o out.jsonl --model {job.folder}{options}")


def _cells(scores: "CandidateScores") -> Iterator[str]:
    yield _share(scores.accuracy)
    yield "-" if scores.difference is None else _share(scores.difference, sign="+")
    for value in (scores.log_loss, scores.calibration_error):
        yield "-" if value is None else f"{value.value:.2f}"
    for fraction in (scores.orders_agree, scores.longer):
        yield "-" if fraction is None else f"{fraction:.0%}"
    yield "-" if scores.seconds is None else f"{scores.seconds:.1f}"
    yield str(scores.failed)


def _share(estimate: "Estimate", sign: str = "") -> str:
    low, high = (f"{100 * bound:{sign}.0f}" for bound in (estimate.low, estimate.high))
    return f"{100 * estimate.value:{sign}.0f} [{low}, {high}]"


def _repeated(flags: EngineFlags) -> Iterator[str]:
    for name in ("engine", "adapter", "revision", "quantization"):
        if (value := getattr(flags, name)) not in (None, "auto"):
            yield f"--{name} {value}"
