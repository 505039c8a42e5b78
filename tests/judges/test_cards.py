"""The cards of judges by name."""

import re
import shutil
from dataclasses import replace

import pytest

from judgelm import Judge
from judgelm.errors import CardError, ConfigError, ModelError
from judgelm.judges.cards import (
    Machine,
    card_names,
    default_choice,
    installed_judge,
    judge_card,
    named_judge,
)
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import GgufBase, find_card, write_card
from tests.support.named_judges import SMALL, cached_base


@pytest.mark.parametrize("name", card_names())
def test_a_card_is_whole(name):
    card = judge_card(name)
    assert card.name == name
    assert get_template(card.template).reading == card.reading
    assert re.fullmatch("[0-9a-f]{64}", card.base.gguf_sha256)
    wheels = card.base.index
    assert 0 < card.base.gguf_bytes - (wheels.parts - 1) * wheels.part_bytes <= wheels.part_bytes


GB = 10**9


# qwen-1.5b needs 6 GB on a CPU with bfloat16, 1.2 x 3.6 GB on a GPU
@pytest.mark.parametrize(
    ("memory", "cuda", "bfloat16", "name", "reason"),
    [
        (6, 0, True, "qwen-1.5b", "no model is named"),
        (
            5,
            0,
            True,
            "small-judge",
            "no model is named, and qwen-1.5b requires 6 GB of memory, but only 5.0 GB are free",
        ),
        (6, 0, False, "small-judge", "no model is named, and qwen-1.5b requires bfloat16 instructions"),
        (1, 5, False, "qwen-1.5b", "no model is named"),
        (
            1,
            4,
            False,
            "small-judge",
            "no model is named, and qwen-1.5b requires 6 GB of memory, but only 1.0 GB are free",
        ),
    ],
)
def test_the_default_follows_the_machine(memory, cuda, bfloat16, name, reason):
    machine = Machine(memory_bytes=memory * GB, cuda_bytes=cuda * GB, has_bfloat16=bfloat16)
    choice = default_choice(machine)
    assert choice.card.name == name
    assert choice.reason.startswith(reason)


def test_the_default_of_this_machine(little_memory):
    assert default_choice().card == SMALL


def test_a_judge_without_an_adapter_is_its_base(judge_cache, tiny_model):
    card = judge_card("qwen-0.5b")
    with pytest.raises(ModelError, match=r"Qwen2.* is not in .*; run: judgelm judges install qwen-0.5b"):
        installed_judge(card)
    base = cached_base(judge_cache, tiny_model, card)
    judge = named_judge("qwen-0.5b")
    assert (judge.adapter, judge.model, judge.version) == (None, str(base), "")
    assert judge.notice == (
        "qwen-0.5b: base Qwen2.5-Coder-0.5B-Instruct (Q4_K_M) under Apache-2.0, not fine-tuned for judging"
    )


INSTALL = "run: judgelm judges install small-judge"


def test_without_a_name_the_small_judge_judges_and_says_its_licence(small_judge, judge_cache):
    with Judge(engine="transformers") as judge:
        assert judge.named.card.name == "small-judge"
        assert judge.notes[0].startswith("small-judge 9.9: adapter under CC-BY-NC-4.0 (research use only")
        described = judge.engine.describe()["model"]
        assert judge.compare("what is paris", "a big capital", "red").completion_tokens > 0
    assert described["judge"] == "small-judge"
    assert described["gguf_sha256"] == SMALL.base.gguf_sha256
    assert (described["adapter"], len(described["adapter_sha"])) == (str(small_judge), 64)
    assert described["path"] == str(judge_cache / "gguf" / SMALL.base.gguf_sha256)


def test_a_folder_of_that_name_comes_first_but_is_never_the_default(small_judge, tmp_path, monkeypatch):
    assert named_judge("small-judge") == named_judge(None)
    (tmp_path / "work/small-judge").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    assert named_judge("small-judge") is None
    assert named_judge(None).adapter == small_judge
    assert named_judge("owner/name") is None


def without_base(folder, cache):
    shutil.rmtree(cache / "gguf")


def without_weights(folder, cache):
    (folder / "adapter_model.safetensors").unlink()


def on_base(sha):
    """State another base, or none, in the adapter's own card."""

    def change(folder, cache):
        write_card(folder, replace(find_card(str(folder)), base=sha and GgufBase(gguf_sha256=sha)))

    return change


def without_all(folder, cache):
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("change", "error", "finding"),
    [
        (without_all, ModelError, r"adapter judgelm-small-judge is not installed; " + INSTALL),
        (without_base, ModelError, "no judge is installed in .*; run: judgelm judges install"),
        (without_weights, ModelError, r"does not contain adapter_model\.safetensors"),
        (on_base("0" * 64), CardError, "trained on GGUF sha256 000000000000"),
        (on_base(None), CardError, "GGUF sha256 not stated"),
    ],
)
def test_a_part_that_is_missing_or_of_another_judge_is_named(small_judge, judge_cache, change, error, finding):
    change(small_judge, judge_cache)
    with pytest.raises(error, match=finding):
        named_judge(None)


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        ({"adapter": "mine"}, "small-judge is a named judge; pass the base model of mine with --model"),
        ({"engine": "scripted"}, "the scripted engine has no default judge"),
        ({"model": ""}, "the model name is empty"),
    ],
)
def test_what_does_not_go_with_the_default_judge_is_refused(small_judge, arguments, finding):
    with pytest.raises(ConfigError, match=finding):
        Judge(**arguments)
