"""Arguments: a token that is not written anywhere, invalid settings, numeric formats, and a GGUF file as the base."""

import json
import math
import os
import sys
from types import SimpleNamespace

import pytest
import torch
from accelerate.parallelism_config import ParallelismConfig
from transformers.utils import is_liger_kernel_available
from transformers.utils.import_utils import enable_tf32
from trl import ModelConfig, SFTConfig

from benchmarks.tiny_model import make_base
from judgelm.engines.base import EngineOptions
from judgelm.engines.gguf.checkpoint import checkpoint_of, gguf_record
from judgelm.engines.model_files import split_adapter
from judgelm.errors import ConfigError
from judgelm.judges.cards import named_judge
from judgelm.prompts.judge_card import find_card
from judgelm.training import arguments
from judgelm.training.arguments import JudgeArguments
from judgelm.training.checkpoints import mark
from judgelm.training.precision import settle_precision
from judgelm.training.run import parse_arguments
from judgelm.training.sft import JudgeSFTConfig
from tests.support import recipe_runs
from tests.support.gguf_files import write_gguf

WITHOUT_LIGER = pytest.mark.skipif(is_liger_kernel_available(), reason="it is installed")


def test_a_hub_token_stays_out_of_what_the_trainer_writes(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "another")
    given = ["--output_dir", str(tmp_path), "--hub_token", "hf_secret", "--use_cpu", "true", "--bf16", "false"]
    monkeypatch.setattr(sys, "argv", ["sft.py", *given])
    torch.save(*parse_arguments(SFTConfig), tmp_path / "training_args.bin")  # as the trainer does for each checkpoint
    assert b"hf_secret" not in (tmp_path / "training_args.bin").read_bytes()
    assert os.environ["HF_TOKEN"] == "hf_secret"


@pytest.mark.parametrize(
    ("judge", "options", "name"),
    [
        *(({"score_weight": weight}, {}, "score_weight") for weight in (0, -1.0, math.inf, math.nan)),
        ({"score_weight": 2.0, "loss_on": "all"}, {}, "score_weight"),
        ({"score_weight": 2.0, "template": "reasoned-chat"}, {}, "score_weight"),
        ({"score_weight": 2.0}, {"loss_type": "dft"}, "score_weight"),
        ({"score_weight": 2.0}, {"label_smoothing_factor": 0.1}, "score_weight"),
        ({"loss_average": "rows"}, {}, "loss_average"),
        ({"loss_average": "row"}, {"loss_type": "dft"}, "loss_average"),
        ({}, {"parallelism_config": {"cp_size": 2}}, "parallelism_config: cp_size"),
        ({}, {"parallelism_config": ParallelismConfig(sp_size=2)}, "parallelism_config: sp_size"),
        ({}, {"model_init_kwargs": {"tp_plan": "auto"}}, "model_init_kwargs: tp_plan"),
        ({"loss_on": "prompt"}, {}, "loss_on"),
        ({"scale": [10, 1]}, {}, "scale"),
        ({"save_dtype": "int8"}, {}, "save_dtype"),
        ({}, {"max_length": None}, "max_length"),
        ({}, {"eos_token": "<pad>"}, "eos_token"),  # the next ones would undo the rows
        ({}, {"ignore_data_skip": True}, "ignore_data_skip"),
        ({}, {"resume_from_checkpoint": "runs/out/checkpoint-3"}, "resume_from_checkpoint"),
        pytest.param({}, {"use_liger_kernel": True}, "use_liger_kernel", marks=WITHOUT_LIGER),
        ({}, {"auto_find_batch_size": True}, "auto_find_batch_size"),
        ({"global_batch": 128}, {"gradient_accumulation_steps": 3}, "global_batch"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(tmp_path, judge, options, name):
    judge = JudgeArguments(train_data=["rows.jsonl"], **judge)
    args = JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **options)
    with pytest.raises(ConfigError, match=rf"^{name} "):
        arguments.check_arguments(judge, args)


def test_parallelism_of_launchers_is_refused(tmp_path, monkeypatch):
    args = JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    monkeypatch.setenv("PARALLELISM_CONFIG_CP_SIZE", "2")
    arguments.check_parallelism(args)  # accelerate does not read it either
    for settings in ({"tensor_parallel": {"autotp_size": 4}}, {"sequence_parallel_size": 4}):
        args.deepspeed_plugin = SimpleNamespace(deepspeed_config=settings)
        with pytest.raises(ConfigError, match=r"deepspeed_config: .*_size is 4, but each process"):
            arguments.check_parallelism(args)
    monkeypatch.setenv("ACCELERATE_USE_PARALLELISM_CONFIG", "true")
    with pytest.raises(ConfigError, match="parallelism_config: cp_size is 2, but each process"):
        arguments.check_parallelism(args)


def test_passes_follow_from_the_global_batch_on_any_number_of_processes():
    cases = [(None, 5, 1), (128, 1, 1), (128, 1, 2), (128, 1, 8), (128, 4, 8)]
    passes = [arguments.accumulation_steps(batch, per_device=4, accumulation=a, processes=n) for batch, a, n in cases]
    assert passes == [5, 32, 16, 4, 4]


@pytest.mark.parametrize(("batch", "accumulation", "processes"), [(128, 4, 2), (128, 1, 6), (0, 4, 6)])
def test_another_global_batch_is_refused(batch, accumulation, processes):
    with pytest.raises(ConfigError, match=rf"set global_batch to a multiple of {4 * processes}\b"):
        arguments.accumulation_steps(batch, per_device=4, accumulation=accumulation, processes=processes)


def test_the_dtype_of_a_judge_is_that_of_the_training_or_the_requested_one():
    args = SFTConfig(bf16=True, use_cpu=True)
    dtypes = [arguments.save_dtype_of(name, args) for name in ("auto", "float16", "float32")]
    assert dtypes == [torch.bfloat16, torch.float16, torch.float32]
    assert arguments.save_dtype_of("auto", SFTConfig(bf16=False, use_cpu=True)) is None
    args.deepspeed_plugin = object()
    with pytest.raises(ConfigError, match="DeepSpeed gathers 16-bit weights"):
        arguments.save_dtype_of("float32", args)


@pytest.fixture
def train(tiny_model, train_file, tmp_path, judge_cache):
    """Train for two steps on a GGUF file; the file and the output folder."""
    base = write_gguf(tiny_model, tmp_path / "tiny.gguf")

    def run(**options):
        data = {"model_name_or_path": str(base), "train_data": [train_file], "max_steps": 2, "dtype": "float32"}
        return base, recipe_runs.train(tmp_path / "run", **data, **options)

    return run


def test_an_adapter_names_the_gguf_file_and_finds_its_checkpoint(train):
    base, out = train(**recipe_runs.LORA)
    checkpoint = checkpoint_of(base)
    sha256, card = gguf_record(checkpoint).sha256, find_card(str(out))
    assert (card.base.gguf_sha256, card.base.file) == (sha256, "tiny.gguf")
    assert card.training["base_model"] == "tiny.gguf"
    assert card.training["base_gguf"] == {"sha256": sha256, "dtype": "float16", "repairs": []}
    assert json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"] == "tiny.gguf"
    base.unlink()  # another machine has the checkpoint, not this path
    assert split_adapter(EngineOptions(model=str(out))) == (str(checkpoint), str(out))


def test_a_whole_judge_needs_the_gguf_file_no_longer(train):
    _, out = train()
    card = find_card(str(out))
    assert (card.base, card.training["base_model"]) == (None, "tiny.gguf")
    assert (out / "model.safetensors").is_file()


def test_a_judges_name_is_its_base_and_its_adapter(small_judge, monkeypatch, tmp_path):
    given = ["--train_data", "rows.jsonl", "--output_dir", str(tmp_path), "--use_cpu", "true", "--bf16", "false"]
    monkeypatch.setattr(sys, "argv", ["sft.py", *given, "--model_name_or_path", "small-judge"])
    judge, _, base = parse_arguments(JudgeArguments, JudgeSFTConfig, ModelConfig)
    installed = named_judge("small-judge")
    assert (base.model_name_or_path, judge.adapter) == (str(installed.base), str(small_judge))


@pytest.fixture(scope="module")
def half_base(tmp_path_factory):
    """A base saved in bfloat16."""
    folder = tmp_path_factory.mktemp("base")
    shape = {"hidden_size": 64, "layers": 1, "heads": 2, "vocab_size": 400, "max_positions": 256, "seed": 0}
    make_base(["what is a fox"] * 20, folder, **shape, dtype=torch.bfloat16)
    return str(folder)


SLOW, FAST = ({"float32": 1.0, "bfloat16": half, "float16": half} for half in (9.0, 0.5))


@pytest.mark.parametrize(
    ("seconds", "bf16", "recorded", "formats", "notes"),
    [
        (SLOW, None, None, (False, "float32"), ["dtype: float32", "bf16: false"]),
        (SLOW, True, None, (True, "float32"), ["dtype: float32", "bf16: true, as configured"]),
        (SLOW, False, None, (False, "float32"), ["dtype: float32"]),
        (SLOW, None, {"bf16": True, "dtype": "bfloat16"}, (True, "bfloat16"), ["bf16: true, as configured"]),
        (FAST, None, {"bf16": False, "dtype": "float32"}, (False, "float32"), []),
        (FAST, None, None, (True, "bfloat16"), ["dtype: bfloat16"]),
    ],
    ids=["open on a slow CPU", "asked for", "off", "begun on a fast CPU", "begun on a slow CPU", "open on a fast CPU"],
)
def test_formats_are_chosen_for_the_cpu(half_base, tmp_path, monkeypatch, seconds, bf16, recorded, formats, notes):
    for module in ("engines.dtype", "training.precision"):
        monkeypatch.setattr(f"judgelm.{module}.measure_products", lambda config: seconds)
    if recorded is not None:
        (tmp_path / "checkpoint-3").mkdir()
        mark(tmp_path / "checkpoint-3", recorded, resumable=True)
    args = JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=bf16)
    model = ModelConfig(model_name_or_path=half_base, dtype="auto")
    written = settle_precision(JudgeArguments(train_data=["rows.jsonl"]), args, model)
    assert (args.bf16, model.dtype, [note.partition(" (")[0] for note in written]) == (*formats, notes)


@pytest.fixture
def gpu_with_tf32(monkeypatch):
    """transformers sees a GPU that has TF32; torch's switches are as before afterwards."""
    monkeypatch.setattr("transformers.training_args.is_torch_tf32_available", lambda: True)
    monkeypatch.delenv("VLLM_FLOAT32_MATMUL_PRECISION", raising=False)
    enable_tf32.cache_clear()
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.fp32_precision = "none"
    os.environ.pop("VLLM_FLOAT32_MATMUL_PRECISION", None)


@pytest.mark.usefixtures("gpu_with_tf32")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tf32": True}, True),
        ({"tf32": False}, False),
        ({}, False),
        ({"torch_compile": True, "bf16": True}, True),  # transformers turns TF32 on for it
        ({"torch_compile": True, "tf32": False}, False),
    ],
)
def test_both_switches_of_tf32_say_the_same(tmp_path, options, expected):
    JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, **options)
    assert torch.backends.cuda.matmul.allow_tf32 is expected  # the old one, which raises where they differ
    assert (torch.backends.cuda.matmul.fp32_precision == "tf32") is expected
    assert torch.get_float32_matmul_precision() == ("high" if expected else "highest")
    # what a vLLM in this process sets
    torch.set_float32_matmul_precision(os.environ.get("VLLM_FLOAT32_MATMUL_PRECISION", "highest"))
    assert torch.backends.cuda.matmul.allow_tf32 is expected
