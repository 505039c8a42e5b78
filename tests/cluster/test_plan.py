"""How many workers, of what size, and what is refused before anything starts."""

from functools import partial

import pytest
import torch

from judgelm import Judge
from judgelm.cli.options import ClusterOptions
from judgelm.cluster import load_workers
from judgelm.cluster.plan import Node, RayCluster, WorkerPlan, make_plan
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import gpus_each, idle_gpus, unused_gpus_note
from judgelm.errors import ConfigError


def test_all_gpus_are_taken_in_groups_of_one_node():
    nodes = [Node(cpus=64, gpus=8), Node(cpus=64, gpus=8), Node(cpus=8, gpus=1)]
    assert make_plan(RayCluster(address="auto"), nodes, 1) == WorkerPlan(workers=17, gpus=1, cores=1)
    assert make_plan(RayCluster(address="auto"), nodes, 4) == WorkerPlan(workers=4, gpus=4, cores=1)
    assert make_plan(RayCluster(address="auto", workers=3, cores=8), nodes, 2) == WorkerPlan(workers=3, gpus=2, cores=8)

    with pytest.raises(ConfigError, match=r"requires 4 GPUs on one node.*more than 2"):
        make_plan(RayCluster(), [Node(cpus=8, gpus=2)] * 2, 4)


def test_without_gpus_each_node_has_a_worker_or_the_cores_are_shared_out():
    nodes = [Node(cpus=8, gpus=0), Node(cpus=4, gpus=0)]
    assert make_plan(RayCluster(), nodes, 1) == WorkerPlan(workers=2, gpus=0, cores=4)
    # three of 4 cores fit (2 on the first node, 1 on the second); four of 4 do not, four of 2 do
    assert make_plan(RayCluster(workers=3), nodes, 0) == WorkerPlan(workers=3, gpus=0, cores=4)
    assert make_plan(RayCluster(workers=4), nodes, 0) == WorkerPlan(workers=4, gpus=0, cores=2)
    assert make_plan(RayCluster(workers=40), nodes, 0) == WorkerPlan(workers=40, gpus=0, cores=1)
    assert make_plan(RayCluster(cores=3), nodes, 0) == WorkerPlan(workers=3, gpus=0, cores=3)


def test_what_a_worker_wants_of_gpus():
    options = EngineOptions(model="m", engine_args={"tensor_parallel_size": 2, "pipeline_parallel_size": 2})
    assert gpus_each("vllm", options) == 4
    copies = EngineOptions(model="m", engine_args={"tensor_parallel_size": 2, "data_parallel_size": 4})
    assert gpus_each("vllm", copies) == gpus_each("auto", copies) == 8
    assert gpus_each("scripted", EngineOptions(model="m")) == 0
    assert gpus_each("auto", EngineOptions(model="m", device="cpu")) == 0


@pytest.mark.parametrize("size", [0, "two", 1.5])
def test_a_size_that_is_no_number_of_gpus_is_refused(size):
    with pytest.raises(ConfigError, match=r"data_parallel_size=.*: expected an integer of at least 1"):
        gpus_each("vllm", EngineOptions(model="m", engine_args={"data_parallel_size": size}))


def test_idle_gpus_are_named_with_the_option_that_uses_them():
    for used, gpus, copies in ((1, 8, 8), (2, 8, 4), (3, 6, 2)):  # two groups of three; two GPUs stay idle
        note = unused_gpus_note(8, used)
        assert f"using {used} of 8; to run {copies} replicas, pass --gpus {gpus} " in note
    assert {unused_gpus_note(*counts) for counts in ((1, 1), (8, 8), (3, 2), (0, 1), (8, 0))} == {""}


def test_options_that_do_not_fit_are_refused(monkeypatch):
    def refused(words, make, **options):
        with pytest.raises(ConfigError, match=words):
            make(**options)

    refused("for a Ray cluster, pass workers", RayCluster, gpus=2, address="auto")
    refused("must be at least 1", RayCluster, workers=0)
    refused("Ray Client is not supported", RayCluster, address="ray://head:10001")
    load = partial(load_workers, options=EngineOptions(model="m"), cluster=RayCluster())
    capped = EngineOptions(model="m", engine_args={"max_cost_usd": 1})
    refused("max_cost_usd", load, name="openai", options=capped)
    refused("Ray assigns GPUs", load, name="transformers", options=EngineOptions(model="m", device="cuda:1"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    refused("for CPUs, use --ray local", load, name="scripted", cluster=RayCluster(gpus=2))


def test_workers_need_a_cluster():
    with pytest.raises(ConfigError, match="add --ray local"):
        ClusterOptions(workers=2).cluster()
    assert ClusterOptions().cluster() is None
    assert ClusterOptions(gpus=4).cluster() == RayCluster(address="local", gpus=4)
    options = ClusterOptions(ray="auto", workers=2, worker_cores=8)
    assert options.cluster() == RayCluster(address="auto", workers=2, cores=8)


def test_a_judge_names_the_gpus_that_it_leaves_idle(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    with Judge("8 6", engine="scripted") as judge:
        assert judge.notes == []  # it uses none
    options = EngineOptions(model="m", engine_args={"tensor_parallel_size": 4})
    assert idle_gpus("vllm", options) == [unused_gpus_note(8, 4)]
    assert idle_gpus("transformers", EngineOptions(model="m", device="cuda:3")) == []  # its device was chosen
