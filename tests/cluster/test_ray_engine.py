"""Workers on a Ray of this machine: lost ones, requests that end them, and workers that must not work together."""

import os
import signal
from collections import Counter

import pytest
import torch

from benchmarks.tiny_model import make_base
from judgelm import Judge
from judgelm.cluster.engine import total_stats
from judgelm.cluster.plan import RayCluster
from judgelm.errors import EngineError, ModelError
from judgelm.records import Sample
from judgelm.runs.runner import judge

pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
TWO = RayCluster(workers=2, cores=1)

pytestmark = [pytest.mark.distributed, pytest.mark.usefixtures("ray_cluster")]


def samples(count, **odd):
    questions = {number: word for word, number in odd.items()}
    return [Sample(id=str(i), question=f"{questions.get(i, 'q')} {i}", answers=("a", "b")) for i in range(count)]


def test_a_killed_worker_costs_nothing_and_another_takes_its_place():
    with Judge("any", engine="fragile", cluster=TWO) as fragile:
        seen = Counter()
        for number, judgment in enumerate(judge(samples(150), fragile.pairwise(), fragile.engine)):
            seen[judgment.sample_id] += 1
            assert judgment.scores == (8.0, 6.0)
            if number == 20:
                os.kill(fragile.engine._pool._slots[0].location.pid, signal.SIGKILL)
        stats = fragile.engine.stats()
    assert seen == Counter(str(i) for i in range(150))
    assert stats["lost_workers"] == 1
    assert stats["requests_sent_again"] > 0


def test_a_request_that_ends_workers_fails_alone():
    with Judge("any", engine="fragile", cluster=TWO) as fragile:
        finished = judge(samples(20, poison=3), fragile.pairwise(), fragile.engine)
        judgments = {judgment.sample_id: judgment for judgment in finished}
        assert fragile.engine.stats()["lost_workers"] <= 3
    assert len(judgments) == 20
    assert [key for key, judgment in judgments.items() if judgment.failure] == ["3"]
    assert judgments["3"].failure.code == "engine"
    assert "workers were lost while running this request" in judgments["3"].failure.text


def test_an_engine_that_breaks_is_a_lost_worker_and_its_words_are_kept():
    with Judge("any", engine="fragile", cluster=RayCluster(workers=1, cores=1)) as fragile:
        [judgment] = judge(samples(1, breaks=0), fragile.pairwise(), fragile.engine)
    assert "a kernel failed" in judgment.failure.text


def test_workers_that_do_not_agree_are_refused():
    with pytest.raises(EngineError, match=r"the workers differ: versions is .* use the same model files"):
        Judge("differs", engine="fragile", cluster=TWO)


def test_a_model_that_is_not_on_a_node_is_said_with_its_name():
    with pytest.raises(ModelError, match=f"on {os.uname().nodename}: absent: no such folder"):
        Judge("absent", engine="fragile", cluster=TWO)


def test_workers_without_a_place_are_not_waited_for_for_ever():
    with pytest.raises(EngineError, match="could not place 1 worker of 64 cores within 1 s"):
        Judge("any", engine="fragile", cluster=RayCluster(workers=1, cores=64, placing_timeout_s=1))


def test_the_format_is_chosen_by_one_worker_for_all(tmp_path):
    shape = {"hidden_size": 64, "layers": 1, "heads": 2, "vocab_size": 300, "max_positions": 512, "seed": 0}
    make_base(["a b a b"], tmp_path, **shape, dtype=torch.bfloat16)
    with Judge(str(tmp_path), engine="transformers", cluster=TWO) as judge:
        dtype = judge.engine.describe()["dtype"]
        assert judge.engine._pool._options.dtype == dtype  # what a worker in place of a lost one loads, too
        [note] = judge.engine.stats()["notes"]  # of the choice; both workers were told, and chose nothing
    assert note.startswith(f"dtype: {dtype}")


def test_counts_are_those_of_all_workers_together():
    first, second = {"retries": {"timeout": 1}, "cost_usd": 0.5, "names": ["b"]}, {"retries": {"timeout": 2, "cut": 1}}
    both = {"retries": {"timeout": 3, "cut": 1}, "cost_usd": 0.75, "names": ["a", "b"]}
    assert total_stats([first, second, {"cost_usd": 0.25, "names": ["a", "b"]}]) == both
