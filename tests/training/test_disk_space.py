"""Disk needed by a run, and errors when the disk is full."""

import errno
import shutil
from types import SimpleNamespace

import pytest
import transformers
from safetensors import SafetensorError

from judgelm.errors import ConfigError, RunError
from judgelm.training.checkpoints import checkpoints_in
from judgelm.training.disk_space import check_disk_space, checkpoint_bytes, disk_full_as_error, max_checkpoints
from judgelm.training.finished_judge import save_judge
from tests.support.recipe_runs import LORA, prepare


def bytes_of(folder):
    """Of the files in a folder, checkpoints within it left out."""
    return sum(path.stat().st_size for path in folder.rglob("*") if "checkpoint-" not in str(path.relative_to(folder)))


@pytest.mark.parametrize(
    "options",
    [{}, {"model": LORA | {"lora_r": 64}}, {"save_only_model": True}, {"optim": "adafactor"}, {"optim": "rmsprop"}],
    ids=["full", "lora", "weights alone", "adafactor", "rmsprop"],
)
def test_the_estimate_is_within_a_tenth_of_what_is_written(tiny_model, train_file, tmp_path, options):
    trainer, *arguments = prepare(
        tiny_model, tmp_path / "out", train_file, **{"max_steps": 1, "save_steps": 1} | options
    )
    weights, states = checkpoint_bytes(trainer)
    trainer.train()
    save_judge(trainer, *arguments)
    [checkpoint] = checkpoints_in(tmp_path / "out")
    assert weights + states == pytest.approx(bytes_of(checkpoint), rel=0.1)
    assert weights == pytest.approx(bytes_of(tmp_path / "out"), rel=0.1)


@pytest.mark.parametrize(
    ("limit", "options", "at_once"),
    [
        (None, {"save_steps": 4}, 5),  # after 4, 8, 12, 16 and at the end, 18
        (2, {"save_steps": 4}, 3),
        (1, {"save_steps": 4}, 2),
        (8, {"save_steps": 4}, 5),
        (None, {"save_steps": 0.5}, 2),  # a share of all steps: 9
        (2, {"save_strategy": "no"}, 0),
    ],
)
def test_as_many_checkpoints_are_reckoned_as_lie_there_at_once(tmp_path, limit, options, at_once):
    shape = {"per_device_train_batch_size": 8, "num_train_epochs": 1, "use_cpu": True}
    args = transformers.TrainingArguments(output_dir=str(tmp_path), **shape, **options)
    trainer = SimpleNamespace(args=args, train_dataset=range(18 * 8))
    assert max_checkpoints(trainer, limit) == at_once
    args.metric_for_best_model = "eval_loss"  # the best one stays beside the last
    assert max_checkpoints(trainer, limit) == at_once + (limit == 1)


def test_a_disk_too_small_is_refused_before_training_with_what_would_do(tiny_model, train_file, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3_000_000))
    # a checkpoint has 0.5 MB of weights and 1 MB of states: 3 of them and a judge
    sentence = r"needs 5\.\d MB of disk space \(3 checkpoints of 1\.\d MB and the judge\), but only 3\.0 MB is free; "
    with pytest.raises(ConfigError, match=sentence):
        prepare(tiny_model, tmp_path / "out", train_file)


def test_checkpoints_that_are_there_need_no_more_room(tiny_model, train_file, tmp_path, monkeypatch):
    trainer, *_ = prepare(tiny_model, tmp_path / "out", train_file)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    with pytest.raises(ConfigError):
        check_disk_space(trainer, 2)
    (tmp_path / "out/checkpoint-3").mkdir()
    with (tmp_path / "out/checkpoint-3/model.safetensors").open("wb") as file:
        file.truncate(10**8)  # takes no room itself
    check_disk_space(trainer, 2)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
    ],
)
def test_a_full_disk_is_one_sentence(tmp_path, error):
    sentence = "no space left on the disk; free some space; the same command then starts over"
    with pytest.raises(RunError, match=sentence), disk_full_as_error(tmp_path):
        raise error


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(RuntimeError, match="shapes"), disk_full_as_error(tmp_path):
        raise RuntimeError("shapes do not fit")
