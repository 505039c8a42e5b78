"""`judgelm tune`: choose a prompt for an open model and calibrate it with labelled pairs."""

import hashlib
import json
import math
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from judgelm.cli.console import PlainConsole, Results, console, write_text
from judgelm.cli.help import essential
from judgelm.cli.options import Config, EngineFlags, LabelOptions, Labels
from judgelm.cli.tuned_head import HEAD, head_candidate, recorders_of, write_head_of
from judgelm.cli.tuning_job import (
    KIND_MODES,
    LabelKind,
    TuningJob,
    judge_pairs,
    load_model,
    make_folder,
    read_items,
    read_runs,
    reading_candidates,
    tuning_labels,
)
from judgelm.data.readers.inputs import input_files
from judgelm.errors import ConfigError, InputError, not_found
from judgelm.modes.checklist import Checklist
from judgelm.package import VERSION
from judgelm.parsing.scores import MAX_VALUES
from judgelm.prompts.catalog import Template
from judgelm.prompts.judge_card import MODEL_CARD_NAME, AbstainCard, Card, PromptSource, model_hashes, write_card
from judgelm.prompts.prompt_file import read_prompts
from judgelm.prompts.prompt_template import PromptTemplate, check_fields, prompt_template
from judgelm.yaml_files import read_yaml

if TYPE_CHECKING:
    from judgelm.judge import Judge
    from judgelm.metrics.resampling import Estimate
    from judgelm.studies.risk import Promise, RiskSplit
    from judgelm.studies.tuning import CandidateScores, TuningLabels, TuningResult

_READINGS = ("letters", "yes-no", "grade")
_KIND_READINGS = {"pair": _READINGS, "label": ("yes-no",), "checklist": ("yes-no",), "grade": ("yes-no", "grade")}


@essential(
    "labels out prompt reading criterion limit quick scale risk engine column label_code overwrite json_out quiet "
    "config"
)
def tune_command(
    model: Annotated[str, typer.Argument()],
    labels: Labels,
    out: Annotated[Path, typer.Option(metavar="FOLDER")],
    prompt: Annotated[list[Path] | None, typer.Option(metavar="FILE")] = None,
    reading: Annotated[list[str] | None, typer.Option(metavar="NAME", autocompletion=lambda: [*_READINGS])] = None,
    criterion: str | None = None,
    folds: Annotated[int, typer.Option(min=2)] = 5,
    limit: Annotated[int | None, typer.Option(min=1)] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    overwrite: bool = False,
    quick: bool = False,
    scale: Annotated[str | None, typer.Option(metavar="LOW,HIGH")] = None,
    risk: Annotated[float | None, typer.Option(metavar="SHARE", min=0.01, max=0.5)] = None,
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
        scale: For grades, the lowest and highest grade. Default: 1,10, or the scale of your prompt.
        quick: Only choose a prompt, without a head on the model's states.
        risk: Abstain where the judge is not confident, so that at most this share of its verdicts disagrees with the
            labels, with probability 0.9. Uses half of the questions for calibration only.

    Examples:
        judgelm tune owner/name -l labelled.jsonl -o my-judge
        judgelm tune my-model -l labels.csv -o my-judge --prompt my_prompt.txt
        judgelm tune my-model -l labels.jsonl -o kind --criterion "It is kind."
        judgelm tune my-model -l labels.jsonl -o careful --risk 0.1
        judgelm-batch pairs.jsonl -o out.jsonl --model my-judge

    Run the same command again to resume an interrupted run. Exit codes: 0 done, 1 usage or input error, 2 too many
    unreadable labels (--max-reject-rate), 130 interrupted (resumable).
    """
    resolved = engine_flags.resolve(model)
    input_files(str(labels))  # report a mistyped path before the slow imports
    from judgelm.metrics.resampling import Resampling
    from judgelm.studies.risk import promise_of, split_by_question
    from judgelm.studies.tuning import TuningOptions, check_labels, tune

    labelled, kind = read_items(labels, rows, limit)
    tried = _candidates(reading or _READINGS, prompt or (), criterion, kind)
    job = TuningJob(
        labels=labels,
        folder=out,
        candidates=tried,
        criterion=criterion,
        rows=rows,
        kind=kind,
        scale=_scale(scale, tried, kind),
        overwrite=overwrite,
    )
    console.messages(labelled.notes())
    known = tuning_labels(labelled, job)
    if risk is not None and kind != "pair":
        raise ConfigError("--risk requires labelled pairs, because only pairs can be left undecided; remove it")
    split = None if risk is None else split_by_question(known.questions, risk, seed)
    if split is not None:
        console.message(split.needs())
    check_labels(known if split is None else known.part(split.train), folds)
    _check_slots(job, labelled.samples.keys())
    make_folder(job)
    with closing(load_model(job, resolved, engine_flags)) as judge:
        recorders = {} if quick else recorders_of(job, judge)
        for name in tried:
            judge_pairs(job, name, judge, tuple(labelled.samples), recorders.get(name))
        runs, labelled = read_runs(job, labelled, has_states=bool(recorders))
        options = TuningOptions(default=next(iter(tried)), folds=folds, resampling=Resampling(seed=seed))
        candidates, known = reading_candidates(job, runs, labelled), tuning_labels(labelled, job)
        if recorders:
            candidates[HEAD] = head_candidate(job, recorders, candidates, known, labelled)
        fitted = candidates if split is None else {name: each.part(split.train) for name, each in candidates.items()}
        tuned = tune(fitted, known if split is None else known.part(split.train), options)
        chosen = tuned.chosen
        promised = None if split is None else promise_of(tuned, fitted[chosen], candidates[chosen], known, split)
        weights = resolved.named.card.name if resolved.named else resolved.weights
        card = _card(job, weights, judge, tuned, fitted)
        if promised is not None and split is not None:
            card = replace(
                card, tie_threshold=0.0, abstain=_abstain_card(promised, known, split, list(labelled.samples))
            )
    said = [] if split is None else [split.sentence(promised)]
    _write(job, card, tuned, engine_flags, said)
    figures = tuned.to_json() | {"judge": str(out), "template": card.template}
    if split is not None:
        figures["abstain"] = None if card.abstain is None else asdict(card.abstain)
    if results.write(figures):
        _print(job, tuned, engine_flags, said)
    rows.check_rejected(labels, labelled.rejected, labelled.read)


def _candidates(
    readings: Sequence[str], prompts: Sequence[Path], criterion: str | None, kind: LabelKind
) -> dict[str, Template]:
    from judgelm.judges.resolve import DEFAULT_READING
    from judgelm.prompts.catalog import TEMPLATES, criterion_template, get_template

    for name in readings:
        if name not in _READINGS:
            raise not_found("reading", name, _READINGS)
    if not (readings := [name for name in readings if name in _KIND_READINGS[kind]]):
        known = " or ".join(_KIND_READINGS[kind])
        raise ConfigError(f"--reading does not fit the labels, which are for mode {KIND_MODES[kind]}; use {known}")
    if criterion is not None and not criterion.strip():
        raise ConfigError("--criterion is empty; describe the criterion or remove the option")
    if kind == "checklist":
        if prompts or criterion is not None:
            raise ConfigError("--prompt and --criterion are not supported for a checklist; remove them")
        return {Checklist.template: get_template(Checklist.template)}
    chosen = [
        each
        for each in TEMPLATES.values()
        if each.reading in readings and (criterion is not None or not each.takes_criterion)
    ]
    default = get_template(DEFAULT_READING) if criterion is None else criterion_template(get_template(DEFAULT_READING))
    candidates: dict[str, Template] = {each.id: each for each in sorted(chosen, key=lambda each: each.id != default.id)}
    for path in prompts:
        for prompt in read_prompts(path, known=[*candidates, *TEMPLATES]):
            if KIND_MODES[kind] not in prompt.modes:
                finding = f"cannot be used in mode {KIND_MODES[kind]}, which the labels are for"
                finding = "shows more than two answers, but labels are pairs" if kind == "pair" else finding
                raise ConfigError(f"--prompt {path}: {prompt.name} {finding}")
            candidates[prompt.name] = prompt_template(prompt)
    return candidates


def _scale(text: str | None, candidates: Mapping[str, Template], kind: LabelKind) -> tuple[float, float]:
    if text is not None and kind != "grade":
        raise ConfigError(f"--scale requires grades, but the labels are for mode {KIND_MODES[kind]}; remove it")
    prompts = [each.judge_prompt.reply.scale for each in candidates.values() if isinstance(each, PromptTemplate)]
    try:
        low, high = (
            map(float, text.split(",")) if text is not None else prompts[0] if kind == "grade" and prompts else (1, 10)
        )
    except ValueError as error:
        raise ConfigError(f"--scale {text}: expected LOW,HIGH, such as 1,5") from error
    if not -math.inf < low < high < math.inf:
        raise ConfigError(f"--scale {text}: the first number must be lower than the second")
    for name, each in candidates.items() if kind == "grade" else ():
        if each.reading == "grade" and not isinstance(each, PromptTemplate) and high - low >= MAX_VALUES:
            finding = f"--scale {text}: the reading grade needs at most {MAX_VALUES} grades"
            raise ConfigError(f"{finding}; use --reading yes-no")
        own = each.judge_prompt.reply.scale if isinstance(each, PromptTemplate) else (low, high)
        if each.reading == "grade" and own != (low, high):
            finding = f"--prompt: {name} has another scale than the labels ({low:g} to {high:g})"
            raise ConfigError(f"{finding}; change its reply line, or set --scale")
    return low, high


def _check_slots(job: TuningJob, names: Collection[str]) -> None:
    """Check that each labelled pair has a value for each slot, before the model is loaded."""
    from judgelm.data.samples import SampleStream

    for name in job.candidates:
        if (prompt := getattr(job.mode(name), "prompt", None)) is None:
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


def _card(job: TuningJob, weights: str, judge: "Judge", tuned: "TuningResult", candidates: Mapping[str, Any]) -> Card:
    from judgelm.runs.run_files import input_identities

    head, name, described = None, tuned.chosen, judge.engine.describe()
    if name == HEAD:
        head, name = write_head_of(job, candidates[HEAD], described)
    template, fit = job.candidates[name], tuned.candidates[tuned.chosen].fit
    prompt = template.judge_prompt if isinstance(template, PromptTemplate) else None
    return Card(
        model=str(Path(weights).resolve()) if Path(weights).exists() else weights,
        identity=model_hashes(described["model"]),
        template=template.id,
        template_sha=template.sha,
        reading=template.reading,
        criterion=job.criterion if template.takes_criterion else None,
        tie_threshold=fit.tie_threshold,
        calibration_temperature=fit.temperature,
        scale=job.scale if prompt is None else prompt.reply.scale,
        mode=None if job.kind == "pair" else KIND_MODES[job.kind],
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


def _abstain_card(promised: "Promise", known: "TuningLabels", split: "RiskSplit", ids: Sequence[str]) -> AbstainCard:
    used = [(ids[place], int(known.truth[place])) for place in split.calibration.nonzero()[0]]
    return AbstainCard(
        below=0.5 + promised.threshold,
        level=promised.level,
        confidence=promised.confidence,
        pairs=promised.pairs,
        decided=promised.decided,
        wrong=promised.wrong,
        sha256=hashlib.sha256(json.dumps(used).encode()).hexdigest(),
        counts="a verdict for a pair that is labelled as a tie is wrong; failures and abstentions are no verdicts",
    )


def _write(job: TuningJob, card: Card, tuned: "TuningResult", flags: EngineFlags, said: Sequence[str]) -> None:
    rows = [f"| {name} | {_share(each.accuracy)} | {each.failed} |" for name, each in tuned.candidates.items()]
    own = "" if card.prompt is None else f", with the prompt {card.prompt.name} from {card.prompt.file}"
    text = read_yaml(Path(__file__).with_suffix(".yaml"))["readme"].format(
        own=own,
        name=job.folder.resolve().name,
        measure="accuracy" if tuned.kind != "grade" else "closeness",
        command=_command(job, flags),
        count=len(tuned.candidates),
        items=_items(tuned),
        sentences="\n".join([*tuned.sentences(), *said]),
        rows="\n".join(rows),
    )
    write_card(job.folder, card)
    write_text(job.folder / MODEL_CARD_NAME, text)


def _print(job: TuningJob, tuned: "TuningResult", flags: EngineFlags, said: Sequence[str]) -> None:
    out = PlainConsole()
    title = _items(tuned)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    figure = "accuracy" if tuned.kind != "grade" else "closeness"
    names = (" candidate", f"{figure}\n(95 %)", "against\ndefault", "log\nloss", "ECE", "both\nagree", "picks\nlong")
    item = "pair" if tuned.kind == "pair" else "row"
    for index, name in enumerate((*names, f"s/\n{item}", "fail")):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    for name, each in tuned.candidates.items():
        table.add_row(f"{'*' if name == tuned.chosen else ' '}{name}", *_cells(each))
    for name, accuracy in tuned.baselines.items():
        table.add_row(f" {name}", _share(accuracy))
    out.print(table)
    out.lines([*tuned.sentences(), *said])
    fit = tuned.candidates[tuned.chosen].fit
    ties = f" and ties within {fit.tie_threshold:.2g} of P = 0.5" if fit.tie_threshold else ""
    fitted = f", with calibration temperature {fit.temperature:.3g}{ties}" if tuned.kind != "grade" else ""
    out.print(f"*: chosen{fitted}. Default: {tuned.default}.")
    out.message(f"to use it: {_command(job, flags)}")


def _command(job: TuningJob, flags: EngineFlags) -> str:
    """Return a command that uses the judge."""
    options = "".join(f" {option}" for option in _repeated(flags))
    items = "pairs" if job.kind == "pair" else "answers"
    return f"judgelm-batch {items}.jsonl -o out.jsonl --model {shlex.quote(str(job.folder))}{options}"


def _items(tuned: "TuningResult") -> str:
    if tuned.kind == "pair":
        return f"{tuned.n} pairs, {tuned.decided} with a winner, {tuned.questions} questions"
    return f"{tuned.n} answers, {tuned.questions} questions"


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
