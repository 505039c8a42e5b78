"""The recipe and the examples in `serve/` for clusters."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.jsonl_files import write_rows

ray = pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
ROOT = Path(__file__).parents[2]


def test_ray_takes_the_example_of_a_cluster():
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(yaml.safe_load((ROOT / "serve/ray_cluster.yaml").read_text())))


def test_a_machine_of_the_cluster_installs_and_starts_in_an_environment_of_its_own(tmp_path):
    # pip, ray and python3 are stood in for: each notes where it lies; `python3 -m venv` makes the other two
    outside, log = tmp_path / "outside", tmp_path / "log"
    for folder in (tmp_path / "judgelm", outside):
        folder.mkdir()
    noted = f'#!/bin/bash\necho "$0" >> {log}\n'
    made = 'mkdir -p "$3/bin"; for name in pip ray; do cp "$(dirname "$0")/$name" "$3/bin/$name"; done\n'
    for name, text in {"pip": noted, "ray": noted, "python3": f"#!/bin/bash\n{made}"}.items():
        (outside / name).write_text(text)
        (outside / name).chmod(0o755)
    cluster = yaml.safe_load((ROOT / "serve/ray_cluster.yaml").read_text())
    variables = os.environ | {"HOME": str(tmp_path), "PATH": f"{outside}:{os.environ['PATH']}", "RAY_HEAD_IP": "head"}
    for part in ("setup", "head_start_ray", "worker_start_ray", "setup"):  # the last as of a second `ray up`
        for command in cluster[f"{part}_commands"]:
            subprocess.run(["bash", "-c", command], env=variables, check=True)
    called = ["pip", "pip", "ray", "ray", "ray", "ray", "pip", "pip"]
    assert log.read_text().split() == [str(tmp_path / "judgelm-venv/bin" / name) for name in called]


@pytest.mark.slow
def test_the_slurm_script_judges_on_two_nodes(tmp_path):
    # scontrol and srun are stood in for; each of srun's two tasks starts a node of one core on this machine
    tasks = (
        'test "$1" = --cpus-per-task=1 || exit 3; shift 2; for node in 0 1; do SLURM_NODEID=$node "$@" & done; '
        'trap "kill $(jobs -p | xargs)" TERM; wait; wait'
    )
    for name, body in {"scontrol": "echo 127.0.0.1", "srun": tasks}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"JOB_NODELIST": "node", "JOB_ID": str(os.getpid()), "JOB_NUM_NODES": "2", "CPUS_PER_TASK": "1"}
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {f"SLURM_{name}": value for name, value in slurm.items()} | {"PATH": path}
    rows = ({"id": f"p{i}", "question": f"q{i}", "answer_1": "a", "answer_2": "b"} for i in range(50))
    pairs, out, log = write_rows(tmp_path / "pairs.jsonl", rows), tmp_path / "out.jsonl", tmp_path / "log"
    command = ["bash", ROOT / "serve/slurm_ray.sh", pairs, "-o", out, "--model", "8 6", "--engine", "scripted"]
    with log.open("w") as file:
        done = subprocess.run(command, check=False, stdout=file, stderr=file, env=environment, timeout=200)
    assert done.returncode == 0, log.read_text()
    assert len(out.read_text().splitlines()) == 50
    assert "2 workers of 1 core" in log.read_text()
