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
from types import SimpleNamespace

import pytest
import torch

from judgelm.engines.base import EngineOptions
from judgelm.engines.vllm import START_LOG, logged_start, quiet_imports

pytest.importorskip("vllm", reason="vllm is not installed: pip install -e '.[vllm]'")
with quiet_imports():
    from vllm import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    from judgelm.engines.model_files import load_tokenizer
    from judgelm.engines.vllm import arguments as vllm_loading
    from judgelm.engines.vllm.arguments import engine_args
    from judgelm.engines.vllm.backends import quiet_start

DOCS = Path(__file__).parents[3] / "docs/engines.md"
COMPUTED = {"model", "tokenizer", "dtype", "max_model_len"}
"""Arguments that depend on the model, described in words."""
CODE = re.compile(r"`([^`]+)`")


GPU = SimpleNamespace(device_type="cuda", is_cpu=lambda: False)


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
        monkeypatch.setattr(vllm_loading, "current_platform", GPU)
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
        assert getattr(built, name) == expected, name
    differ = {
        field.name
        for field in dataclasses.fields(EngineArgs)
        if getattr(built, field.name) != getattr(defaults, field.name)
    }
    assert differ <= listed


def test_arguments_for_an_adapter_and_4_bits(tiny_model, tmp_path, monkeypatch):
    (tmp_path / "adapter_config.json").write_text('{"r": 24}')
    monkeypatch.setattr(vllm_loading, "current_platform", GPU)
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
    known = json.loads((quantised / "config.json").read_text())
    known["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}
    (quantised / "config.json").write_text(json.dumps(known))
    assert arguments(quantised).hf_overrides == {}


def test_start_is_logged(caplog):
    with caplog.at_level(logging.INFO, START_LOG.name), logged_start(2):
        pass
    begin, end = caplog.messages
    assert begin.endswith("in 2 processes")
    assert end == "vLLM: ready after 0 s"
