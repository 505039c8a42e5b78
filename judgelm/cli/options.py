"""The options that commands share; light, so that help comes at once."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from judgelm.cli import completion
from judgelm.cli.console import EXIT_FAILURES, console, load_config
from judgelm.cluster.plan import RayCluster
from judgelm.engines.catalog import ENGINES
from judgelm.errors import ConfigError
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
    """The options of a judge and its engine, for every command that loads one.

    How to judge:
        template: Prompt template; default: the model card's.
        card: The released judge that the model is (judgelm judges); default: recognised by hub id or folder.
        ignore_card: Use another template than the model was trained with.

    Model and engine:
        adapter: PEFT adapter put on the model.
        device: auto, cpu, cuda, cuda:0, ...
        quantization: 4bit or 8bit through bitsandbytes; int8 on x86 CPUs.
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
    template: Annotated[str | None, typer.Option(autocompletion=completion.templates)] = None
    card: Annotated[str | None, typer.Option(metavar="NAME", autocompletion=completion.card_names)] = None
    ignore_card: bool = False
    engine_arg: EngineArgs = None
    adapter: str | None = None
    dtype: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(_DTYPES)}; auto is the checkpoint's, or on a CPU float32 where that is faster.",
            autocompletion=lambda: list(_DTYPES),
            rich_help_panel="Model and engine",
        ),
    ] = "auto"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryOptions:
    """The check of the judge before its first judgment, for `judgelm-batch` and `judgelm serve`.

    Model and engine:
        canary: First check the judge against this file of judgelm canary record.
        on_drift: For --canary: end with exit code 3, or go on with a warning.
    """

    canary: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    on_drift: Literal["refuse", "warn"] = "refuse"


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
        column: The file's own name of a column, such as question=prompt. Repeatable.
    """

    column: Annotated[list[str] | None, typer.Option(metavar="NAME=COLUMN")] = None

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
    """The options of every command that reads labelled rows.

    Options:
        label_code: Meaning of the label values, such as 0=first,1=tie,2=second.
        max_reject_rate: Exit with 2 above this share of labelled rows that cannot be read.
    """

    label_code: Annotated[str | None, typer.Option(metavar="CODE")] = None
    max_reject_rate: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.05

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
