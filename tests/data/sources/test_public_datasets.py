"""Public data sets: their cards, and the lockfile of their revisions."""

from dataclasses import replace

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
    assert card.selected(()) == card.selected(tuple(reversed(card.splits))) == tuple(card.splits)
    # the hub has not been reached yet; who sets this says in the card's sources when and at which revision it was
    assert not card.verified or "verified" in card.sources


def test_unknown_names_are_answered_with_those_there_are():
    with pytest.raises(ConfigError, match="did you mean judgelm-100k"):
        dataset_card("judgelm-100")
    with pytest.raises(ConfigError, match=r"judgelm-100k: split 'test' does not exist.*train, validation"):
        dataset_card("judgelm-100k").selected(("test",))


def test_a_card_with_a_wrong_field_or_a_split_without_files_is_refused(tmp_path):
    text = "name: x\nsummary: s\nrepo: a/b\nlicence: mit\nterms: t\nreader: preference\nverified: false\nsources: {}\n"
    path = tmp_path / "x.yaml"
    path.write_text(text + "splits: {train: {}}\n")
    with pytest.raises(ConfigError, match="either hub or files"):
        read_card(path)
    path.write_text("name: x\nrepo: a/b\nsplit: {}\n")
    with pytest.raises(ConfigError, match=r"x\.yaml: no card of a data set"):
        read_card(path)


FIRST = LockedDataset(repo="a/b", revision="1" * 40, splits={"train": {"train.jsonl": "aa"}})


def test_splits_of_one_revision_are_kept_and_other_sets_stay_in_order(tmp_path):
    path = tmp_path / "lock.yaml"
    assert read_lock(path) == {}
    more = LockedDataset(repo="a/b", revision=FIRST.revision, splits={"test": {"test.jsonl": "bb"}})
    other = LockedDataset(repo="a/b", revision="2" * 40, splits=more.splits)
    for name, locked in (("z", FIRST), ("set", FIRST), ("set", more)):
        lock_dataset(path, name, locked)
    assert path.read_text().startswith("# Revisions of public data")
    assert list(yaml.safe_load(path.read_text())) == ["set", "z"]
    assert read_lock(path) == {"z": FIRST, "set": replace(FIRST, splits={**FIRST.splits, **more.splits})}
    lock_dataset(path, "set", other)
    assert read_lock(path)["set"] == other  # another revision forgets the splits of the first


@pytest.mark.parametrize(
    "text", ["set: 3", "- a", "set: {repo: a/b}", "set: {repo: a/b, revision: x, more: 1}", "a: ["]
)
def test_a_file_that_is_no_lock_is_refused_and_not_overwritten(tmp_path, text):
    path = tmp_path / "lock.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"lock\.yaml"):
        lock_dataset(path, "set", FIRST)
    assert path.read_text() == text
