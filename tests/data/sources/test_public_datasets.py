"""Public data sets: their cards, and the lockfile of their revisions."""

from pathlib import Path

import pytest
import yaml

from judgelm.data.sources.public_datasets import (
    LockedDataset,
    dataset_card,
    dataset_names,
    lock_dataset,
    read_card,
    read_lock,
)
from judgelm.data.sources.registry import get_source
from judgelm.errors import ConfigError


@pytest.mark.parametrize("name", dataset_names())
def test_a_card_is_whole_and_has_its_sources(name):
    card = dataset_card(name)
    assert card.name == name
    assert get_source(card.reader) is not None
    assert card.sources.keys() >= {"licence", "files", "schema"}
    assert all(split.rows is None for split in card.splits.values()) or "rows" in card.sources
    assert not card.gated or "gated" in card.sources
    assert "/" in card.repo


@pytest.mark.parametrize("name", dataset_names())
def test_no_schema_counts_as_verified_before_it_was_seen_in_files_from_the_hub(name):
    # the hub has not been reached yet; who sets this says in the card's sources when and at which revision it was
    card = dataset_card(name)
    assert not card.verified or "verified" in card.sources


def test_the_page_names_all():
    page = (Path(__file__).parents[3] / "docs/data.md").read_text(encoding="utf-8")
    assert [name for name in dataset_names() if f"`{name}`" not in page] == []


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean judgelm-100k"):
        dataset_card("judgelm-100")


def test_an_unknown_split_is_refused():
    with pytest.raises(ConfigError, match=r"judgelm-100k: split 'test' does not exist.*train, validation"):
        dataset_card("judgelm-100k").selected(("test",))


def test_splits_come_in_the_cards_order():
    card = dataset_card("judgelm-100k")
    assert card.selected(()) == card.selected(("validation", "train")) == ("train", "validation")


def test_a_card_with_a_wrong_field_is_refused_with_its_file(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("name: x\nrepo: a/b\nsplit: {}\n")
    with pytest.raises(ConfigError, match=r"x\.yaml: no card of a data set"):
        read_card(path)


def test_a_split_names_its_files_in_one_way(tmp_path):
    text = "name: x\nsummary: s\nrepo: a/b\nlicence: mit\nterms: t\nreader: preference\nverified: false\nsources: {}\n"
    path = tmp_path / "x.yaml"
    path.write_text(text + "splits: {train: {}}\n")
    with pytest.raises(ConfigError, match="either hub or files"):
        read_card(path)


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
