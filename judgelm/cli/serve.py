"""`judgelm serve`: a judge behind OpenAI's API."""

import shlex
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgelm.cli.console import EXIT_INTERRUPTED, console
from judgelm.cli.loading import loaded_judge, shown_address
from judgelm.cli.options import CanaryOptions, ClusterOptions, Config, JudgeOptions, expand_options
from judgelm.cli.output import Quiet
from judgelm.cluster.plan import Cluster
from judgelm.engines.base import require
from judgelm.errors import ConfigError, MissingExtraError
from judgelm.extras import install_hint
from judgelm.judge import engine_of

if TYPE_CHECKING:
    from judgelm.serving.middleware import RequestTracer

_ANSWERS, _SERVER, _RECORDS, _LIMITS = "How to answer", "Address and keys", "Records", "Limits"
_DAY_S = 86_400.0
EPILOG = """
Examples:

  judgelm serve   (the small judge: judgelm judges)

  judgelm serve my-judge

  judgelm serve my-judge --name gpt-4 --name gpt-4-1106-preview --both-orders --host 0.0.0.0 --api-key-file keys.txt

  judgelm serve my-judge --gpus 8   (a copy of the judge on each of this machine's GPUs)

  judgelm serve BASE --judge helpfulness=adapter-1 --judge safety=adapter-2   (LoRA adapters of one base)

  judgelm serve NAME --upstream http://localhost:8001/v1   (the judge NAME on another server)

  judgelm serve "8 6" --engine scripted   (without a model: every pair gets these scores)

Clients find it by OPENAI_BASE_URL=http://127.0.0.1:8000/v1. Ctrl-C and SIGTERM finish requests in flight first; exit
codes: 0 all answered, 1 usage error, 3 the judge drifted from its --canary, 130 ended before all was answered.
"""

ModelArgument = Annotated[
    str | None,
    typer.Argument(
        help="Local folder, GGUF file, hub id or name (judgelm judges) of the judge; with --upstream its name "
        "there. Default: small-judge.",
    ),
]
Upstream = Annotated[
    str | None,
    typer.Option(
        metavar="URL[,URL]", help="Servers of the model with OpenAI's API.", rich_help_panel="Model and engine"
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        help="A model name that clients may use; repeatable. Others are refused; by default all are accepted.",
        rich_help_panel=_ANSWERS,
    ),
]
Adapters = Annotated[
    list[str] | None,
    typer.Option(
        "--judge",
        metavar="NAME=ADAPTER",
        help="A judge that is a LoRA adapter of this model, by a model name of its own; repeatable.",
        rich_help_panel=_ANSWERS,
    ),
]
AdaptersFolder = Annotated[
    Path | None,
    typer.Option(
        help="Allow clients to load adapters from this folder while the server runs (/v1/load_lora_adapter).",
        rich_help_panel=_ANSWERS,
    ),
]
Chat = Annotated[
    bool,
    typer.Option(
        "--chat", metavar="", help="Answer prompts of unknown clients as an ordinary chat.", rich_help_panel=_ANSWERS
    ),
]
BothOrders = Annotated[
    bool, typer.Option("--both-orders", metavar="", help="Judge each pair in both orders.", rich_help_panel=_ANSWERS)
]
Reasons = Annotated[
    bool,
    typer.Option(
        "--reasons",
        metavar="",
        help="Give the judge's own reason where a reply has room for one.",
        rich_help_panel=_ANSWERS,
    ),
]
Host = Annotated[str, typer.Option(help="Address to serve at.", rich_help_panel=_SERVER)]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 chooses a free port.", rich_help_panel=_SERVER)]
ApiKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--api-key",
        help="A key that clients must send; repeatable. Safer in a file or JUDGELM_API_KEYS: other users see commands.",
        rich_help_panel=_SERVER,
    ),
]
ApiKeyFile = Annotated[Path | None, typer.Option(help="A file of keys, one per line.", rich_help_panel=_SERVER)]
NoAuth = Annotated[
    bool, typer.Option("--no-auth", metavar="", help="Allow other machines without a key.", rich_help_panel=_SERVER)
]
AccessLog = Annotated[
    bool, typer.Option("--access-log", metavar="", help="Log each request on stderr.", rich_help_panel=_RECORDS)
]
RequestLogFile = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False,
        help="Append a line of JSON for each request: time, judge, dialect, status, ms, tokens; no texts.",
        rich_help_panel=_RECORDS,
    ),
]
LogTexts = Annotated[
    bool,
    typer.Option(
        "--log-texts", metavar="", help="Write bodies of requests and replies there too.", rich_help_panel=_RECORDS
    ),
]
TracesEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Send OpenTelemetry traces to this collector, such as http://localhost:4318/v1/traces; no texts.",
        rich_help_panel=_RECORDS,
    ),
]
MaxQueue = Annotated[
    int,
    typer.Option(min=1, help="Maximum queued judgments before the server returns 429.", rich_help_panel=_LIMITS),
]
MaxBodyMb = Annotated[
    float, typer.Option(min=0.001, max=1e5, help="Largest request, in megabytes.", rich_help_panel=_LIMITS)
]
BodyTimeout = Annotated[
    float,
    typer.Option(
        min=0.1,
        max=_DAY_S,
        help="Seconds for a client to send a request's headers, and again for its body.",
        rich_help_panel=_LIMITS,
    ),
]
RequestTimeout = Annotated[
    float, typer.Option(min=0.1, max=_DAY_S, help="Seconds for an answer.", rich_help_panel=_LIMITS)
]
Shutdown = Annotated[
    float,
    typer.Option(min=0, max=_DAY_S, help="Seconds to finish requests in flight at shutdown.", rich_help_panel=_LIMITS),
]


@expand_options
def serve(
    model: ModelArgument = None,
    upstream: Upstream = None,
    name: Names = None,
    judge: Adapters = None,
    adapters_folder: AdaptersFolder = None,
    chat: Chat = False,
    both_orders: BothOrders = False,
    reasons: Reasons = False,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_key: ApiKeys = None,
    api_key_file: ApiKeyFile = None,
    no_auth: NoAuth = False,
    access_log: AccessLog = False,
    request_log: RequestLogFile = None,
    log_texts: LogTexts = False,
    otlp_traces_endpoint: TracesEndpoint = None,
    max_queue: MaxQueue = 4096,
    max_body_mb: MaxBodyMb = 8.0,
    body_timeout_s: BodyTimeout = 30.0,
    request_timeout_s: RequestTimeout = 600.0,
    shutdown_s: Shutdown = 60.0,
    *,
    judge_options: JudgeOptions,
    canary_options: CanaryOptions,
    workers: ClusterOptions,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Serve a judge to clients of GPT-4: OpenAI's API, answered in each judging client's own words."""
    require("fastapi", extra="serve")
    require("uvicorn", extra="serve")
    require("prometheus_client", extra="serve")
    from judgelm.cli.canary import check_at_start, check_canary_options
    from judgelm.serving.app import create_app
    from judgelm.serving.engine_worker import EngineWorker
    from judgelm.serving.handler import HandlerOptions, JudgeHandler, check_chat
    from judgelm.serving.judges import adapter_handlers, read_adapters
    from judgelm.serving.middleware import RequestLog
    from judgelm.serving.server import Server, uvicorn_config
    from judgelm.serving.settings import KEYS_VARIABLE, ServerSettings, bind, check_exposure, public_name, read_keys

    if log_texts and request_log is None:
        raise ConfigError("--log-texts writes into the request log: add --request-log FILE")
    check_canary_options(canary_options)
    keys = read_keys(api_key or [], api_key_file)
    check_exposure(host, keys, no_auth=no_auth, way_out=f"add --api-key-file FILE, set {KEYS_VARIABLE}")
    adapters = read_adapters(judge or [])
    if adapters and name:
        raise ConfigError("--name renames a single judge; with --judge choose the names there, and leave --name out")
    if adapters_folder is not None and not adapters_folder.is_dir():
        raise ConfigError(f"--adapters-folder {adapters_folder}: no such folder; create it, or name another one")
    arguments = judge_options.judge_arguments() | {"adapters": tuple(adapters.values())}
    engine, arguments["engine_args"] = _engine(judge_options.engine, upstream, arguments["engine_args"])
    engine_of(model, engine, adapter=judge_options.adapter)  # refuses a missing judge now
    arguments["cluster"] = _cluster(workers, engine)
    with ExitStack() as stack:
        bound = stack.enter_context(bind(host, port))
        log = stack.enter_context(closing(RequestLog(request_log, texts=log_texts))) if request_log else None
        tracer = stack.enter_context(closing(_tracer(otlp_traces_endpoint))) if otlp_traces_endpoint else None
        loaded = stack.enter_context(loaded_judge(model, engine, quiet=quiet, **arguments))
        if chat:
            check_chat(loaded.engine)
        check_at_start(loaded, canary_options, quiet=quiet)
        worker = stack.enter_context(closing(EngineWorker(loaded.engine, max_queue=max_queue)))
        settings = ServerSettings(
            model=loaded.named.card.name if loaded.named else public_name(str(model), engine),
            names=tuple(name or ()),
            api_keys=keys,
            max_body_bytes=int(max_body_mb * 1e6),
            body_timeout_s=body_timeout_s,
            request_timeout_s=request_timeout_s,
            adapters_folder=adapters_folder,
        )
        handler = JudgeHandler(loaded, worker, HandlerOptions(chat=chat, both_orders=both_orders, reasons=reasons))
        app = create_app(handler, settings, adapter_handlers(handler, adapters), request_log=log, tracer=tracer)
        server = Server(
            uvicorn_config(app, access_log=access_log, head_timeout_s=body_timeout_s),
            traffic=app.state.traffic,
            worker=worker,
            finish_s=shutdown_s,
            on_listening=lambda: (
                None if quiet else _greet(host, bound.getsockname()[1], app.state.judges.listed, bool(keys))
            ),
        )
        server.run(sockets=[bound])
    if server.unanswered:
        console.message(f"before {server.unanswered} requests were answered", label="ended", style="yellow")
        raise typer.Exit(EXIT_INTERRUPTED)


def _engine(engine: str, upstream: str | None, engine_args: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The engine's name, `auto` among them, and its own arguments.

    Raises:
        ConfigError: an engine without upstreams.
    """
    if upstream is not None:
        if engine not in ("auto", "openai"):
            raise ConfigError(f"--upstream needs the openai engine, not --engine {engine}; leave one of them out")
        if "base_url" in engine_args:
            raise ConfigError("--upstream and --engine-arg base_url=... mean the same; keep one of them")
        return "openai", {"when_down": "fail"} | engine_args | {"base_url": upstream}
    return engine, {"when_down": "fail"} | engine_args if engine == "openai" else engine_args


def _cluster(workers: ClusterOptions, engine: str) -> Cluster | None:
    """The workers that hold the judge; None where this process does.

    Raises:
        ConfigError: workers for a judge that another server holds, or options that do not fit each other.
    """
    cluster = workers.cluster()
    if cluster is not None and engine == "openai":
        raise ConfigError("--gpus and --ray load a judge, but the openai engine's is on other servers; leave them out")
    return None if cluster is None else replace(cluster, lone_failures=True)


def _tracer(endpoint: str) -> "RequestTracer":
    """Sends traces to a collector.

    Raises:
        MissingExtraError: OpenTelemetry's library is not installed.
    """
    from judgelm.serving.middleware import RequestTracer

    try:
        return RequestTracer(endpoint)
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} is not installed; run: {install_hint('otel')}") from error


def _greet(host: str, port: int, names: tuple[str, ...], has_keys: bool) -> None:
    """Print the address of the server and a request to try."""
    address = shown_address(host, port)
    body = '{"question": "What is 2 + 2?", "answer_1": "4", "answer_2": "5"}'
    key = ' -H "Authorization: Bearer $KEY"' if has_keys else ""
    lines = (
        f"serving {', '.join(names)} at {address}/v1 (Ctrl-C ends it)",
        f"  curl {address}/v1/judge{key} -d {shlex.quote(body)}",
    )
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
