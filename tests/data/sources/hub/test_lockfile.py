"""The lockfile: what was first downloaded, and nothing invented."""

import pytest
import yaml

from judgelm.data.sources.public_datasets import LockedDataset, lock_dataset, read_lock
from judgelm.errors import ConfigError

FIRST = LockedDataset(repo="a/b", revision="1" * 40, splits={"train": {"train.jsonl": "aa"}})


def test_without_a_file_nothing_is_locked(tmp_path):
    assert read_lock(tmp_path / "lock.yaml") == {}


def test_a_lock_is_read_back(tmp_path):
    lock_dataset(tmp_path / "lock.yaml", "set", FIRST)
    assert read_lock(tmp_path / "lock.yaml") == {"set": FIRST}
    assert (tmp_path / "lock.yaml").read_text().startswith("# Revisions of public data")


def test_other_sets_stay_and_names_are_in_order(tmp_path):
    path = tmp_path / "lock.yaml"
    lock_dataset(path, "z", FIRST)
    lock_dataset(path, "a", FIRST)
    assert list(yaml.safe_load(path.read_text())) == ["a", "z"]


def test_a_second_split_joins_the_first_at_one_revision(tmp_path):
    path = tmp_path / "lock.yaml"
    lock_dataset(path, "set", FIRST)
    lock_dataset(path, "set", LockedDataset(repo="a/b", revision=FIRST.revision, splits={"test": {"test.jsonl": "bb"}}))
    assert read_lock(path)["set"].splits == {"train": {"train.jsonl": "aa"}, "test": {"test.jsonl": "bb"}}


def test_another_revision_forgets_the_splits_of_the_first(tmp_path):
    path = tmp_path / "lock.yaml"
    lock_dataset(path, "set", FIRST)
    lock_dataset(path, "set", LockedDataset(repo="a/b", revision="2" * 40, splits={"test": {"test.jsonl": "bb"}}))
    assert read_lock(path)["set"] == LockedDataset(repo="a/b", revision="2" * 40, splits={"test": {"test.jsonl": "bb"}})


@pytest.mark.parametrize(
    "text", ["set: 3", "- a", "set: {repo: a/b}", "set: {repo: a/b, revision: x, more: 1}", "a: ["]
)
def test_a_file_that_is_no_lock_is_refused_and_not_overwritten(tmp_path, text):
    path = tmp_path / "lock.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"lock\.yaml"):
        lock_dataset(path, "set", FIRST)
    assert path.read_text() == text
