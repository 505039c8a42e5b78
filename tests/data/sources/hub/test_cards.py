"""The cards of public data sets: whole, with a source for every fact."""

from pathlib import Path

import pytest

from judgelm.data.sources.public_datasets import dataset_card, dataset_names, read_card
from judgelm.data.sources.registry import get_source
from judgelm.errors import ConfigError

OF_THE_ISSUE = {
    *("judgelm-100k", "pandalm-train", "ultrafeedback", "helpsteer3"),
    *("mt-bench-human", "hh-rlhf", "skywork-preference", "arena-55k"),
}


def test_the_sets_that_were_asked_for_are_there():
    assert set(dataset_names()) >= OF_THE_ISSUE


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
    page = (Path(__file__).parents[4] / "docs/data.md").read_text(encoding="utf-8")
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
