"""GGUF files: headers, conversion, tokenizers and rejected files."""

import json
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from gguf import GGUFValueType as Kind
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig, AutoTokenizer

from judgelm import Judge
from judgelm.engines.base import EngineOptions
from judgelm.engines.dtype import stored_dtype
from judgelm.engines.gguf import checkpoint
from judgelm.engines.gguf.checkpoint import checkpoint_of, gguf_checkpoint, gguf_record
from judgelm.engines.gguf.header import find_file, read_header
from judgelm.engines.gguf.tokenizer import check_saved, convert_tokenizer
from judgelm.engines.model_files import split_adapter
from judgelm.errors import ModelError, RunError
from judgelm.prompts.judge_card import find_card, is_gguf
from tests.support.gguf_files import F32, weights_of, write_gguf
from tests.support.tiny_judges import TEMPLATE, make_adapter


def test_gguf_names(tmp_path):
    (tmp_path / "folder.gguf").mkdir()
    names = ["a.gguf", "owner/name/A.Q4_K_M.GGUF", "owner/name-gguf", str(tmp_path / "folder.gguf")]
    assert [is_gguf(name) for name in names] == [True, True, False, False]
    assert find_card("a.gguf") is None


@pytest.mark.parametrize("name", ["none.gguf", "./owner/name/none.gguf", "owner/none.gguf", "/owner/name/none.gguf"])
def test_missing_file(name):
    with pytest.raises(ModelError, match=r"no such file; pass .*owner/name/file"):
        find_file(name)


def test_unreachable_hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"o/n/q/m.gguf: no such file, and the hub is unreachable"):
        gguf_checkpoint("o/n/q/m.gguf")


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (b"PK\3\4 not a model", "not a GGUF file"),
        (b"", "not a GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer.*; run: git lfs"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), r"truncated or damaged \(.*GGUF v1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60), "truncated or damaged"),
        (b"GGUF\3", "truncated or damaged"),
    ],
)
def test_invalid_gguf_files(tmp_path, content, finding):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=finding):
        read_header(path)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGELM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tiny_gguf(tiny_model, tmp_path):
    return write_gguf(tiny_model, tmp_path / "tiny.gguf")


@pytest.mark.parametrize("share", [0.01, 0.3, 0.999])
def test_truncated_file(tiny_gguf, share):
    whole = tiny_gguf.read_bytes()
    tiny_gguf.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ModelError, match=r"tiny.gguf: truncated or damaged .* download it again"):
        checkpoint_of(tiny_gguf)


def test_parts_of_a_model(tiny_model, tmp_path):
    path = write_gguf(tiny_model, tmp_path / "m-00002-of-00003.gguf")
    with pytest.raises(ModelError, match=r"part 2 of 3 of a model; .* --merge .*m-00001-of-00003.gguf OUT.gguf"):
        read_header(path)
    renamed = write_gguf(tiny_model, tmp_path / "m.gguf", extra={"split.count": 3})
    with pytest.raises(ModelError, match=r"1 of 3 parts of a model; merge the parts"):
        read_header(renamed)


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"extra": {"general.architecture": "clip"}}, "cannot convert this clip model: .*clip is not supp"),
        ({"extra": {"general.type": "adapter"}}, "general.type is adapter"),
        ({"extra": {"llama.rope.scaling.type": "yarn"}}, r"RoPE scaling \(rope.scaling.type yarn\)"),
        ({"tensors": {"rope_freqs.weight": np.ones(16, np.float32)}}, r"RoPE scaling \(the tensor rope_freqs"),
        ({"tensors": {"blk.0.attn_q.bias": np.ones(64, np.float32)}}, "119,552 weights, but .* has 119488;"),
        ({"tokenizer": None}, "cannot convert the tokenizer: .*; use another GGUF file"),
        ({"extra": {"tokenizer.ggml.eos_token_id": 9999}}, "cannot convert the tokenizer: .*index out of range"),
        ({"extra": {"llama.block_count": 3}}, "weights are missing"),
        ({"extra": {"llama.embedding_length": 32}}, "119,488 weights, but transformers' llama model has"),
    ],
)
def test_unsupported_models_are_rejected(tiny_model, tmp_path, options, finding):
    path = write_gguf(tiny_model, tmp_path / "tiny.gguf", **options)
    with pytest.raises(ModelError, match=finding):
        checkpoint_of(path)


def test_nan_weights_are_rejected(tiny_gguf):
    tiny_gguf.write_bytes(tiny_gguf.read_bytes()[:-64] + struct.pack("<16f", *[float("nan")] * 16))
    with pytest.raises(ModelError, match="contains NaN or infinity; download it again"):
        checkpoint_of(tiny_gguf)


def test_blocks_are_stored_in_float16_and_computed_in_bfloat16(tiny_gguf, tiny_model):
    folder, blocks = checkpoint_of(tiny_gguf), weights_of(tiny_model)
    written = load_file(folder / "model.safetensors")
    assert written.keys() == blocks.keys()
    assert all(np.array_equal(written[name], blocks[name].astype(np.float16)) for name in blocks)
    assert stored_dtype(str(folder), AutoConfig.from_pretrained(folder)) == "bfloat16"


def test_large_models_are_stored_in_bfloat16(tiny_gguf, monkeypatch):
    monkeypatch.setattr(checkpoint, "_FLOAT16_BELOW", 1000)
    shares = []
    folder = checkpoint_of(tiny_gguf, shares.append)
    assert (gguf_record(folder).dtype, AutoConfig.from_pretrained(folder).dtype) == ("bfloat16", torch.bfloat16)
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_unquantised_weights_keep_their_dtype(tiny_model, tmp_path):
    folder = checkpoint_of(write_gguf(tiny_model, tmp_path / "f32.gguf", kind=F32))
    own, written = (load_file(source / "model.safetensors") for source in (tiny_model, folder))
    assert all(np.array_equal(weight, own[name]) for name, weight in written.items())
    assert gguf_record(folder).dtype == stored_dtype(str(folder), AutoConfig.from_pretrained(folder)) == "float32"


def test_tokens_equal_the_original_tokenizers(tiny_gguf, tiny_model):
    own, converted = (AutoTokenizer.from_pretrained(folder) for folder in (tiny_model, checkpoint_of(tiny_gguf)))
    text = "what is 10?\n\n 2.5  lazy dogs é</s>"
    assert converted(text)["input_ids"] == own(text)["input_ids"]
    assert converted.eos_token_id == own.eos_token_id


def test_weights_beyond_float16_are_kept_in_float32(tiny_model, tmp_path):
    large = shutil.copytree(tiny_model, tmp_path / "large")
    weights = load_file(large / "model.safetensors")
    weights["model.norm.weight"][0] = 70_000  # float16 ends at 65,504
    save_file(weights, large / "model.safetensors", metadata={"format": "pt"})
    folder = checkpoint_of(write_gguf(large, tmp_path / "large.gguf"))
    assert gguf_record(folder).dtype == "float32"
    assert load_file(folder / "model.safetensors")["model.norm.weight"][0] == 70_000


def test_identity_contains_the_files_hash(tiny_gguf):
    with Judge(str(tiny_gguf), engine="transformers", template=TEMPLATE) as judge:
        described = judge.engine.describe()["model"]
        assert judge.compare("what is a fox", "a big", "red").failure is not None  # random weights write no scores
    sha256 = gguf_record(described["path"]).sha256
    assert (described["gguf"], described["gguf_sha256"], described["gguf_repairs"]) == ("tiny.gguf", sha256, [])
    assert described["path"].endswith(f"cache/gguf/{sha256}")


def test_second_start_reuses_the_checkpoint_unless_it_is_damaged(tiny_gguf, tmp_path):
    written = checkpoint_of(tiny_gguf) / "model.safetensors"
    before, whole = written.stat(), written.read_bytes()
    renamed = tiny_gguf.rename(tmp_path / "renamed.gguf")
    assert gguf_checkpoint(str(renamed)) == str(written.parent)
    assert written.stat() == before
    written.write_bytes(whole[:-10])
    assert (checkpoint_of(renamed), written.read_bytes()) == (written.parent, whole)


@pytest.mark.slow
def test_two_processes_share_one_conversion(tiny_gguf, cache):
    code = f"from judgelm.engines.gguf.checkpoint import gguf_checkpoint; print(gguf_checkpoint({str(tiny_gguf)!r}))"
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    [folder, same] = [process.communicate()[0].strip() for process in started]
    assert folder == same
    assert gguf_record(folder).weight_bytes == (cache / "gguf" / folder / "model.safetensors").stat().st_size


def test_full_cache_is_refused_before_the_conversion(tiny_gguf, monkeypatch):
    usage = shutil.disk_usage(tiny_gguf.parent)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(RunError, match=r"tiny.gguf needs 0.1 GB .* 0.0 GB are free; .* set JUDGELM_CACHE"):
        checkpoint_of(tiny_gguf)


def test_read_only_cache_is_reported(tiny_gguf, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JUDGELM_CACHE", str(tmp_path / "file"))
    with pytest.raises(RunError, match=r"file/gguf.*: Not a directory; tiny.gguf requires a writable cache .*set"):
        checkpoint_of(tiny_gguf)


def test_adapter_finds_its_gguf_base(tiny_gguf, tiny_model, tmp_path):
    adapter = make_adapter(tiny_model, tmp_path / "adapter", seed=1)
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": str(tiny_gguf)}))
    base, adapter_name = split_adapter(EngineOptions(model=str(adapter)))
    assert (gguf_record(base).file, adapter_name) == ("tiny.gguf", str(adapter))
    assert split_adapter(EngineOptions(model=str(tiny_gguf), adapter="x")) == (base, "x")


def test_damaged_record_is_rejected(tiny_gguf):
    folder = checkpoint_of(tiny_gguf)
    (folder / "gguf.json").write_text("{}")
    with pytest.raises(ModelError, match=r"gguf.json: damaged; remove the folder"):
        gguf_record(folder)


BEGIN, ADD, PREFIX = (f"tokenizer.ggml.{key}" for key in ("bos_token_id", "add_bos_token", "add_space_prefix"))
SPLIT, CHAT_TEMPLATE = "tokenizer.ggml.pre", "tokenizer.chat_template"
CHAT = "{% for message in messages %}<{{ message['content'] }}>{% endfor %}"


@pytest.fixture
def converted(tiny_model, tmp_path):
    """The tokenizer of a file with this metadata, and its repairs."""

    def convert(tokenizer="llama", **extra):
        metadata = {"tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.padding_token_id": None} | extra
        file = read_header(write_gguf(tiny_model, tmp_path / "tiny.gguf", tokenizer=tokenizer, extra=metadata))
        result, repairs = convert_tokenizer(file)
        result.save_pretrained(tmp_path / "saved")
        check_saved(result, tmp_path / "saved", file)
        return result, repairs

    return convert


@pytest.mark.parametrize(("stated", "begins"), [(True, True), (False, False), (None, True)])  # None: as llama.cpp
def test_begin_token_is_added_if_the_file_states_it(converted, tmp_path, stated, begins):
    tokenizer, repairs = converted(**{BEGIN: 1, ADD: stated})
    unrepaired = AutoTokenizer.from_pretrained(tmp_path, gguf_file="tiny.gguf")  # 5.24 adds it, 5.19 does not
    left_out = begins and unrepaired("ab").input_ids[0] != 1
    assert tokenizer.convert_ids_to_tokens(tokenizer("ab").input_ids) == [*["<s>"] * begins, "\u2581ab"]
    assert repairs == ["added BOS token <s> to texts"] * left_out


def test_unknown_begin_token_or_broken_chat_template_is_rejected(converted):
    with pytest.raises(ModelError, match=r"BOS token, .*bos_token_id"):
        converted(**{ADD: True})
    with pytest.raises(ModelError, match="the chat template could not be applied: "):
        converted(**{BEGIN: 1, ADD: True, CHAT_TEMPLATE: "{{ messages | none }}"})


def test_chat_has_one_begin_token(converted):
    for template in (CHAT, "{{ bos_token }}" + CHAT):
        tokenizer, repairs = converted(**{BEGIN: 1, ADD: True, CHAT_TEMPLATE: template})
        chat = tokenizer.apply_chat_template([{"role": "user", "content": "ab"}], tokenize=False)
        assert chat == "<s><ab>"
        assert ("added BOS token <s> to chats" in repairs) == (template == CHAT)


def test_space_before_the_first_word_is_left_out_if_the_file_states_it(converted):
    tokenizer, repairs = converted(**{BEGIN: 1, ADD: False, PREFIX: False})
    assert tokenizer.convert_ids_to_tokens(tokenizer("ab ab").input_ids) == ["ab", "\u2581ab"]
    assert tokenizer.decode(tokenizer("ab ab").input_ids) == "ab ab"
    assert repairs == ["removed space before the first word"]


def test_text_is_split_as_the_file_states(converted):
    # GPT-2 splits the last newline from the first where a digit follows
    for name, expected, repair in (
        ("gpt-2", ["a", *"ĊĊ1"], None),
        ("smollm", ["a", "ĊĊ", "1"], "text is split as for smollm"),
        ("martian", ["a", *"ĊĊ1"], "text is split as for GPT-2"),
    ):
        tokenizer, repairs = converted("gpt2", **{SPLIT: name})
        split = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a\n\n1")
        assert ([piece for piece, _ in split], tokenizer.chat_template) == (expected, None)
        assert [each.startswith(repair) for each in repairs] == [True] * bool(repair)


def text(content):
    return struct.pack("<Q", len(content)) + content.encode()


def entry(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def tensor(name, *, shape=(4,), kind=F32, offset=0):
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def number(key, value):
    return entry(key, Kind.UINT32, struct.pack("<I", value))


def array(key, kind, length, content=b""):
    return entry(key, Kind.ARRAY, struct.pack("<IQ", kind, length) + content)


ARRAYS = ("general.alignment", "split.count", "tokenizer.ggml.pre")
ARCHITECTURE = entry("general.architecture", Kind.STRING, text("llama"))


@pytest.fixture
def header(tmp_path):
    def read(*entries, tensors=(), architecture=ARCHITECTURE, data=64):
        entries = (architecture, *entries) if architecture else entries
        begin = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join((*entries, *tensors))
        path = tmp_path / "model.gguf"
        path.write_bytes(begin + bytes(-len(begin) % 32 + data))
        return read_header(path)

    return read


def test_complete_header(header):
    file = header(number("general.alignment", 32), tensors=[tensor("b", offset=32), tensor("a", shape=(2, 2))])
    assert [(row.name, row.shape, row.size) for row in file.tensors] == [("b", (4,), 16), ("a", (2, 2), 16)]
    assert file.weights == 8


@pytest.mark.parametrize(
    ("entries", "finding"),
    [
        *(([number("general.alignment", size)], f"general.alignment is {size};") for size in (0, 3, 24, 1 << 31)),
        ([entry("general.alignment", Kind.STRING, text("32"))], "general.alignment is '32'; expected type int"),
        *(([array(key, Kind.UINT8, 1, b"\1")], f"{key} is") for key in ARRAYS),
        ([number("tokenizer.ggml.add_bos_token", 1)], "tokenizer.ggml.add_bos_token is '1'; expected type bool"),
        ([number("llama.rope.scaling.type", 1)], "llama.rope.scaling.type is"),
        ([number("llama.block_count", 1 << 31)], "llama.block_count is 2,147,483,648, but there are 1 tensors"),
        ([number("a.b", 1), number("a.b", 2)], "the key a.b appears twice"),
        ([array("a.b", Kind.FLOAT64, 1 << 60)], "a.b: the list has 1,152,921,504,606,846,976 items"),
        ([array("a.b", Kind.STRING, 1 << 60)], "a.b: the list has 1,152,921,504,606,846,976 items"),
        ([array("a.b", Kind.STRING, 2, struct.pack("<Q", 1 << 63))], "truncated or damaged"),
        ([array("a.b", Kind.ARRAY, 1)], "a.b: nested list"),
        ([entry("a.b", Kind.STRING, struct.pack("<Q", 1 << 62))], "string at byte .* has 4,611,686,018,427,387,904 b"),
        ([entry("a.b", 77, b"")], "77 is not a valid GGUFValueType"),
        ([entry("a.b", Kind.STRING, text("a")[:-1] + b"\xff")], "can't decode byte 0xff"),
    ],
    ids=range(19),
)
def test_damaged_metadata_is_rejected(header, entries, finding):
    with pytest.raises(ModelError, match=rf"model.gguf: truncated or damaged \(.*{finding}|model.gguf: {finding}"):
        header(*entries, tensors=[tensor("a")])


def test_architecture_must_be_a_text(header):
    with pytest.raises(ModelError, match=r"general.architecture is '7'"):
        header(architecture=number("general.architecture", 7))


@pytest.mark.parametrize(
    ("tensors", "finding"),
    [
        ([tensor("a", shape=())], "a: .* 0 dimensions"),
        ([tensor("a", shape=(1,) * 5)], "a: .* 5 dimensions"),
        ([text("a") + struct.pack("<I", 1 << 31)], "a: .* 2,147,483,648 dimensions"),
        ([tensor("a", shape=(4, 0))], "a: a dimension is 0"),
        ([tensor("a", shape=(1 << 63, 1 << 63))], "the tensors would end at byte"),
        ([tensor("a", offset=1 << 63)], "the tensors would end at byte"),
        ([tensor("a", offset=7)], "a: the offset 7 is not a multiple of the alignment 32"),
        ([tensor("a"), tensor("b")], "the tensor b at byte .* overlaps"),
        ([tensor("a"), tensor("a", offset=32)], "the tensor a appears twice"),
        ([tensor("a", kind=99)], "99 is not a valid GGMLQuantizationType"),
    ],
    ids=range(10),
)
def test_impossible_tensors_are_rejected(header, tensors, finding):
    with pytest.raises(ModelError, match=rf"model.gguf: truncated or damaged \({finding}"):
        header(tensors=tensors)
