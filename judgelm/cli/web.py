"""`judgelm web`: a web page to judge by hand, browse runs and label."""

import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from judgelm.cli.console import console
from judgelm.cli.loading import loaded_judge, shown_address
from judgelm.cli.options import Config, JudgeOptions, expand_options
from judgelm.cli.output import Quiet
from judgelm.engines.base import require
from judgelm.errors import ConfigError
from judgelm.judge import engine_of

PASSWORD_VARIABLE = "JUDGELM_PASSWORD"
_RUNS, _SERVER = "Run files", "Address and password"
_FINISH_S = 3
EPILOG = f"""
Examples:

  judgelm web   (with the small judge: judgelm judges)

  judgelm web my-judge

  judgelm web my-judge --run judgments.jsonl --run other.jsonl --pairs pairs.jsonl

  {PASSWORD_VARIABLE}=... judgelm web my-judge --host 0.0.0.0

  judgelm web "8 6" --engine scripted   (without a model, to browse runs and label)

Ctrl-C ends it.
"""

ModelArgument = Annotated[
    str | None,
    typer.Argument(
        help="Local folder, GGUF file, hub id or name (judgelm judges) of the judge; a server's name of it. "
        "Default: small-judge."
    ),
]
Runs = Annotated[
    list[Path] | None,
    typer.Option(
        "--run", help="A run file to browse; repeatable. Others can be uploaded on the page.", rich_help_panel=_RUNS
    ),
]
Pairs = Annotated[
    Path | None,
    typer.Option(
        help="The judged file with the texts; default: the file named by the runs' manifest, beside them.",
        rich_help_panel=_RUNS,
    ),
]
Host = Annotated[str, typer.Option(help="Address to serve at.", rich_help_panel=_SERVER)]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 chooses a free port.", rich_help_panel=_SERVER)]
Password = Annotated[
    str | None,
    typer.Option(
        help=f"Password of the page. Safer in {PASSWORD_VARIABLE}: other users see commands.",
        envvar=PASSWORD_VARIABLE,
        rich_help_panel=_SERVER,
    ),
]
NoAuth = Annotated[
    bool,
    typer.Option("--no-auth", metavar="", help="Allow other machines without a password.", rich_help_panel=_SERVER),
]


@expand_options
def web(
    model: ModelArgument = None,
    run: Runs = None,
    pairs: Pairs = None,
    host: Host = "127.0.0.1",
    port: Port = 7860,
    password: Password = None,
    no_auth: NoAuth = False,
    *,
    judge_options: JudgeOptions,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Judge by hand on a page, talk about a judgment, browse run files, compare and label them."""
    engine, _ = engine_of(model, judge_options.engine, adapter=judge_options.adapter)  # refuses a missing judge now
    arguments = judge_options.judge_arguments()
    if pairs is not None and not run:
        raise ConfigError(f"--pairs {pairs}: has the texts of run files, but there is no --run; add one")
    require("gradio", extra="web")
    with tempfile.TemporaryDirectory(prefix="judgelm-web-") as uploads:
        os.environ["GRADIO_TEMP_DIR"] = uploads  # read by Gradio; what browsers upload goes when the page ends
        from judgelm.serving.engine_worker import EngineWorker
        from judgelm.serving.settings import bind, check_exposure
        from judgelm.serving.web.page import create_page, serve_page, web_app
        from judgelm.serving.web.runs import open_runs

        check_exposure(host, password, no_auth=no_auth, way_out="add --password")
        runs = open_runs(run or [], pairs)
        with bind(host, port) as bound, loaded_judge(model, engine, quiet=quiet, **arguments) as judge:
            worker = EngineWorker(judge.engine)
            try:
                if not quiet:
                    address = shown_address(host, bound.getsockname()[1])
                    greeting = f"the page is at {address} (Ctrl-C ends it)"
                    console.print(greeting, markup=False, highlight=False, soft_wrap=True)
                serve_page(web_app(create_page(judge, worker, runs), password=password), bound)
            finally:
                worker.close(_FINISH_S)
