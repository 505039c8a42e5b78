"""Rewards that need other processes: both orders of a pair, and a group of answers, lie on two of them."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.synthetic.pairs import generate
from judgelm.prompts.judge_card import find_card
from judgelm.training.grpo import Attempt, both_orders_right
from tests.rewards.test_scoring import CHANCES, of_quality
from tests.support import recipe_runs
from tests.training.test_distributed import finish, launch
from tests.training.test_grpo import GRPO, history

pytestmark = pytest.mark.distributed


def test_the_other_order_and_the_other_answers_lie_on_another_process(tmp_path):
    # process 0 has the given order of both pairs, process 1 the swapped one; 2 replies to each prompt
    written = ["[[1]]", "[[1]]", "[[1]]", "[[2]]", "[[2]]", "[[1]]", "[[2]]", "[[2]]"]
    columns = {"pair": [0, 0, 1, 1] * 2, "order": [0] * 4 + [1] * 4, "best": [1] * 4 + [2] * 4}
    verdicts = {"completions": written, "completion_ids": [[1, 7]] * 8, **columns}
    # a group of three answers, of which process 0 has two, and a group of one
    answers = {
        "prompts": ["q", "q", "q", "alone"],
        "completions": [of_quality(5), of_quality(6), of_quality(7), of_quality(4)],
    }
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({"verdicts": verdicts, "answers": answers}))
    script = str(recipe_runs.ROOT / "tests/support/rewards_on_processes.py")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [*launcher, script, str(asked), str(tmp_path / "out")]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    parts = [json.loads((tmp_path / f"out.{index}.json").read_text()) for index in (0, 1)]
    assert {(part["processes"], part["backend"]) for part in parts} == {(2, "gloo")}
    right = [text == f"[[{best}]]" for text, best in zip(written, columns["best"], strict=True)]
    expected = both_orders_right(
        [Attempt(*each) for each in zip(columns["pair"], columns["order"], right, strict=True)]
    )
    # pair 0: both right as given, half swapped; pair 1: half and both
    assert expected == [0.5, 0.5, 1, 0, 1, 0, 0.5, 0.5]
    assert parts[0]["verdicts"] + parts[1]["verdicts"] == expected
    means = [(CHANCES[-1] + CHANCES[-2]) / 2, (CHANCES[1] + CHANCES[-1]) / 2, (CHANCES[2] + CHANCES[1]) / 2]
    assert parts[0]["answers"] + parts[1]["answers"] == [*map(pytest.approx, means), None]


def test_two_processes_train_a_judge_together(tiny_model, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    rows = [row for row in generate(20, seed=0, split="train") if row["score"][0] != row["score"][1]][:8]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    # 8 replies a step: 4 to each of 2 prompts, the given order on one process and the swapped one on the other
    shape = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "save_steps": 8}
    config = recipe_runs.configure(
        tmp_path, **(GRPO | shape | {"model_name_or_path": str(tiny_model), "train_data": [str(pairs)]})
    )
    finish(launch(config, "ddp", script=recipe_runs.ROOT / "train/grpo.py"))
    logged = history(tmp_path / "out" / "checkpoint-8")
    assert [entry["step"] for entry in logged] == list(range(1, 9))
    assert all(entry["rewards/both_orders_right/mean"] == 0 for entry in logged)  # nonsense, and not missing
    assert find_card(str(tmp_path / "out")).training["steps"] == 8
