"""Seeded samples of rows: so many for each value, whatever the order of the file."""

import pytest

from judgelm.data.subsets import draw_subset
from judgelm.errors import ConfigError, InputError

ROWS = [{"id": index, "category": "law" if index % 5 == 0 else "math"} for index in range(20)]


def ids(subset):
    return [row["id"] for row in subset.rows]


def test_at_most_so_many_of_each_value_and_what_is_short_is_counted(write):
    subset = draw_subset(write(*ROWS), field="category", size=6)
    assert subset.counts == {"law": (4, 4), "math": (6, 16)}
    assert ids(subset) == sorted(ids(subset))


def test_the_draw_depends_on_ids_and_seed_alone(write):
    given = draw_subset(write(*ROWS), field="category", size=3)
    turned = draw_subset(write(*ROWS[::-1], name="b.jsonl"), field="category", size=3)
    other = draw_subset(write(*ROWS), field="category", size=3, seed=1)
    assert set(ids(given)) == set(ids(turned)) != set(ids(other))


def test_a_larger_sample_holds_the_smaller(write):
    path = write(*ROWS)
    assert set(ids(draw_subset(path, field=None, size=5))) < set(ids(draw_subset(path, field=None, size=9)))


def test_a_field_may_stand_in_the_metadata(write):
    rows = [{"id": 1, "metadata": {"data_set": "x"}}]
    assert draw_subset(write(*rows), field="data_set", size=1).counts == {"x": (1, 1)}


def test_what_cannot_be_is_refused(write):
    path = write(*ROWS)
    with pytest.raises(ConfigError, match="must be at least 1"):
        draw_subset(path, field=None, size=0)
    with pytest.raises(InputError, match="field 'subject' not found"):
        draw_subset(path, field="subject", size=1)
