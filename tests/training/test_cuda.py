"""The trainer on a CUDA device; JUDGELM_GPU_TESTS=cpu rehearses the same tests on the CPU."""

import math
import shutil

import pytest

from judgelm.judge import Judge
from tests.support.recipe_runs import LORA, losses_of, train

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def settings(device, tiny_model, train_file):
    """As the recipes for GPUs: bf16 with gradient checkpointing; 18 steps; dropout makes the random state matter."""
    data = {"model_name_or_path": str(tiny_model), "train_data": [train_file], "use_cpu": device == "cpu"}
    dropout = {"model_init_kwargs": {"attention_dropout": 0.1}}
    return data | dropout | {"bf16": True, "gradient_checkpointing": True, "save_steps": 9}


@pytest.fixture(scope="module")
def trained(settings, tmp_path_factory):
    return train(tmp_path_factory.mktemp("trained"), **settings)


def assert_judge_that_learned(folder, device, share=1.0):
    losses = losses_of(folder / "checkpoint-18")
    assert all(map(math.isfinite, losses.values()))
    assert losses[18] < share * losses[1]
    with Judge(str(folder), device=device) as judge:
        assert judge.compare("What is 2 + 2?", "4", "5").shown


def test_bfloat16_with_checkpointing_learns_and_saves_a_judge(device, trained):
    assert_judge_that_learned(trained, device, share=0.9)


def test_lora_learns_and_saves_a_judge(device, settings, tmp_path):
    assert_judge_that_learned(train(tmp_path, **settings, **LORA, dtype="bfloat16"), device)


def test_a_run_goes_on_with_the_losses_of_one_that_was_never_stopped(settings, trained, tmp_path):
    shutil.copytree(trained / "checkpoint-9", tmp_path / "out/checkpoint-9")
    out = train(tmp_path, **settings)
    # the sums of a backward pass on CUDA are not always made in one order; another random state moves a loss by more
    assert losses_of(out / "checkpoint-18") == pytest.approx(losses_of(trained / "checkpoint-18"), abs=5e-3)
