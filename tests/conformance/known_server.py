"""A real server with the known judge of tests/support behind it.

python tests/conformance/known_server.py        writes its address on a line, and ends with SIGTERM
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from judgelm.dialects.prompt_file import read_prompts
from judgelm.judge import Judge
from judgelm.serving.app import create_app
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.handler import HandlerOptions, JudgeHandler
from judgelm.serving.server import Server, uvicorn_config
from judgelm.serving.settings import ServerSettings, bind
from tests.support.known_judge import KnownEngine


def main() -> None:
    """Serve until a signal comes."""
    judge = Judge("8 6", engine="scripted")
    judge.engine = KnownEngine()
    worker = EngineWorker(judge.engine)
    options = HandlerOptions(prompts=read_prompts(Path(__file__).with_name("own_prompts.yaml")))
    app = create_app(JudgeHandler(judge, worker, options), ServerSettings(model="known"))
    bound = bind("127.0.0.1", 0)

    def say() -> None:
        sys.stdout.write(f"http://127.0.0.1:{bound.getsockname()[1]}/v1\n")
        sys.stdout.flush()

    server = Server(
        uvicorn_config(app, access_log=False), traffic=app.state.traffic, worker=worker, finish_s=5, on_listening=say
    )
    try:
        server.run(sockets=[bound])
    finally:
        worker.close()


if __name__ == "__main__":
    main()
