"""`accelerate launch train/sft.py`, as users run it: a base, a few steps, a judge that `judgelm-batch` can use."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.synthetic.pairs import generate
from judgelm.errors import CardError
from judgelm.judge import Judge

ROOT = Path(__file__).parents[2]
COMMON = {
    "template": "judgelm-compact", "max_length": 256, "per_device_train_batch_size": 16, "max_steps": 6,
    "learning_rate": 0.01, "use_cpu": True, "bf16": False, "save_strategy": "no", "report_to": "none",
    "gradient_checkpointing": False, "disable_tqdm": True, "logging_steps": 1,
}  # fmt: skip


def launch(tmp_path, **options):
    """Run the recipe with a configuration file; its output."""
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(COMMON | options))
    command = [
        sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(ROOT / "configs/accelerate/cpu.yaml"),
        str(ROOT / "train/sft.py"), "--config", str(config),
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false"}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, env=environment)


@pytest.fixture(scope="module")
def train_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in generate(96, seed=0, split="train")))
    return path


@pytest.fixture(scope="module")
def trained(tiny_model, train_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    done = launch(
        folder, model_name_or_path=str(tiny_model), train_data=[str(train_file)], output_dir=str(folder / "judge"),
        reason_prob=0.5,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "judge", done.stdout


def test_it_says_what_became_of_the_data(trained):
    _, out = trained
    assert "train: 96 rows" in out
    assert "steps: 6 of 16 rows (per device 16 x accumulation 1 x processes 1)" in out
    assert "with reference" in out
    assert "attention: sdpa (not on a CUDA GPU); padded rows" in out


def test_the_card_says_how_the_judge_was_made(trained):
    folder, _ = trained
    card = json.loads((folder / "judge.json").read_text())
    assert card["template"] == "judgelm-compact"
    assert card["reference"] == "both"
    assert card["step"] == 1  # the world's teacher gives whole scores
    assert card["training"]["rows"] == 96
    assert card["training"]["steps"] == 6
    assert len(card["training"]["data"][0]["sha"]) == 64


def test_the_judge_is_asked_as_its_card_says(trained):
    folder, _ = trained
    with Judge(str(folder)) as judge:
        assert judge.format.template == "judgelm-compact"
        assert judge.format.source == "card"
        judgment = judge.compare("What is 2 + 2?", "4", "5")
    assert judgment.verdict is not None or judgment.failure is not None


def test_rows_of_one_answer_and_of_several_train_beside_pairs(tiny_model, train_file, tmp_path):
    from trl import ModelConfig, SFTConfig

    from judgelm.training.arguments import JudgeArguments
    from judgelm.training.save import save_judge
    from tests.support.recipe_runs import build

    rows = [
        {"question": "q", "answer": "a fox", "score": 7, "reference": "a dog"},
        {"question": "q", "answers": ["a", "b", "c"], "scores": [8, 6, 5.5]},
    ]
    more = tmp_path / "more.jsonl"
    more.write_text("".join(json.dumps(row) + "\n" for row in rows))
    judge = JudgeArguments(train_data=[str(train_file), str(more)], template="judgelm-compact", reference_drop_prob=0)
    own = {name: value for name, value in COMMON.items() if name != "template"} | {"max_steps": 1}
    sft = SFTConfig(output_dir=str(tmp_path / "judge"), **own)
    model = ModelConfig(model_name_or_path=str(tiny_model))
    trainer = build("sft", judge, sft, model)
    trainer.train()
    save_judge(trainer, judge, model)
    card = json.loads((tmp_path / "judge" / "judge.json").read_text())
    assert card["training"]["rows_by_kind"] == {"pair": 96, "single": 1, "multi": 1}
    assert (card["reference"], card["step"]) == ("both", 0.5)  # of several answers there was none


def test_a_data_file_that_is_not_there_ends_with_a_sentence(tiny_model, tmp_path):
    done = launch(tmp_path, model_name_or_path=str(tiny_model), train_data=["nowhere.jsonl"], output_dir=str(tmp_path))
    assert done.returncode != 0
    assert "error: nowhere.jsonl: no such file" in done.stderr


def test_another_template_than_the_cards_is_refused_with_the_way_out(trained):
    folder, _ = trained
    with pytest.raises(CardError, match=r"was trained with template 'judgelm-compact'.*--ignore-card"):
        Judge(str(folder), template="judgelm-v1")
    Judge(str(folder), template="judgelm-v1", ignore_card=True).close()


def test_a_card_with_other_template_bytes_is_refused(trained, tmp_path):
    folder, _ = trained
    card = json.loads((folder / "judge.json").read_text())
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "judge.json").write_text(json.dumps(card | {"template_sha": "0" * 64}))
    with pytest.raises(CardError, match="other bytes of template"):
        Judge(str(tmp_path))
    (tmp_path / "judge.json").write_text('{"template": 3}')
    with pytest.raises(CardError, match=r"judge\.json: template"):
        Judge(str(tmp_path))
