"""A real server with the known judge of tests/support behind it.

python tests/conformance/known_server.py          writes its address on a line, and ends with SIGTERM
python tests/conformance/known_server.py answer   answers unrecognised prompts instead of refusing them
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from judgelm.dialects.prompt_file import read_dialects
from judgelm.serving.app import create_app
from judgelm.serving.server import Server, uvicorn_config
from judgelm.serving.settings import ServerSettings, bind
from tests.support.known_judge import handler_of
from tests.support.schema_replies import SchemaEngine


def main() -> None:
    """Serve until a signal comes."""
    bound = bind("127.0.0.1", 0)

    def say() -> None:
        sys.stdout.write(f"http://127.0.0.1:{bound.getsockname()[1]}/v1\n")
        sys.stdout.flush()

    unknown, prompts = (sys.argv[1:] or ["refuse"])[0], read_dialects(Path(__file__).with_name("own_prompts.yaml"))
    with handler_of(SchemaEngine(), unknown=unknown, prompts=prompts) as handler:
        app = create_app(handler, ServerSettings(model="known"))
        config, traffic = uvicorn_config(app, access_log=False), app.state.traffic
        server = Server(config, traffic=traffic, worker=handler.worker, finish_s=5, on_listening=say)
        server.run(sockets=[bound])


if __name__ == "__main__":
    main()
