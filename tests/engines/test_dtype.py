"""`--dtype auto` on CPUs and GPUs."""

import re

import pytest
import torch
from transformers import LlamaConfig

from benchmarks.tiny_model import make_base
from judgelm.engines.base import EngineOptions
from judgelm.engines.dtype import (
    DtypeChoice,
    choose_cpu_dtype,
    choose_gpu_dtype,
    cpu_flags,
    half_format,
    requested_dtype,
    resolve_dtype,
    stored_dtype,
    wide_note,
)
from judgelm.engines.transformers.loaded_model import in_gpu_dtype
from judgelm.engines.weights import all_parameters

# flags as Linux prints them
ZEN_3 = "processor\t: 0\nmodel name\t: AMD EPYC 7763\nflags\t\t: fpu sse4_2 avx avx2 fma f16c vaes\n"
ZEN_4 = "processor\t: 0\nflags\t\t: avx2 fma avx512f avx512_vnni avx512_bf16\n"
SAPPHIRE_RAPIDS = "processor\t: 0\nflags\t\t: avx2 avx512f avx512_bf16 avx512_fp16 amx_bf16 amx_tile amx_int8\n"
GRAVITON_2 = "processor\t: 0\nFeatures\t: fp asimd evtstrm aes fphp asimdhp cpuid asimdrdm\n"
GRAVITON_3 = "processor\t: 0\nFeatures\t: fp asimd fphp asimdhp sve svebf16 i8mm bf16\n"
EMULATED = {"float32": 1.0, "bfloat16": 7.4, "float16": 7.0}
NATIVE = {"float32": 3.0, "bfloat16": 1.0, "float16": 12.0}
GB = 10**9


def unexpected():
    raise AssertionError("the speed was measured, or CUDA started in this process")


@pytest.mark.parametrize(
    ("cpuinfo", "dtype", "knows"),
    [
        (ZEN_3, "bfloat16", False), (ZEN_3, "float16", False), (ZEN_4, "bfloat16", True), (ZEN_4, "float16", False),
        (SAPPHIRE_RAPIDS, "bfloat16", True), (SAPPHIRE_RAPIDS, "float16", True), (GRAVITON_2, "bfloat16", False),
        (GRAVITON_2, "float16", True), (GRAVITON_3, "bfloat16", True),
    ],
)  # fmt: skip
def test_note_names_missing_cpu_instructions(cpuinfo, dtype, knows):
    note = choose_cpu_dtype(dtype, EMULATED, cpu_flags(cpuinfo), weights=1000, free_bytes=GB).note
    assert (f"this CPU has no {dtype} instructions" in note) is not knows


@pytest.mark.parametrize(
    ("stored", "seconds", "cpuinfo", "weights", "free", "dtype", "note"),
    [
        ("bfloat16", EMULATED, ZEN_3, 100_000_000, GB, "float32", r"no bfloat16 .* 7\.4x slower than float32\)"),
        ("bfloat16", NATIVE, ZEN_4, 1000, GB, "bfloat16", r"\(3\.0x the speed of float32 on this CPU\)"),
        # Skylake's oneDNN emulates bfloat16 about as fast as it computes float32, at half the memory
        ("bfloat16", {"float32": 1.0, "bfloat16": 1.4, "float16": 9.0}, "", 1000, GB, "bfloat16", r"\(0\.7x"),
        # 1e9 weights of 4 bytes are 4 GB, which is 80 % of 5 GB
        ("bfloat16", EMULATED, ZEN_3, GB, 5 * GB, "float32", ""),
        ("bfloat16", EMULATED, ZEN_3, GB, 5 * GB - 1, "bfloat16", "float32, which needs 4.0 GB; 5.0 GB are free"),
        ("bfloat16", EMULATED, ZEN_3, None, GB, "bfloat16", "needs an unknown amount of memory"),
        # float16 is only rounded if float32 does not fit
        ("float16", NATIVE, ZEN_4, 1000, GB, "float32", r"4\.0x slower .*; --dtype bfloat16 .* is 3\.0x faster"),
        ("float16", NATIVE, ZEN_4, GB, GB, "bfloat16", r"^dtype: bfloat16, which rounds the weights \(this CPU has no"),
        ("float16", EMULATED, ZEN_3, GB, GB, "float16", ""),  # both are slow
    ],
)
def test_cpu_dtype_depends_on_speed_and_memory(stored, seconds, cpuinfo, weights, free, dtype, note):
    choice = choose_cpu_dtype(stored, seconds, cpu_flags(cpuinfo), weights=weights, free_bytes=free)
    assert choice.dtype == dtype
    assert re.search(note, choice.note)


def test_requested_dtype_is_kept_with_a_note_if_slow():
    # the flags are enough
    assert requested_dtype("bfloat16", cpu_flags(ZEN_4), unexpected).note == ""
    assert requested_dtype("float32", cpu_flags(ZEN_3), unexpected).note == ""
    slow = requested_dtype("bfloat16", cpu_flags(ZEN_3), lambda: EMULATED)
    assert slow.dtype == "bfloat16"
    assert re.match(r"dtype: bfloat16, as requested .*no bfloat16 instructions.* 7\.4x slower", slow.note)
    fast = requested_dtype("bfloat16", cpu_flags(ZEN_3), lambda: NATIVE)
    assert (fast.dtype, fast.note) == ("bfloat16", "")


def test_large_float32_checkpoint_gets_a_note():
    # Vicuna-7B's 6,738,415,616 weights: 26.95 GB in float32
    assert re.search(r"27\.0 GB .*--dtype bfloat16 needs 13\.5 GB", wide_note("bfloat16", 6_738_415_616))
    assert wide_note("bfloat16", 268_435_455) == ""  # less than a GiB
    assert wide_note(None, 6_738_415_616) == ""


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
@pytest.mark.parametrize(
    ("stored", "requested", "quantization", "expected"),
    [
        ("float32", "auto", None, "bfloat16"), ("float32", "auto", "4bit", "bfloat16"),
        ("float32", "float32", None, "float32"), ("float32", "float16", None, "float16"),
        ("float16", "auto", None, "float16"), ("bfloat16", "auto", None, "bfloat16"),
        (None, "auto", None, "auto"),  # known once it is loaded
    ],
)  # fmt: skip
def test_gpu_runs_float32_in_bfloat16_unless_requested_otherwise(device, stored, requested, quantization, expected):
    options = EngineOptions(model="m", dtype=requested, quantization=quantization)
    has_bfloat16 = (lambda: True) if stored == "float32" else unexpected
    choice = resolve_dtype("m", LlamaConfig(dtype=stored), options, device=device, has_bfloat16=has_bfloat16)
    assert choice.dtype == expected
    assert bool(choice.note) is (stored == "float32" and requested == "auto")


def test_gpu_without_bfloat16_keeps_float32():
    choice = choose_gpu_dtype("float32", lambda: False)
    assert (choice.dtype, "--dtype float16" in choice.note) == ("float32", True)


@pytest.mark.parametrize(
    ("stored", "chosen", "device", "expected"),
    [
        (torch.float32, "auto", "cuda", torch.bfloat16), (torch.float16, "auto", "cuda", torch.float16),
        (torch.float32, "float32", "cuda", torch.float32), (torch.float32, "auto", "cpu", torch.float32),
    ],
)  # fmt: skip
def test_dtype_of_the_loaded_weights_counts_if_the_config_has_none(stored, chosen, device, expected):
    class Loaded(torch.nn.Linear):
        dtype = stored

    model, choice = in_gpu_dtype(Loaded(2, 2, dtype=stored), DtypeChoice(dtype=chosen), device, lambda: True)
    assert model.weight.dtype == expected
    assert ("float32" in choice.note) is (expected == torch.bfloat16)


@pytest.mark.parametrize(("cpuinfo", "half"), [(ZEN_3, None), (ZEN_4, "bfloat16"), (GRAVITON_3, "bfloat16")])
def test_half_format_needs_cpu_instructions(cpuinfo, half):
    assert half_format("cpu", cpu_flags(cpuinfo)) == half


def test_stored_dtype_is_read_from_the_weights_if_the_config_has_none(tmp_path):
    shape = {"hidden_size": 64, "layers": 1, "heads": 2, "vocab_size": 300, "max_positions": 128}
    make_base(["a b a b"], tmp_path, **shape, seed=0, dtype=torch.bfloat16)
    config = LlamaConfig.from_pretrained(tmp_path)
    assert stored_dtype(str(tmp_path), config) == "bfloat16"
    config.dtype = None
    assert stored_dtype(str(tmp_path), config) == "bfloat16"
    assert stored_dtype("owner/name", config) is None


def test_quantised_models_keep_their_dtype():
    for config, quantization in (({"quantization_config": {"quant_method": "awq"}}, None), ({}, "4bit")):
        options = EngineOptions(model="m", quantization=quantization)
        choice = resolve_dtype("m", LlamaConfig(dtype="float16", **config), options, device="cpu")
        assert choice.dtype == "float16"


def test_shared_weights_count_once(tmp_path):
    # embedding 100 * 8 (tied with the head), one layer of 4 * 8 * 8 + 3 * 8 * 16 + 2 * 8, and the last norm's 8
    config = LlamaConfig(
        vocab_size=100, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, tie_word_embeddings=True,
    )  # fmt: skip
    assert all_parameters(config) == 800 + 256 + 384 + 16 + 8
