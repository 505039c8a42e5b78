"""What a training will write, against what it wrote; and disks that are too small."""

import contextlib
import errno
import json
import shutil
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest
from safetensors import SafetensorError
from trl import ModelConfig, SFTConfig

from benchmarks.synthetic.pairs import generate
from judgelm.errors import ConfigError, RunError
from judgelm.training.checkpoints import STATE_NAME, checkpoints_in, flaw_of
from judgelm.training.config import JudgeArguments
from judgelm.training.disk import DiskNeed, check_disk, disk_full_as_error, disk_need
from judgelm.training.save import save_judge
from tests.support.recipe_runs import SETTINGS, build, configure, run_here


@pytest.fixture(scope="module")
def train_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in generate(96, seed=0, split="train")))
    return path


def prepared(tiny_model, train_file, tmp_path, *, model=None, **options):
    own = {name: value for name, value in SETTINGS.items() if name != "template"}
    judge = JudgeArguments(train_data=[str(train_file)], template="judgelm-compact")
    model = ModelConfig(model_name_or_path=str(tiny_model), **(model or {}))
    args = SFTConfig(**(own | {"output_dir": str(tmp_path / "out")} | options))
    return build("sft", judge, args, model), judge, model


def bytes_of(folder):
    """Of the files in a folder, checkpoints within it left out."""
    return sum(path.stat().st_size for path in folder.rglob("*") if "checkpoint-" not in str(path.relative_to(folder)))


LORA = {"use_peft": True, "lora_r": 64, "lora_target_modules": ["all-linear"]}


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ({}, {}),
        (LORA, {}),
        ({}, {"save_only_model": True}),
        ({}, {"optim": "adafactor"}),
        ({}, {"optim": "rmsprop"}),
    ],
    ids=["full", "lora", "weights alone", "adafactor", "rmsprop"],
)
def test_the_estimate_is_within_a_tenth_of_what_is_written(tiny_model, train_file, tmp_path, model, options):
    trainer, judge, model = prepared(tiny_model, train_file, tmp_path, model=model, max_steps=3, **options)
    need = disk_need(trainer, 2)
    trainer.train()
    save_judge(trainer, judge, model)
    [checkpoint] = checkpoints_in(tmp_path / "out")
    assert need.checkpoints == 1
    assert need.checkpoint == pytest.approx(bytes_of(checkpoint), rel=0.1)
    assert need.total == pytest.approx(bytes_of(checkpoint) + bytes_of(tmp_path / "out"), rel=0.1)


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
def test_as_many_checkpoints_are_reckoned_as_lie_there_at_once(
    tiny_model, train_file, tmp_path, limit, options, at_once
):
    trainer, *_ = prepared(tiny_model, train_file, tmp_path, **options)
    assert disk_need(trainer, limit).checkpoints == at_once
    trainer.args.metric_for_best_model = "eval_loss"  # the best one stays beside the last
    best = at_once + (limit == 1)
    assert disk_need(trainer, limit).checkpoints == best


def test_a_disk_too_small_is_refused_with_what_would_do(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**15))
    need = DiskNeed(weights=10**15, states=2 * 10**15, others=0, checkpoints=5)
    with pytest.raises(ConfigError) as caught:
        check_disk(tmp_path / "out" / "judge", need)
    said = str(caught.value)
    # 5 x 3 + 1; two checkpoints: 2 x 3 + 1; weights alone: 5 x 1 + 1
    assert "needs 16000000.0 GB of disk (5 checkpoints of 3000000.0 GB at once, and the judge)" in said
    assert "1000000.0 GB are free" in said
    assert "save_total_limit: 1 needs 7000000.0 GB" in said
    assert "save_only_model: true needs 6000000.0 GB" in said
    assert "output_dir on a larger disk" in said


def test_checkpoints_that_are_there_need_no_more_room(tmp_path):
    free = shutil.disk_usage(tmp_path).free
    need = DiskNeed(weights=free + 10**9, states=0, others=0, checkpoints=0)
    with pytest.raises(ConfigError):
        check_disk(tmp_path, need)
    (tmp_path / "checkpoint-3").mkdir()
    with (tmp_path / "checkpoint-3/model.safetensors").open("wb") as file:
        file.truncate(2 * 10**9)  # takes no room itself
    check_disk(tmp_path, need)


def test_a_recipe_asks_before_it_trains(tiny_model, train_file, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3_000_000))
    with pytest.raises(ConfigError, match=r"needs 5\.\d MB of disk \(3 checkpoints of 1\.\d MB at once"):
        prepared(tiny_model, train_file, tmp_path)


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
    sentence = r"no space left on the disk; free .* and the same command starts over"
    with pytest.raises(RunError, match=sentence), disk_full_as_error(tmp_path):
        raise error


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(RuntimeError, match="CUDA"), disk_full_as_error(tmp_path):
        raise RuntimeError("CUDA out of memory")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MB, where a run's two checkpoints of 1.5 MB, its rows and its judge have just room."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill_behind(checkpoint, filler):
    """Take all room that is left once a checkpoint is whole, as another program would."""
    while not (checkpoint / STATE_NAME).exists():
        time.sleep(0.005)
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_disk_that_fills_up_while_saving_leaves_the_last_good_checkpoint(
    tiny_model, train_file, small_disk, tmp_path
):
    out, filler = small_disk / "out", small_disk / "filler"
    config = configure(
        tmp_path, model_name_or_path=str(tiny_model), train_data=[str(train_file)], output_dir=str(out),
        save_total_limit=1, max_steps=12, save_steps=6,
    )  # fmt: skip
    thread = threading.Thread(target=fill_behind, args=(out / "checkpoint-6", filler))
    thread.start()
    said = run_here(config)
    thread.join()
    assert said.startswith(f"error: {out}: no space left on the disk; free 1.5 MB or more")
    assert said.endswith(f"resumes from {out / 'checkpoint-6'}")
    assert flaw_of(out / "checkpoint-6") == ""
    filler.unlink()
    assert run_here(config) is None
    assert [path.name for path in checkpoints_in(out)] == ["checkpoint-12"]
