"""A real server that real clients ask, each in an environment of its own (`make conformance` builds them)."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / ".conformance"
DRIVERS = Path(__file__).parent / "drivers"


@pytest.fixture(scope="session")
def known_server():
    """The address of a server whose judge thinks what `known_judge.quality` says."""
    with known_server_that("refuse") as address:
        yield address


@pytest.fixture(scope="session")
def answering_server():
    """The address of a server that also answers unrecognised prompts."""
    with known_server_that("answer") as address:
        yield address


@contextmanager
def known_server_that(unknown):
    command = [sys.executable, str(Path(__file__).parent / "known_server.py"), unknown]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    address = server.stdout.readline().strip()
    assert address.startswith("http"), "the server did not start"
    yield address
    server.terminate()
    assert server.wait(20) == 0


def run_in(client, command, server, folder, *, expected=(0,), cwd=None, timeout_s=280, **environment):
    """Run a command in a client's environment, with the server as OpenAI's; the finished process."""
    installed = CLIENTS / client
    if not (installed / "requirements.json").is_file():
        pytest.skip(f"{client} is not installed: python tests/conformance/build_clients.py {client}")
    programs = [installed / "venv" / "bin", installed / "node_modules" / ".bin"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "PYTHON", "JUDGELM_"))}
    done = subprocess.run(
        list(map(str, command)),
        env=kept
        | {"PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]])}
        | {"OPENAI_BASE_URL": server, "OPENAI_API_BASE": server, "OPENAI_API_KEY": "unused"}
        | {"DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "PROMPTFOO_CONFIG_DIR": str(folder)}
        | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "MLFLOW_DISABLE_TELEMETRY": "true"}
        | {f"PROMPTFOO_DISABLE_{name}": "1" for name in ("TELEMETRY", "UPDATE", "REMOTE_GENERATION")}
        | environment,
        cwd=cwd or folder, capture_output=True, text=True, check=False, timeout=timeout_s,
    )  # fmt: skip
    assert done.returncode in expected, f"{command}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done


@pytest.fixture
def client(known_server, tmp_path):
    """Runs a client's driver: what it is asked as JSON in, what the client concluded as JSON out."""

    def run(name, *, timeout_s=280, **asked):
        given, found = tmp_path / "asked.json", tmp_path / "found.json"
        server = asked.setdefault("base_url", known_server)
        given.write_text(json.dumps(asked), encoding="utf-8")
        drive(name, given, found, server, timeout_s=timeout_s)
        return json.loads(found.read_text(encoding="utf-8"))

    return run


def drive(name, given, found, server, **options):
    """Run a client's driver from one file to the other; the finished process."""
    script = next(path for path in DRIVERS.iterdir() if path.stem == name)
    program = ["node"] if script.suffix == ".mjs" else ["python", "-I"]
    return run_in(name, [*program, script, given, found, CLIENTS / name], server, given.parent, **options)
