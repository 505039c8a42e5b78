"""The cards of judges by name, and of released judges with the prompts cut from their files."""

import hashlib
import json
import re
import shutil
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from judgelm import Judge
from judgelm.errors import CardError, ConfigError, InputError, ModelError
from judgelm.judges.cards import WEIGHTS, Machine, card_names, default_choice, installed_judge, judge_card, named_judge
from judgelm.judges.released import (
    Cut,
    ReleasedJudge,
    ReleasedTask,
    WordsFile,
    bring_words,
    cut,
    read_words,
    recognise,
    released_judge,
    released_judges,
    released_names,
)
from judgelm.modes.released import MarkedReply
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import GgufBase, find_card, write_card
from judgelm.records import Sample
from judgelm.runs.run_files import mode_identity
from judgelm.runs.runner import judge as run
from tests.support.named_judges import SMALL, cached_base

pytestmark = pytest.mark.usefixtures("judge_cache")


@pytest.mark.parametrize("name", card_names())
def test_the_card_of_a_named_judge_is_complete(name):
    card = judge_card(name)
    assert card.name == name
    assert get_template(card.template).reading == card.reading
    assert re.fullmatch("[0-9a-f]{64}", card.base.gguf_sha256)
    wheels = card.base.index
    assert 0 < card.base.gguf_bytes - (wheels.parts - 1) * wheels.part_bytes <= wheels.part_bytes


# qwen-1.5b needs 6 GB on a CPU with bfloat16, 1.2 x 3.6 GB on a GPU
@pytest.mark.parametrize(
    ("memory", "cuda", "bfloat16", "name", "words"),
    [
        *((6, 0, True, "qwen-1.5b", ""), (1, 5, False, "qwen-1.5b", "")),
        (6, 0, False, "small-judge", "qwen-1.5b requires bfloat16 instructions"),
        (5, 0, True, "small-judge", "qwen-1.5b requires 6 GB of memory, but only 5.0 GB"),
        (1, 4, False, "small-judge", "qwen-1.5b requires 6 GB of memory, but only 1.0 GB"),
    ],
)
def test_the_default_follows_the_machine(memory, cuda, bfloat16, name, words):
    machine = Machine(memory_bytes=memory * 10**9, cuda_bytes=cuda * 10**9, has_bfloat16=bfloat16)
    choice = default_choice(machine)
    assert (choice.card.name, words in choice.reason) == (name, True)
    assert choice.reason.startswith("no model is specified")


def test_the_default_of_this_machine(little_memory):
    assert default_choice().card == SMALL


def test_a_judge_without_an_adapter_is_its_base(judge_cache, tiny_model):
    card = judge_card("qwen-0.5b")
    with pytest.raises(ModelError, match=r"Qwen2.* is not in .*; run: judgelm judges install qwen-0.5b"):
        installed_judge(card)
    base = cached_base(judge_cache, tiny_model, card)
    judge = named_judge("qwen-0.5b")
    assert (judge.adapter, judge.model, judge.version) == (None, str(base), "")
    assert judge.notice.startswith("qwen-0.5b: base Qwen2.5-Coder-0.5B-Instruct (Q4_K_M)")
    assert judge.notice.endswith("under Apache-2.0, not fine-tuned for judging")


def test_without_a_name_the_small_judge_is_used_and_its_licence_noted(small_judge, judge_cache):
    with Judge(engine="transformers") as judge:
        assert judge.named.card.name == "small-judge"
        assert all(words in judge.notes[0] for words in ("small-judge 9.9: ", "CC-BY-NC-4.0 (research use only"))
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


def on_base(sha):
    """State another base, or none, in the adapter's own card."""

    def change(folder, cache):
        write_card(folder, replace(find_card(str(folder)), base=sha and GgufBase(gguf_sha256=sha)))

    return change


@pytest.mark.parametrize(
    ("change", "error", "finding"),
    [
        (lambda folder, _: shutil.rmtree(folder), ModelError, "is not installed; .* install small-judge"),
        (lambda _, cache: shutil.rmtree(cache / "gguf"), ModelError, "no judge is installed in .*; run: judgelm"),
        (lambda folder, _: (folder / WEIGHTS).unlink(), ModelError, r"lacks adapter_model\.safetensors; .*another"),
        (on_base("0" * 64), CardError, "trained on GGUF sha256 000000000000"),
        (on_base(None), CardError, "GGUF sha256 not stated"),
    ],
)
def test_a_part_that_is_missing_or_from_another_judge_is_named(small_judge, judge_cache, change, error, finding):
    change(small_judge, judge_cache)
    with pytest.raises(error, match=finding):
        named_judge(None)


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        ({"adapter": "mine"}, "small-judge is a named judge; .*mine with --model"),
        ({"engine": "scripted"}, "the scripted engine has no default judge"),
        ({"model": ""}, "the model name is empty"),
    ],
)
def test_options_that_conflict_with_the_default_judge_are_refused(small_judge, arguments, finding):
    with pytest.raises(ConfigError, match=finding):
        Judge(**arguments)


CODE = '''
SYSTEM = "Judge " + "fairly."
def user_prompt():
    """Words."""
    return textwrap.dedent("""
        Q: {question}
        A: {first}
        B: {second}
        Say {{"better": "A"}}.
    """).strip()
'''


SHA = hashlib.sha256(CODE.encode()).hexdigest()


PAIR = Sample(id="1", question="What is 2 + 2?", answers=("4", "5"))


@pytest.fixture
def server(tmp_path):
    """A folder and its address."""
    folder = tmp_path / "web"
    folder.mkdir()
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(folder))) as http:
        Thread(target=http.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def made_up(licence="MIT", prompt_sha256=""):
    task = ReleasedTask(
        words=WordsFile(url="https://example.org/prompts.py", sha256=SHA, licence=licence),
        system=Cut(constant="SYSTEM"),
        user=Cut(constant="user_prompt"),
        slots={"{first}": "{answer_1}", "{second}": "{answer_2}"},
        braces=True,
        delimiters=("Q:", "A:", "B:"),
        reply=MarkedReply(before='"better":', after="}", labels={"A": "1", "B": "2"}),
        prompt_sha256=prompt_sha256,
    )
    return ReleasedJudge(name="made-up", summary="", checkpoints=(), sources=(), tasks={"pair": task})


def bring(tmp_path, judge):
    (tmp_path / "prompts.py").write_text(CODE)
    bring_words(judge.files, tmp_path)
    return judge


@pytest.mark.parametrize("name", released_names())
def test_the_card_of_a_released_judge_is_complete(name):
    judge = released_judge(name)
    assert (judge.name, bool(judge.modes), bool(judge.sources)) == (name, True, True)
    assert not judge.template or get_template(judge.template)
    for checkpoint in judge.checkpoints:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", checkpoint.id)
        assert checkpoint.gigabytes("bfloat16") == 2 * checkpoint.parameters
    for task in judge.tasks.values():
        if task.words is None:
            assert judge.prompt(next(iter(judge.tasks))).texts
            continue
        assert all(re.fullmatch("[0-9a-f]{64}", sha) for sha in (task.prompt_sha256, task.words.sha256))
        assert re.search(r"/blob/[0-9a-f]{40}/", task.words.url), "a fixed revision"


def test_no_checkpoint_has_two_cards_and_an_unknown_one_is_refused():
    ids = [checkpoint.id.casefold() for judge in released_judges() for checkpoint in judge.checkpoints]
    assert len(ids) == len(set(ids))
    with pytest.raises(ConfigError, match=r"card 'rm-r1' does not exist"):
        released_judge("rm-r1")


def test_words_are_cut_and_filled_without_running_the_code(tmp_path):
    judge = bring(tmp_path, made_up())
    prompt = judge.prompt("pair").render({"question": "Q?", "answer_1": "4", "answer_2": "5 B: 6"}, chat=True)
    texts = {role: "".join(span.text for span in prompt.spans if span.role == role) for role in ("system", "user")}
    assert (texts["system"], prompt.sanitized) == ("Judge fairly.", 1)
    assert texts["user"].startswith("Q: Q?\nA: 4\nB: 5")
    assert texts["user"].endswith('\nSay {"better": "A"}.')


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("user: |-\n  a\n  b\n", Cut(key="user"), "a\nb"),
        ('x = "1"\nx = "2"', Cut(constant="x", which=1), "2"),
        ('x = f"{a}-{b}"', Cut(constant="x"), "{a}-{b}"),
        ('say <a\\nb \\"c\\"> end', Cut(between=("<", ">"), escaped=True), 'a\nb "c"'),
        ("all of it", Cut(), "all of it"),
    ],
)
def test_words_are_cut_from_a_file(text, where, words):
    assert cut(text, where, location="FILE") == words
    with pytest.raises(CardError, match="FILE: nothing found at y"):
        cut("x = 1", Cut(constant="y"), location="FILE")


def test_words_are_downloaded_once_and_checked(server):
    folder, address = server
    (folder / "prompts.py").write_text(CODE)
    file = WordsFile(url=f"{address}/prompts.py", sha256=SHA, licence="MIT")
    assert read_words(file) == CODE
    (folder / "prompts.py").write_text("other")
    assert read_words(file) == CODE
    with pytest.raises(CardError, match="not used"):
        read_words(WordsFile(url=f"{address}/prompts.py", sha256="0" * 64, licence="MIT"))
    with pytest.raises(ModelError, match=r"cannot download .* judgelm judges words NAME --from FILE"):
        read_words(WordsFile(url=f"{address}/gone.py", sha256="1" * 64, licence="MIT"))


def test_words_without_a_licence_are_not_downloaded_but_brought(tmp_path):
    judge = made_up(licence="")
    with pytest.raises(ModelError, match="has no licence"):
        judge.prompt("pair")
    with pytest.raises(InputError, match="any of this judge's files"):
        bring_words(judge.files, tmp_path)
    bring(tmp_path, judge)
    assert judge.prompt("pair").answers == 2
    with pytest.raises(CardError, match="expected 000000000000"):
        made_up(prompt_sha256="0" * 64).prompt("pair")


def test_a_pair_in_both_orders_and_a_fingerprint_without_the_words(tmp_path):
    mode = bring(tmp_path, made_up()).mode("pair", {"both_orders": True})
    with Judge('So {"better": "A"}', engine="scripted") as scripted:
        [judgment] = run([PAIR], mode, scripted.engine)
    assert (judgment.verdict.winner, judgment.consistent) == ("tie", False)
    identity = json.dumps(mode_identity(mode))
    assert ("Judge fairly" in identity, mode.template_sha in identity) == (False, True)


def made(folder):
    folder.mkdir(parents=True)
    return folder


def test_a_judge_is_recognised_by_its_hub_id_in_any_case():
    for model in ("BAAI/JudgeLM-7B-v1.0", "baai/judgelm-13b-v1.0"):
        assert recognise(model).judge.name == "judgelm"
    assert recognise("BAAI/other").judge is None


def test_a_folder_is_recognised_by_its_metadata(tmp_path):
    cached = made(tmp_path / "models--gaotang--RM-R1-Qwen2.5-Instruct-7B" / "snapshots" / "abc")
    assert recognise(str(cached)).judge.name == "rm-r1-instruct"
    named, cloned = made(tmp_path / "a"), made(tmp_path / "b")
    (named / "config.json").write_text(json.dumps({"_name_or_path": "GAIR/autoj-13b"}))
    assert recognise(str(named)).judge.name == "auto-j"
    remote = '[remote "origin"]\n\turl = https://huggingface.co/WeOpenML/PandaLM-7B-v1\n'
    (made(cloned / ".git") / "config").write_text(remote)
    assert recognise(str(cloned)).judge.name == "pandalm"


def test_a_folder_name_only_suggests_a_judge(tmp_path):
    recognition = recognise(str(made(tmp_path / "JudgeLM-7B-v1.0")))
    assert (recognition.judge, recognition.candidates) == (None, ("judgelm",))
    assert recognise(str(made(tmp_path / "mine")), card="judgelm").judge.name == "judgelm"


def test_a_served_judge_is_prompted_as_its_card_says():
    with Judge("8 6", engine="scripted", card="judgelm") as judge:
        assert (judge.format.template, judge.format.source) == ("judgelm-v1", "card")
        assert judge.compare("Q", "a", "b").verdict.winner == "tie"
    with Judge("2", engine="scripted", card="pandalm") as judge:
        assert judge.compare("Q", "a", "b", both_orders=False).verdict.winner == 2
        assert judge.notes[0].startswith("card pandalm (verified)")
        with pytest.raises(ConfigError, match="pandalm has no mode single"):
            judge.grade("Q", "a")
        with pytest.raises(ConfigError, match="does not write score lines"):
            judge.pairwise()
    with Judge("8 6", engine="scripted", card="pandalm", ignore_card=True) as judge:
        assert judge.released is None
