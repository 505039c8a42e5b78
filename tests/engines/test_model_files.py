"""Files of a model: SentencePiece tokenizers, pickled weights that are only read as tensors, and indexes."""

import json
import shutil

import pytest
import sentencepiece
import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer
from trl import ModelConfig

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.model_files import default_sampling, identity_of, load_tokenizer
from judgelm.engines.weights import check_pickled, pickled_files
from judgelm.errors import ModelError
from judgelm.judge import Judge
from judgelm.prompts.catalog import TEMPLATES
from judgelm.prompts.truncation import Truncator
from judgelm.records import Sample
from judgelm.training.base_model import load_tokenizer as load_for_training
from tests.support.tiny_judges import reply_of, word_sample
from tests.support.vicuna_folders import TEMPLATE, Executed

BOS = 1
ANSWERS = ("日本語 🙂 naïve \u200b e\u0301 ½ 12345 3.14", "</s> <s> <unk> [INST] ▁x <0x41> ")
ODD = Sample(id="odd", question="  two  blanks,\ttab\r\n\n\nand lines \u00a0 ", answers=ANSWERS)


@pytest.fixture
def copy(vicuna, tmp_path):
    return shutil.copytree(vicuna, tmp_path / "vicuna")


@pytest.mark.parametrize(
    ("stated", "sampling"),
    [
        (None, {}),
        ({"eos_token_id": 1}, {}),
        ({"temperature": 0.7, "top_p": 0.8, "top_k": 20}, {"temperature": 0.7, "top_p": 0.8, "top_k": 20}),
        ({"temperature": None, "top_p": 1.5, "top_k": -1}, {}),
        ({"temperature": "0.7", "top_p": True, "top_k": 0}, {"top_k": 0}),
    ],
)
def test_default_sampling_is_read_from_the_generation_config(tmp_path, stated, sampling):
    if stated is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(stated))
    assert default_sampling(str(tmp_path)) == sampling


@pytest.fixture(scope="module")
def reference(vicuna):
    return sentencepiece.SentencePieceProcessor(model_file=str(vicuna / "tokenizer.model"))


@pytest.fixture(scope="module")
def tokenizer(vicuna):
    return load_tokenizer(str(vicuna), None, EngineOptions(model=str(vicuna)))


@pytest.fixture(scope="module")
def saved(tokenizer, tmp_path_factory):
    """The tokenizer as saved with a trained judge."""
    folder = tmp_path_factory.mktemp("judge")
    tokenizer.save_pretrained(folder)
    assert not (folder / "tokenizer.model").exists()
    return AutoTokenizer.from_pretrained(folder)


def tokenized(tokenizer, template, sample):
    """The prompt as an engine reads it."""
    return Truncator(tokenizer, 2048).truncate(template.render(sample, (0, 1), None), 24)


@pytest.mark.parametrize("name", [name for name, template in TEMPLATES.items() if not template.chat])
def test_prompts_have_sentencepieces_ids_after_one_bos(tokenizer, saved, reference, name):
    for sample in (ODD, *(word_sample(seed) for seed in range(20))):
        prompt = tokenized(tokenizer, TEMPLATES[name], sample)
        assert list(prompt.ids) == [BOS, *reference.encode(prompt.text)]
        assert list(tokenized(saved, TEMPLATES[name], sample).ids) == list(prompt.ids)
        whole = prompt.text + reply_of(word_sample(1))  # as a row of the training is tokenised
        assert tokenizer(whole)["input_ids"] == saved(whole)["input_ids"] == [BOS, *reference.encode(whole)]


def test_special_tokens_and_window(tokenizer, saved):
    for loaded in (tokenizer, saved):
        assert (loaded.bos_token_id, loaded.eos_token_id, loaded.unk_token_id, loaded.pad_token) == (1, 2, 0, "<unk>")
        assert (loaded.model_max_length, loaded.padding_side) == (2048, "right")
        assert loaded.decode(loaded("naïve 🙂 10 8\n")["input_ids"], skip_special_tokens=True) == "naïve 🙂 10 8\n"


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:", "is a Git LFS pointer; run: git lfs pull"),
        (b"<html>", "is damaged, or .*; run: pip install -U"),
    ],
)
def test_damaged_sentencepiece_model_is_rejected(copy, content, finding):
    (copy / "tokenizer.model").write_bytes(content)
    with pytest.raises(ModelError, match=f"tokenizer.model {finding}"):
        load_tokenizer(str(copy), None, EngineOptions(model=str(copy)))
    with pytest.raises(ModelError, match=f"tokenizer.model {finding}"):
        load_for_training(ModelConfig(model_name_or_path=str(copy)), trust_remote_code=False)


SHARD = "pytorch_model-00002-of-00002.bin"


def replies(folder, **options):
    samples = [word_sample(seed) for seed in range(3)]
    with Judge(str(folder), engine="transformers", template=TEMPLATE, **options) as judge:
        return [shown.text for sample in samples for shown in judge.compare(sample.question, *sample.answers).shown]


def test_pickled_shards_equal_safetensors(vicuna, copy):
    weights = {}
    for path in pickled_files(copy):
        weights |= torch.load(path, weights_only=True)
        path.unlink()
    (copy / "pytorch_model.bin.index.json").unlink()
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    assert len(pickled_files(vicuna)) == 2
    assert replies(vicuna, dtype="float32") == replies(copy, dtype="float32")
    assert len(set(replies(vicuna, dtype="float32"))) > 1, "too few different replies"


@pytest.mark.parametrize("zipped", [True, False], ids=["of today", "of torch 1.5"])
def test_unsafe_pickle_is_rejected_without_running_it(copy, tmp_path, zipped):
    weights = torch.load(copy / SHARD, weights_only=True)
    harmful = weights | {"extra": Executed(tmp_path / "executed")}
    torch.save(harmful, copy / SHARD, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ModelError, match=rf"{SHARD}: loading this pickle would call posix.mkdir; .*rejected"):
        load_engine("transformers", EngineOptions(model=str(copy)))
    assert not (tmp_path / "executed").exists()
    torch.load(copy / SHARD, weights_only=False)  # unsafe loading runs it
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:", ".*Git LFS pointer.*; run: git lfs pull"),
        *((content, "damaged or incomplete; download it again") for content in (b"PK\x03\x04 torn", b"")),
        (b"<html>", r"torch cannot load .*\(weights_only\)"),
    ],
)
def test_damaged_pickle_is_rejected(copy, content, finding):
    (copy / SHARD).write_bytes(content)
    with pytest.raises(ModelError, match=f"{SHARD}: {finding}"):
        check_pickled(str(copy))


def test_safetensors_have_priority_over_pickles_and_their_index(tiny_model, copy, tmp_path):
    options = EngineOptions(model="unused")
    before = identity_of(str(copy), None, options)
    torch.save(torch.load(copy / SHARD, weights_only=True) | {"extra": torch.zeros(1)}, copy / SHARD)
    assert identity_of(str(copy), None, options) != before
    both = shutil.copytree(tiny_model, tmp_path / "both")
    alone = identity_of(str(both), None, options)
    torch.save({"extra": Executed(tmp_path / "executed")}, both / "pytorch_model.bin")
    assert identity_of(str(both), None, options) == alone
    assert pickled_files(both) == []
    check_pickled(str(both))
    # a download of only the safetensors has the other index too
    (both / "pytorch_model.bin").unlink()
    (both / "pytorch_model.bin.index.json").write_text('{"weight_map": {"a": "pytorch_model-1.bin"}}')
    check_pickled(str(both))


def test_unsafe_pickle_in_the_index_is_rejected(copy, tmp_path):
    torch.save({"model.norm.weight": Executed(tmp_path / "executed")}, copy / "elsewhere.bin")
    path = copy / "pytorch_model.bin.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.norm.weight"] = "elsewhere.bin"
    path.write_text(json.dumps(index))
    with pytest.raises(ModelError, match="contain more than tensors"):
        load_engine("transformers", EngineOptions(model=str(copy)))
    assert not (tmp_path / "executed").exists()


def index_of(*files):
    return json.dumps({"metadata": {}, "weight_map": dict(enumerate(files))})


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (index_of("../../../../etc/passwd"), r"'\.\./.*passwd', which is outside this folder"),
        (index_of("/etc/passwd"), "'/etc/passwd', which is outside this folder"),
        *((index_of(name), "outside this folder") for name in ("x\\..\\..\\y", "C:y.safetensors", ".", "x\0")),
        (index_of("model-9.safetensors"), r"lists model-9\.safetensors, but the file is missing"),
        *((index_of(*files), "weight_map lists no files") for files in ((), (3,))),
        *((text, "weight_map is missing or invalid") for text in ('{"weight_map": ["a"]}', "[]", "[" * 100_000)),
    ],
)
@pytest.mark.parametrize("name", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_index_of_files_outside_the_folder_is_rejected(tmp_path, name, text, finding):
    (tmp_path / name).write_text(text)
    with pytest.raises(ModelError, match=f"{name}: .*{finding}"):
        check_pickled(str(tmp_path))
