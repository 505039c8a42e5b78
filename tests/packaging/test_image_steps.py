"""The CPU image's own steps in an empty folder, and its server as the image starts it, without a container engine."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.containerfiles import Image, build_context, stages

ROOT = Path(__file__).parents[2]
CPU = stages(ROOT / "serve/containers/cpu.Containerfile")
WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt")


def test_the_build_context_is_what_the_package_is_built_from():
    names = build_context(ROOT)
    assert {"judgelm/package.py", "pyproject.toml", "Makefile", "train/sft.py", "LICENSE"} <= set(names)
    folders = {name.partition("/")[0] for name in names if "/" in name}
    assert folders == {"configs", "examples", "judgelm", "serve", "train"}
    assert [name for name in names if name.endswith(WEIGHTS)] == []


def words_of(keyword):
    """The words of the runtime stage's last instruction of a kind, in its JSON form."""
    texts = [step.text for step in CPU["runtime"] if step.word == keyword]
    return json.loads(re.search(r"\[.*\]", texts[-1])[0])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_its_steps_make_an_image_that_serves_checks_itself_and_stops(tmp_path):
    hidden = ("PYTHON", "VIRTUAL_ENV", "JUDGELM", "MAKE", "EXTRAS")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    inherited["PATH"] = f"{Path(sys.base_prefix, 'bin')}{os.pathsep}{inherited['PATH']}"
    extra_index = os.environ.get("PIP_EXTRA_INDEX_URL")  # pip's settings here name the index with torch for CPUs
    image = Image(root=tmp_path, checkout=ROOT, environment=inherited, arguments={"PIP_EXTRA_INDEX_URL": extra_index})
    image.follow(CPU["build"])
    variables = inherited | image.follow(CPU["runtime"])
    assert {command.split()[0] for command in image.left_out} == {"apt-get", "rm", "groupadd", "useradd"}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*words_of("ENTRYPOINT"), "serve", "8 6", "--engine", "scripted", "--port", str(port), "--quiet"]
    server = subprocess.Popen(command, env=variables, cwd=tmp_path / "work")
    try:
        health = [word.replace(":8000", f":{port}") for word in words_of("HEALTHCHECK")]
        until = time.monotonic() + 120
        while subprocess.run(health, env=variables, capture_output=True, check=False).returncode:
            assert time.monotonic() < until
            time.sleep(0.5)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    finally:
        server.kill()
