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
CPU = ROOT / "serve/containers/cpu.Containerfile"
WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt")


def test_the_build_context_is_what_the_package_is_built_from():
    names = build_context(ROOT)
    assert {"judgelm/package.py", "pyproject.toml", "Makefile", "train/sft.py", "LICENSE"} <= set(names)
    folders = {name.partition("/")[0] for name in names if "/" in name}
    assert folders == {"configs", "examples", "judgelm", "serve", "train"}
    assert [name for name in names if name.endswith(WEIGHTS)] == []


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The root of a followed image, and the variables that its programs see."""
    root = tmp_path_factory.mktemp("image")
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "JUDGELM", "MAKE")) and name != "EXTRAS"
    }
    inherited["PATH"] = f"{Path(sys.base_prefix, 'bin')}{os.pathsep}{inherited['PATH']}"
    extra_index = os.environ.get("PIP_EXTRA_INDEX_URL")  # pip's settings here say where the CPU's torch is had
    image = Image(root=root, checkout=ROOT, environment=inherited, arguments={"PIP_EXTRA_INDEX_URL": extra_index})
    parts = stages(CPU)
    try:
        image.follow(parts["build"])
        variables = image.follow(parts["runtime"])
    except subprocess.CalledProcessError as error:
        raise AssertionError(f"{error.cmd[-1]}\n{error.stdout[-3000:]}\n{error.stderr[-3000:]}") from error
    assert {command.split()[0] for command in image.left_out} == {"apt-get", "rm", "groupadd", "useradd"}
    return root, inherited | variables


def words_of(name):
    """The words of the runtime stage's last instruction of a kind, in its JSON form."""
    texts = [step.text for step in stages(CPU)["runtime"] if step.word == name]
    return json.loads(re.search(r"\[.*\]", texts[-1])[0])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_its_steps_make_an_image_that_serves_checks_itself_and_stops(image):
    root, variables = image
    entry = words_of("ENTRYPOINT")
    assert subprocess.run([*entry, "--version"], env=variables, capture_output=True, text=True, cwd=root / "work",
                          check=True).stdout.startswith("judgelm ")  # fmt: skip
    assert str(root) in subprocess.run(
        ["python", "-c", "import judgelm; print(judgelm.__file__)"],
        env=variables, cwd=root / "work", capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*entry, "serve", "8 6", "--engine", "scripted", "--port", str(port), "--quiet"]
    server = subprocess.Popen(command, env=variables, cwd=root / "work")
    try:
        health = [word.replace(":8000", f":{port}") for word in healthcheck()]
        until = time.monotonic() + 120
        while subprocess.run(health, env=variables, capture_output=True, check=False).returncode:
            assert time.monotonic() < until
            time.sleep(0.5)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    finally:
        server.kill()


def healthcheck():
    [text] = [step.text for step in stages(CPU)["runtime"] if step.word == "HEALTHCHECK"]
    return json.loads(text.partition("CMD")[2])
