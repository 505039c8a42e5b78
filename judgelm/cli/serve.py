"""`judgelm serve` (an OpenAI-compatible server) and `judgelm web` (a page to judge, browse, and label)."""

import asyncio
import os
import shlex
import tempfile
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from judgelm.bounds import MAX_WHOLE_BYTES, read_text
from judgelm.cli.console import EXIT_INTERRUPTED, Quiet, Results, console, errors
from judgelm.cli.help import essential
from judgelm.cli.options import ClusterOptions, ColumnOptions, Config, JudgeOptions
from judgelm.cli.run import loaded_judge, shown_address
from judgelm.cluster.plan import RayCluster
from judgelm.engines.dependencies import require
from judgelm.errors import ConfigError, InputError, RunError
from judgelm.jsonl import Appender, read_jsonl

if TYPE_CHECKING:
    from judgelm.dialects.contract import Dialect
    from judgelm.runs.batch import BatchJob


_DAY_S = 86_400.0


@essential("upstream name judge prompt both_orders reasons host port api_key_file engine gpus request_log quiet config")
def serve(
    model: Annotated[str | None, typer.Argument()] = None,
    upstream: Annotated[str | None, typer.Option(metavar="URL[,URL]")] = None,
    name: list[str] | None = None,
    judge: Annotated[list[str] | None, typer.Option(metavar="NAME=ADAPTER")] = None,
    learn: Annotated[Path | None, typer.Option(metavar="FILE", dir_okay=False)] = None,
    unknown: Literal["answer", "refuse"] | None = None,
    both_orders: bool = False,
    reasons: bool = False,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    api_key: list[str] | None = None,
    api_key_file: Path | None = None,
    no_auth: bool = False,
    allowed_host: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
    access_log: bool = False,
    request_log: Annotated[Path | None, typer.Option(dir_okay=False)] = None,
    log_texts: bool = False,
    max_queue: Annotated[int, typer.Option(min=1)] = 4096,
    max_body_mb: Annotated[float, typer.Option(min=0.001, max=1e5)] = 8.0,
    body_timeout_s: Annotated[float, typer.Option(min=0.1, max=_DAY_S)] = 30.0,
    request_timeout_s: Annotated[float, typer.Option(min=0.1, max=_DAY_S)] = 600.0,
    shutdown_s: Annotated[float, typer.Option(min=0, max=_DAY_S)] = 60.0,
    *,
    judge_options: JudgeOptions,
    workers: ClusterOptions,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Serve a judge through an OpenAI-compatible API, replying in the format each judging client expects.

    Options:
        model: The judge: a folder, GGUF file, hub id, name (see judgelm judges), or name on the --upstream server.
            Default: qwen-1.5b.

    Model and engine:
        upstream: OpenAI-compatible servers that run the model.

    Replies:
        name: Model name that clients may use. Repeatable. Default: any name.
        judge: Serve a LoRA adapter for the model as a judge under this name. Repeatable.
        learn: Record up to 200 unknown prompts, including their text, for judgelm prompts suggest.
        unknown: Answer unknown prompts with the model, or refuse them. Default: answer for a general instruct model,
            refuse for a model that was trained as a judge.
        both_orders: Judge each pair in both orders.
        reasons: Include the judge's reason if the reply format has room for it.

    Address and keys:
        host: Address to listen on.
        port: Port to listen on; 0 picks a free port.
        api_key: API key that clients must send. Repeatable. Other users can see command lines, so --api-key-file or
            JUDGELM_API_KEYS is safer.
        api_key_file: File with API keys, one per line.
        no_auth: Accept requests from other machines without a key.
        allowed_host: If no keys are set, allow this additional host name, such as the name of a proxy. Repeatable.
            Always allowed: localhost, --host, and (for 0.0.0.0) all IP addresses. Other names get a 421 error.

    Records:
        access_log: Log each request to stderr.
        request_log: Append one JSON line per request with time, judge, dialect, status, ms, and tokens, but no text.
        log_texts: Also write request and response bodies to the request log.

    Limits:
        max_queue: Maximum number of queued judgments before the server returns 429.
        max_body_mb: Maximum size of a request body in MB.
        body_timeout_s: Timeout in seconds for receiving the headers, and separately for the body.
        request_timeout_s: Timeout in seconds for answering a request.
        shutdown_s: Seconds to wait for requests in flight at shutdown.

    Examples:
        judgelm serve my-judge
        judgelm serve my-judge --both-orders --host 0.0.0.0 --api-key-file keys.txt
        judgelm serve my-judge --name gpt-4 --name gpt-4.1   (only these names)
        judgelm serve my-judge --gpus 8   (one replica per GPU)
        judgelm serve my-judge --prompt prompts.yaml   (your own judge prompts)
        judgelm serve BASE --judge helpfulness=adapter-1 --judge safety=adapter-2
        judgelm serve NAME --upstream http://localhost:8001/v1   (remote model)
        judgelm serve "8 6" --engine scripted   (no model: fixed scores)

    Set OPENAI_BASE_URL=http://127.0.0.1:8000/v1 in your clients. On Ctrl-C or SIGTERM, the server finishes requests in
    flight. Exit codes: 0 all requests answered, 1 usage error, 130 some requests were not answered.
    """
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        require(package, extra="serve")
    from judgelm.dialects.learned_prompts import LearnedPrompts
    from judgelm.runs.engine_worker import EngineWorker
    from judgelm.serving.access import KnownHosts
    from judgelm.serving.app import create_app
    from judgelm.serving.chat import check_chat
    from judgelm.serving.handler import HandlerOptions, JudgeHandler
    from judgelm.serving.judges import adapter_handlers, read_adapters
    from judgelm.serving.request_log import RequestLog
    from judgelm.serving.server import Server, uvicorn_config
    from judgelm.serving.settings import KEYS_VARIABLE, ServerSettings, bind, check_exposure, read_keys

    if log_texts and request_log is None:
        raise ConfigError("--log-texts requires a request log; add --request-log FILE")
    own, learned = _own_prompts(judge_options.prompt), None if learn is None else LearnedPrompts(learn)
    handler_options = HandlerOptions(
        unknown=unknown, both_orders=both_orders, reasons=reasons, prompts=own, learn=learned
    )
    keys = read_keys(api_key or [], api_key_file)
    names, way_out = allowed_host or [], f"add --api-key-file FILE, set {KEYS_VARIABLE}"
    check_exposure(host, keys, no_auth=no_auth, way_out=way_out, allowed_hosts=names)
    KnownHosts(host, names)  # rejects invalid names before the model is loaded
    adapters = read_adapters(judge or [])
    if adapters and name:
        raise ConfigError("--name is only supported for a single judge; remove it and set the names with --judge")
    arguments = judge_options.server_arguments() | {"adapters": tuple(adapters.values())}
    engine, arguments["engine_args"] = _engine(judge_options.engine, upstream, arguments["engine_args"])
    resolved = judge_options.resolve(model, engine)  # raises an error for a missing judge before binding
    arguments["cluster"] = _cluster(workers, engine)
    with ExitStack() as stack:
        bound = stack.enter_context(bind(host, port))
        log = stack.enter_context(closing(RequestLog(request_log, texts=log_texts))) if request_log else None
        loaded = stack.enter_context(loaded_judge(resolved, **arguments))
        if unknown == "answer":
            check_chat(loaded.engine)
        worker = stack.enter_context(closing(EngineWorker(loaded.engine, max_queue=max_queue)))
        settings = ServerSettings(
            model=loaded.name,
            names=tuple(name or ()),
            api_keys=keys,
            host=host,
            allowed_hosts=(*names, bound.getsockname()[0]),
            max_body_bytes=int(max_body_mb * 1e6),
            body_timeout_s=body_timeout_s,
            request_timeout_s=request_timeout_s,
        )
        handler = JudgeHandler(loaded, worker, handler_options)
        if handler.answers_unknown:
            console.message("the model answers unrecognised prompts; to reject them, pass --unknown refuse")
        app = create_app(handler, settings, adapter_handlers(handler, adapters), request_log=log)
        server = Server(
            uvicorn_config(app, access_log=access_log, head_timeout_s=body_timeout_s),
            traffic=app.state.traffic,
            worker=worker,
            finish_s=shutdown_s,
            on_listening=lambda: _greet(host, bound.getsockname()[1], app.state.judges.listed, bool(keys)),
        )
        server.run(sockets=[bound])
    console.messages(filter(None, [handler_options.unknown_prompts.summary]))
    if server.unanswered:
        errors.message(f"{server.unanswered} requests were not answered", label="stopped:", style="yellow")
        raise typer.Exit(EXIT_INTERRUPTED)


def answer_file(
    job: "BatchJob",
    model: str | None,
    judge_options: JudgeOptions,
    *,
    unknown: Literal["answer", "refuse"] | None,
    both_orders: bool,
    results: Results,
) -> float:
    """Answer the unanswered requests in a Batch API file; return the share of rejected requests."""
    require("fastapi", extra="serve")
    from judgelm.runs.engine_worker import EngineWorker
    from judgelm.serving.batch_requests import answer_rows, read_requests
    from judgelm.serving.chat import check_chat
    from judgelm.serving.handler import HandlerOptions, JudgeHandler

    [path], out = job.inputs, str(job.out)
    try:
        rows = read_requests(read_text(path, MAX_WHOLE_BYTES))
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from error
    own = _own_prompts(judge_options.prompt)
    handler_options = HandlerOptions(unknown=unknown, both_orders=both_orders, prompts=own)
    resolved = judge_options.resolve(model)
    with (
        loaded_judge(resolved, **judge_options.server_arguments()) as judge,
        closing(EngineWorker(judge.engine)) as worker,
        closing(Appender(out, overwrite=job.overwrite)) as file,
    ):
        name = str(judge.engine.describe()["model"].get("sha") or model)
        before = cast(list[dict[str, Any]], [row for _, row in read_jsonl(out)])
        done = {str(row["custom_id"]): str(row["response"]["judge"]) for row in before}
        if others := set(done.values()) - {name}:
            finding = f"{out}: contains results from a different judge ({others.pop()[:12]})"
            raise RunError(f"{finding}; choose a different -o or add --overwrite")
        handler, refused = JudgeHandler(judge, worker, handler_options), 0

        def write(row: dict[str, Any]) -> None:
            nonlocal refused
            refused += row["response"]["status_code"] != 200
            file.write(row | {"response": row["response"] | {"judge": name}})

        if unknown == "answer":
            check_chat(judge.engine)
        left = [row for row in rows if row["custom_id"] not in done]
        asyncio.run(answer_rows(left, lambda _: (str(model or "judge"), handler), write))
    answered = len(left) - refused
    if results.write({"answered": answered, "refused": refused, "before": len(done)}):
        counts = f"{answered:,} answered, {refused:,} rejected, {len(done):,} answered before"
        console.message(f"{counts}; wrote results to {out}")
    console.messages(filter(None, [handler_options.unknown_prompts.summary]))
    return refused / len(left) if left else 0.0


def _own_prompts(paths: list[Path] | None) -> "tuple[Dialect, ...]":
    from judgelm.dialects.catalog import DIALECTS
    from judgelm.dialects.prompt_file import read_dialects

    dialects: list[Dialect] = []
    for path in paths or ():
        dialects += read_dialects(path, [dialect.name for dialect in (*DIALECTS, *dialects)])
    return tuple(dialects)


def _engine(engine: str, upstream: str | None, engine_args: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if upstream is not None:
        if engine not in ("auto", "openai"):
            raise ConfigError(f"--upstream requires the openai engine, not --engine {engine}; remove one of them")
        if "base_url" in engine_args:
            raise ConfigError("--upstream and --engine-arg base_url=... set the same option; keep only one")
        return "openai", {"when_down": "fail"} | engine_args | {"base_url": upstream}
    return engine, {"when_down": "fail"} | engine_args if engine == "openai" else engine_args


def _cluster(workers: ClusterOptions, engine: str) -> RayCluster | None:
    cluster = workers.cluster()
    if cluster is not None and engine == "openai":
        raise ConfigError("--gpus and --ray are not supported for models on other servers (openai engine); remove them")
    return None if cluster is None else replace(cluster, per_request_failures=True)


def _greet(host: str, port: int, names: tuple[str, ...], has_keys: bool) -> None:
    address = shown_address(host, port)
    body = '{"question": "What is 2 + 2?", "answer_1": "4", "answer_2": "5"}'
    key = ' -H "Authorization: Bearer $KEY"' if has_keys else ""
    console.message(f"serving {', '.join(names)} at {address}/v1 (stop with Ctrl-C)")
    console.message(f"  curl {address}/v1/judge{key} -d {shlex.quote(body)}")


_FINISH_S = 3


@essential("run pairs host port password engine column quiet config")
def web(
    model: Annotated[str | None, typer.Argument()] = None,
    run: list[Path] | None = None,
    pairs: Path | None = None,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 7860,
    password: Annotated[str | None, typer.Option(envvar="JUDGELM_PASSWORD")] = None,
    no_auth: bool = False,
    allowed_host: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
    *,
    columns: ColumnOptions,
    judge_options: JudgeOptions,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Start a web page to judge texts, discuss judgments, and browse, compare, and label run files.

    Options:
        model: The judge: a folder, GGUF file, hub id, name (see judgelm judges), or name on a server. Default:
            qwen-1.5b.

    Run files:
        run: Run file to browse. Repeatable. You can upload more run files on the page.
        pairs: File with the judged texts. Default: the file named in the manifest of the runs.

    Address and password:
        host: Address to listen on.
        port: Port to listen on; 0 picks a free port.
        password: Password for the page. JUDGELM_PASSWORD is safer, because other users can see command lines.
        no_auth: Accept requests from other machines without a password.
        allowed_host: If no password is set, allow this additional host name. Repeatable. Always allowed: localhost,
            --host, and (for 0.0.0.0) all IP addresses. Other names get a 421 error.

    Examples:
        judgelm web my-judge
        judgelm web my-judge --run judgments.jsonl --run other.jsonl --pairs pairs.jsonl
        judgelm web my-judge --run judgments.jsonl --pairs pairs.xlsx --column question=Prompt
        JUDGELM_PASSWORD=... judgelm web my-judge --host 0.0.0.0
        judgelm web "8 6" --engine scripted   (no model: browse runs and label)

    Press Ctrl-C to stop the page.
    """
    resolved = judge_options.resolve(model)  # raises an error for a missing judge before Gradio is loaded
    arguments = judge_options.judge_arguments()
    if pairs is not None and not run:
        raise ConfigError(f"--pairs {pairs} requires a run file; add --run")
    if (columns.column or columns.sheet) and not run:
        raise ConfigError("--column and --sheet require a run file; add --run")
    require("gradio", extra="web")
    with tempfile.TemporaryDirectory(prefix="judgelm-web-") as uploads:
        os.environ["GRADIO_TEMP_DIR"] = uploads  # uploads are deleted at the end
        from judgelm.runs.engine_worker import EngineWorker
        from judgelm.serving.access import KnownHosts
        from judgelm.serving.settings import bind, check_exposure
        from judgelm.serving.web.page import create_page
        from judgelm.serving.web.runs import open_runs
        from judgelm.serving.web.web_app import serve_page, web_app

        names = allowed_host or []
        check_exposure(host, password, no_auth=no_auth, way_out="add --password", allowed_hosts=names)
        runs = open_runs(run or [], pairs, columns.reading)
        with bind(host, port) as bound, loaded_judge(resolved, **arguments) as judge:
            own = (*names, bound.getsockname()[0])
            hosts = KnownHosts(host, own, way_out="set a password (JUDGELM_PASSWORD)")
            worker = EngineWorker(judge.engine)
            try:
                console.message(f"the page is at {shown_address(host, bound.getsockname()[1])} (stop with Ctrl-C)")
                serve_page(web_app(create_page(judge, worker, runs), password=password, hosts=hosts), bound)
            finally:
                worker.close(_FINISH_S)
