"""What the commands that stay up with a judge share."""

import gc

import pytest

from judgelm.cli.loading import heap_frozen
from judgelm.cli.run import run
from judgelm.judge import Judge
from judgelm.runs.batch import BatchJob
from tests.support.batch_runs import write_pairs


def test_what_was_there_is_not_searched_for_garbage_until_the_work_ends():
    with heap_frozen():
        assert gc.get_freeze_count() > 10_000
        assert len(gc.get_objects()) < 1_000
    assert gc.get_freeze_count() == 0


def test_a_failure_ends_it_too():
    with pytest.raises(KeyboardInterrupt), heap_frozen():
        raise KeyboardInterrupt
    assert gc.get_freeze_count() == 0


def test_a_batch_run_is_such_work(tmp_path):
    frozen = []
    job = BatchJob(inputs=(str(write_pairs(tmp_path / "pairs.jsonl", 3)),), out=str(tmp_path / "out.jsonl"))
    with Judge("8 6", engine="scripted") as judge:
        run(job, judge, judge.mode("pair"), quiet=True, look=lambda judgment: frozen.append(gc.get_freeze_count()))
    assert len(frozen) == 3
    assert min(frozen) > 10_000
