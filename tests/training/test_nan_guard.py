"""A training whose loss or weights break: it stops, says at which rows, and leaves the good checkpoints."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from transformers import TrainerCallback
from trl import ModelConfig, SFTConfig

from benchmarks.synthetic.pairs import generate
from judgelm.errors import TrainingError
from judgelm.training.arguments import JudgeArguments
from tests.support.poisoned_training import poison
from tests.support.recipe_runs import build

ROOT = Path(__file__).parents[2]
COMMON = {
    "max_length": 384, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 6,
    "learning_rate": 0.001, "use_cpu": True, "bf16": False, "save_strategy": "steps", "save_steps": 1,
    "save_total_limit": 1, "report_to": "none", "gradient_checkpointing": False, "disable_tqdm": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def train_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in generate(40, seed=0, split="train")))
    return str(path)


def tune(base, train_file, folder, **model):
    judge = JudgeArguments(train_data=[train_file], template="judgelm-compact")
    sft = SFTConfig(output_dir=str(folder), **COMMON)
    return build("sft", judge, sft, ModelConfig(model_name_or_path=str(base), **model))


def broken(folder):
    """The one file of a broken step."""
    [path] = folder.glob("nan_step_*.json")
    return path, json.loads(path.read_text())


def checkpoints(folder):
    return sorted(path.name for path in folder.glob("checkpoint-*"))


def test_a_row_that_breaks_the_loss_ends_the_training_at_its_step(tiny_model, train_file, tmp_path):
    rows = tune(tiny_model, train_file, tmp_path / "first").rows.dataset
    holders = Counter(token for row in rows for token in set(row["input_ids"]))
    # of the tokens that one row alone has, that of the last row before step 6: four rows are a step
    place, token = max(
        (place, token) for place, row in enumerate(rows.select(range(24))) for token in row["input_ids"]
        if holders[token] == 1
    )  # fmt: skip
    step = place // 4
    assert step > 0
    folder = tmp_path / "judge"
    trainer = tune(tiny_model, train_file, folder, use_peft=True, lora_r=2)
    poison(trainer.model, token)  # in memory: a base with NaN on disk is refused
    with pytest.raises(
        TrainingError, match=rf"nan_step_{step}\.json: in step {step} .* the loss is nan.*learning_rate"
    ):
        trainer.train()
    path, found = broken(folder)
    assert path.name == f"nan_step_{step}.json"
    assert (found["step"], found["what"], found["loss"]) == (step, "loss", "nan")
    assert found["sample_ids"] == rows["sample_id"][step * 4 : step * 4 + 4]
    assert rows["sample_id"][place] in found["sample_ids"]
    # linear from 0.001 over six steps
    assert found["learning_rate"] == pytest.approx(0.001 * (6 - step) / 6)
    assert checkpoints(folder) == [f"checkpoint-{step}"]  # steps 0 to step - 1


class BreakWeight(TrainerCallback):
    """One weight becomes infinite at the end of a step, as after gradients that overflowed."""

    def on_step_end(self, args, state, control, model=None, **others):
        if state.global_step == 3:
            next(model.parameters()).data[0, 0] = float("inf")


def test_weights_that_broke_do_not_take_a_checkpoints_place(tiny_model, train_file, tmp_path):
    trainer = tune(tiny_model, train_file, tmp_path)
    trainer.add_callback(BreakWeight())
    with pytest.raises(TrainingError, match=r"nan_step_2\.json: in step 2 .* weights are not finite"):
        trainer.train()
    _, found = broken(tmp_path)
    assert found["what"] == "weights"
    assert 0 < found["loss"] < 20  # the loss of that step was still one
    assert found["sample_ids"] == trainer.rows.dataset["sample_id"][8:12]
    assert checkpoints(tmp_path) == ["checkpoint-2"]
    with pytest.raises(TrainingError):
        trainer.save_model(str(tmp_path))
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.slow
def test_two_processes_stop_together_where_the_rows_of_one_break(tiny_model, train_file, tmp_path):
    rows = tune(tiny_model, train_file, tmp_path / "first").rows.dataset
    holders = Counter(token for row in rows for token in set(row["input_ids"]))
    rare = {token for token, count in holders.items() if count == 1}
    # a pass of two rows in each of two processes: rows 2 and 3 of a step are the second's
    place, token = next(
        (place, token) for place, row in enumerate(rows) for token in row["input_ids"]
        if token in rare and place % 4 > 1
    )  # fmt: skip
    folder = tmp_path / "judge"
    options = {
        "judge": {"train_data": [train_file], "template": "judgelm-compact"},
        "sft": COMMON | {"gradient_accumulation_steps": 1, "max_steps": 10, "output_dir": str(folder)},
        "model": {"model_name_or_path": str(tiny_model), "use_peft": True, "lora_r": 2},
        "token": token,
    }
    (tmp_path / "two.json").write_text(json.dumps(options))
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
        "-m", "tests.support.poisoned_training", str(tmp_path / "two.json"),
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280, env=environment)
    assert done.returncode != 0
    assert "the loss is nan" in done.stderr
    _, found = broken(folder)
    assert found["step"] == place // 4
    begin = place // 4 * 4
    assert found["sample_ids"] == rows["sample_id"][begin : begin + 4]  # both processes' rows
    assert checkpoints(folder) == ([f"checkpoint-{place // 4}"] if place >= 4 else [])
