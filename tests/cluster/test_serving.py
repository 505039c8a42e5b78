"""The recipe and the examples in `serve/` for clusters."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ray = pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "serve/ray_batch.py"


def write_pairs(path, count):
    rows = ({"id": f"{path.stem} {i}", "question": f"q{i}", "answer_1": "a", "answer_2": "b"} for i in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def recipe(*arguments):
    command = [sys.executable, str(RECIPE), *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.mark.slow
def test_many_files_on_workers_loaded_once(tmp_path):
    files = [write_pairs(tmp_path / f"{name}.jsonl", 30) for name in ("one", "two")]
    (tmp_path / "config.yaml").write_text("engine: scripted\nboth_orders: true\n")
    options = ("-o", tmp_path / "judged", "--model", "8 6", "--config", tmp_path / "config.yaml", "--ray", "local")
    done = recipe(*files, *options, "--workers", 2, "--worker-cores", 1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("loaded in") == 1
    for name in ("one", "two"):
        rows = [json.loads(line) for line in (tmp_path / f"judged/{name}.jsonl").read_text().splitlines()]
        assert {row["id"] for row in rows} == {f"{name} {i}" for i in range(30)}
        assert (tmp_path / f"judged/{name}.run.json").exists()
    again = recipe(*files, *options)
    assert again.stdout.count("0 judged, 0 of them failed, 30 done before") == 2


def test_files_of_one_name_are_refused(tmp_path):
    (tmp_path / "more").mkdir()
    files = [write_pairs(folder / "one.jsonl", 1) for folder in (tmp_path, tmp_path / "more")]
    done = recipe(*files, "-o", tmp_path / "judged", "--model", "8 6")
    assert (done.returncode, "would both be judged into" in done.stderr) == (1, True)


def test_ray_takes_the_example_of_a_cluster():
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(yaml.safe_load((ROOT / "serve/ray_cluster.yaml").read_text())))


def test_a_machine_of_the_cluster_installs_and_starts_in_an_environment_of_its_own(tmp_path):
    # pip, ray and python3 are stood in for: each notes where it lies; `python3 -m venv` makes the other two
    (tmp_path / "judgelm").mkdir()
    outside, log = tmp_path / "outside", tmp_path / "log"
    outside.mkdir()
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
    environment = os.environ | {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "node",
        "SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "1",
    }  # fmt: skip
    pairs, out, log = write_pairs(tmp_path / "pairs.jsonl", 50), tmp_path / "out.jsonl", tmp_path / "log"
    command = ["bash", ROOT / "serve/slurm_ray.sh", pairs, "-o", out, "--model", "8 6", "--engine", "scripted"]
    with log.open("w") as file:
        done = subprocess.run(
            list(map(str, command)), check=False, stdout=file, stderr=file, env=environment, timeout=200
        )
    assert done.returncode == 0, log.read_text()
    assert len(out.read_text().splitlines()) == 50
    assert "2 workers of 1 core" in log.read_text()
