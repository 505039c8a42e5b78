"""A real server that real clients ask, each in an environment of its own (`make conformance` builds them)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / ".conformance"
DRIVERS = Path(__file__).parent / "drivers"


@pytest.fixture(scope="session")
def known_server():
    """The address of a server whose judge thinks what `known_judge.quality` says."""
    command = [sys.executable, str(Path(__file__).parent / "known_server.py")]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    address = server.stdout.readline().strip()
    assert address.startswith("http"), "the server did not start"
    yield address
    server.terminate()
    assert server.wait(20) == 0


@pytest.fixture
def client(known_server, tmp_path):
    """Runs a client's driver: what it is asked as JSON in, what the client concluded as JSON out."""

    def run(name, **asked):
        folder = CLIENTS / name
        if not (folder / "requirements.json").is_file():
            pytest.skip(f"{name} is not installed: python tests/conformance/build_clients.py {name}")
        given, found = tmp_path / "asked.json", tmp_path / "found.json"
        given.write_text(json.dumps({"base_url": known_server} | asked), encoding="utf-8")
        script = next(one for one in DRIVERS.iterdir() if one.stem == name)
        programs = os.pathsep.join([str(folder / "node_modules" / ".bin"), os.environ["PATH"]])
        command = (
            [shutil.which("node", path=programs)]
            if script.suffix == ".mjs"
            else [str(folder / "venv" / "bin" / "python"), "-I"]
        )
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "PYTHON", "JUDGELM_"))
        } | {
            "OPENAI_BASE_URL": known_server,
            "OPENAI_API_BASE": known_server,
            "OPENAI_API_KEY": "none",
            "PATH": programs,
        }
        done = subprocess.run(
            [*command, str(script), str(given), str(found), str(folder)],
            env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return json.loads(found.read_text(encoding="utf-8"))

    return run
