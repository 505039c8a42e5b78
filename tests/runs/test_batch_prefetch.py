"""Samples of a pipe, as they arrive."""

import threading

import pytest

from judgelm.errors import InputError
from judgelm.records import Sample
from judgelm.runs.batch import prefetch


def sample(i):
    return Sample(id=str(i), question="q", answers=("a", "b"))


def test_all_samples_come_in_order_and_the_end_is_seen():
    found = [one for one in prefetch([sample(i) for i in range(500)], hold=8) if one is not None]
    assert [one.id for one in found] == [str(i) for i in range(500)]


def test_none_is_given_while_the_source_is_silent():
    go_on = threading.Event()

    def slow():
        yield sample(0)
        go_on.wait(10)
        yield sample(1)

    source = prefetch(slow(), hold=8)
    first = next(one for one in source if one is not None)
    assert first.id == "0"
    assert next(source) is None
    go_on.set()
    assert [one.id for one in source if one is not None] == ["1"]


def test_an_error_of_the_source_is_raised_where_it_is_read():
    def broken():
        yield sample(0)
        raise InputError("pipe: torn")

    with pytest.raises(InputError, match="pipe: torn"):
        list(prefetch(broken(), hold=8))
