"""Options shared by several commands."""

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
    from judgelm.prompts.judge_prompt import JudgePrompt
    from judgelm.runs.batch import BatchJob
    from judgelm.studies.result import StudyResult


def names_of(place: str) -> Callable[[], list[str]]:
    """Return a completion function that lists `module:name`, which is a collection or returns a collection."""
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
    """Complete `--mode-arg` with the options of the given mode."""
    name = ctx.params.get("mode") or "pair"
    names = [field.name for field in fields(cast(Any, mode_type(name)))] if name in MODES else []
    return [f"{name}=" for name in names if name not in CARD_FIELDS]


_JUDGE, _MODEL = "Judging", "Model and engine"

Config = Annotated[
    Path | None, typer.Option(callback=load_config, is_eager=True, help="YAML file that sets these options.")
]
_ENGINES = ["auto", *ENGINES]
EngineName = Annotated[
    str,
    typer.Option(
        help=f"Inference engine: {', '.join(_ENGINES)}.", rich_help_panel=_MODEL, autocompletion=lambda: _ENGINES
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """Model and engine options for commands that load a judge.

    Judging:
        ignore_card: Ignore the judge's card, to use a template that the judge was not trained with.

    Model and engine:
        engine_arg: Extra argument for the engine, with a YAML value. Repeatable.
        adapter: PEFT adapter to apply to the model.
        dtype: auto, float32, bfloat16, or float16; auto uses the checkpoint's dtype, or float32 on CPUs where float32
            is faster.
        device: Device to run on: auto, cpu, cuda, cuda:0, ...
        quantization: Quantise the weights with bitsandbytes: 4bit or 8bit.
        revision: Hub revision of the model.
        max_num_batched_tokens: Maximum number of tokens per forward pass.
        max_num_seqs: Maximum number of sequences in flight.
        max_model_len: Maximum context length in tokens.
        thinking: Turn thinking on or off; absent does not pass the argument to the chat template. Default: set by the
            judge's card.
        thinking_tokens: Maximum number of thinking tokens before the reply; capped at half the context window.
        trust_remote_code: Allow Python code from the model's repository to run.
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
        """Return the arguments for `judgelm.Judge`, except `engine`."""
        names = (field.name for field in fields(self) if field.name not in ("engine", "engine_arg"))
        engine_args = parse_pairs(self.engine_arg or (), "--engine-arg")
        return {name: getattr(self, name) for name in names} | {"engine_args": engine_args}

    def resolve(self, model: str | None, engine: str | None = None) -> "ResolvedJudge":
        """Resolve the judge from these options; `engine` overrides `--engine`."""
        from judgelm.judges.resolve import resolve

        card: str | None = getattr(self, "card", None)  # an option of JudgeOptions only
        return resolve(model, engine or self.engine, adapter=self.adapter, card=card, ignore_card=self.ignore_card)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions(EngineFlags):
    """Options for a judge and its engine.

    Judging:
        reading: How to obtain the verdict: from written scores (score-line), token probabilities (letters, yes-no, or
            grade), or a reward model (reward). Default: set by the judge's card, otherwise yes-no.
        template: Prompt template. Default: set by the judge's card, otherwise determined by the reading.
        prompt: Your own judge prompt: a YAML or text file with slots such as {question} and {answer}. To write one,
            run: judgelm prompts new. Repeatable for commands that use several prompts.
        card: Use the card of this released judge (see judgelm judges). Default: detected from the hub id or folder.
    """

    reading: Literal["score-line", "letters", "yes-no", "grade", "reward"] | None = None
    template: Annotated[str | None, typer.Option(autocompletion=templates)] = None
    prompt: Annotated[list[Path] | None, typer.Option(metavar="FILE")] = None
    card: Annotated[str | None, typer.Option(metavar="NAME", autocompletion=released_names)] = None

    def judge_arguments(self) -> dict[str, Any]:
        """Return the arguments for `judgelm.Judge`, except `engine`."""
        return self.server_arguments() | {"prompt": self.judge_prompt()}

    def server_arguments(self) -> dict[str, Any]:
        """Return the arguments for `judgelm.Judge`, except `engine` and `prompt`: a server uses several prompts."""
        arguments = EngineFlags.judge_arguments(self)
        del arguments["prompt"]
        return arguments

    def judge_prompt(self) -> "JudgePrompt | None":
        """Return the prompt, for commands that use a single one."""
        from judgelm.prompts.prompt_file import read_prompt

        if self.prompt is not None and len(self.prompt) > 1:
            raise ConfigError("--prompt is given twice; this command uses a single prompt, so keep only one")
        return read_prompt(self.prompt[0]) if self.prompt else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Options for running on several GPUs or machines.

    Multiple GPUs or machines:
        gpus: Use N GPUs on this machine, with one replica per GPU.
        ray: Use a Ray cluster: auto (RAY_ADDRESS or a cluster running on this machine), HOST:PORT, or local (start a
            new cluster).
        workers: Number of workers. Default: one per GPU, or one per node if there are no GPUs.
        worker_cores: Number of CPU cores and threads per worker.
    """

    gpus: Annotated[int | None, typer.Option(min=1)] = None
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS")] = None
    workers: Annotated[int | None, typer.Option(min=1)] = None
    worker_cores: Annotated[int | None, typer.Option(min=1)] = None

    def cluster(self) -> RayCluster | None:
        """Return the cluster, or None to run the judge in this process."""
        if self.ray is None and self.gpus is None:
            if self.workers is not None or self.worker_cores is not None:
                raise ConfigError("--workers and --worker-cores require a cluster; add --ray local")
            return None
        return RayCluster(address=self.ray or "local", workers=self.workers, gpus=self.gpus, cores=self.worker_cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOptions:
    """Options for commands that read rows.

    Options:
        column: Column to use for a field, for example question=prompt. Repeatable. Saved with the run.
        sheet: Name or number of the Excel sheet. Saved with the run.
    """

    column: Annotated[list[str] | None, typer.Option(metavar="NAME=COLUMN")] = None
    sheet: Annotated[str | None, typer.Option(metavar="SHEET")] = None

    @property
    def reading(self) -> "Reading":
        """Return the column names, sheet, and label code from the options."""
        from judgelm.data.samples import Reading, parse_columns

        code: str | None = getattr(self, "label_code", None)  # an option of LabelOptions only
        label_code = None if code is None else parse_label_code(code)
        return Reading(columns=parse_columns(self.column or ()), label_code=label_code, sheet=self.sheet)

    def reading_of(self, path: Path, *runs: Path, other: Path | None = None) -> "Reading":
        """Return the column names for a file of rows or labels, including column names saved with the runs.

        If there is a second file (`other`), each file uses only the columns it contains.
        """
        from judgelm.runs.recorded_rows import recorded_reading

        reading, note = recorded_reading(str(path), self.reading, runs, None if other is None else str(other))
        if note:
            console.message(note)
        return reading


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelOptions(ColumnOptions):
    """Options for commands that read labelled rows.

    Options:
        label_code: Meaning of the label values, for example 0=first,1=tie,2=second.
        max_reject_rate: Exit with code 2 if more than this share of the labelled rows is unreadable.
    """

    label_code: Annotated[str | None, typer.Option(metavar="CODE")] = None
    max_reject_rate: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.05

    def check_rejected(self, path: Path, rejected: int, read: int) -> None:
        """Exit with code 2 if the share of unreadable label rows exceeds `max_reject_rate`."""
        if rejected <= self.max_reject_rate * read:
            return
        finding = f"{path}: {rejected:,} of {read:,} rows ({rejected / read:.1%}) are unreadable"
        limit = f"limit {self.max_reject_rate:.1%}, set by --max-reject-rate"
        errors.message(f"{finding} and were excluded from the results ({limit})")
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
            raise ConfigError(f"{flag} {name}=...: {name} is given twice; keep only one")
        try:
            values[name] = parse(value)
        except ConfigError as error:
            # do not show the value, which may be a password
            raise ConfigError(f"{flag} {name}=...: the value is not valid YAML ({error}); quote it") from error
    return values


def read_families(path: Path) -> dict[str, list[str]]:
    """Load families of judges or models from a YAML or JSON file."""
    families = read_yaml(path)
    if not isinstance(families, dict):
        raise ConfigError(f"{path}: expected family: [name, ...] for each family")
    for family, names in families.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"{path}: family {family}: expected a list of strings; quote numeric names")
    return {str(family): names for family, names in families.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options for commands that write a run file.

    Options:
        limit: Judge only the first N samples.
        retry: Which rows to retry on a rerun: rows with engine errors, or all failed rows.
        overwrite: Delete OUT and its manifest, and start over.
        max_failure_rate: Exit with code 2 if more than this share of the rows fails.
    """

    limit: Annotated[int | None, typer.Option(min=0)] = None
    retry: Literal["engine", "failed"] = "engine"
    overwrite: bool = False
    max_failure_rate: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.05

    def job(self, inputs: Sequence[str], out: str, **more: Any) -> "BatchJob":
        """Create a job from these options; `more` sets the other fields."""
        from judgelm.runs.batch import BatchJob

        own = {name: getattr(self, name) for name in ("limit", "retry", "overwrite")}
        return BatchJob(inputs=tuple(inputs), out=out, **own, **more)


References = Annotated[str | None, typer.Option(help="File with references, keyed by id.", rich_help_panel=_JUDGE)]
BothOrders = Annotated[bool, typer.Option(help="Judge each pair in both orders.", rich_help_panel=_JUDGE)]
Temperature = Annotated[
    float, typer.Option(min=0.0, help="Sampling temperature; 0 means greedy.", rich_help_panel=_JUDGE)
]
Seed = Annotated[int, typer.Option(help="Sampling seed for temperatures above 0.", rich_help_panel=_JUDGE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeFlags:
    """Options for pair mode, and for other modes with fields of the same names.

    Judging:
        order_rule: How to combine the two orders: mean score, given (the first order), tie (if the orders conflict),
            or probability.
        tie_threshold: Count a pair as a tie if P(first better) is this close to 0.5. Used by the order rule probability
            and the readings letters, yes-no, and grade. Default: 0.05 for score lines, otherwise set by the judge's
            card or 0.
        criterion: Criterion to judge by, in your own words (readings letters, yes-no, and grade).
        accept_one_order: If one order fails, use the verdict from the other order.
        reference: Whether to show references to the judge: auto (if available), use (always), or ignore.
        max_tokens: Maximum number of tokens in the score line.
        votes: Sample a reasoning judge N times (default temperature: 0.7). Majority voting stops once the result is
            decided.
        vote_rule: Combine votes by majority or by mean probability. Grades are always averaged.

    Probabilities, reasons and retries:
        distribution: Compute P(first better) and expected scores from all score lines. Default: on for pairs with the
            transformers engine.
        reasons: Which verdicts to explain: none, all, close, or flips (the two orders disagree).
        close_threshold: A verdict is close if P(first better) is within this distance of 0.5.
        reason_tokens: Maximum number of tokens per reason.
        retry_unparseable: Retry unparseable replies, constrained to a score line or label.
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
    """Return True if a parameter is set neither on the command line nor in a config file."""
    return (source := context.get_parameter_source(name)) is None or source.name == "DEFAULT"


def refuse(context: typer.Context, names: Iterable[str], finding: str) -> None:
    """Raise an error if one of these parameters is set."""
    if given := [name for name in names if not is_default(context, name)]:
        raise ConfigError(f"--{given[0].rstrip('_').replace('_', '-')} {finding}")


def mode_options(context: typer.Context, mode_args: Sequence[str]) -> dict[str, Any]:
    """Return the mode options set on the command line or in a config file."""
    flags = {flag.name: context.params[flag.name] for flag in fields(ModeFlags) if not is_default(context, flag.name)}
    arguments = parse_pairs(mode_args, "--mode-arg")
    if twice := sorted(flags.keys() & arguments.keys()):
        name = twice[0]
        raise ConfigError(f"--mode-arg {name}=... and --{name.replace('_', '-')} set the same option; keep only one")
    return flags | arguments


Labels = Annotated[
    Path,
    typer.Option(
        "--labels", "-l", metavar="FILE", help="File with labels or teacher scores: JudgeLM, PandaLM, or plain rows."
    ),
]
LabelChoice = Annotated[
    Literal["auto", "with", "without"],
    typer.Option(help="Which label to use if rows have labels with and without a reference; auto follows the run."),
]
Parser = Annotated[
    Literal["judgelm", "original", "anywhere"],
    typer.Option(
        help="Parser for pred_text. original: the JudgeLM authors' parser, also used for labels. anywhere: accept "
        "scores anywhere in the reply, and count them separately."
    ),
]
Scale = Annotated[str, typer.Option(help="Score range accepted in pred_text: LOW-HIGH, or any.")]
Control = Annotated[
    Literal["length", "length,style"] | None,
    typer.Option(help="Control for answer length, or for length and Markdown style."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringFlags(LabelOptions):
    """Options shared by `eval` and `report`, except label options.

    Options:
        judgments: Run file, JudgeLM output (pred_text), or PandaLM results.
        reversed_: A separate run with the answers swapped.
        protocol: Scoring protocol; pandalm counts failures and conflicting orders as ties.
        failures: How to treat failures in the headline figure; the tables show all results.
        order_rule: How to combine the two orders. Default: the run's rule, otherwise given (tie for pandalm).
        label_order_rule: How to combine the two orders if --labels is a run file.
        tie_threshold: For rule probability, count a pair as a tie if P is this close to 0.5. Default: the run's
            threshold.
        bootstrap: Number of bootstrap resamples per interval.
        seed: Bootstrap seed.
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
    seed: Annotated[int, typer.Option(min=0)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringOptions(ScoringFlags):
    """Options for comparing judgments with labels."""

    labels: Labels

    def check_files(self) -> None:
        """Check that the files exist, are not swapped, and have a known format."""
        from judgelm.data.samples import SampleStream
        from judgelm.runs.recorded_rows import recorded_reading
        from judgelm.serialization import is_judgment_row

        if is_stream(self.judgments) or is_stream(self.labels):
            return
        reading, _ = recorded_reading(str(self.labels), self.reading, [self.judgments], None)
        first, label = first_row(str(self.judgments)), first_row(str(self.labels), sheet=reading.sheet)
        if label is not None and is_judgment_row(label.data):
            if first is not None and not is_judgment_row(first.data):
                finding = f"{self.labels} is a run file, but {self.judgments} is not; swap them"
                raise InputError(f"{finding}: {self.labels} --labels {self.judgments}")
        else:
            SampleStream([str(self.labels)], on_reject=lambda reject: None, label_rows=True, reading=reading)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOutput:
    """Output and resampling options for studies.

    Options:
        out: Output folder for the page, tables, and figures.
        overwrite: Replace an existing study in this folder.
        seed: Random seed.
        bootstrap: Number of bootstrap resamples per interval.
    """

    out: Annotated[Path, typer.Option(metavar="FOLDER")]
    overwrite: bool = False
    seed: Annotated[int, typer.Option(min=0)] = 0
    bootstrap: Annotated[int, typer.Option(min=100)] = 2000
    json: JsonOut = None

    @property
    def resampling(self) -> "Resampling":
        """Return the seed and the number of resamples."""
        from judgelm.metrics.resampling import Resampling  # statsmodels takes seconds to load

        return Resampling(seed=self.seed, resamples=self.bootstrap)

    def write(self, result: "StudyResult") -> None:
        """Write a study to its folder and print its findings."""
        from judgelm.reports.study import table_notes, write_study  # matplotlib takes seconds to load

        paths = write_study(result, self.out, overwrite=self.overwrite)
        console.messages(result.findings)
        console.messages([*result.warnings, *table_notes(result)], label="note:", style="bold yellow")
        if result.counts:
            console.message(", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in result.counts.items()))
        console.message(result.protocol)
        console.message(f"wrote {len(paths)} files to {self.out}; the page is {paths[0]}")
        write_json(self.json, result.to_json())
        if self.json is not None and not is_stdout(self.json):
            console.message(f"wrote all numbers to {self.json}")


def named_run(text: str) -> tuple[str, Path]:
    """Split `NAME=FILE`; the name defaults to the file's stem."""
    name, equals, path = text.partition("=")
    return (name, Path(path)) if equals and not Path(text).exists() else (Path(text).stem, Path(text))
