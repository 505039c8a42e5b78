"""GGUF files that cannot be models are refused with the finding and the way out, before anything is converted."""

import struct

import numpy as np
import pytest

from judgelm.engines.gguf import checkpoint_of, find_file, gguf_checkpoint, read_header
from judgelm.errors import ModelError
from judgelm.prompts.judge_card import find_card, is_gguf
from tests.support.gguf_files import write_gguf


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGELM_CACHE", str(tmp_path / "cache"))


def test_a_gguf_name_ends_in_gguf_and_has_no_card(tmp_path):
    (tmp_path / "folder.gguf").mkdir()
    names = ["a.gguf", "owner/name/A.Q4_K_M.GGUF", "owner/name-gguf", str(tmp_path / "folder.gguf")]
    assert [is_gguf(name) for name in names] == [True, True, False, False]
    assert find_card("a.gguf") is None


@pytest.mark.parametrize("name", ["none.gguf", "./owner/name/none.gguf", "owner/none.gguf", "/owner/name/none.gguf"])
def test_a_file_that_is_not_there(name):
    with pytest.raises(ModelError, match="no such file; a GGUF model is a local file or, on the hub, owner/name/file"):
        find_file(name)


def test_a_hub_that_cannot_be_reached(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"o/n/q/m.gguf: no such file here, and the hub cannot be reached; check the"):
        gguf_checkpoint("o/n/q/m.gguf")


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (b"PK\3\4 not a model", "not a GGUF file"),
        (b"", "not a GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS pointer instead of the file; run: git lfs"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), r"truncated or damaged \(.*GGUF v1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60), "truncated or damaged"),
        (b"GGUF\3", "truncated or damaged"),
    ],
)
def test_what_is_no_gguf_file(tmp_path, content, finding):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=finding):
        read_header(path)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.999])
def test_a_truncated_file(tiny_model, tmp_path, share):
    path = write_gguf(tiny_model, tmp_path / "tiny.gguf")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ModelError, match=r"tiny.gguf: truncated or damaged .* download it again"):
        checkpoint_of(path)


def test_parts_of_a_model(tiny_model, tmp_path):
    path = write_gguf(tiny_model, tmp_path / "m-00002-of-00003.gguf")
    with pytest.raises(ModelError, match=r"part 2 of 3 of a model; .* --merge .*m-00001-of-00003.gguf OUT.gguf"):
        read_header(path)
    renamed = write_gguf(tiny_model, tmp_path / "m.gguf", extra={"split.count": 3})
    with pytest.raises(ModelError, match=r"one of 3 parts of a model; join the parts"):
        read_header(renamed)


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (
            {"extra": {"general.architecture": "clip"}},
            "transformers cannot convert this clip model: .*clip is not supp",
        ),
        ({"extra": {"general.type": "adapter"}}, "holds a model's adapter; use the model's own file"),
        ({"extra": {"llama.rope.scaling.type": "yarn"}}, r"scales its positions \(rope.scaling.type yarn\), which"),
        ({"tensors": {"rope_freqs.weight": np.ones(16, np.float32)}}, r"scales its positions \(the tensor rope_freqs"),
        (
            {"tensors": {"blk.0.attn_q.bias": np.ones(64, np.float32)}},
            "holds 119,552 weights, but .* model has 119488;",
        ),
        ({"tokenizer": None}, "cannot convert its tokenizer: .*; use another file of the model"),
        ({"extra": {"tokenizer.ggml.eos_token_id": 9999}}, "cannot convert its tokenizer: .*index out of range"),
        ({"extra": {"llama.block_count": 3}}, "weights are missing"),
        ({"extra": {"llama.embedding_length": 32}}, "holds 119,488 weights, but transformers' llama model has"),
    ],
)
def test_models_that_the_conversion_would_change(tiny_model, tmp_path, options, finding):
    path = write_gguf(tiny_model, tmp_path / "tiny.gguf", **options)
    with pytest.raises(ModelError, match=finding):
        checkpoint_of(path)


def test_weights_that_are_no_numbers(tiny_model, tmp_path):
    path = write_gguf(tiny_model, tmp_path / "tiny.gguf")
    content = bytearray(path.read_bytes())
    content[-64:] = struct.pack("<16f", *[float("nan")] * 16)
    path.write_bytes(content)
    with pytest.raises(ModelError, match="holds NaN or infinity; download it again"):
        checkpoint_of(path)
