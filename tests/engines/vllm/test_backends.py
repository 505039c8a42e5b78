"""vLLM's arguments and their table in docs/engines.md."""

import ast
import dataclasses
import json
import logging
import os
import re
import shutil
import sys
from multiprocessing.spawn import get_preparation_data
from pathlib import Path

import pytest
import torch

from judgelm.engines.base import EngineOptions
from judgelm.engines.vllm import START_LOG, logged_stages, quiet_imports
from judgelm.errors import ConfigError

pytest.importorskip("vllm", reason="vllm is not installed: pip install -e '.[vllm]'")
with quiet_imports():
    from vllm import EngineArgs
    from vllm.engine import arg_utils
    from vllm.usage.usage_lib import UsageContext

    from judgelm.engines.model_files import load_tokenizer
    from judgelm.engines.vllm import arguments as vllm_loading
    from judgelm.engines.vllm.arguments import engine_args
    from judgelm.engines.vllm.backends import quiet_start

DOCS = Path(__file__).parents[3] / "docs/engines.md"
COMPUTED = {"model", "tokenizer", "dtype", "max_model_len"}
"""Arguments that depend on the model, described in words."""
CODE = re.compile(r"`([^`]+)`")


class Gpu:
    """A pretended GPU, as far as vLLM's choice of a step asks for it."""

    device_type = "cuda"

    def __init__(self, name="NVIDIA H200", gib=139):
        self._name, self._gib = name, gib

    def get_device_total_memory(self):
        return self._gib << 30

    def get_device_name(self):
        return self._name

    def is_cpu(self):
        return False

    is_tpu = is_cpu


def arguments(model, *, adapter=None, **options):
    """judgelm's arguments for vLLM."""
    requested = EngineOptions(model=str(model), **options)
    return engine_args(str(model), adapter, load_tokenizer(str(model), None, requested), requested)


def rows():
    """Each argument in the table, and judgelm's value."""
    section = DOCS.read_text().partition("## vLLM arguments")[2].partition("\n## ")[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            [name] = CODE.findall(cells[0])
            yield name, cells[2]


def literal(text):
    """The value of a code span."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


@pytest.mark.parametrize("device", ["GPU", "CPU"])
def test_documented_arguments_equal_judgelms(device, tiny_model, monkeypatch):
    if device == "GPU":
        monkeypatch.setattr(vllm_loading, "current_platform", Gpu())
    built, defaults, listed = arguments(tiny_model), EngineArgs(), set()
    for name, cell in rows():
        listed.add(name)
        if name in COMPUTED:
            continue
        anywhere, _, on_cpu = cell.partition("on a CPU ")
        if on_cpu and device == "CPU":
            expected = literal(CODE.search(on_cpu)[1])
        elif anywhere.startswith(("unchanged", "`--")):
            expected = getattr(defaults, name)
        else:
            expected = literal((CODE.search(anywhere) or [anywhere] * 2)[1])
        value = getattr(built, name)
        if name == "structured_outputs_config":
            value = f"backend={value.backend!r}"
        assert value == expected, name
    names = {field.name for field in dataclasses.fields(EngineArgs)}
    assert {name for name in names if getattr(built, name) != getattr(defaults, name)} <= listed


def test_arguments_for_an_adapter_and_4_bits(tiny_model, tmp_path, monkeypatch):
    (tmp_path / "adapter_config.json").write_text('{"r": 24}')
    monkeypatch.setattr(vllm_loading, "current_platform", Gpu())
    monkeypatch.setattr(vllm_loading, "QUANTIZATION_METHODS", ["bitsandbytes"])  # as in a vLLM that still has it
    built = arguments(tiny_model, adapter=str(tmp_path), quantization="4bit")
    assert (built.enable_lora, built.quantization, built.load_format) == (True, "bitsandbytes", "bitsandbytes")
    assert built.max_lora_rank == 32  # the next above 24 that vLLM has


def test_spawned_processes_do_not_run_the_main_module(tiny_model, monkeypatch):
    monkeypatch.delenv("VLLM_WORKER_MULTIPROC_METHOD", raising=False)
    main = {"init_main_from_name", "init_main_from_path"}
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "script.py", raising=False)  # pytest-xdist has no file
    with quiet_start(str(tiny_model), multiprocessing=True):
        assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
        assert not main & get_preparation_data("core").keys()
    assert "VLLM_WORKER_MULTIPROC_METHOD" not in os.environ
    assert main & get_preparation_data("core").keys()  # other processes start as before


def test_logits_are_float32_unless_the_head_is_quantised(tiny_model, tmp_path):
    # bfloat16 logits are 1/8 apart, so judges that score a verdict word would tie
    with quiet_start(str(tiny_model), multiprocessing=False):
        config = arguments(tiny_model, dtype="bfloat16").create_engine_config(UsageContext.LLM_CLASS)
    assert (config.model_config.dtype, config.model_config.head_dtype) == (torch.bfloat16, torch.float32)
    quantised = shutil.copytree(tiny_model, tmp_path / "quantised")
    quantization = {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}
    known = json.loads((quantised / "config.json").read_text()) | {"quantization_config": quantization}
    (quantised / "config.json").write_text(json.dumps(known))
    assert arguments(quantised).hf_overrides == {}


def test_4_bits_are_refused_by_a_vllm_without_bitsandbytes(tiny_model):
    if "bitsandbytes" in vllm_loading.QUANTIZATION_METHODS:
        pytest.skip("this vLLM has bitsandbytes")
    with pytest.raises(ConfigError, match=r"quantization '4bit': vLLM .*use --engine transformers"):
        arguments(tiny_model, quantization="4bit")


@pytest.mark.parametrize(
    ("name", "gib", "tokens"),
    [
        ("NVIDIA A10G", 22, 8192), ("NVIDIA GeForce RTX 4090", 24, 8192), ("NVIDIA A100-SXM4-80GB", 79, 8192),
        ("NVIDIA H100 80GB HBM3", 79, 16384), ("NVIDIA H200", 139, 16384), ("NVIDIA B200", 178, 16384),
    ],
)  # fmt: skip
def test_step_size_equals_vllms_on_each_gpu(name, gib, tokens, tiny_model, monkeypatch):
    with quiet_start(str(tiny_model), multiprocessing=False):  # it changes the environment, which this puts back
        config = arguments(tiny_model).create_engine_config(UsageContext.LLM_CLASS)  # on this CPU: model, parallel
    monkeypatch.setattr(vllm_loading, "current_platform", Gpu(name, gib))
    monkeypatch.setattr(arg_utils, "current_platform", Gpu(name, gib))
    ours = arguments(tiny_model)
    ours.enable_chunked_prefill = True
    ours._set_default_max_num_seqs_and_batched_tokens_args(
        UsageContext.LLM_CLASS, config.model_config, config.parallel_config
    )
    assert (ours.max_num_batched_tokens, ours.max_num_seqs) == (tokens, 256)


MESSAGES = (
    ("Initializing a V1 LLM engine (v%s) with config: %s", "0.32.0", "..."),
    ("Starting to load model %s...", "my-judge"),
    ("Loading weights took %.2f seconds", 12.3),
    ("Loading weights took %.2f seconds", 0.2),  # of a second part, such as a drafter
    ("%s KV cache size: %s tokens, Maximum concurrency for %s tokens per request: %.2fx", "GPU", "87,168", "2,048", 42),
    ("Graph capturing finished in %.0f secs, took %.2f GiB", 8.0, 0.5),
)


@pytest.fixture
def vllm_at_error(monkeypatch):
    """vLLM's logger as `quiet_imports` leaves it; checks that level and handlers are restored."""
    parent = logging.getLogger("vllm")
    monkeypatch.setattr(parent, "level", logging.ERROR)
    parent.manager._clear_cache()
    handlers = list(parent.handlers)
    yield
    assert (parent.level, parent.handlers) == (logging.ERROR, handlers)
    parent.manager._clear_cache()


@pytest.mark.usefixtures("vllm_at_error")
def test_each_stage_of_the_start_is_logged(caplog):
    with caplog.at_level(logging.INFO, START_LOG.name), logged_stages(1):
        for template, *values in MESSAGES:
            logging.getLogger("vllm.v1.worker").info(template, *values)
    lines = [record.getMessage().partition(" s: ") for record in caplog.records if record.name == START_LOG.name]
    assert {begin for begin, *_ in lines} == {"vLLM, 0"}
    stages = "loading weights, weights loaded; profiling memory, GPU KV cache size: 87,168 tokens, CUDA graphs captured"
    assert ", ".join(stage for *_, stage in lines) == f"{stages}, ready"


@pytest.mark.usefixtures("vllm_at_error")
def test_a_failed_start_is_not_logged_as_ready(caplog):
    with caplog.at_level(logging.INFO, START_LOG.name), pytest.raises(RuntimeError), logged_stages(1):
        raise RuntimeError
    assert not caplog.records
