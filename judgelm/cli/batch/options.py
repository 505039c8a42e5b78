"""The options of `judgelm-batch`; light, so that its help comes at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from judgelm.cli import completion, output
from judgelm.cli.console import load_config
from judgelm.cluster.plan import Cluster
from judgelm.engines.catalog import ENGINES
from judgelm.errors import ConfigError
from judgelm.parsing.distribution import OrderRule
from judgelm.yaml_files import parse_yaml

_JUDGING, _TRUST, _MODEL = "How to judge", "Probabilities, reasons and repairs", "Model and engine"
_CLUSTER = "Several GPUs or machines"
_PAIR_EXAMPLES = {"--engine-arg": "gpu_memory_utilization=0.9", "--mode-arg": "k=5"}
MODE_FLAGS = (
    *("both_orders", "order_rule", "tie_band", "accept_one_order", "reference", "temperature", "seed", "max_tokens"),
    *("distribution", "reasons", "close_band", "reason_tokens", "repair"),
)
"""Flags that are fields of the pair mode, and of those others that have a field of that name."""

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="A file of pairs (JSONL, JSON list, CSV, TSV, Parquet, .gz), two files of AlpacaEval outputs, or - for "
        "JSONL on standard input.",
    ),
]
Out = Annotated[str | None, typer.Option("--out", "-o", help="Judgments as JSONL; - is standard output (no resume).")]
Limit = Annotated[int | None, typer.Option(min=0, help="Judge only the first N samples.")]
Retries = Annotated[Literal["engine", "failed"], typer.Option(help="Which earlier failures a rerun judges again.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", metavar="", help="Start over, deleting OUT and its manifest.")]
MaxFailureRate = Annotated[float, typer.Option(min=0.0, max=1.0, help="Exit with 2 above this share of failures.")]
Quiet = output.Quiet
JsonOut = output.JsonOut
Config = Annotated[Path | None, typer.Option(callback=load_config, is_eager=True, help="YAML file of these options.")]

ModeName = Annotated[
    str,
    typer.Option(
        help=f"Way of judging: {', '.join(completion.MODE_NAMES)}; see judgelm modes.",
        rich_help_panel=_JUDGING,
        autocompletion=completion.modes,
    ),
]
ModeArgs = Annotated[
    list[str] | None,
    typer.Option(
        "--mode-arg",
        metavar="KEY=VALUE",
        help="An option that only this mode knows; the value is YAML. Repeatable.",
        rich_help_panel=_JUDGING,
        autocompletion=completion.mode_args,
    ),
]
BothOrders = Annotated[
    bool, typer.Option("--both-orders", metavar="", help="Show each pair in both orders.", rich_help_panel=_JUDGING)
]
Rule = Annotated[
    OrderRule,
    typer.Option(
        help="Orders into one verdict: by the mean score, by the given order, a conflict is a tie, or by "
        "P(first better).",
        rich_help_panel=_JUDGING,
    ),
]
TieBand = Annotated[
    float,
    typer.Option(
        min=0.0, max=0.5, help="Under probability: a tie is at most this far from 0.5.", rich_help_panel=_JUDGING
    ),
]
AcceptOneOrder = Annotated[
    bool,
    typer.Option(
        "--accept-one-order",
        metavar="",
        help="When one order fails, take the other's verdict.",
        rich_help_panel=_JUDGING,
    ),
]
Reference = Annotated[
    Literal["auto", "use", "ignore"],
    typer.Option(help="Show references: where there are, always, never.", rich_help_panel=_JUDGING),
]
References = Annotated[str | None, typer.Option(help="A file of references by id.", rich_help_panel=_JUDGING)]
Solves = Annotated[
    str | None,
    typer.Option(
        help="A run file whose judge's own answers are used again instead of asked for (modes with self-reference).",
        rich_help_panel=_JUDGING,
    ),
]
Template = Annotated[
    str | None,
    typer.Option(
        help="Prompt template; default: the model card's.",
        rich_help_panel=_JUDGING,
        autocompletion=completion.templates,
    ),
]
IgnoreCard = Annotated[
    bool,
    typer.Option(
        "--ignore-card",
        metavar="",
        help="Use another template than the model was trained with.",
        rich_help_panel=_JUDGING,
    ),
]
Temperature = Annotated[float, typer.Option(min=0.0, help="0 is greedy.", rich_help_panel=_JUDGING)]
Seed = Annotated[int, typer.Option(help="Seed for temperature above 0.", rich_help_panel=_JUDGING)]
MaxTokens = Annotated[int, typer.Option(min=1, help="Room for the score line, in tokens.", rich_help_panel=_JUDGING)]

Distribution = Annotated[
    bool,
    typer.Option(
        "--distribution",
        metavar="",
        help="Ask for the probability of every score line: P(first better), expected scores.",
        rich_help_panel=_TRUST,
    ),
]
Reasons = Annotated[
    Literal["none", "all", "close", "flips"],
    typer.Option(
        help="Let the judge explain: all, those close to a tie, those whose two orders disagree.",
        rich_help_panel=_TRUST,
    ),
]
CloseBand = Annotated[
    float,
    typer.Option(
        min=0.0, max=0.5, help="For close: P(first better) at most this far from 0.5.", rich_help_panel=_TRUST
    ),
]
ReasonTokens = Annotated[
    int,
    typer.Option(min=1, help="Most tokens of a reason; the judge's window may end it before.", rich_help_panel=_TRUST),
]
Repair = Annotated[
    bool,
    typer.Option(
        "--repair",
        metavar="",
        help="Ask once more for an unreadable reply, held to the grammar of score lines (not every engine can).",
        rich_help_panel=_TRUST,
    ),
]

Cascade = Annotated[
    str | None,
    typer.Option(
        metavar="SMALL,LARGE",
        help="Two judges instead of --model: the second sees only what the first is unsure of.",
        rich_help_panel=_MODEL,
    ),
]
CascadeBand = Annotated[
    str | None,
    typer.Option(
        metavar="LOW,HIGH",
        help="Unsure is a P(first better) from LOW to HIGH; default 0.3,0.7.",
        rich_help_panel=_MODEL,
    ),
]
Model = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="Local folder or hub id of the judge; a server's name of it.", rich_help_panel=_MODEL
    ),
]
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
Adapter = Annotated[str | None, typer.Option(help="PEFT adapter put on the model.", rich_help_panel=_MODEL)]
_DTYPES = ("auto", "float32", "bfloat16", "float16")
Dtype = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(_DTYPES)}; auto is the checkpoint's, or on a CPU float32 where that is faster.",
        rich_help_panel=_MODEL,
        autocompletion=lambda: list(_DTYPES),
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:0, ...", rich_help_panel=_MODEL)]
Quantization = Annotated[str | None, typer.Option(help="4bit or 8bit, through bitsandbytes.", rich_help_panel=_MODEL)]
Revision = Annotated[str | None, typer.Option(help="Hub revision.", rich_help_panel=_MODEL)]
BatchTokens = Annotated[
    int | None, typer.Option(min=1, help="Most tokens in one forward pass.", rich_help_panel=_MODEL)
]
MaxSequences = Annotated[int, typer.Option(min=1, help="Most replies under way at once.", rich_help_panel=_MODEL)]
WindowTokens = Annotated[int | None, typer.Option(min=1, help="Limit the model's window.", rich_help_panel=_MODEL)]
ThinkingAsked = Annotated[
    Literal["on", "off", "absent"] | None,
    typer.Option(
        "--thinking",
        help="Ask a reasoning model to think before it replies, or not to; absent tells its chat template nothing. "
        "Default: the model card's.",
        rich_help_panel=_MODEL,
    ),
]
ThinkingTokens = Annotated[
    int,
    typer.Option(
        min=1,
        help="Room for thinking, beside the reply's own; at most half of the model's window.",
        rich_help_panel=_MODEL,
    ),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code", metavar="", help="Run Python code that comes with the model.", rich_help_panel=_MODEL
    ),
]
Gpus = Annotated[
    int | None, typer.Option(min=1, help="Judge on N GPUs of this machine at once.", rich_help_panel=_CLUSTER)
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Judge on the workers of a Ray cluster: auto (the one running here, or RAY_ADDRESS), HOST:PORT, or local "
        "(started for this run).",
        rich_help_panel=_CLUSTER,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="How many workers; default: one per GPU, or per node without.", rich_help_panel=_CLUSTER),
]
WorkerCores = Annotated[
    int | None, typer.Option(min=1, help="CPU cores (and threads) of each worker.", rich_help_panel=_CLUSTER)
]


def cluster_of(ray: str | None, gpus: int | None, workers: int | None, cores: int | None) -> Cluster | None:
    """The workers that `--ray`, `--gpus`, `--workers` and `--worker-cores` ask for; None where it is this process.

    Raises:
        ConfigError: workers without a cluster, or options that do not fit each other.
    """
    if ray is None and gpus is None:
        if workers is not None or cores is not None:
            raise ConfigError("--workers and --worker-cores are of a cluster; add --ray local for this machine")
        return None
    return Cluster(address=ray or "local", workers=workers, gpus=gpus, cores=cores)


def parse_pairs(pairs: Sequence[str], flag: str) -> dict[str, Any]:
    """`["gpu_memory_utilization=0.9", "lora={rank: 8}"]` -> names and values; a value is YAML, as in a config file.

    Args:
        pairs: what was given.
        flag: by which option, for errors.

    Raises:
        ConfigError: no `=`, no name, no YAML behind it, or a name that comes twice.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"{flag} {pair}: expected KEY=VALUE, such as {_PAIR_EXAMPLES[flag]}")
        if name in found:
            raise ConfigError(f"{flag} {name}=...: {name} is given twice; keep one of them")
        try:
            found[name] = parse_yaml(value)
        except ConfigError as error:
            # without the value, which may hold a password
            raise ConfigError(f"{flag} {name}=...: the value is no YAML ({error}); quote it") from error
    return found


def mode_options(context: typer.Context, mode_args: Sequence[str]) -> dict[str, Any]:
    """What was said of the way of judging: flags and values of a config file, not what they are by default.

    Raises:
        ConfigError: an argument of the mode that is no KEY=VALUE, or that a flag gives as well.
    """
    said = {
        name: context.params[name]
        for name in MODE_FLAGS
        if (source := context.get_parameter_source(name)) is not None and source.name != "DEFAULT"
    }
    given = parse_pairs(mode_args, "--mode-arg")
    if twice := said.keys() & given.keys():
        name = sorted(twice)[0]
        raise ConfigError(f"--mode-arg {name}=... and --{name.replace('_', '-')} say the same; keep one of them")
    return said | given
