"""Which checkpoints count, which are removed, where a run begins, and the disk space that it needs."""

import errno
import json
import shutil
from types import SimpleNamespace

import pytest
import transformers
from safetensors import SafetensorError

from judgelm.errors import ConfigError, RunError
from judgelm.training.checkpoints import STATE_NAME, CheckpointCallback, checkpoints_in, flaw_of, mark
from judgelm.training.disk_space import check_disk_space, checkpoint_bytes, disk_full_as_error, max_checkpoints
from judgelm.training.finished_judge import save_judge
from judgelm.training.resume import StartingPoint, choose_start, run_settings
from tests.support.recipe_runs import LORA, prepare, write_world

SETTINGS = {"learning_rate": 0.1, "model_name_or_path": "base", "rows": "abc"}


def checkpoint(folder, step, *, marked=True, resumable=True, settings=SETTINGS):
    """A checkpoint as DeepSpeed leaves it: files and a folder."""
    path = folder / f"checkpoint-{step}"
    (path / "global_step").mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"w" * 100)
    (path / "global_step/optim_states.pt").write_bytes(b"o" * 200)
    (path / "trainer_state.json").write_text("{}")
    if marked:
        mark(path, settings, resumable=resumable)
    return path


def test_a_marked_checkpoint_is_whole_and_a_torn_one_says_what_it_lacks(tmp_path):
    path = checkpoint(tmp_path, 3)
    (path / "notes.txt").write_text("added after the marker")
    assert flaw_of(path) == ""
    state = json.loads((path / STATE_NAME).read_text())
    assert state["files"] == {"global_step/optim_states.pt": 200, "model.safetensors": 100, "trainer_state.json": 2}
    (path / "global_step/optim_states.pt").write_bytes(b"o" * 120)
    assert flaw_of(path) == "global_step/optim_states.pt has 120 of 200 bytes"
    (path / "global_step/optim_states.pt").unlink()
    assert flaw_of(path) == "global_step/optim_states.pt is missing"
    (path / STATE_NAME).write_text('{"settings": {')
    assert flaw_of(path) == "judgelm_state.json, which is written last, is missing"


def test_a_save_marks_the_new_one_before_the_old_ones_go(tmp_path):
    args = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    for step in (3, 6):
        checkpoint(tmp_path, step)
    new = checkpoint(tmp_path, 9, marked=False)
    state = transformers.TrainerState(global_step=9, best_model_checkpoint=str(tmp_path / "checkpoint-3"))
    CheckpointCallback(SETTINGS, 2).on_save(args, state, transformers.TrainerControl())
    assert flaw_of(new) == ""
    assert [path.name for path in checkpoints_in(tmp_path)] == ["checkpoint-9", "checkpoint-3"]  # the last, the best


def test_incomplete_checkpoints_are_removed(tmp_path):
    torn = checkpoint(tmp_path, 12, marked=False)
    (tmp_path / "checkpoint-best").mkdir()
    assert choose_start(tmp_path, SETTINGS).checkpoint is None
    assert checkpoints_in(tmp_path) == []
    whole, torn = checkpoint(tmp_path, 9), checkpoint(tmp_path, 12, marked=False)
    start = choose_start(tmp_path, SETTINGS)
    assert (start.checkpoint, torn.exists()) == (str(whole), False)
    assert start.notes[0].startswith(f"{torn}: removed because it is incomplete: judgelm_state.json")
    assert start.notes[1:] == (f"resuming from {whole}",)


def damage(path, name="model.safetensors"):
    """Change bytes and keep the size, as a failing disk does."""
    content = bytearray((path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (path / name).write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "global_step/optim_states.pt", "trainer_state.json"])
def test_a_damaged_one_is_removed_and_the_one_before_is_taken(tmp_path, name):
    oldest, before, damaged = (checkpoint(tmp_path, step) for step in (2, 4, 6))
    damage(damaged, name)
    damage(oldest, name)
    assert flaw_of(damaged) == ""
    start = choose_start(tmp_path, SETTINGS)
    assert start.checkpoint == str(before)
    assert start.notes[0].startswith(f"{damaged}: removed because it is damaged: {name} has SHA-256 ")
    assert (damaged.exists(), oldest.exists()) == (False, True)  # the oldest was not read


def test_where_all_are_damaged_nothing_is_removed(tmp_path):
    paths = [checkpoint(tmp_path, step) for step in (2, 4)]
    for path in paths:
        damage(path)
    with pytest.raises(RunError, match=r"checkpoint-4 and all other .* damaged \(model"):
        choose_start(tmp_path, SETTINGS)
    assert all(path.exists() for path in paths)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"learning_rate": 0.2, "rows": "xyz"}, r"another run: learning_rate was 0\.1, is 0\.2; "),
        ({"rows": "xyz"}, "rows was 'abc', is 'xyz'"),
        ({"beta": 0.1}, r"beta was None, is 0\.1"),  # an option that only one of them has
        ({"processes": 4}, r"processes was 8, is 4 \(each process saved its own shard"),
    ],
)
def test_another_run_is_refused_by_what_differs_and_nothing_is_removed(tmp_path, change, finding):
    sharded = SETTINGS | {"sharding": "zero3", "processes": 8}
    checkpoint(tmp_path, 3, settings=sharded)
    torn = checkpoint(tmp_path, 6, marked=False)
    with pytest.raises(RunError, match=finding):
        choose_start(tmp_path, sharded | change)
    assert torn.exists()


def test_the_number_of_processes_matters_only_for_a_sharded_optimizer(tiny_model, tmp_path, monkeypatch):
    rows = write_world(tmp_path / "rows.jsonl", 8)
    trainer, judge, base = prepare(tiny_model, tmp_path / "out", rows, save_strategy="no", max_steps=1)
    for fsdp, deepspeed, sharding in (
        ("false", None, None), ("true", None, "fsdp"), ("false", SimpleNamespace(zero_stage=3), "zero3"),
    ):  # fmt: skip
        monkeypatch.setenv("ACCELERATE_USE_FSDP", fsdp)
        trainer.args.deepspeed_plugin = deepspeed
        settings = run_settings(judge, trainer.args, base, trainer.rows)
        assert (settings["sharding"], settings["processes"]) == (sharding, 1 if sharding else None)


def test_other_versions_are_said_not_refused(tmp_path):
    path = checkpoint(tmp_path, 3)
    state = json.loads((path / STATE_NAME).read_text())
    (path / STATE_NAME).write_text(json.dumps(state | {"versions": state["versions"] | {"torch": "1.0"}}))
    assert "written with torch 1.0 (now" in choose_start(tmp_path, SETTINGS).notes[0]


def test_weights_alone_are_nothing_to_go_on_from(tmp_path):
    path = checkpoint(tmp_path, 6, resumable=False)
    with pytest.raises(RunError, match="checkpoint-6: contains only weights"):
        choose_start(tmp_path, SETTINGS)
    preempted = checkpoint(tmp_path, 4)
    assert choose_start(tmp_path, SETTINGS).checkpoint == str(preempted)
    assert path.exists()


def test_to_overwrite_removes_checkpoints_card_and_weights_but_no_base(tmp_path):
    path = checkpoint(tmp_path, 3)
    for name in ("judge.json", "adapter_config.json", "adapter_model.safetensors", "model.safetensors", "notes.txt"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(ConfigError, match="would remove the base model"):
        choose_start(tmp_path, SETTINGS | {"model_name_or_path": str(path)}, overwrite=True)
    assert path.exists()
    assert choose_start(tmp_path, SETTINGS, overwrite=True) == StartingPoint()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def bytes_of(folder):
    """Of the files in a folder, checkpoints within it left out."""
    return sum(path.stat().st_size for path in folder.rglob("*") if "checkpoint-" not in str(path.relative_to(folder)))


@pytest.mark.parametrize(
    "options",
    [{}, {"model": LORA | {"lora_r": 64}}, {"save_only_model": True}, {"optim": "adafactor"}, {"optim": "rmsprop"}],
    ids=["full", "lora", "weights only", "adafactor", "rmsprop"],
)
def test_the_estimate_is_within_a_tenth_of_what_is_written(tiny_model, train_file, tmp_path, options):
    step = {"max_steps": 1, "save_steps": 1}
    trainer, *arguments = prepare(tiny_model, tmp_path / "out", train_file, **step | options)
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
    with pytest.raises(ConfigError, match=r"needs 5\.\d MB .*3 checkpoints of 1\.\d MB .* only 3\.0 MB is free; "):
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
    with pytest.raises(RunError, match=r"no space left.* then starts over"), disk_full_as_error(tmp_path):
        raise error


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(RuntimeError, match="shapes"), disk_full_as_error(tmp_path):
        raise RuntimeError("shapes do not fit")
