"""Folders with only `tokenizer.model`: token ids equal sentencepiece's, before and after a judge is saved."""

import shutil
from pathlib import Path

import pytest
import sentencepiece
from transformers import AutoTokenizer
from trl import ModelConfig

from judgelm.engines.base import EngineOptions
from judgelm.engines.model_files import load_tokenizer
from judgelm.errors import ModelError
from judgelm.prompts.catalog import TEMPLATES
from judgelm.prompts.truncation import Truncator
from judgelm.records import Sample
from judgelm.training.base_model import load_tokenizer as load_for_training
from tests.support.tiny_judges import reply_of, word_sample

BOS = 1
ODD = Sample(
    id="odd",
    question="  two  blanks,\ttab\r\n\n\nand lines \u00a0 ",
    answers=("日本語 🙂 naïve \u200b e\u0301 ½ 12345 3.14", "</s> <s> <unk> [INST] ▁x <0x41> "),
)


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
def test_damaged_sentencepiece_model_is_rejected(vicuna, tmp_path, content, finding):
    folder = Path(shutil.copytree(vicuna, tmp_path / "vicuna"))
    (folder / "tokenizer.model").write_bytes(content)
    with pytest.raises(ModelError, match=f"tokenizer.model {finding}"):
        load_tokenizer(str(folder), None, EngineOptions(model=str(folder)))
    with pytest.raises(ModelError, match=f"tokenizer.model {finding}"):
        load_for_training(ModelConfig(model_name_or_path=str(folder)), trust_remote_code=False)
