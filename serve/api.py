"""Serve a judge to GPT-4 clients, using the building blocks of `judgelm serve`. You can add your own routes.

    python serve/api.py my-judge --both-orders
    python serve/api.py "8 6" --engine scripted

The API at http://127.0.0.1:8000/v1 is only reachable from this machine. `judgelm serve` has options for API keys, other
addresses, and limits. On Ctrl-C or SIGTERM, the server finishes requests in flight before it exits.
"""

import argparse
import sys

from judgelm import Judge
from judgelm.cli.console import echo, printable
from judgelm.errors import JudgelmError
from judgelm.runs.engine_worker import EngineWorker
from judgelm.serving.app import create_app
from judgelm.serving.chat import check_chat
from judgelm.serving.handler import HandlerOptions, JudgeHandler
from judgelm.serving.server import Server, uvicorn_config
from judgelm.serving.settings import ServerSettings, bind


def main() -> int:
    """Load the judge and serve it until a signal arrives. Return 0 if all requests were answered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="local folder or hub id; for the scripted engine, the reply")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--unknown", choices=("answer", "refuse"), help="answer or refuse unrecognised prompts")
    parser.add_argument("--both-orders", action="store_true", help="judge each pair in both orders")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    with bind("127.0.0.1", options.port) as bound, Judge(options.model, engine=options.engine) as judge:
        if options.unknown == "answer":
            check_chat(judge.engine)
        worker = EngineWorker(judge.engine)
        handler = JudgeHandler(judge, worker, HandlerOptions(unknown=options.unknown, both_orders=options.both_orders))
        app = create_app(handler, ServerSettings(model=judge.name))
        address = f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
        server = Server(
            uvicorn_config(app),
            traffic=app.state.traffic,
            worker=worker,
            finish_s=60,
            on_listening=lambda: echo(f"serving at {address}"),
        )
        try:
            server.run(sockets=[bound])
        finally:
            worker.close()
    return 130 if server.unanswered else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except JudgelmError as error:
        sys.exit(printable(f"error: {error}"))
