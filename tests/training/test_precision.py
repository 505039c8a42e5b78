"""Numeric formats of training."""

import os

import pytest
import torch
from transformers.utils.import_utils import enable_tf32
from trl import ModelConfig

from benchmarks.tiny_model import make_base
from judgelm.training.arguments import JudgeArguments
from judgelm.training.checkpoints import mark
from judgelm.training.precision import settle_precision
from judgelm.training.sft import JudgeSFTConfig


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
def test_formats_left_open_are_chosen_for_the_cpu_and_those_of_a_begun_run_stay(
    half_base, tmp_path, monkeypatch, seconds, bf16, recorded, formats, notes
):
    for module in ("engines.dtype", "training.precision"):
        monkeypatch.setattr(f"judgelm.{module}.measure_products", lambda config: seconds)
    if recorded is not None:
        (tmp_path / "checkpoint-3").mkdir()
        mark(tmp_path / "checkpoint-3", recorded, resumable=True)
    args = JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=bf16)
    model = ModelConfig(model_name_or_path=half_base, dtype="auto")
    said = settle_precision(JudgeArguments(train_data=["rows.jsonl"]), args, model)
    assert (args.bf16, model.dtype) == formats
    assert [note.partition(" (")[0] for note in said] == notes


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
