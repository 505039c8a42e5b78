"""The options that commands share; light, so that help comes at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from judgelm.cli.console import EXIT_FAILURES, JsonOut, console, is_stdout, load_config, write_json
from judgelm.cluster.plan import RayCluster
from judgelm.engines.catalog import ENGINES
from judgelm.errors import ConfigError, InputError
from judgelm.modes import CARD_FIELDS, MODES, mode_type
from judgelm.parsing.scores import LabelRule, OrderRule
from judgelm.yaml_files import parse_yaml, read_yaml

if TYPE_CHECKING:
    from judgelm.data.samples import Reading
    from judgelm.judges.resolve import ResolvedJudge
    from judgelm.metrics.resampling import Resampling
    from judgelm.studies.result import StudyResult


def modes() -> list[str]:
    """Ways of judging."""
    return list(MODES)


def mode_args(ctx: typer.Context) -> list[str]:
    """The options of the mode that the line names, each up to its `=`."""
    name = ctx.params.get("mode") or "pair"
    names = [field.name for field in fields(cast(Any, mode_type(name)))] if name in MODES else []
    return [f"{name}=" for name in names if name not in CARD_FIELDS]


def templates() -> list[str]:
    """Prompt templates for pairs."""
    from judgelm.prompts.catalog import TEMPLATES

    return list(TEMPLATES)


def benchmarks() -> list[str]:
    """Published benchmarks that can be imported."""
    from judgelm.data.sources import registry

    return list(registry.benchmarks())


def judge_names() -> list[str]:
    """Judges that are known by name."""
    from judgelm.judges.cards import card_names

    return card_names()


def card_names() -> list[str]:
    """Cards of released judges."""
    from judgelm.judges.released import released_names

    return released_names()


JUDGING, _MODEL = "How to judge", "Model and engine"
_PAIR_EXAMPLES = {
    "--engine-arg": "gpu_memory_utilization=0.9",
    "--mode-arg": "k=5",
    "--set": "train_data=[rows.jsonl]",
    "--sibling": "MODEL=JUDGE",
    "--own": "MODEL=JUDGE",
}

Config = Annotated[Path | None, typer.Option(callback=load_config, is_eager=True, help="YAML file of these options.")]
EngineName = Annotated[
    str,
    typer.Option(
        help=f"auto, {', '.join(ENGINES)}.", rich_help_panel=_MODEL, autocompletion=lambda: ["auto", *ENGINES]
    ),
]
EngineArgs = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-arg",
        metavar="KEY=VALUE",
        help="An argument that only this engine knows; the value is YAML. Repeatable.",
        rich_help_panel=_MODEL,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """The options of a judge's model and engine, for every command that loads one.

    How to judge:
        ignore_card: Use another template than the model was trained with.

    Model and engine:
        adapter: PEFT adapter put on the model.
        dtype: auto, float32, bfloat16, float16; auto is the checkpoint's, or on a CPU float32 where that is faster.
        device: auto, cpu, cuda, cuda:0, ...
        quantization: 4bit or 8bit through bitsandbytes.
        revision: Hub revision.
        max_num_batched_tokens: Maximum tokens in one forward pass.
        max_num_seqs: Maximum sequences in flight.
        max_model_len: Limit the model's context window.
        thinking: Ask a reasoning model to think before it replies, or not to; absent tells its chat template nothing.
            Default: the model card's.
        thinking_tokens: Maximum tokens of thinking, beside the reply's own; at most half of the model's window.
        trust_remote_code: Run Python code that comes with the model.
    """

    engine: EngineName = "auto"
    ignore_card: bool = False
    engine_arg: EngineArgs = None
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
        """Arguments of `judgelm.Judge`, without the engine's name.

        Raises:
            ConfigError: an `--engine-arg` that is no KEY=VALUE.
        """
        names = (field.name for field in fields(self) if field.name not in ("engine", "engine_arg"))
        return {name: getattr(self, name) for name in names} | {
            "engine_args": parse_pairs(self.engine_arg or (), "--engine-arg")
        }

    def resolve(self, model: str | None, engine: str | None = None) -> "ResolvedJudge":
        """Return the judge that these options mean, as `judgelm.judges.resolve.resolve` does.

        `engine` replaces the option's.
        """
        from judgelm.judges.resolve import resolve

        card: str | None = getattr(self, "card", None)  # an option of JudgeOptions only
        return resolve(model, engine or self.engine, adapter=self.adapter, card=card, ignore_card=self.ignore_card)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions(EngineFlags):
    """The options of a judge and its engine.

    How to judge:
        reading: How the judge is read: by the scores that it writes, or by the probabilities of the answers' letters,
            of yes and no, or of grades, or by the number of a reward model; default: the model card's, else yes-no.
        template: Prompt template; default: the model card's, else that of the reading.
        card: The released judge that the model is (judgelm judges); default: recognised by hub id or folder.
    """

    reading: Literal["score-line", "letters", "yes-no", "grade", "reward"] | None = None
    template: Annotated[str | None, typer.Option(autocompletion=templates)] = None
    card: Annotated[str | None, typer.Option(metavar="NAME", autocompletion=card_names)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The workers that judge on several GPUs or machines, for `judgelm-batch` and `judgelm serve`.

    Several GPUs or machines:
        gpus: Judge on N GPUs of this machine at once.
        ray: Judge on the workers of a Ray cluster: auto (the one running here, or RAY_ADDRESS), HOST:PORT, or local
            (started with the command).
        workers: Number of workers; default: one per GPU, or per node without GPUs.
        worker_cores: CPU cores (and threads) of each worker.
    """

    gpus: Annotated[int | None, typer.Option(min=1)] = None
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS")] = None
    workers: Annotated[int | None, typer.Option(min=1)] = None
    worker_cores: Annotated[int | None, typer.Option(min=1)] = None

    def cluster(self) -> RayCluster | None:
        """The workers that are asked for; None where this process judges.

        Raises:
            ConfigError: workers without a cluster, or options that do not fit each other.
        """
        if self.ray is None and self.gpus is None:
            if self.workers is not None or self.worker_cores is not None:
                raise ConfigError("--workers and --worker-cores are of a cluster; add --ray local for this machine")
            return None
        return RayCluster(address=self.ray or "local", workers=self.workers, gpus=self.gpus, cores=self.worker_cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOptions:
    """The option of every command that reads rows.

    Options:
        column: The file's own name of a column, such as question=prompt. Repeatable. A run remembers it.
        sheet: Name or number of an Excel workbook's sheet. A run remembers it.
    """

    column: Annotated[list[str] | None, typer.Option(metavar="NAME=COLUMN")] = None
    sheet: Annotated[str | None, typer.Option(metavar="SHEET")] = None

    @property
    def reading(self) -> "Reading":
        """Column names, sheet and label code that the options state.

        Raises:
            ConfigError: an option has another form, or names a column twice.
        """
        from judgelm.data.samples import Reading, parse_columns

        return Reading(columns=parse_columns(self.column or ()), sheet=self.sheet)

    def reading_of(self, path: Path, *runs: Path, beside: Path | None = None, quiet: bool = False) -> "Reading":
        """As `reading`, with the column names and the sheet that a run remembers where the file has them.

        Args:
            path: a file of rows that these runs judged, or of their labels.
            runs: run files.
            beside: another file that the same options are for; each takes the columns that it has.
            quiet: do not print what is taken from the runs.

        Raises:
            InputError: the file cannot be read, or the runs name one field differently.
        """
        from judgelm.runs.recorded_rows import recorded_reading

        reading, note = recorded_reading(str(path), self.reading, runs, None if beside is None else str(beside))
        if note and not quiet:
            console.message(note)
        return reading


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelOptions(ColumnOptions):
    """The options of every command that reads labelled rows.

    Options:
        label_code: Meaning of the label values, such as 0=first,1=tie,2=second.
        max_reject_rate: Exit with 2 above this share of labelled rows that cannot be read.
    """

    label_code: Annotated[str | None, typer.Option(metavar="CODE")] = None
    max_reject_rate: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.05

    @property
    def reading(self) -> "Reading":
        """Column names, sheet and label code that the options state."""
        from judgelm.data.label_codes import parse_label_code
        from judgelm.data.samples import Reading, parse_columns

        code = None if self.label_code is None else parse_label_code(self.label_code)
        return Reading(columns=parse_columns(self.column or ()), label_code=code, sheet=self.sheet)

    def check_rejected(self, path: Path, rejected: int, read: int) -> None:
        """End the command with exit code 2 where too many rows of labels could not be read.

        Raises:
            Exit: the share is above `max_reject_rate`.
        """
        if rejected <= self.max_reject_rate * read:
            return
        console.message(
            f"{path}: {rejected:,} of {read:,} rows ({rejected / read:.1%}) could not be read (limit "
            f"{self.max_reject_rate:.1%}, --max-reject-rate); the figures rest on the others alone"
        )
        raise typer.Exit(EXIT_FAILURES)


def parse_pairs(pairs: Sequence[str], flag: str, *, parse: Callable[[str], Any] = parse_yaml) -> dict[str, Any]:
    """`["gpu_memory_utilization=0.9", "lora={rank: 8}"]` -> names and values; a value is YAML, as in a config file.

    Args:
        pairs: from the command line.
        flag: the option that they were given with, for errors.
        parse: makes the value of its text.

    Raises:
        ConfigError: no `=`, no name, no YAML behind it, or a name that comes twice.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"{flag} {pair}: expected KEY=VALUE, such as {_PAIR_EXAMPLES[flag]}")
        if name in values:
            raise ConfigError(f"{flag} {name}=...: {name} is given twice; keep one of them")
        try:
            values[name] = parse(value)
        except ConfigError as error:
            # without the value, which may hold a password
            raise ConfigError(f"{flag} {name}=...: the value is no YAML ({error}); quote it") from error
    return values


def read_families(path: Path) -> dict[str, list[str]]:
    """Families of judges or models from YAML or JSON.

    Raises:
        ConfigError: the file cannot be read, or is no mapping from family to names.
    """
    families = read_yaml(path)
    if not isinstance(families, dict):
        raise ConfigError(f"{path}: expected family: [name, ...] for each family")
    for family, names in families.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"{path}: family {family}: expected a list of names, numbers in quotes")
    return {str(family): names for family, names in families.items()}


Limit = Annotated[int | None, typer.Option(min=0, help="Judge only the first N samples.")]
Retries = Annotated[Literal["engine", "failed"], typer.Option(help="Earlier failures that a rerun judges again.")]
Overwrite = Annotated[bool, typer.Option(help="Start over, deleting OUT and its manifest.")]
MaxFailureRate = Annotated[float, typer.Option(min=0.0, max=1.0, help="Exit with code 2 above this share of failures.")]
References = Annotated[str | None, typer.Option(help="File with references by id.", rich_help_panel=JUDGING)]
BothOrders = Annotated[bool, typer.Option(help="Judge each pair in both orders.", rich_help_panel=JUDGING)]
Temperature = Annotated[
    float, typer.Option(min=0.0, help="Sampling temperature; 0 is greedy.", rich_help_panel=JUDGING)
]
Seed = Annotated[int, typer.Option(help="Seed for temperature above 0.", rich_help_panel=JUDGING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeFlags:
    """Flags that are fields of the pair mode, and of the other modes that have a field of that name.

    How to judge:
        order_rule: Orders into one verdict: by the mean score, by the given order, a conflict is a tie, or by P(first
            better).
        tie_threshold: For probability, letters, yes-no and grade: maximum distance of P(first better) from 0.5 of a
            tie. Default: 0.05 for score lines, else the model card's or 0.
        criterion: What answers are judged by, in your words (letters, yes-no, grade).
        accept_one_order: If one order fails, use the verdict of the other.
        reference: Show references: if available, always, never.
        max_tokens: Maximum tokens of the score line.
        votes: Ask a judge that reasons first so many times, at temperature 0.7 where none is given; by majority no
            oftener than can change the verdict.
        vote_rule: Votes into one verdict: the most frequent, or by the mean of their probabilities (1, 0.5 or 0
            without one). Grades are averaged.

    Probabilities, reasons and retries:
        distribution: Compute the probability of every score line: P(first better), expected scores. Default: for pairs
            on the transformers engine, which reads them all at once; --no-distribution leaves it out.
        reasons: Explain all judgments, those close to a tie, or those whose orders disagree.
        close_threshold: For close: maximum distance of P(first better) from 0.5.
        reason_tokens: Maximum tokens of a reason, within the judge's window.
        retry_unparseable: Retry unparseable replies: held to the grammar of score lines (not every engine can); in
            modes with labels for the more probable one.
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
    distribution: Annotated[
        bool | None, typer.Option("--distribution/--no-distribution", metavar="", show_default=False)
    ] = None
    reasons: Literal["none", "all", "close", "flips"] = "none"
    close_threshold: Annotated[float, typer.Option(min=0.0, max=0.5)] = 0.1
    reason_tokens: Annotated[int, typer.Option(min=1)] = 512
    retry_unparseable: bool = False


def is_default(context: typer.Context, name: str) -> bool:
    """True if neither the command line nor a config file sets a parameter."""
    return (source := context.get_parameter_source(name)) is None or source.name == "DEFAULT"


def mode_options(context: typer.Context, mode_args: Sequence[str]) -> dict[str, Any]:
    """The options of the mode that a command line or a config file sets; defaults are left out.

    Raises:
        ConfigError: an argument of the mode that is no KEY=VALUE, or that a flag gives as well.
    """
    flags = {flag.name: context.params[flag.name] for flag in fields(ModeFlags) if not is_default(context, flag.name)}
    arguments = parse_pairs(mode_args, "--mode-arg")
    if twice := sorted(flags.keys() & arguments.keys()):
        name = twice[0]
        raise ConfigError(f"--mode-arg {name}=... and --{name.replace('_', '-')} set the same option; keep one of them")
    return flags | arguments


LabelChoice = Literal["auto", "with", "without"]


ParserName = Literal["judgelm", "original", "anywhere"]


LabelsOption = Annotated[
    Path,
    typer.Option("--labels", "-l", metavar="FILE", help="Labels or teacher scores: JudgeLM, PandaLM or plain rows."),
]


LabelReferenceOption = Annotated[
    LabelChoice,
    typer.Option(help="Which of two labels counts, of rows judged with and without reference; auto asks the manifest."),
]


ParserOption = Annotated[
    ParserName,
    typer.Option(
        help="Reads pred_text; original: the JudgeLM authors' own parser, which then reads the labels' text too; "
        "anywhere: scores wherever the reply states them, counted apart."
    ),
]


ScaleOption = Annotated[str, typer.Option(help="Scores accepted in pred_text: LOW-HIGH, or any.")]


ControlOption = Annotated[
    Literal["length", "length,style"] | None,
    typer.Option(help="Take the effect of length, or of length and Markdown, out of the judge's verdicts."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringFlags(LabelOptions):
    """The options of `eval` and `report`, without the labels.

    Options:
        judgments: A run file of judgelm-batch, JudgeLM outputs (pred_text), or PandaLM results.
        reversed_: Judgments of the swapped pairs, from a run of their own.
        protocol: pandalm: failures count as ties, and so does a conflict of two orders.
        failures: Treatment of failures that headlines (both are shown).
        order_rule: Two orders into one label; default: given, of runs that chose no rule of their own (pandalm: tie).
            probability needs a --distribution run.
        label_order_rule: Two orders into one label, where --labels is a run of judgelm-batch; default: its verdicts.
        tie_threshold: Under probability: a tie is at most this far from 0.5; default: the run's.
        bootstrap: Resamples behind each 95 % interval.
        seed: Seed of the resampling.
    """

    judgments: Annotated[Path, typer.Argument()]
    reversed_: Annotated[Path | None, typer.Option("--reversed")] = None
    protocol: Literal["judgelm", "pandalm"] = "judgelm"
    failures: Literal["excluded", "as_tie"] | None = None
    order_rule: LabelRule | None = None
    label_order_rule: LabelRule = "as_judged"
    tie_threshold: Annotated[float | None, typer.Option(min=0.0, max=0.5)] = None
    label_reference: LabelReferenceOption = "auto"
    parser: ParserOption = "judgelm"
    scale: ScaleOption = "1-10"
    control: ControlOption = None
    bootstrap: Annotated[int, typer.Option(min=100)] = 2000
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringOptions(ScoringFlags):
    """The options of a comparison with labels."""

    labels: LabelsOption

    def check_files(self) -> None:
        """Refuse files that are missing, exchanged or of no known format, before statistics are loaded.

        Raises:
            InputError: names the file and the way out.
        """
        from judgelm.data.readers.files import first_row
        from judgelm.data.readers.inputs import is_stream
        from judgelm.data.samples import SampleStream
        from judgelm.runs.serialization import is_judgment_row

        if is_stream(self.judgments) or is_stream(self.labels):
            return
        reading = self.reading_of(self.labels, self.judgments, quiet=True)
        first, label = first_row(str(self.judgments)), first_row(str(self.labels), sheet=reading.sheet)
        if label is not None and is_judgment_row(label.data):
            if first is not None and not is_judgment_row(first.data):
                finding = f"{self.labels} is a run of judgelm-batch and {self.judgments} is none; exchange them"
                raise InputError(f"{finding}: {self.labels} --labels {self.judgments}")
        else:
            SampleStream([str(self.labels)], on_reject=lambda reject: None, label_rows=True, reading=reading)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOutput:
    """The values of the shared options: where a study is written, and how its intervals are drawn.

    Options:
        out: Folder to write: page, tables, figures.
        overwrite: Replace the study that the folder holds.
        seed: Seed of the resampling and of all other random draws.
        bootstrap: Resamples behind each interval.
    """

    out: Annotated[Path, typer.Option(metavar="FOLDER")]
    overwrite: bool = False
    seed: int = 0
    bootstrap: Annotated[int, typer.Option(min=100)] = 2000
    json: JsonOut = None

    @property
    def resampling(self) -> "Resampling":
        """Seed and number of resamples of every interval."""
        from judgelm.metrics.resampling import Resampling  # statsmodels takes seconds to load

        return Resampling(seed=self.seed, resamples=self.bootstrap)

    def write(self, result: "StudyResult") -> None:
        """Write a study into its folder and print its findings.

        Findings, warnings, counts and paths go to standard error: standard output holds nothing but `--json -`.

        Raises:
            RunError: the folder holds a study already, or a file cannot be written.
        """
        from judgelm.reports.study import table_notes, write_study  # matplotlib takes seconds to load

        paths = write_study(result, self.out, overwrite=self.overwrite)
        for sentence in result.findings:
            console.message(sentence)
        for sentence in (*result.warnings, *table_notes(result)):
            console.message(sentence, label="note:", style="bold yellow")
        if result.counts:
            console.message(", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in result.counts.items()))
        console.message(result.protocol)
        console.message(f"{len(paths)} files in {self.out}; the page is {paths[0]}")
        write_json(self.json, result.to_json())
        if self.json is not None and not is_stdout(self.json):
            console.message(f"all numbers in {self.json}")


def named_run(text: str) -> tuple[str, Path]:
    """`NAME=FILE`, where the name may be left out: it is then the file's."""
    name, equals, path = text.partition("=")
    return (name, Path(path)) if equals and not Path(text).exists() else (Path(text).stem, Path(text))
