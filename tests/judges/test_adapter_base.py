"""An adapter whose card names a GGUF file: its base is the checkpoint of that file in the cache."""

import json
import runpy
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from judgelm import Judge
from judgelm.engines.base import EngineOptions
from judgelm.engines.model_files import split_adapter
from judgelm.errors import ModelError
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, GgufBase, find_card, write_card
from tests.support.named_judges import cached_base
from tests.support.tiny_judges import TEMPLATE, make_adapter

ROOT = Path(__file__).parents[2]
SHA = "ab" * 32
CARD = Card(
    template=TEMPLATE,
    template_sha=get_template(TEMPLATE).sha,
    base=GgufBase(gguf_sha256=SHA, file="tiny.gguf"),
)


@pytest.fixture
def adapter(tiny_model, tmp_path, monkeypatch):
    """An adapter whose own configuration names a base that is nowhere; the cache is empty."""
    monkeypatch.setenv("JUDGELM_CACHE", str(tmp_path / "cache"))
    folder = make_adapter(tiny_model, tmp_path / "adapter", seed=1)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": "/the/trainer's/base"}))
    write_card(folder, CARD)
    return folder


def test_the_base_is_the_checkpoint_in_the_cache(adapter, tiny_model, tmp_path):
    base = Path(shutil.copytree(tiny_model, tmp_path / "cache/gguf" / SHA))
    assert split_adapter(EngineOptions(model=str(adapter))) == (str(base), str(adapter))
    with Judge(str(adapter), engine="transformers") as judge:
        described = judge.engine.describe()["model"]
    assert (described["path"], described["adapter"]) == (str(base), str(adapter))


def test_a_base_that_is_not_in_the_cache_is_named(adapter):
    with pytest.raises(ModelError, match=r"its base, the GGUF file tiny.gguf \(sha256 abababababab...\), is not in"):
        split_adapter(EngineOptions(model=str(adapter)))


def test_an_adapter_is_refused_on_the_checkpoint_of_another_file(adapter, tiny_model, tmp_path):
    other = cached_base(tmp_path / "cache", tiny_model)
    with pytest.raises(
        ModelError, match=r"trained on another base, the GGUF file tiny.gguf \(sha256 abababababab...\), "
    ):
        split_adapter(EngineOptions(model=str(other), adapter=str(adapter)))
    # on request it goes on weights that are no file of GGUF's, such as the hub's own
    assert split_adapter(EngineOptions(model=str(tiny_model), adapter=str(adapter)))[0] == str(tiny_model)


def test_a_merged_judge_needs_the_file_no_longer(adapter, tiny_model, tmp_path, monkeypatch):
    shutil.copytree(tiny_model, tmp_path / "cache/gguf" / SHA)
    write_card(adapter, replace(CARD, name="small-judge"))
    monkeypatch.setattr(sys, "argv", ["merge_lora.py", str(adapter), "-o", str(tmp_path / "merged")])
    runpy.run_path(str(ROOT / "train/merge_lora.py"), run_name="__main__")
    card = find_card(str(tmp_path / "merged"))
    assert (card.name, card.base) == (None, None)
    assert card.training["merged"]["base"] == str(tmp_path / "cache/gguf" / SHA)
