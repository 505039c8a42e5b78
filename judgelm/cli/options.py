"""The options that commands share; light, so that help comes at once."""

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from judgelm.cli import completion
from judgelm.cli.console import EXIT_FAILURES, console, load_config
from judgelm.cluster.plan import Cluster
from judgelm.engines.catalog import ENGINES
from judgelm.errors import ConfigError
from judgelm.jsonl import check_no_input
from judgelm.yaml_files import parse_yaml

if TYPE_CHECKING:
    from judgelm.data.samples import Reading

JUDGING, _MODEL, _CLUSTER = "How to judge", "Model and engine", "Several GPUs or machines"
_MOST_NUMBER = 2**63
_DTYPES = ("auto", "float32", "bfloat16", "float16")
_PAIR_EXAMPLES = {"--engine-arg": "gpu_memory_utilization=0.9", "--mode-arg": "k=5", "--set": "train_data=[rows.jsonl]"}

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
class JudgeOptions:
    """The options of a judge and its engine, for every command that loads one."""

    engine: EngineName = "auto"
    template: Annotated[
        str | None,
        typer.Option(
            help="Prompt template; default: the model card's.",
            rich_help_panel=JUDGING,
            autocompletion=completion.templates,
        ),
    ] = None
    card: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The released judge that the model is (judgelm judges); default: recognised by hub id or folder.",
            rich_help_panel=JUDGING,
            autocompletion=completion.card_names,
        ),
    ] = None
    ignore_card: Annotated[
        bool,
        typer.Option(
            "--ignore-card",
            metavar="",
            help="Use another template than the model was trained with.",
            rich_help_panel=JUDGING,
        ),
    ] = False
    engine_arg: EngineArgs = None
    adapter: Annotated[str | None, typer.Option(help="PEFT adapter put on the model.", rich_help_panel=_MODEL)] = None
    dtype: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(_DTYPES)}; auto is the checkpoint's, or on a CPU float32 where that is faster.",
            rich_help_panel=_MODEL,
            autocompletion=lambda: list(_DTYPES),
        ),
    ] = "auto"
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:0, ...", rich_help_panel=_MODEL)] = "auto"
    quantization: Annotated[
        str | None, typer.Option(help="4bit or 8bit through bitsandbytes; int8 on x86 CPUs.", rich_help_panel=_MODEL)
    ] = None
    revision: Annotated[str | None, typer.Option(help="Hub revision.", rich_help_panel=_MODEL)] = None
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(min=1, help="Maximum tokens in one forward pass.", rich_help_panel=_MODEL)
    ] = None
    max_num_seqs: Annotated[int, typer.Option(min=1, help="Maximum sequences in flight.", rich_help_panel=_MODEL)] = 256
    max_model_len: Annotated[
        int | None, typer.Option(min=1, help="Limit the model's context window.", rich_help_panel=_MODEL)
    ] = None
    thinking: Annotated[
        Literal["on", "off", "absent"] | None,
        typer.Option(
            "--thinking",
            help="Ask a reasoning model to think before it replies, or not to; absent tells its chat template nothing. "
            "Default: the model card's.",
            rich_help_panel=_MODEL,
        ),
    ] = None
    thinking_tokens: Annotated[
        int,
        typer.Option(
            min=1,
            help="Maximum tokens of thinking, beside the reply's own; at most half of the model's window.",
            rich_help_panel=_MODEL,
        ),
    ] = 4096
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code", metavar="", help="Run Python code that comes with the model.", rich_help_panel=_MODEL
        ),
    ] = False

    def judge_arguments(self) -> dict[str, Any]:
        """Arguments of `judgelm.Judge`, without the engine's name.

        Raises:
            ConfigError: an `--engine-arg` that is no KEY=VALUE.
        """
        names = (field.name for field in fields(self) if field.name not in ("engine", "engine_arg"))
        return {name: getattr(self, name) for name in names} | {
            "engine_args": parse_pairs(self.engine_arg or (), "--engine-arg")
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryOptions:
    """The check of the judge before its first judgment, for `judgelm-batch` and `judgelm serve`."""

    canary: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="First check the judge against this file of judgelm canary record.",
            rich_help_panel=_MODEL,
        ),
    ] = None
    on_drift: Annotated[
        Literal["refuse", "warn"],
        typer.Option(help="For --canary: end with exit code 3, or go on with a warning.", rich_help_panel=_MODEL),
    ] = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The workers that judge on several GPUs or machines, for `judgelm-batch` and `judgelm serve`."""

    gpus: Annotated[
        int | None, typer.Option(min=1, help="Judge on N GPUs of this machine at once.", rich_help_panel=_CLUSTER)
    ] = None
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Judge on the workers of a Ray cluster: auto (the one running here, or RAY_ADDRESS), HOST:PORT, or "
            "local (started with the command).",
            rich_help_panel=_CLUSTER,
        ),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of workers; default: one per GPU, or per node without GPUs.", rich_help_panel=_CLUSTER
        ),
    ] = None
    worker_cores: Annotated[
        int | None, typer.Option(min=1, help="CPU cores (and threads) of each worker.", rich_help_panel=_CLUSTER)
    ] = None

    def cluster(self) -> Cluster | None:
        """The workers that are asked for; None where this process judges.

        Raises:
            ConfigError: workers without a cluster, or options that do not fit each other.
        """
        if self.ray is None and self.gpus is None:
            if self.workers is not None or self.worker_cores is not None:
                raise ConfigError("--workers and --worker-cores are of a cluster; add --ray local for this machine")
            return None
        return Cluster(address=self.ray or "local", workers=self.workers, gpus=self.gpus, cores=self.worker_cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOptions:
    """The option of every command that reads rows."""

    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME=COLUMN",
            help="The file's own name of a column, such as question=prompt. Repeatable.",
        ),
    ] = None

    @property
    def reading(self) -> "Reading":
        """Column names and label code that the options state.

        Raises:
            ConfigError: an option has another form, or names a column twice.
        """
        from judgelm.data.samples import Reading

        return Reading(columns=parse_columns(self.column or ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelOptions(ColumnOptions):
    """The options of every command that reads labelled rows."""

    label_code: Annotated[
        str | None,
        typer.Option(metavar="CODE", help="Meaning of the label values, such as 0=first,1=tie,2=second."),
    ] = None
    max_reject_rate: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Exit with 2 above this share of labelled rows that cannot be read."),
    ] = 0.05

    @property
    def reading(self) -> "Reading":
        """Column names and label code that the options state.

        Raises:
            ConfigError: an option has another form, or names a column twice.
        """
        from judgelm.data.samples import Reading
        from judgelm.data.sources.codes import parse_label_code

        code = None if self.label_code is None else parse_label_code(self.label_code)
        return Reading(columns=parse_columns(self.column or ()), label_code=code)

    def check_rejected(self, path: Path, rejected: int, read: int) -> None:
        """End the command with exit code 2 where too many rows of labels could not be read.

        Raises:
            Exit: the share is above `max_reject_rate`.
        """
        if rejected <= self.max_reject_rate * read:
            return
        console.print(
            f"{path}: {rejected:,} of {read:,} rows ({rejected / read:.1%}) could not be read (limit "
            f"{self.max_reject_rate:.1%}, --max-reject-rate); the figures rest on the others alone",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(EXIT_FAILURES)


def parse_columns(options: Sequence[str]) -> dict[str, str]:
    """`["question=prompt"]` as the layout's name -> the file's own name.

    Raises:
        ConfigError: an option has another form, or two name one column.
    """
    columns: dict[str, str] = {}
    for option in options:
        known, equals, own = (part.strip() for part in option.partition("="))
        if not equals or not known or not own:
            raise ConfigError(f"--column {option}: expected NAME=COLUMN, such as question=prompt")
        if known in columns or own in columns.values():
            raise ConfigError(f"--column {option}: {known} or {own} is named twice; name each once")
        columns[known] = own
    return columns


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is a dataclass by the dataclass's fields, as options of the command."""
    own = inspect.signature(command).parameters
    groups: dict[str, Any] = {
        name: parameter.annotation for name, parameter in own.items() if is_dataclass(parameter.annotation)
    }
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name in own
        for parameter in (inspect.signature(groups[name]).parameters.values() if name in groups else (own[name],))
    ]

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


_OUTPUTS = ("out", "json_out", "json", "request_log")
"""Parameters that name a file to write; whatever else names a file is read."""


class Command(TyperCommand):
    """A command that never writes over what it reads."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command, unless a file to write is one to read or another one to write.

        Raises:
            ConfigError: it is.
        """
        from judgelm.runs.run_files import run_paths  # help does not wait for it

        named = {name: list(_texts(value)) for name, value in ctx.params.items()}
        outputs = [path for name in _OUTPUTS for path in named.get(name, ())]
        inputs = [path for name, paths in named.items() if name not in _OUTPUTS for path in paths]
        read = {path for path in inputs if path == "-" or os.path.isfile(path)}
        read |= {str(run_paths(Path(path))[1]) for path in read - {"-"}}  # a run's manifest is read with the run
        for output in outputs:
            written = [output] if output == "-" else [str(path) for path in run_paths(Path(output))]
            check_no_input(written, read)
            read |= set(written) - {"-"}
        return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line and the configuration file; numbers that are not finite are refused.

        Raises:
            typer.BadParameter: a number is NaN, infinite or beyond 64 bits.
        """
        rest = super().parse_args(ctx, args)
        for name, value in ctx.params.items():
            if isinstance(value, int | float) and not -_MOST_NUMBER < value < _MOST_NUMBER:
                flag = f"--{name.replace('_', '-')}"
                raise typer.BadParameter(f"{flag} is {str(value)[:40]}; give a finite number below 2**63")
        return rest


def _texts(value: object) -> Iterator[str]:
    """The texts in a parameter's value; of `NAME=FILE` both the whole and the file."""
    if isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, str | Path) and str(value):
        yield str(value)
        if (file := str(value).partition("=")[2]) and os.path.exists(file):  # False for names that no file can have
            yield file


def parse_pairs(pairs: Sequence[str], flag: str) -> dict[str, Any]:
    """`["gpu_memory_utilization=0.9", "lora={rank: 8}"]` -> names and values; a value is YAML, as in a config file.

    Args:
        pairs: from the command line.
        flag: the option that they were given with, for errors.

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
            values[name] = parse_yaml(value)
        except ConfigError as error:
            # without the value, which may hold a password
            raise ConfigError(f"{flag} {name}=...: the value is no YAML ({error}); quote it") from error
    return values
