"""The files for SkyPilot and KubeRay's RayService, by those projects' own code, each in an environment of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import venv
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
SKYPILOT = "skypilot==0.14.1"
SITE = next(Path(path) for path in sys.path if (Path(path) / "yaml").is_dir())


def environment(folder, requirement, *, with_this=False):
    """The Python of a new environment with one package; `with_this` adds this environment's packages below it."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    if with_this:
        [site] = folder.glob("lib/python*/site-packages")
        (site / "dependencies.pth").write_text(f"{SITE}\n")
    subprocess.run([python, "-m", "pip", "install", "-qq", "--no-compile", requirement], check=True)
    return python


def test_skypilot_reads_its_files(tmp_path):
    python = environment(tmp_path / "venv", SKYPILOT)
    code = """
import json, sys, sky
tasks = [sky.Task.from_yaml(path) for path in sys.argv[1:]]
print(json.dumps([[task.name, task.service.readiness_path if task.service else None] for task in tasks]))
"""
    variables = os.environ | {"HOME": str(tmp_path), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1", "JUDGELM_API_KEYS": "k"}
    files = [ROOT / f"serve/sky/{name}.yaml" for name in ("train", "judge")]
    done = subprocess.run([python, "-c", code, *files], cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [["judgelm-train", None], ["judgelm-judge", "/readyz"]]


@pytest.fixture(scope="module")
def ray_serve(tmp_path_factory):
    """The Python of an environment with Ray Serve, and its variables."""
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
    python = environment(tmp_path_factory.mktemp("ray") / "venv", f"ray[serve]=={ray.__version__}", with_this=True)
    paths = f"{ROOT}{os.pathsep}{ROOT / 'serve/kubernetes'}"  # the manifest sets the second one
    return python, os.environ | {"PYTHONPATH": paths, "RAY_USAGE_STATS_ENABLED": "0", "JUDGELM_API_KEYS": "key"}


def test_ray_takes_the_services_configuration(ray_serve):
    python, variables = ray_serve
    [service] = yaml.safe_load_all((ROOT / "serve/kubernetes/ray_service.yaml").read_text(encoding="utf-8"))
    assert {"name": "PYTHONPATH", "value": "/recipes/serve/kubernetes"} in service["spec"]["rayClusterConfig"][
        "headGroupSpec"
    ]["template"]["spec"]["containers"][0]["env"]
    code = """
import json, sys
from ray.serve.schema import ServeDeploySchema
from ray_service import ServiceOptions, build
[application] = ServeDeploySchema(**json.loads(sys.argv[1])).applications
print(application.import_path, ServiceOptions(**application.args).replicas)
"""
    configuration = json.dumps(yaml.safe_load(service["spec"]["serveConfigV2"]))
    done = subprocess.run([python, "-c", code, configuration], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "ray_service:build 2"


SERVING = """
import ray, sys
from ray import serve
from ray_service import ServiceOptions, build
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
serve.start(http_options={"port": int(sys.argv[1])})
serve.run(build(ServiceOptions(model="8 6", engine="scripted", replicas=2)))
print("serving", flush=True)
sys.stdin.read()
serve.shutdown()
"""


def test_its_replicas_answer_as_the_server_does(ray_serve):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        unused_port = probe.getsockname()[1]
    python, variables = ray_serve
    server = subprocess.Popen(
        [python, "-c", SERVING, str(unused_port)],
        env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert any("serving" in line for line in server.stdout)
        address = f"http://127.0.0.1:{unused_port}"
        body = json.dumps({"question": "What is 2 + 2?", "answer_1": "4", "answer_2": "5"}).encode()
        headers = {"Authorization": "Bearer key", "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{address}/v1/judge", body, headers)) as reply:
            assert json.loads(reply.read())["scores"] == [8.0, 6.0]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(urllib.request.Request(f"{address}/v1/judge", body))
        with urllib.request.urlopen(f"{address}/healthz") as reply:
            assert json.loads(reply.read())["status"] == "ok"
    finally:
        server.stdin.close()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            raise
    assert server.returncode == 0
