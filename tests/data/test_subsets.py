"""Seeded samples of rows: so many for each value, whatever the order of the file."""

import json
from pathlib import Path

import pytest

from judgelm.data.samples import draw_subset
from judgelm.errors import ConfigError, InputError


def write(path, rows):
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


ROWS = [{"id": index, "category": "law" if index % 5 == 0 else "math"} for index in range(20)]


def ids(subset):
    return [row["id"] for row in subset.rows]


def test_at_most_so_many_of_each_value_and_what_is_short_is_counted(tmp_path):
    subset = draw_subset(write(tmp_path / "a.jsonl", ROWS), field="category", size=6)
    assert subset.counts == {"law": (4, 4), "math": (6, 16)}
    assert ids(subset) == sorted(ids(subset))


def test_the_draw_depends_on_ids_and_seed_alone(tmp_path):
    given = draw_subset(write(tmp_path / "a.jsonl", ROWS), field="category", size=3)
    turned = draw_subset(write(tmp_path / "b.jsonl", ROWS[::-1]), field="category", size=3)
    other = draw_subset(write(tmp_path / "a.jsonl", ROWS), field="category", size=3, seed=1)
    assert set(ids(given)) == set(ids(turned)) != set(ids(other))


def test_a_larger_sample_holds_the_smaller(tmp_path):
    path = write(tmp_path / "a.jsonl", ROWS)
    assert set(ids(draw_subset(path, field=None, size=5))) < set(ids(draw_subset(path, field=None, size=9)))


def test_a_field_may_stand_in_the_metadata(tmp_path):
    rows = [{"id": 1, "metadata": {"data_set": "x"}}]
    assert draw_subset(write(tmp_path / "a.jsonl", rows), field="data_set", size=1).counts == {"x": (1, 1)}


def test_what_cannot_be_is_refused(tmp_path):
    path = write(tmp_path / "a.jsonl", ROWS)
    with pytest.raises(ConfigError, match="must be 1 or more"):
        draw_subset(path, field=None, size=0)
    with pytest.raises(InputError, match="no field 'subject'"):
        draw_subset(path, field="subject", size=1)
