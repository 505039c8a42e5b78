"""What the commands that stay up with a judge share."""

import gc

import pytest

from judgelm.cli.loading import heap_frozen


def test_what_was_there_is_not_searched_for_garbage_until_the_work_ends():
    with heap_frozen():
        assert gc.get_freeze_count() > 10_000
        assert len(gc.get_objects()) < 1_000
    assert gc.get_freeze_count() == 0


def test_a_failure_ends_it_too():
    with pytest.raises(KeyboardInterrupt), heap_frozen():
        raise KeyboardInterrupt
    assert gc.get_freeze_count() == 0
