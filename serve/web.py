"""Show a judge's page, with the runs of a folder to browse and label: the parts of `judgelm web`, to change.

    python serve/web.py my-judge --runs judged --pairs pairs.jsonl
    python serve/web.py "8 6" --engine scripted

The page is at http://127.0.0.1:7860 and seen from this machine alone. From another one reach it by a tunnel
(`ssh -L 7860:localhost:7860 HOST`), or use `judgelm web --host 0.0.0.0 --password ...`.
"""

import argparse
import sys
from pathlib import Path

from judgelm import Judge
from judgelm.cli.console import echo, printable
from judgelm.errors import JudgelmError
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.settings import bind
from judgelm.serving.web.page import create_page, serve_page, web_app
from judgelm.serving.web.runs import open_runs


def main() -> int:
    """Open the runs, load the judge, serve the page until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="local folder or hub id; of the scripted engine the reply")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--runs", type=Path, help="a folder of run files (those with a .run.json beside them)")
    parser.add_argument("--pairs", type=Path, help="the file that they judged")
    parser.add_argument("--port", type=int, default=7860)
    options = parser.parse_args()
    manifests = sorted(options.runs.glob("*.run.json")) if options.runs else []
    files = [path.with_name(f"{path.name.removesuffix('.run.json')}.jsonl") for path in manifests]
    with bind("127.0.0.1", options.port) as bound, Judge(options.model, engine=options.engine) as judge:
        worker = EngineWorker(judge.engine)
        page = create_page(judge, worker, open_runs(files, options.pairs))
        echo(f"the page is at http://127.0.0.1:{bound.getsockname()[1]}")
        try:
            serve_page(web_app(page), bound)
        finally:
            worker.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except JudgelmError as error:
        sys.exit(printable(f"error: {error}"))
