"""Where a revision comes from when the hub cannot be asked, and what is refused before it is asked."""

import pytest
from huggingface_hub import constants

from judgelm.data.sources.hub import HubUnreachableError, choose_revision, import_dataset
from judgelm.data.sources.public_datasets import LockedDataset, dataset_card, lock_dataset
from judgelm.errors import InputError, RunError

CARD = dataset_card("offsetbias")
LOCKED = LockedDataset(repo=CARD.repo, revision="1" * 40)


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def test_a_locked_revision_does_not_need_the_hub(offline):
    revision = choose_revision(CARD, LOCKED, update=False)
    assert (revision.sha, revision.locked, revision.hub, revision.is_outdated) == ("1" * 40, True, None, False)


@pytest.mark.parametrize(("locked", "update"), [(None, False), (LOCKED, True)])
def test_no_revision_is_made_up_where_the_hub_must_say_it(offline, locked, update):
    with pytest.raises(HubUnreachableError, match=r"NCSOFT/offsetbias: the hub client is offline.*unset it"):
        choose_revision(CARD, locked, update=update)


def test_a_lock_of_another_repository_is_refused():
    with pytest.raises(InputError, match=r"locked as other/set.*NCSOFT/offsetbias; use --update"):
        choose_revision(CARD, LockedDataset(repo="other/set", revision="1"), update=False)


def test_a_locked_file_that_is_not_in_the_cache_needs_the_hub(offline, tmp_path):
    lock_dataset(tmp_path / "lock.yaml", CARD.name, LOCKED)
    with pytest.raises(HubUnreachableError):
        import_dataset(CARD, tmp_path / "out", lockfile=tmp_path / "lock.yaml")
    assert not (tmp_path / "out").exists()


def test_rows_that_are_there_are_not_replaced_unasked(tmp_path):
    (tmp_path / "train.jsonl").write_text("mine\n")
    with pytest.raises(RunError, match=r"train\.jsonl: exists already; add --overwrite"):
        import_dataset(CARD, tmp_path, lockfile=tmp_path / "lock.yaml")
    assert (tmp_path / "train.jsonl").read_text() == "mine\n"


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "out.jsonl").write_text("")
    with pytest.raises(RunError, match=r"out\.jsonl: a file; name a folder"):
        import_dataset(CARD, tmp_path / "out.jsonl", lockfile=tmp_path / "lock.yaml")
