"""The training configs: each is read as its recipe reads it, and holds what it says it holds."""

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser
from trl import ModelConfig, SFTConfig, TrlParser

from judgelm.prompts.catalog import get_template
from judgelm.training.arguments import JudgeArguments, accumulation_steps, row_options
from judgelm.training.grpo import GRPOArguments, JudgeGRPOConfig, check_grpo_arguments, prompts_of_a_generation
from judgelm.training.preference import PreferenceArguments
from judgelm.training.reward import JudgeRewardConfig, RewardArguments

ROOT = Path(__file__).parents[2]
TRAIN = sorted((ROOT / "configs/train").glob("*.yaml"))
CONFIGS = {"reward": JudgeRewardConfig, "grpo": JudgeGRPOConfig}
ACCELERATE = sorted((ROOT / "configs/accelerate").glob("*.yaml"))


def parse(path, *more):
    """The config as its recipe reads it; this machine need not have the GPU that it asks for."""
    arguments = ["--config", str(path), "--use_cpu", "true", "--tf32", "false", *more]
    recipe = commands_of(path)[0][2]
    others = {"preference": PreferenceArguments, "reward": RewardArguments, "grpo": GRPOArguments}
    own, config = others.get(recipe, JudgeArguments), CONFIGS.get(recipe, SFTConfig)
    return TrlParser((own, config, ModelConfig)).parse_args_and_config(arguments)


def commands_of(path):
    """The launches in a config's first comment: the text, accelerate's config, the recipe, the training config."""
    comment = itertools.takewhile(lambda line: line.startswith("#"), path.read_text().splitlines())
    text = " ".join(line.lstrip("# ").removesuffix("\\") for line in comment)
    launch = r"accelerate launch --config_file (\S+) .*?train/(sft|preference|reward|grpo)\.py +--config (\S+)"
    named = re.findall(r"(judgelm train (sft|preference|reward|grpo) --config (\S+))", text)
    ours = [(text, "configs/accelerate/cpu.yaml", recipe, f"configs/train/{name}.yaml") for text, recipe, name in named]
    return [(match[0], *match.groups()) for match in re.finditer(launch, text)] + ours


@pytest.mark.parametrize("path", TRAIN, ids=lambda path: path.stem)
def test_a_training_config_is_parsed_and_states_its_batch(path):
    judge, sft, model = parse(path)
    commands = commands_of(path)
    assert {command[3] for command in commands} == {f"configs/train/{path.name}"}
    if path.stem.startswith("judgelm"):
        assert (model.attn_implementation, sft.padding_free) == (None, False)  # "No recipe names one"
    if path.stem.startswith("judgelm") and commands[0][2] == "sft":
        assert (judge.global_batch, judge.loss_average) == (128, "row")
    rows = sft.per_device_train_batch_size
    batch = {"per_device": rows, "accumulation": sft.gradient_accumulation_steps}
    counts = [load_config_from_file(str(ROOT / command[1])).num_processes for command in commands]
    shapes = [(rows, accumulation_steps(judge.global_batch, **batch, processes=count), count) for count in counts]
    stated = r"global_batch: .*# (\d+) rows? x (\d+) passes x (\d+) process(?:es)?(?:, or (\d+) x (\d+) process)?"
    if match := re.search(stated, path.read_text()):
        first, *rest = shapes
        assert tuple(map(int, match.groups()[:3])) == first
        assert [tuple(map(int, match.groups()[3:]))] == [shape[1:] for shape in rest] if rest else match[4] is None
    assert get_template(judge.template).id == row_options(judge, sft).template
    assert "Qwen" not in str(model.model_name_or_path) or get_template(judge.template).chat


@pytest.mark.parametrize(("name", "processes", "pairs"), [("demo_grpo", 1, 32), ("grpo_7b", 8, 16)])
def test_the_recipes_of_a_reinforcement_state_their_batch(name, processes, pairs):
    path = ROOT / f"configs/train/{name}.yaml"
    judge, args, _ = parse(path, "--use_vllm", "false")  # this machine's vLLM may be none of TRL's
    check_grpo_arguments(judge, args)
    assert load_config_from_file(str(ROOT / commands_of(path)[0][1])).num_processes == processes
    assert prompts_of_a_generation(args) * processes == 2 * pairs
    assert f"{pairs} pairs" in path.read_text()


@pytest.mark.parametrize(("name", "processes"), [("judgelm_7b", 8), ("judgelm_13b", 8), ("judgelm_33b", 16)])
def test_the_papers_judges_have_the_values_of_table_7(name, processes):
    path = ROOT / f"configs/train/{name}.yaml"
    judge, sft, model = parse(path)
    assert (sft.max_length, judge.global_batch, sft.num_train_epochs) == (2048, 128, 3)
    assert (sft.learning_rate, sft.lr_scheduler_type, sft.optim) == (2e-5, "cosine", "adamw_torch_fused")
    assert (sft.adam_beta1, sft.adam_beta2, sft.adam_epsilon, sft.weight_decay) == (0.9, 0.999, 1e-8, 0)
    # 100,000 rows x 3 epochs / 128 = 2,344 steps, of which 0.003 are 7.03: 8, since part of a step counts whole
    assert sft.get_warmup_steps(2344) == 8
    assert (sft.bf16, sft.gradient_checkpointing, model.use_peft) == (True, True, False)
    assert yaml.safe_load(path.read_text())["tf32"] is True
    cluster = load_config_from_file(str(ROOT / commands_of(path)[0][1]))
    assert (cluster.num_processes, cluster.deepspeed_config["zero_stage"]) == (processes, 3)
    assert "vicuna-" + name.removeprefix("judgelm_") in model.model_name_or_path


@pytest.mark.parametrize("path", ACCELERATE, ids=lambda path: path.stem)
def test_accelerate_knows_every_key_of_its_configs(path):
    loaded = load_config_from_file(str(path))  # refuses unknown keys of the first level
    known = vars(launch_command_parser().parse_args(["train/sft.py"]))
    assert set(loaded.deepspeed_config) | set(loaded.fsdp_config) <= set(known)
    assert loaded.num_processes % loaded.num_machines == 0
    settings = loaded.deepspeed_config  # which takes batch and accumulation from the training
    assert not {"gradient_accumulation_steps", "gradient_clipping", "deepspeed_config_file"} & set(settings)
    assert settings.get("zero3_save_16bit_model", False) == (settings.get("zero_stage") == 3)


TRAINING = """
import signal
signal.signal(signal.SIGUSR1, lambda *_: exit(print("saved") or 138))
print("training", flush=True)
while True:
    signal.pause()
"""


@pytest.mark.parametrize("given", [(), ("--config", "configs/train/judgelm_33b.yaml", "--output_dir", "runs/a b")])
def test_the_slurm_script_starts_a_launcher_on_each_machine_and_passes_usr1_on(tmp_path, given):
    # scontrol, srun and accelerate are stood in for: srun runs its command on "machine 1"; accelerate prints its
    # arguments, starts a training as torch's launcher does, and ends with 1 if that ends with another code than 0
    for name, body in {
        "scontrol": "printf 'node7\\nnode8\\n'",
        "srun": 'test "$1" = --cpus-per-task=48 || exit 3; shift 2; export SLURM_NODEID=1; echo "$$"; exec "$@"',
        "accelerate": f"printf '%s\\n' \"$@\"; {sys.executable} -c '{TRAINING}' || exit 1",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "node[7-8]", "SLURM_JOB_ID": "31234", "SLURM_CPUS_PER_TASK": "48"}
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"} | slurm
    script = ["bash", str(ROOT / "configs/slurm/judgelm_33b.sh"), *given]
    job = subprocess.Popen(script, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    task = int(job.stdout.readline())
    arguments = list(iter(lambda: job.stdout.readline().rstrip("\n"), "training"))
    assert arguments == [
        "launch", "--config_file", "configs/accelerate/zero3_2nodes.yaml", "--machine_rank", "1", "--main_process_ip",
        "node7", "--main_process_port", "21234", "train/sft.py",
        *(given or ("--config", "configs/train/judgelm_33b.yaml")),
    ]  # fmt: skip
    os.kill(task, signal.SIGUSR1)
    try:
        end, _ = job.communicate(timeout=20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    assert (end, job.returncode) == ("saved\n", 1)
