"""Options that several commands share."""

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from judgelm.cli.console import EXIT_FAILURES, JsonOut, console, errors, is_stdout, load_config, write_json
from judgelm.cluster.plan import RayCluster
from judgelm.data.label_codes import parse_label_code
from judgelm.data.readers.files import first_row
from judgelm.data.readers.inputs import is_stream
from judgelm.engines.catalog import ENGINES
from judgelm.errors import ConfigError, InputError
from judgelm.modes import CARD_FIELDS, MODES, mode_type
from judgelm.parsing.scores import LabelRule, OrderRule
from judgelm.yaml_files import parse_yaml, read_yaml

if TYPE_CHECKING:
    from judgelm.data.samples import Reading
    from judgelm.judges.resolve import ResolvedJudge
    from judgelm.metrics.resampling import Resampling
    from judgelm.runs.batch import BatchJob
    from judgelm.studies.result import StudyResult


def names_of(place: str) -> Callable[[], list[str]]:
    """Return a completion that lists `module:name`, a collection or a function that returns one."""
    module, _, name = place.partition(":")

    def names() -> list[str]:
        known = getattr(importlib.import_module(f"judgelm.{module}"), name)
        return list(known() if callable(known) else known)

    return names


modes = names_of("modes:MODES")
templates = names_of("prompts.catalog:TEMPLATES")
benchmarks = names_of("data.sources.registry:benchmarks")
judge_names = names_of("judges.cards:card_names")
released_names = names_of("judges.released:released_names")


def mode_args(ctx: typer.Context) -> list[str]:
    """Return the options of the mode on the command line, each up to its `=`."""
    name = ctx.params.get("mode") or "pair"
    names = [field.name for field in fields(cast(Any, mode_type(name)))] if name in MODES else []
    return [f"{name}=" for name in names if name not in CARD_FIELDS]


_JUDGE, _MODEL = "Judging", "Model and engine"

Config = Annotated[Path | None, typer.Option(callback=load_config, is_eager=True, help="YAML file of these options.")]
_ENGINES = ["auto", *ENGINES]
EngineName = Annotated[
    str, typer.Option(help=f"{', '.join(_ENGINES)}.", rich_help_panel=_MODEL, autocompletion=lambda: _ENGINES)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """Model and engine options of every command that loads a judge.

    Judging:
        ignore_card: Use another template than the judge was trained with.

    Model and engine:
        engine_arg: An argument for this engine; the value is YAML. Repeatable.
        adapter: PEFT adapter to apply to the model.
        dtype: auto, float32, bfloat16 or float16; auto uses the checkpoint's dtype, or float32 where a CPU is faster
            with it.
        device: auto, cpu, cuda, cuda:0, ...
        quantization: 4bit or 8bit, with bitsandbytes.
        revision: Revision on the hub.
        max_num_batched_tokens: Maximum tokens per forward pass.
        max_num_seqs: Maximum sequences in flight.
        max_model_len: Maximum context length.
        thinking: Turn thinking on or off; absent does not pass the argument to the chat template. Default: the judge's
            card.
        thinking_tokens: Maximum tokens of thinking, in addition to the reply; at most half of the context.
        trust_remote_code: Run the Python code in the model's repository.
    """

    engine: EngineName = "auto"
    ignore_card: bool = False
    engine_arg: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE")] = None
    adapter: str | None = None
    dtype: Annotated[str, typer.Option(autocompletion=lambda: ["auto", "float32", "bfloat16", "float16"])] = "auto"
    device: str = "auto"
    quantization: str | None = None
    revision: str | None = None
    max_num_batched_tokens: Annotated[int | None, typer.Option(min=1)] = None
    max_num_seqs: Annotated[int, typer.Option(min=1)] = 256
    max_model_len: Annotated[int | None, typer.Option(min=1)] = None
    thinking: Literal["on", "off", "absent"] | None = None
    thinking_tokens: Annotated[int, typer.Option(min=1)] = 4096
    trust_remote_code: bool = False

    def judge_arguments(self) -> dict[str, Any]:
        """Return the arguments of `judgelm.Judge`, without the engine's name."""
        names = (field.name for field in fields(self) if field.name not in ("engine", "engine_arg"))
        engine_args = parse_pairs(self.engine_arg or (), "--engine-arg")
        return {name: getattr(self, name) for name in names} | {"engine_args": engine_args}

    def resolve(self, model: str | None, engine: str | None = None) -> "ResolvedJudge":
        """Return the judge that these options mean; `engine` replaces the option."""
        from judgelm.judges.resolve import resolve

        card: str | None = getattr(self, "card", None)  # an option of JudgeOptions only
        return resolve(model, engine or self.engine, adapter=self.adapter, card=card, ignore_card=self.ignore_card)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions(EngineFlags):
    """Options of a judge and its engine.

    Judging:
        reading: Source of the verdict: score-line (written scores), letters, yes-no or grade (token probabilities), or
            reward (a reward model). Default: the judge's card, else yes-no.
        template: Prompt template. Default: the judge's card, else the reading's template.
        card: Use the card of this released judge (judgelm judges). Default: recognised by hub id or folder.
    """

    reading: Literal["score-line", "letters", "yes-no", "grade", "reward"] | None = None
    template: Annotated[str | None, typer.Option(autocompletion=templates)] = None
    card: Annotated[str | None, typer.Option(metavar="NAME", autocompletion=released_names)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Options of `judgelm-batch` and `judgelm serve` for several GPUs or machines.

    Several GPUs or machines:
        gpus: Use N GPUs of this machine, one replica per GPU.
        ray: Use a Ray cluster: auto (running here, or RAY_ADDRESS), HOST:PORT, or local (start one).
        workers: Number of workers. Default: one per GPU, or per node without GPUs.
        worker_cores: CPU cores and threads per worker.
    """

    gpus: Annotated[int | None, typer.Option(min=1)] = None
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS")] = None
    workers: Annotated[int | None, typer.Option(min=1)] = None
    worker_cores: Annotated[int | None, typer.Option(min=1)] = None

    def cluster(self) -> RayCluster | None:
        """Return the cluster, or None if this process judges."""
        if self.ray is None and self.gpus is None:
            if self.workers is not None or self.worker_cores is not None:
                raise ConfigError("--workers and --worker-cores need a cluster; add --ray local")
            return None
        return RayCluster(address=self.ray or "local", workers=self.workers, gpus=self.gpus, cores=self.worker_cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOptions:
    """Options of every command that reads rows.

    Options:
        column: Rename a column of the file, for example question=prompt. Repeatable; recorded in the run.
        sheet: Name or number of the Excel sheet; recorded in the run.
    """

    column: Annotated[list[str] | None, typer.Option(metavar="NAME=COLUMN")] = None
    sheet: Annotated[str | None, typer.Option(metavar="SHEET")] = None

    @property
    def reading(self) -> "Reading":
        """Return the column names, sheet and label code of the options."""
        from judgelm.data.samples import Reading, parse_columns

        code: str | None = getattr(self, "label_code", None)  # an option of LabelOptions only
        label_code = None if code is None else parse_label_code(code)
        return Reading(columns=parse_columns(self.column or ()), label_code=label_code, sheet=self.sheet)

    def reading_of(self, path: Path, *runs: Path, other: Path | None = None) -> "Reading":
        """Return how to read rows or labels of runs, with the columns that the runs recorded.

        With `other`, a second file, each file uses the columns that it has.
        """
        from judgelm.runs.recorded_rows import recorded_reading

        reading, note = recorded_reading(str(path), self.reading, runs, None if other is None else str(other))
        if note:
            console.message(note)
        return reading


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelOptions(ColumnOptions):
    """Options of every command that reads labelled rows.

    Options:
        label_code: Meaning of the label values, for example 0=first,1=tie,2=second.
        max_reject_rate: Exit with 2 if a larger share of the labelled rows is unreadable.
    """

    label_code: Annotated[str | None, typer.Option(metavar="CODE")] = None
    max_reject_rate: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.05

    def check_rejected(self, path: Path, rejected: int, read: int) -> None:
        """Exit with code 2 if more than `max_reject_rate` of the label rows are unreadable."""
        if rejected <= self.max_reject_rate * read:
            return
        finding = f"{path}: {rejected:,} of {read:,} rows ({rejected / read:.1%}) are unreadable"
        errors.message(f"{finding} (limit {self.max_reject_rate:.1%}, --max-reject-rate); the results leave them out")
        raise typer.Exit(EXIT_FAILURES)


def parse_pairs(pairs: Sequence[str], flag: str, *, parse: Callable[[str], Any] = parse_yaml) -> dict[str, Any]:
    """Parse KEY=VALUE options such as `lora={rank: 8}`."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"{flag} {pair}: expected KEY=VALUE")
        if name in values:
            raise ConfigError(f"{flag} {name}=...: {name} is given twice; keep one of them")
        try:
            values[name] = parse(value)
        except ConfigError as error:
            # the value may be a password
            raise ConfigError(f"{flag} {name}=...: the value is not YAML ({error}); quote it") from error
    return values


def read_families(path: Path) -> dict[str, list[str]]:
    """Read families of judges or models from YAML or JSON."""
    families = read_yaml(path)
    if not isinstance(families, dict):
        raise ConfigError(f"{path}: expected family: [name, ...] for each family")
    for family, names in families.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"{path}: family {family}: expected a list of names; quote numbers")
    return {str(family): names for family, names in families.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of every command that writes a run file.

    Options:
        limit: Judge only the first N samples.
        retry: Failures to judge again on a rerun: engine errors, or all failed rows.
        overwrite: Start over: delete OUT and its manifest.
        max_failure_rate: Exit with 2 if a larger share of the rows fails.
    """

    limit: Annotated[int | None, typer.Option(min=0)] = None
    retry: Literal["engine", "failed"] = "engine"
    overwrite: bool = False
    max_failure_rate: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.05

    def job(self, inputs: Sequence[str], out: str, **more: Any) -> "BatchJob":
        """Return a job with these options; `more` are further fields of the job."""
        from judgelm.runs.batch import BatchJob

        own = {name: getattr(self, name) for name in ("limit", "retry", "overwrite")}
        return BatchJob(inputs=tuple(inputs), out=out, **own, **more)


References = Annotated[str | None, typer.Option(help="File of references by id.", rich_help_panel=_JUDGE)]
BothOrders = Annotated[bool, typer.Option(help="Judge each pair in both orders.", rich_help_panel=_JUDGE)]
Temperature = Annotated[float, typer.Option(min=0.0, help="Sampling temperature; 0 is greedy.", rich_help_panel=_JUDGE)]
Seed = Annotated[int, typer.Option(help="Seed for temperature above 0.", rich_help_panel=_JUDGE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeFlags:
    """Options of the pair mode, and of other modes with a field of the same name.

    Judging:
        order_rule: Combine two orders by mean score, given (the first order), tie (if they conflict) or probability.
        tie_threshold: Tie if P(first better) is this close to 0.5 (probability, letters, yes-no, grade). Default: 0.05
            for score lines, else the judge's card or 0.
        criterion: What to judge by, in your words (letters, yes-no, grade).
        accept_one_order: If one order fails, use the other's verdict.
        reference: Show the references: auto (if available), use (always) or ignore.
        max_tokens: Maximum tokens of the score line.
        votes: Sample a reasoning judge N times, at temperature 0.7 by default. Majority votes stop once decided.
        vote_rule: Combine votes by majority, or by mean probability. Grades are averaged.

    Probabilities, reasons and retries:
        distribution: Compute P(first better) and expected scores from all score lines. Default: on for pairs with the
            transformers engine.
        reasons: Explain none, all, close verdicts, or flips (the orders disagree).
        close_threshold: Close means P(first better) this close to 0.5.
        reason_tokens: Maximum tokens of a reason.
        retry_unparseable: Retry unparseable replies with a constrained score line or label.
    """

    both_orders: BothOrders = False
    order_rule: OrderRule = "mean"
    tie_threshold: Annotated[float, typer.Option(min=0.0, max=0.5, show_default=False)] = 0.05
    criterion: str | None = None
    accept_one_order: bool = False
    reference: Literal["auto", "use", "ignore"] = "auto"
    temperature: Temperature = 0.0
    seed: Seed = 0
    max_tokens: Annotated[int, typer.Option(min=1)] = 24
    votes: Annotated[int, typer.Option(min=1)] = 1
    vote_rule: Literal["majority", "mean"] = "majority"
    distribution: Annotated[bool | None, typer.Option(metavar="", show_default=False)] = None
    reasons: Literal["none", "all", "close", "flips"] = "none"
    close_threshold: Annotated[float, typer.Option(min=0.0, max=0.5)] = 0.1
    reason_tokens: Annotated[int, typer.Option(min=1)] = 512
    retry_unparseable: bool = False


def is_default(context: typer.Context, name: str) -> bool:
    """Return True if no command line or config file sets a parameter."""
    return (source := context.get_parameter_source(name)) is None or source.name == "DEFAULT"


def refuse(context: typer.Context, names: Iterable[str], finding: str) -> None:
    """Refuse parameters that the command line or a config file sets."""
    if given := [name for name in names if not is_default(context, name)]:
        raise ConfigError(f"--{given[0].rstrip('_').replace('_', '-')} {finding}")


def mode_options(context: typer.Context, mode_args: Sequence[str]) -> dict[str, Any]:
    """Return the mode's options that the command line or a config file sets."""
    flags = {flag.name: context.params[flag.name] for flag in fields(ModeFlags) if not is_default(context, flag.name)}
    arguments = parse_pairs(mode_args, "--mode-arg")
    if twice := sorted(flags.keys() & arguments.keys()):
        name = twice[0]
        raise ConfigError(f"--mode-arg {name}=... and --{name.replace('_', '-')} set the same option; keep one of them")
    return flags | arguments


Labels = Annotated[
    Path,
    typer.Option("--labels", "-l", metavar="FILE", help="Labels or teacher scores: JudgeLM, PandaLM or plain rows."),
]
LabelChoice = Annotated[
    Literal["auto", "with", "without"],
    typer.Option(help="Label to use if rows have one with and one without reference. auto: as the run."),
]
Parser = Annotated[
    Literal["judgelm", "original", "anywhere"],
    typer.Option(
        help="Parser of pred_text. original: the JudgeLM authors' parser, for labels too. anywhere: accept scores "
        "anywhere in the reply, counted separately."
    ),
]
Scale = Annotated[str, typer.Option(help="Accepted scores in pred_text: LOW-HIGH, or any.")]
Control = Annotated[
    Literal["length", "length,style"] | None,
    typer.Option(help="Control the verdicts for length, or for length and Markdown style."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringFlags(LabelOptions):
    """Options of `eval` and `report`, without the labels.

    Options:
        judgments: A run file, JudgeLM outputs (pred_text), or PandaLM results.
        reversed_: A separate run over the swapped pairs.
        protocol: pandalm counts failures and conflicting orders as ties.
        failures: Treatment of failures in the headline; the tables show both.
        order_rule: How to combine two orders. Default: the run's rule, else given (pandalm: tie).
        label_order_rule: How to combine two orders if --labels is a run.
        tie_threshold: For probability: tie if P is this close to 0.5. Default: the run's.
        bootstrap: Bootstrap resamples per interval.
        seed: Seed of the bootstrap.
    """

    judgments: Annotated[Path, typer.Argument()]
    reversed_: Annotated[Path | None, typer.Option("--reversed")] = None
    protocol: Literal["judgelm", "pandalm"] = "judgelm"
    failures: Literal["excluded", "as_tie"] | None = None
    order_rule: LabelRule | None = None
    label_order_rule: LabelRule = "as_judged"
    tie_threshold: Annotated[float | None, typer.Option(min=0.0, max=0.5)] = None
    label_reference: LabelChoice = "auto"
    parser: Parser = "judgelm"
    scale: Scale = "1-10"
    control: Control = None
    bootstrap: Annotated[int, typer.Option(min=100)] = 2000
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringOptions(ScoringFlags):
    """Options of a comparison with labels."""

    labels: Labels

    def check_files(self) -> None:
        """Check that the files exist, are not swapped, and have a known format."""
        from judgelm.data.samples import SampleStream
        from judgelm.runs.recorded_rows import recorded_reading
        from judgelm.runs.serialization import is_judgment_row

        if is_stream(self.judgments) or is_stream(self.labels):
            return
        reading, _ = recorded_reading(str(self.labels), self.reading, [self.judgments], None)
        first, label = first_row(str(self.judgments)), first_row(str(self.labels), sheet=reading.sheet)
        if label is not None and is_judgment_row(label.data):
            if first is not None and not is_judgment_row(first.data):
                finding = f"{self.labels} is a run file and {self.judgments} is not; swap them"
                raise InputError(f"{finding}: {self.labels} --labels {self.judgments}")
        else:
            SampleStream([str(self.labels)], on_reject=lambda reject: None, label_rows=True, reading=reading)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOutput:
    """Output and resampling options of every study.

    Options:
        out: Output folder for the page, tables and figures.
        overwrite: Replace the study in the folder.
        seed: Seed of all random draws.
        bootstrap: Bootstrap resamples per interval.
    """

    out: Annotated[Path, typer.Option(metavar="FOLDER")]
    overwrite: bool = False
    seed: int = 0
    bootstrap: Annotated[int, typer.Option(min=100)] = 2000
    json: JsonOut = None

    @property
    def resampling(self) -> "Resampling":
        """Return the seed and the number of resamples."""
        from judgelm.metrics.resampling import Resampling  # statsmodels takes seconds to load

        return Resampling(seed=self.seed, resamples=self.bootstrap)

    def write(self, result: "StudyResult") -> None:
        """Write a study into its folder, and print its findings."""
        from judgelm.reports.study import table_notes, write_study  # matplotlib takes seconds to load

        paths = write_study(result, self.out, overwrite=self.overwrite)
        console.messages(result.findings)
        console.messages([*result.warnings, *table_notes(result)], label="note:", style="bold yellow")
        if result.counts:
            console.message(", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in result.counts.items()))
        console.message(result.protocol)
        console.message(f"{len(paths)} files in {self.out}; the page is {paths[0]}")
        write_json(self.json, result.to_json())
        if self.json is not None and not is_stdout(self.json):
            console.message(f"all numbers in {self.json}")


def named_run(text: str) -> tuple[str, Path]:
    """Split `NAME=FILE`; the name defaults to the file's stem."""
    name, equals, path = text.partition("=")
    return (name, Path(path)) if equals and not Path(text).exists() else (Path(text).stem, Path(text))
