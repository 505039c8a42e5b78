"""`judgelm-batch` on Ray: judgments like those of one process, and everything in it killed in turn."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.batch_runs import BATCH, judged_rows, manifest, still_alive, wait_for_judgments, write_pairs

pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
COUNT = 1500


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("pairs") / "pairs.jsonl", COUNT)


def command(pairs, out, judge, *more):
    options = ("--model", judge, "--engine", "transformers", "--both-orders", "--reasons", "flips")
    return [str(part) for part in (BATCH, pairs, "-o", out, *options, *more)]


def on_workers(pairs, out, judge, *more, address="local"):
    return command(pairs, out, judge, "--ray", address, "--workers", "2", "--worker-cores", "1", *more)


@pytest.fixture(scope="module")
def expected(pairs, tiny_judge, tmp_path_factory):
    """What one process says."""
    out = tmp_path_factory.mktemp("expected") / "out.jsonl"
    subprocess.run(command(pairs, out, tiny_judge), check=True, capture_output=True)
    return judgments(out)


def judgments(out):
    """All that a judgment says, by id; its provenance names the path, which workers are given in full."""
    rows = judged_rows(out).items()
    return {name: {key: value for key, value in row.items() if key != "provenance"} for name, row in rows}


def workers():
    """Ids of the processes in which a worker runs; Ray names them so."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            pids += [int(path.parent.name)] if b"ray::Worker" in path.read_bytes() else []
    return pids


@pytest.fixture
def run(pairs, tiny_judge, tmp_path):
    """A run that has begun: its process, output and log."""
    out, log = tmp_path / "out.jsonl", tmp_path / "log"
    started = []

    def begin(**where):
        # one pair at a time, so that there is time to kill something
        arguments = on_workers(pairs, out, tiny_judge, "--max-num-seqs", "1", **where)
        with log.open("w") as file:  # a pipe would stay open in what is left behind
            process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=file)
        started.append(process)
        wait_for_judgments(out, process, log.read_text, 40)
        return process, out, log

    yield begin
    for process in started:
        process.kill()
        process.wait()


def finish(pairs, out, judge, **where):
    done = subprocess.run(on_workers(pairs, out, judge, **where), check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_killed_worker(run, expected):
    process, out, log = run()
    first, *others = workers()
    assert len(others) == 1
    os.kill(first, signal.SIGKILL)
    assert process.wait(240) == 0, log.read_text()
    assert judgments(out) == expected
    stats = manifest(out)["sessions"][-1]["engine"]
    assert stats["lost_workers"] == 1
    assert 0 < stats["requests_sent_again"] <= 8, "a worker of one sequence has few in hand"
    assert "engine: lost workers" in log.read_text()


def test_a_killed_run(run, pairs, tiny_judge, expected):
    process, out, _ = run()
    children = [*manifest(out)["sessions"][-1]["children"], *workers()]
    assert children
    process.kill()
    process.wait(60)
    done = out.read_bytes().count(b"\n")  # the last line may be incomplete
    assert 0 < done < COUNT
    assert f"resuming: {done} samples" in finish(pairs, out, tiny_judge)
    assert not still_alive(children)
    assert judgments(out) == expected


@pytest.fixture
def two_nodes():
    """Two nodes of one core each, on this machine."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    second = cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    yield cluster, second
    cluster.shutdown()


def test_a_killed_node_and_one_that_joins(run, two_nodes, expected):
    cluster, second = two_nodes
    process, out, log = run(address=cluster.address)
    assert len(workers()) == 2
    cluster.remove_node(second, allow_graceful=False)
    wait_for_judgments(out, process, log.read_text, out.read_bytes().count(b"\n") + 40)
    assert len(workers()) == 1, "the other waits for a node"
    cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    assert process.wait(240) == 0, log.read_text()
    assert judgments(out) == expected
    assert manifest(out)["sessions"][-1]["engine"]["lost_workers"] == 1


def test_a_run_killed_on_a_cluster_that_stays(run, two_nodes, pairs, tiny_judge, expected):
    cluster, _ = two_nodes
    process, out, _ = run(address=cluster.address)
    before = workers()
    process.kill()
    process.wait(60)
    assert not still_alive(before), "Ray ends what a lost driver had"
    finish(pairs, out, tiny_judge, address=cluster.address)
    assert judgments(out) == expected


def test_probabilities_and_reasons_are_those_of_one_process(pairs, tiny_judge, tmp_path):
    alone, together = tmp_path / "alone.jsonl", tmp_path / "together.jsonl"
    options = ("--distribution", "--limit", "200")
    subprocess.run(command(pairs, alone, tiny_judge, *options), check=True, capture_output=True)
    subprocess.run(on_workers(pairs, together, tiny_judge, *options), check=True, capture_output=True)
    single, parallel = judgments(alone), judgments(together)
    assert parallel.keys() == single.keys()
    for key, row in single.items():
        assert parallel[key]["verdict"] == row["verdict"]
        assert parallel[key]["probability"] == pytest.approx(row["probability"], abs=1e-5)
