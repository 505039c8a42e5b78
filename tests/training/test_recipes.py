"""The training configs: each is read as its recipe reads it, and holds what it says it holds."""

import itertools
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser
from packaging.specifiers import SpecifierSet
from trl import ModelConfig, SFTConfig, TrlParser

from judgelm.errors import ConfigError
from judgelm.package import extra_requirements
from judgelm.prompts.catalog import get_template
from judgelm.training.arguments import JudgeArguments, accumulation_steps, row_options
from judgelm.training.grpo import GRPOArguments, JudgeGRPOConfig, check_grpo_arguments, prompts_of_a_generation
from judgelm.training.preference import PreferenceArguments
from tests.support.recipe_runs import build

ROOT = Path(__file__).parents[2]
TRAIN = sorted(path for path in (ROOT / "configs/train").glob("*.yaml") if "dpo" not in path.stem)  # see test_dpo.py
ACCELERATE = sorted((ROOT / "configs/accelerate").glob("*.yaml"))
TABLE_7 = ("judgelm_7b", "judgelm_13b", "judgelm_33b")


def names(paths):
    return [path.stem for path in paths]


def parse(path, *more):
    """The config as its recipe reads it; this machine need not have the GPU that it asks for."""
    arguments = ["--config", str(path), "--use_cpu", "true", "--tf32", "false", *more]
    own, config = {
        "sft": (JudgeArguments, SFTConfig),
        "preference": (PreferenceArguments, SFTConfig),
        "grpo": (GRPOArguments, JudgeGRPOConfig),
    }[command_of(path)[2]]
    return TrlParser((own, config, ModelConfig)).parse_args_and_config(arguments)


def commands_of(path):
    """The launches that stand in a config's first comment: accelerate's config, the recipe, the training config."""
    comment = itertools.takewhile(lambda line: line.startswith("#"), path.read_text().splitlines())
    text = " ".join(line.lstrip("# ").removesuffix("\\") for line in comment)
    launch = r"accelerate launch --config_file (\S+) .*?train/(sft|preference|grpo)\.py +--config (\S+)"
    return list(re.finditer(launch, text))


def command_of(path):
    """The first of them."""
    return commands_of(path)[0]


@pytest.mark.parametrize("path", TRAIN, ids=names(TRAIN))
def test_a_training_config_is_parsed_and_states_its_batch(path):
    judge, sft, model = parse(path)
    commands = commands_of(path)
    assert {command[3] for command in commands} == {f"configs/train/{path.name}"}
    if path.stem.startswith("judgelm") and commands[0][2] == "sft":
        assert judge.global_batch == 128
    rows = sft.per_device_train_batch_size
    shapes = []
    for command in commands:
        processes = load_config_from_file(str(ROOT / command[1])).num_processes
        passes = accumulation_steps(
            judge.global_batch, per_device=rows, accumulation=sft.gradient_accumulation_steps, processes=processes
        )
        shapes.append((rows, passes, processes))
    stated = r"global_batch: .*# (\d+) rows? x (\d+) passes x (\d+) process(?:es)?(?:, or (\d+) x (\d+) process)?"
    if found := re.search(stated, path.read_text()):
        first, *rest = shapes
        assert tuple(map(int, found.groups()[:3])) == first
        assert [tuple(map(int, found.groups()[3:]))] == [shape[1:] for shape in rest] if rest else found[4] is None
    assert get_template(judge.template).id == row_options(judge, sft).template
    assert "Qwen" not in str(model.model_name_or_path) or get_template(judge.template).chat


@pytest.mark.parametrize(("name", "processes", "pairs"), [("demo_grpo", 1, 32), ("grpo_7b", 8, 16)])
def test_the_recipes_of_a_reinforcement_state_their_batch(name, processes, pairs):
    path = ROOT / f"configs/train/{name}.yaml"
    judge, args, _ = parse(path, "--use_vllm", "false")  # this machine's vLLM may be none of TRL's
    check_grpo_arguments(judge, args)
    assert load_config_from_file(str(ROOT / command_of(path)[1])).num_processes == processes
    assert prompts_of_a_generation(args) * processes == 2 * pairs
    assert f"{pairs} pairs" in path.read_text()


@pytest.mark.parametrize(("name", "processes"), [(TABLE_7[0], 8), (TABLE_7[1], 8), (TABLE_7[2], 16)])
def test_the_papers_judges_have_the_values_of_table_7(name, processes):
    path = ROOT / f"configs/train/{name}.yaml"
    judge, sft, model = parse(path)
    assert sft.max_length == 2048
    assert sft.learning_rate == 2e-5
    assert sft.lr_scheduler_type == "cosine"
    assert sft.optim == "adamw_torch_fused"
    assert (sft.adam_beta1, sft.adam_beta2, sft.adam_epsilon, sft.weight_decay) == (0.9, 0.999, 1e-8, 0)
    assert (judge.global_batch, sft.num_train_epochs) == (128, 3)
    # 100,000 rows x 3 epochs / 128 = 2,344 steps, of which 0.003 are 7.03: 8, since part of a step counts whole
    assert sft.get_warmup_steps(2344) == 8
    assert sft.bf16
    assert sft.gradient_checkpointing
    assert yaml.safe_load(path.read_text())["tf32"] is True
    cluster = load_config_from_file(str(ROOT / command_of(path)[1]))
    assert (cluster.num_processes, cluster.deepspeed_config["zero_stage"]) == (processes, 3)
    assert "vicuna-" + name.removeprefix("judgelm_") in model.model_name_or_path
    assert not model.use_peft


def test_the_recipe_states_the_versions_of_vllm_that_trl_supports():
    text = (ROOT / "configs/train/grpo_7b.yaml").read_text(encoding="utf-8")
    low, high = re.search(r"vLLM ([\d.]+) to ([\d.]+)", text).groups()
    [supported] = [each.specifier for each in extra_requirements("vllm", "trl") if each.name == "vllm"]
    assert supported == SpecifierSet(f">={low},<={high}")


@pytest.mark.parametrize("path", ACCELERATE, ids=names(ACCELERATE))
def test_accelerate_knows_every_key_of_its_configs(path):
    loaded = load_config_from_file(str(path))  # refuses unknown keys of the first level
    known = vars(launch_command_parser().parse_args(["train/sft.py"]))
    assert set(loaded.deepspeed_config) | set(loaded.fsdp_config) <= set(known)
    assert loaded.num_processes % loaded.num_machines == 0


@pytest.mark.parametrize(
    ("name", "stage", "offload"),
    [("zero2", 2, "none"), ("zero3", 3, "none"), ("zero3_offload", 3, "cpu"), ("zero3_2nodes", 3, "none")],
)
def test_deepspeed_is_told_the_stage_and_takes_batch_and_accumulation_from_training(name, stage, offload):
    loaded = load_config_from_file(str(ROOT / f"configs/accelerate/{name}.yaml"))
    settings = loaded.deepspeed_config
    assert (settings["zero_stage"], settings["offload_param_device"]) == (stage, offload)
    assert not {"gradient_accumulation_steps", "gradient_clipping", "deepspeed_config_file"} & set(settings)
    assert settings.get("zero3_save_16bit_model", False) == (stage == 3)


def test_two_machines_are_told_apart_on_the_command_line():
    from accelerate.commands.launch import _validate_launch_command

    path = ROOT / "configs/accelerate/zero3_2nodes.yaml"
    arguments = ["--config_file", str(path), "--machine_rank", "1", "--main_process_ip", "10.0.0.7", "train/sft.py"]
    told, _, _ = _validate_launch_command(launch_command_parser().parse_args(arguments))
    assert (int(told.machine_rank), told.main_process_ip) == (1, "10.0.0.7")
    assert (told.num_machines, told.num_processes, told.mixed_precision) == (2, 16, "bf16")
    assert (told.use_deepspeed, told.deepspeed_multinode_launcher) == (True, "standard")


def test_the_slurm_script_starts_one_launcher_on_each_machine(tmp_path):
    # scontrol, srun and accelerate are stood in for: srun runs its command on "machine 1", accelerate prints its own
    for name, body in {
        "scontrol": "printf 'node7\\nnode8\\n'",
        "srun": 'shift; SLURM_NODEID=1 "$@"',
        "accelerate": 'printf "%s\\n" "$@"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "node[7-8]",
        "SLURM_JOB_ID": "31234",
    }
    script = ["bash", str(ROOT / "configs/slurm/judgelm_33b.sh")]
    config = ["--config", "configs/train/judgelm_33b.yaml"]
    for given in ([], [*config, "--output_dir", "runs/a b"]):
        done = subprocess.run([*script, *given], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.splitlines() == [
            "launch", "--config_file", "configs/accelerate/zero3_2nodes.yaml", "--machine_rank", "1",
            "--main_process_ip", "node7", "--main_process_port", "21234", "train/sft.py", *(given or config),
        ]  # fmt: skip


def test_passes_follow_from_the_global_batch_on_any_number_of_processes():
    assert accumulation_steps(None, per_device=3, accumulation=5, processes=1) == 5
    # 128 rows, 4 a device: 32 passes on 1 process, 16 on 2, 4 on 8
    passes = [accumulation_steps(128, per_device=4, accumulation=1, processes=count) for count in (1, 2, 8)]
    assert passes == [32, 16, 4]
    assert accumulation_steps(128, per_device=4, accumulation=4, processes=8) == 4


def test_another_batch_than_the_stated_one_is_refused_with_the_accumulation_that_mends_it():
    # 4 x 4 x 2 = 32; 128 / (4 x 2) = 16
    with pytest.raises(ConfigError) as error:
        accumulation_steps(128, per_device=4, accumulation=4, processes=2)
    assert str(error.value) == (
        "global_batch is 128, but per_device_train_batch_size 4 x gradient_accumulation_steps 4 x 2 processes make "
        "32; gradient_accumulation_steps: 16 would give it, or leave it out"
    )
    with pytest.raises(ConfigError, match="no accumulation gives it, since 128 is no multiple of 24 rows a pass"):
        accumulation_steps(128, per_device=4, accumulation=1, processes=6)
    with pytest.raises(ConfigError, match="no accumulation gives it, since 0 is"):
        accumulation_steps(0, per_device=4, accumulation=4, processes=6)


def test_the_stated_batch_is_checked_before_anything_is_loaded(tmp_path):
    more = ("--output_dir", str(tmp_path), "--gradient_accumulation_steps", "4")
    judge, sft, model = parse(ROOT / "configs/train/judgelm_33b.yaml", *more)
    # one process here instead of sixteen: 128 / 2 = 64
    with pytest.raises(ConfigError, match="x 1 processes make 8; gradient_accumulation_steps: 64 would give it"):
        build("sft", judge, sft, model)
