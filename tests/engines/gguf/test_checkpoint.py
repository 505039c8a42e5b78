"""GGUF files as models: dequantised once, the same numbers and tokens, the cache safe against faults."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoTokenizer

from judgelm import Judge
from judgelm.engines.base import EngineOptions
from judgelm.engines.dtype import stored_dtype
from judgelm.engines.gguf import checkpoint_of, gguf_checkpoint, gguf_record
from judgelm.engines.model_files import split_adapter
from judgelm.errors import ModelError, RunError
from tests.support.gguf_files import F32, weights_of, write_gguf
from tests.support.tiny_judges import TEMPLATE, make_adapter


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGELM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tiny_gguf(tiny_model, tmp_path):
    return write_gguf(tiny_model, tmp_path / "tiny.gguf")


def test_the_weights_are_the_blocks_values_in_float16(tiny_gguf, tiny_model):
    written, blocks = load_file(checkpoint_of(tiny_gguf) / "model.safetensors"), weights_of(tiny_model)
    assert written.keys() == blocks.keys()
    assert all(np.array_equal(written[name], blocks[name].astype(np.float16)) for name in blocks)


def test_texts_have_the_models_own_tokens(tiny_gguf, tiny_model):
    own, converted = (AutoTokenizer.from_pretrained(folder) for folder in (tiny_model, checkpoint_of(tiny_gguf)))
    text = "what is 10?\n\n 2.5  lazy dogs é</s>"
    assert converted(text)["input_ids"] == own(text)["input_ids"]
    assert converted.eos_token_id == own.eos_token_id


def test_unquantised_weights_stay_as_they_are(tiny_model, tmp_path):
    folder = checkpoint_of(write_gguf(tiny_model, tmp_path / "f32.gguf", kind=F32))
    own = load_file(tiny_model / "model.safetensors")
    assert all(np.array_equal(weight, own[name]) for name, weight in load_file(folder / "model.safetensors").items())
    assert gguf_record(folder).dtype == "float32"
    assert stored_dtype(str(folder), AutoConfig.from_pretrained(folder)) == "float32"


def test_quantised_weights_are_computed_in_bfloat16(tiny_gguf):
    folder = checkpoint_of(tiny_gguf)
    assert stored_dtype(str(folder), AutoConfig.from_pretrained(folder)) == "bfloat16"


def test_weights_beyond_float16_are_kept_in_float32(tiny_model, tmp_path):
    large = shutil.copytree(tiny_model, tmp_path / "large")
    weights = load_file(large / "model.safetensors")
    weights["model.norm.weight"][0] = 70_000  # float16 ends at 65,504
    from safetensors.numpy import save_file

    save_file(weights, large / "model.safetensors", metadata={"format": "pt"})
    folder = checkpoint_of(write_gguf(large, tmp_path / "large.gguf"))
    assert gguf_record(folder).dtype == "float32"
    assert load_file(folder / "model.safetensors")["model.norm.weight"][0] == 70_000


def test_a_judge_names_the_file_by_its_hash(tiny_gguf):
    with Judge(str(tiny_gguf), engine="transformers", template=TEMPLATE) as judge:
        described = judge.engine.describe()["model"]
        assert any(note.startswith("GGUF: tiny.gguf, dequantised once into") for note in judge.notes)
        assert judge.compare("what is a fox", "a big", "red").failure is not None  # random weights write no scores
    sha256 = gguf_record(described["path"]).sha256
    assert (described["gguf"], described["gguf_sha256"], described["gguf_repairs"]) == ("tiny.gguf", sha256, [])
    assert described["path"].endswith(f"cache/gguf/{sha256}")


def test_the_second_start_converts_nothing(tiny_gguf, tmp_path):
    folder = checkpoint_of(tiny_gguf)
    before = (folder / "model.safetensors").stat()
    renamed = tiny_gguf.rename(tmp_path / "renamed.gguf")
    assert gguf_checkpoint(str(renamed)) == str(folder)
    assert (folder / "model.safetensors").stat() == before


def test_a_changed_file_is_another_model(tiny_gguf, tiny_model):
    first = checkpoint_of(tiny_gguf)
    write_gguf(tiny_model, tiny_gguf, extra={"general.name": "other"})
    assert checkpoint_of(tiny_gguf) != first


def test_a_damaged_checkpoint_is_made_again(tiny_gguf):
    folder = checkpoint_of(tiny_gguf)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-10])
    assert (checkpoint_of(tiny_gguf) / "model.safetensors").read_bytes() == whole


def test_what_a_killed_process_left_is_no_obstacle(tiny_gguf, cache):
    folder = checkpoint_of(tiny_gguf)
    folder.rename(folder.with_suffix(".partial"))
    assert checkpoint_of(tiny_gguf) == folder
    assert {path.suffix for path in (cache / "gguf").iterdir()} == {"", ".lock"}


@pytest.mark.slow
def test_two_processes_at_once_make_one_checkpoint(tiny_gguf, cache):
    code = f"from judgelm.engines.gguf import gguf_checkpoint; print(gguf_checkpoint({str(tiny_gguf)!r}))"
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    [folder, same] = [process.communicate()[0].strip() for process in started]
    assert folder == same
    assert gguf_record(folder).weight_bytes == (cache / "gguf" / folder / "model.safetensors").stat().st_size


def test_a_cache_without_room_is_refused_before_anything_is_converted(tiny_gguf, monkeypatch):
    usage = shutil.disk_usage(tiny_gguf.parent)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(RunError, match=r"0.0 GB free, and tiny.gguf takes 0.1 GB dequantised; .* set JUDGELM_CACHE"):
        checkpoint_of(tiny_gguf)


def test_a_cache_that_cannot_be_written_is_named(tiny_gguf, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JUDGELM_CACHE", str(tmp_path / "file"))
    with pytest.raises(RunError, match=r"file/gguf.*: Not a directory; tiny.gguf is dequantised into the cache; set"):
        checkpoint_of(tiny_gguf)


def test_an_adapter_finds_a_gguf_base_by_its_path(tiny_gguf, tiny_model, tmp_path):
    adapter = make_adapter(tiny_model, tmp_path / "adapter", seed=1)
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": str(tiny_gguf)}))
    base, found = split_adapter(EngineOptions(model=str(adapter)))
    assert (gguf_record(base).file, found) == ("tiny.gguf", str(adapter))
    assert split_adapter(EngineOptions(model=str(tiny_gguf), adapter="x")) == (base, "x")


def test_a_damaged_record_is_named(tiny_gguf):
    folder = checkpoint_of(tiny_gguf)
    (folder / "gguf.json").write_text("{}")
    with pytest.raises(ModelError, match=r"gguf.json: damaged; remove the folder"):
        gguf_record(folder)
