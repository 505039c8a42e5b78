"""Two processes on the CPU, started as users start them, train the judge that one process trains.

All in float32 and at the same global batch. Rows with a reason have ten times the target of those without, so a loss
that were averaged over processes or passes, instead of over tokens, would show.
"""

import json
import shutil
import socket
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from judgelm.judge import Judge
from judgelm.prompts.judge_card import find_card
from judgelm.training.grpo import Attempt, both_orders_right
from tests.support import recipe_runs
from tests.support.known_judge import CHANCES, of_quality
from tests.support.recipe_runs import FSDP_ON_CPU, LORA, ROOT, TWO, finish, launch, losses_of, shape
from tests.support.vicuna_folders import pickle_weights
from tests.training.test_grpo import GRPO, write_decided_pairs

pytestmark = pytest.mark.distributed
PREFERENCES = {"reason_prob": 0.0, "max_steps": 9}  # fewer than 96 rows are pairs
STEPS = 9  # 96 rows x 1.5 epochs / 16
# rows of a process in a pass, passes of a step: 16 rows a step over two processes
SHAPES = {"ddp": (4, 2), "zero2": (4, 2), "zero3": (8, 1)}


@pytest.fixture(scope="module")
def settings(tiny_model, train_file):
    """Everything but the batch's shape."""
    data = {"model_name_or_path": str(tiny_model), "train_data": [train_file], "reason_prob": 0.5}
    return data | {"global_batch": 16, "max_length": 384, "dtype": "float32", "save_steps": STEPS}


@pytest.fixture(scope="module")
def started(settings, tmp_path_factory):
    """All three at once, since starting is what takes the time: output folder and process by name.

    They begin from pickled weights, the single process from the same in safetensors.
    """
    pickled = pickle_weights(Path(settings["model_name_or_path"]), tmp_path_factory.mktemp("pickled") / "base")
    runs = {}
    for name, (rows, passes) in SHAPES.items():
        folder, base = tmp_path_factory.mktemp(name), {"model_name_or_path": str(pickled)}
        runs[name] = folder / "out", launch(folder, name, **settings | shape(rows, passes) | base)
    return runs


@pytest.fixture(scope="module")
def alone(started, settings, tmp_path_factory):
    """The output of a single process, trained here while the others start."""
    return recipe_runs.train(tmp_path_factory.mktemp("alone"), **settings | shape(16, 1))


def dtypes_of(folder):
    return {weight.dtype for weight in load_file(folder / "model.safetensors").values()}


def assert_same_training(folder, alone, *, processes=2, within=1e-3):
    """Every step's loss, and the weights that they end in."""
    checkpoint = folder / f"checkpoint-{STEPS}"
    assert len(list(checkpoint.glob("rng_state_*.pth"))) == processes
    losses, expected = losses_of(checkpoint), losses_of(alone / f"checkpoint-{STEPS}")
    assert list(expected) == list(range(1, STEPS + 1))
    assert losses == pytest.approx(expected, abs=1e-4, rel=0)
    weights, single = load_file(folder / "model.safetensors"), load_file(alone / "model.safetensors")
    assert weights.keys() - {"lm_head.weight"} == single.keys()  # DeepSpeed writes tied embeddings twice
    furthest = {name: float((weights[name] - single[name]).abs().max()) for name in single}
    # Adam divides by a gradient's size, so where that is near zero its rounding moves a weight, a little
    assert max(furthest.values()) < within, furthest


@pytest.mark.parametrize("name", SHAPES)
def test_two_processes_train_the_judge_of_one(started, alone, name):
    folder, process = started[name]
    finish(process)
    assert_same_training(folder, alone)
    names = [f"global_step*/zero_pp_rank_*_{kind}_states.pt" for kind in ("optim", "model")]
    shards = [len(list((folder / f"checkpoint-{STEPS}").glob(name))) for name in names]
    assert shards == {"ddp": [0, 0], "zero2": [2, 0], "zero3": [2, 2]}[name]  # what is split
    with Judge(str(folder)) as judge, Judge(str(alone)) as single:
        pair = ("What is 2 + 2?", "4", "5")
        assert judge.format.template == "judgelm-compact"
        assert judge.compare(*pair).shown == single.compare(*pair).shown


def test_one_process_resumes_a_run_of_two_whose_optimizer_is_whole(settings, alone, tmp_path, capfd):
    often = {"save_steps": 3, "save_total_limit": 3}
    finish(launch(tmp_path / "two", "ddp", **settings | shape(4, 2) | often))
    shutil.copytree(tmp_path / "two/out/checkpoint-3", tmp_path / "out/checkpoint-3")
    out = recipe_runs.train(tmp_path, **settings | shape(16, 1) | often)
    assert "checkpoint-3" in capfd.readouterr().out
    losses, expected = (losses_of(folder / f"checkpoint-{STEPS}") for folder in (out, alone))
    assert losses == pytest.approx(expected, abs=1e-4, rel=0)


@pytest.fixture(scope="module")
def bf16_settings(settings):
    """As the recipes for GPUs: products in bf16, gradient checkpointing, pairs judged at every evaluation."""
    judged = {"eval_data": settings["train_data"], "eval_strategy": "steps", "eval_steps": 6, "eval_pairs": 4}
    saved = {"save_steps": 3, "save_total_limit": 3}
    return settings | shape(4, 2) | judged | saved | {"bf16": True, "gradient_checkpointing": True}


@pytest.fixture(scope="module")
def bf16_zero3(bf16_settings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bf16")
    finish(launch(folder, "zero3", precision="bf16", **bf16_settings))
    return folder / "out"


def test_zero3_in_bf16_with_checkpointing_learns_and_judges(bf16_zero3, alone):
    losses = losses_of(bf16_zero3 / f"checkpoint-{STEPS}")
    assert losses == pytest.approx(losses_of(alone / f"checkpoint-{STEPS}"), rel=0.02)  # bf16 has 3 digits
    logged = recipe_runs.history(bf16_zero3 / f"checkpoint-{STEPS}", "eval_loss")
    evaluated = {entry["step"]: entry for entry in logged}
    assert list(evaluated) == [6, STEPS]
    assert evaluated[STEPS]["eval_loss"] < evaluated[6]["eval_loss"] < losses[1]
    assert {"eval_agreement", "eval_failed"} <= evaluated[STEPS].keys()
    assert dtypes_of(bf16_zero3) == {torch.bfloat16}


def test_zero3_in_bf16_goes_on_with_the_losses_of_a_run_that_was_never_stopped(bf16_zero3, bf16_settings, tmp_path):
    shutil.copytree(bf16_zero3 / "checkpoint-3", tmp_path / "out/checkpoint-3")
    assert "checkpoint-3" in finish(launch(tmp_path, "zero3", precision="bf16", **bf16_settings))
    losses = losses_of(tmp_path / f"out/checkpoint-{STEPS}")
    assert losses == pytest.approx(losses_of(bf16_zero3 / f"checkpoint-{STEPS}"), abs=1e-4, rel=0)


def test_fsdp2_trains_the_judge_of_one_and_judges(settings, alone, tmp_path):
    judged = {"save_dtype": "bfloat16", "eval_data": settings["train_data"], "eval_pairs": 5}
    finish(launch(tmp_path, "fsdp2", script=FSDP_ON_CPU, **settings | shape(4, 2) | judged))
    checkpoint = tmp_path / f"out/checkpoint-{STEPS}/pytorch_model_fsdp.bin"
    assert checkpoint.is_file()  # FSDP's, not plain data parallelism's
    assert {weight.dtype for weight in torch.load(checkpoint, weights_only=True).values()} == {torch.float32}
    assert dtypes_of(tmp_path / "out") == {torch.bfloat16}
    assert find_card(str(tmp_path / "out")).training["metrics"]["pairs"] == 5
    # weights of norms lie about 1, where bf16 rounds by 0.004
    assert_same_training(tmp_path / "out", alone, within=5e-3)


@pytest.fixture(scope="module")
def preferences_alone(settings, tmp_path_factory):
    """The output of a single process that trains P(first better)."""
    options = settings | PREFERENCES | shape(16, 1)
    return recipe_runs.train(tmp_path_factory.mktemp("preferences"), recipe="preference", **options)


@pytest.mark.parametrize("cluster", ["zero3", "fsdp2"])
def test_preferences_are_trained_as_by_one_process(settings, preferences_alone, tmp_path, monkeypatch, cluster):
    monkeypatch.setenv("RECIPE", "train/preference.py")
    script = FSDP_ON_CPU if cluster == "fsdp2" else "train/preference.py"
    finish(launch(tmp_path, cluster, script=script, **settings | PREFERENCES | shape(4, 2)))
    assert_same_training(tmp_path / "out", preferences_alone)


@pytest.mark.parametrize(("recipe", "options"), [("sft", {}), ("preference", PREFERENCES)])
def test_an_adapter_under_zero3_is_that_of_one_process(settings, tmp_path, recipe, options):
    settings = settings | options | LORA | {"lora_dropout": 0.0}
    process = launch(tmp_path / "two", "zero3", script=f"train/{recipe}.py", **settings | shape(4, 2))
    recipe_runs.train(tmp_path / "one", recipe=recipe, **settings | shape(16, 1))
    finish(process)
    losses, expected = (losses_of(tmp_path / name / f"out/checkpoint-{STEPS}") for name in ("two", "one"))
    assert losses == pytest.approx(expected, abs=1e-4, rel=0)
    weights, others = (load_file(tmp_path / name / "out/adapter_model.safetensors") for name in ("two", "one"))
    shapes, expected = ({key: weight.shape for key, weight in each.items()} for each in (weights, others))
    assert shapes == expected


@pytest.mark.slow
def test_two_machines_train_the_judge_of_one(settings, alone, tmp_path):
    # two launchers that find each other over the network; both "machines" are this one, with a process each
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags, options = ("--main_process_ip", "127.0.0.1", "--machine_rank"), settings | shape(4, 2)
    machines = [launch(tmp_path, "zero3_2nodes", *flags, rank, port=port, **options) for rank in "01"]
    for process in machines:
        finish(process)
    assert_same_training(tmp_path / "out", alone)


def test_a_checkpoint_the_other_order_and_the_other_answers_lie_on_another_process(tmp_path):
    # process 0 has the given order of both pairs, process 1 the swapped one; 2 replies to each prompt
    written = ["[[1]]", "[[1]]", "[[1]]", "[[2]]", "[[2]]", "[[1]]", "[[2]]", "[[2]]"]
    columns = {"pair": [0, 0, 1, 1] * 2, "order": [0] * 4 + [1] * 4, "best": [1] * 4 + [2] * 4}
    verdicts = {"completions": written, "completion_ids": [[1, 7]] * 8, **columns}
    # a group of three answers, of which process 0 has two, and a group of one
    answers = {"prompts": ["q", "q", "q", "alone"], "completions": [of_quality(each) for each in (5, 6, 7, 4)]}
    batch = tmp_path / "batch.json"
    batch.write_text(json.dumps({"verdicts": verdicts, "answers": answers}))
    finish(recipe_runs.start(batch, launcher=TWO, script=ROOT / "tests/support/rewards_on_processes.py"))
    parts = [json.loads((tmp_path / f"{index}.json").read_text()) for index in (0, 1)]
    assert {(part["processes"], part["backend"]) for part in parts} == {(2, "gloo")}
    right = [text == f"[[{best}]]" for text, best in zip(written, columns["best"], strict=True)]
    attempts = zip(columns["pair"], columns["order"], right, strict=True)
    # pair 0: both right as given, half swapped; pair 1: half and both
    expected = [0.5, 0.5, 1, 0, 1, 0, 0.5, 0.5]
    assert both_orders_right([Attempt(*each) for each in attempts]) == expected
    assert parts[0]["verdicts"] + parts[1]["verdicts"] == expected
    means = [(CHANCES[-1] + CHANCES[-2]) / 2, (CHANCES[1] + CHANCES[-1]) / 2, (CHANCES[2] + CHANCES[1]) / 2]
    assert parts[0]["answers"] + parts[1]["answers"] == [*map(pytest.approx, means), None]
    # each process sees a folder of its own, so both refuse to resume from it
    assert all("not found on every machine" in part["disk"] for part in parts)


def test_two_processes_reinforce_a_judge_together(tiny_model, tmp_path):
    # 8 replies a step: 4 to each of 2 prompts, the given order on one process and the swapped one on the other
    files = {"model_name_or_path": str(tiny_model), "train_data": [write_decided_pairs(tmp_path / "pairs.jsonl")]}
    finish(launch(tmp_path, "ddp", script="train/grpo.py", **GRPO | shape(4, 1) | files | {"save_steps": 8}))
    logged = recipe_runs.history(tmp_path / "out/checkpoint-8", "reward")
    assert [entry["step"] for entry in logged] == list(range(1, 9))
    assert all(entry["rewards/both_orders_right/mean"] == 0 for entry in logged)  # nonsense, and not missing
    assert find_card(str(tmp_path / "out")).training["steps"] == 8
