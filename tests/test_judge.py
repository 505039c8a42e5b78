"""The Python API, and where a judge's card is found."""

import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from judgelm import Judge
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.model_files import has_chat_template, split_adapter
from judgelm.errors import CardError, ConfigError, ModelError
from judgelm.judges.resolve import prepare, resolve
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, find_card, write_card
from judgelm.prompts.prompt_file import parse_prompts
from judgelm.records import GradeVerdict, PairVerdict, RankingVerdict, Sample
from tests.support.driving import run
from tests.support.processes import run_command

COMPACT = Card(template="judgelm-compact", template_sha=get_template("judgelm-compact").sha, scale=(0, 5))


def test_compare_asks_in_both_orders_and_takes_the_pair_modes_options():
    with Judge("8 6\nsince it is", engine="scripted") as judge:
        plain = judge.compare("q", "a", "b")
        judgment = judge.compare("q", "a", "b", distribution=True, reasons="all", order_rule="probability")
        with pytest.raises(ConfigError, match="unknown option reason"):
            judge.compare("q", "a", "b", reason="all")
        with pytest.raises(ConfigError, match="unknown option scale"):
            judge.pairwise(scale=(1, 5))  # the card's business
    with pytest.raises(ConfigError, match="unknown option batchsize; available: model, adapter"):
        Judge("8 6", engine="scripted", batchsize=3)
    assert [shown.order for shown in plain.shown] == [(0, 1), (1, 0)]
    assert plain.verdict == judgment.verdict == PairVerdict(winner="tie")
    assert judgment.probability == 0.5
    assert judgment.shown[0].distribution.expected == (8, 6)
    assert "since it is" in judgment.reason


def test_grade_takes_a_reference_an_anchor_or_nothing_and_rank_several_answers():
    with Judge("7", engine="scripted") as judge:
        plain, referenced = judge.grade("q", "a"), judge.grade("q", "a", reference="r")
        anchored = judge.grade("q", "a", anchor="b")
    assert plain.verdict == referenced.verdict == GradeVerdict(score=7)
    assert [judgment.shown[0].referenced for judgment in (plain, referenced)] == [False, True]
    assert anchored.failure.code == "off_grammar"  # two scores were asked for
    with Judge("Explanation: so, Answer: correct", engine="scripted") as judge:
        rated = judge.grade("q", "a", mode="rubric", dimensions=["logical_correctness"])
    assert rated.verdict == GradeVerdict(score=1)
    with Judge("5 1 8", engine="scripted") as judge:
        assert judge.rank("q", ["a", "b", "c"]).verdict == RankingVerdict(order=((2,), (0,), (1,)))


def test_the_cards_step_is_what_the_judge_is_asked_for(tiny_model, tmp_path):
    shutil.copytree(tiny_model, tmp_path, dirs_exist_ok=True)
    write_card(tmp_path, replace(COMPACT, step=0.5))
    with Judge(str(tmp_path), engine="transformers") as judge:
        [request] = next(judge.pairwise(distribution=True)(Sample(id="1", question="q", answers=("a", "b"))))
    assert ("4.5 0" in request.candidates, len(request.candidates)) == (True, 11 * 11)


def test_a_reason_gets_what_room_is_left_in_a_small_window(tiny_model):
    card = {"template": "judgelm-compact", "max_model_len": 60}
    with Judge(str(tiny_model), engine="transformers", **card) as judge:
        mode = judge.pairwise(reasons="all", max_tokens=8)
        flow = mode(Sample(id="1", question="q", answers=("a big fox " * 40, "b")))
        [first] = run(judge.engine, next(flow)).values()
        going_on = flow.send([replace(first, texts=("8 6",), finish_reasons=("stop",))])  # it writes nonsense itself
        [reason] = run(judge.engine, going_on).values()
    assert reason.finish_reasons != ("too_long",)  # 512 tokens of reason would not fit 60
    assert reason.truncations == first.truncations != ()


def test_a_card_is_read_from_a_folder_and_not_looked_up_for_a_servers_model(tmp_path):
    assert prepare(resolve("lab/judge", "openai"), {}).card is None  # would be a hub id
    write_card(tmp_path, COMPACT)
    assert prepare(resolve(str(tmp_path), "openai"), {}).card == COMPACT
    (tmp_path / "judge.json").write_text("not json")
    with pytest.raises(CardError, match=r"judge\.json: file: Invalid JSON"):
        find_card(str(tmp_path))


def test_a_window_that_the_model_does_not_have_is_refused_unless_a_smaller_one_is_asked_for(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "judge")
    write_card(folder, replace(COMPACT, window=4096))
    with pytest.raises(CardError, match=r"states a window of 4,096 tokens, but the model has 512; fix the card"):
        Judge(str(folder), engine="transformers")
    with Judge(str(folder), engine="transformers", max_model_len=256) as judge:
        assert judge.engine.describe()["window"] == 256


def test_a_judge_on_the_hub_is_asked_as_its_card_says(tiny_model, tmp_path):
    # a hub cache as huggingface_hub lays it out, used offline
    repository = tmp_path / "hub/models--lab--judge"
    snapshot = Path(shutil.copytree(tiny_model, repository / "snapshots" / ("a" * 40)))
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("a" * 40)
    write_card(snapshot, COMPACT)
    script = """if True:
        from judgelm import Judge
        judge = Judge("lab/judge")
        print(judge.format.template, judge.format.source, judge.engine.describe()["model"]["commit"])
        try:
            Judge("lab/nothing")
        except Exception as error:
            print(type(error).__name__, error)
    """
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")}
    first, second = run_command(sys.executable, "-c", script, env=environment).stdout.splitlines()
    assert first == f"judgelm-compact card {'a' * 40}"
    assert second.startswith("ModelError lab/nothing: no such folder, and the hub is")


def test_without_a_card_the_default_is_used_and_a_missing_folder_is_named(tiny_model):
    with Judge(str(tiny_model)) as judge:
        assert (judge.format.template, judge.format.source) == ("judgelm-v1", "default")
    for model in ("./nowhere", "nowhere", "a/b/c"):
        with pytest.raises(ModelError, match="no such folder"):
            Judge(model)


WORDS = Card(template="yes-no", template_sha=get_template("yes-no").sha, calibration_temperature=0.5, tie_threshold=0.2)


@pytest.fixture
def tuned(tmp_path):
    """A card without weights for a model, in a folder `tuned`; the folder's path."""

    def write(model, **fields):
        (tmp_path / "tuned").mkdir(exist_ok=True)
        write_card(tmp_path / "tuned", replace(WORDS, model=str(model), **fields))
        return str(tmp_path / "tuned")

    return write


@pytest.mark.parametrize("engine", ["auto", "transformers"])
def test_a_card_without_weights_loads_the_model_that_it_names(tiny_model, tuned, tmp_path, engine):
    (tmp_path / "model").symlink_to(tiny_model)
    folder = tuned("../model")  # relative to the card's folder
    with Judge(folder, engine=engine) as judge:
        described = judge.engine.describe()["model"]
        assert described["path"] == str(tmp_path / "tuned/../model")
        assert (judge.format.template, judge.format.source) == ("yes-no", "card")
        mode = judge.mode("pair")
    assert (mode.calibration_temperature, mode.tie_threshold) == (0.5, 0.2)
    with Judge(tuned("../model", identity={"sha": described["sha"]}), engine=engine):
        pass
    folder = tuned("../model", identity={"sha": "0" * 64})
    with pytest.raises(CardError, match=f"sha 000000000000 in the card, sha {described['sha'][:12]} loaded"):
        Judge(folder, engine=engine)
    Judge(folder, engine=engine, ignore_card=True).close()


def test_every_way_to_load_a_model_follows_a_card_without_weights(tiny_model, tuned):
    folder = tuned(tiny_model)
    assert resolve(folder).engine == "transformers"
    assert split_adapter(EngineOptions(model=folder)) == (str(tiny_model), None)
    assert has_chat_template(EngineOptions(model=folder)) is False
    load_engine("transformers", EngineOptions(model=folder)).close()


def test_a_card_without_weights_may_name_an_installed_judge(small_judge, tuned):
    with Judge(tuned("small-judge"), engine="transformers") as judge:
        assert (judge.named.card.name, judge.format.template) == ("small-judge", "yes-no")


def test_a_card_without_weights_names_no_other_one(tuned):
    with pytest.raises(CardError, match=r"model: \. has no weights either"):
        Judge(tuned("."), engine="transformers")
    with pytest.raises(ModelError, match="missing: no such folder"):
        Judge(tuned("./missing"), engine="transformers")


def test_a_chat_model_without_a_card_is_read_by_yes_and_no_and_does_not_think_first(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "chat")
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}\n<think>\n")
    (folder / "judge.json").unlink(missing_ok=True)
    with Judge(str(folder), engine="transformers") as judge:
        assert (judge.format.template, judge.format.source, judge.engine.thinking.mode) == ("yes-no", "default", "off")
        assert "yes-no" in judge.notes[0]
        judgment = judge.compare("what is paris", "a big capital", "red")
    assert judgment.failure.code == "low_coverage"  # random weights say neither word, and do not think
    assert "probability of yes, no" in judgment.failure.why
    with Judge(str(folder), engine="transformers", reading="score-line") as judge:
        assert (judge.format.template, judge.engine.thinking.mode) == ("judgelm-chat", "absent")


def test_only_untrained_models_with_a_chat_template_are_instruct_models(tiny_model, tiny_reward_model, tuned, tmp_path):
    def is_instruct(model, engine="transformers", **options):
        return prepare(resolve(str(model), engine), {}, **options).is_instruct

    chat = shutil.copytree(tiny_model, tmp_path / "chat")
    (chat / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    assert [is_instruct(chat), is_instruct(tuned(chat))] == [True, True]
    assert is_instruct(chat, reading="letters")
    assert not is_instruct(chat, reading="score-line")
    assert not any(map(is_instruct, (tiny_model, tuned(tiny_model), tiny_reward_model)))
    write_card(chat, WORDS)
    assert [is_instruct(chat), is_instruct(tuned(chat))] == [False, False]  # trained as a judge
    assert [is_instruct("m", "openai"), is_instruct("m", "openai", reading="letters")] == [False, True]
    assert not is_instruct("8 6", "scripted")


def test_a_trained_judge_refuses_another_prompt(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "judge")
    write_card(folder, WORDS)
    [prompt] = parse_prompts("{answer} Right?\nreply: Yes/No", "right.txt")
    with Judge(str(folder), engine="transformers") as judge, pytest.raises(CardError, match="--prompt"):
        judge.mode_with(prompt)
    with Judge(str(folder), engine="transformers", ignore_card=True) as judge:
        assert judge.mode_with(prompt).prompt == prompt


PAIR = "A: {answer_1}\nB: {answer_2}\nWhich?\nreply: A/B"
SUPPORT = "{context}\n{answer}\nIs it supported?\nreply: Yes/No"


@pytest.mark.parametrize(
    ("text", "call", "message"),
    [
        (PAIR, lambda judge: judge.grade("q", "a"), "grade: .* use compare"),
        (SUPPORT, lambda judge: judge.grade("q", "a"), r'shows \{context\}; pass fields=\{"context": ...\}'),
        (SUPPORT, lambda judge: judge.rank("q", ["a", "b"], fields={"context": None}), r'pass fields=\{"context"'),
        (SUPPORT, lambda judge: judge.compare("q", "a", "b", fields={"context": {1}}), "field context is a set"),
        (SUPPORT, lambda judge: judge.grade("q", "a", fields="c"), "expected fields as a dictionary, got str"),
        (SUPPORT.replace("context", "reference"), lambda judge: judge.grade("q", "a"), "pass reference="),
        (None, lambda judge: judge.grade("q", "a", fields={"context": "c"}), "prompt=FILE"),
    ],
)
def test_arguments_that_do_not_fit_the_prompt_are_refused(tmp_path, text, call, message):
    path = tmp_path / "own.txt"
    path.write_text(text or "")
    judge = Judge("Yes", engine="scripted", prompt=path if text else None)
    with judge, pytest.raises(ConfigError, match=message):
        call(judge)


def test_ranked_answers_show_fields(tmp_path):
    (tmp_path / "own.txt").write_text("{context}: {answer_1} {answer_2} {answer_3}\nreply: A/B/C")
    with Judge("A", engine="scripted", prompt=tmp_path / "own.txt") as judge:
        judgment = judge.rank("", ["a", "b", "c"], fields={"context": ["d"]}, permutations=1)
    assert judgment.failure is None


@pytest.mark.parametrize("value", [None, ["a", "b"], {"role": "user"}, b"bytes", float("nan"), 7], ids=repr)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("question", lambda judge, value: judge.compare(value, "a", "b")),
        ("answer_1", lambda judge, value: judge.compare("q", value, "b")),
        ("answer_2", lambda judge, value: judge.compare("q", "a", value)),
        ("question", lambda judge, value: judge.grade(value, "a")),
        ("answer", lambda judge, value: judge.grade("q", value)),
        ("question", lambda judge, value: judge.rank(value, ["a", "b"])),
        ("anchor", lambda judge, value: judge.grade("q", "a", anchor=value or 7)),
        ("answers[1]", lambda judge, value: judge.rank("q", ["a", value, "c"])),
    ],
)
def test_an_argument_that_is_not_text_is_named(name, call, value):
    with Judge("8 6", engine="scripted") as judge, pytest.raises(ConfigError, match=rf": {re.escape(name)} must be"):
        call(judge, value)


@pytest.mark.parametrize(
    "answers", [None, 7, "ab", b"ab", {"a": 1, "b": 2}, pytest.param({"a", "b"}, id="set"), ["a"], []], ids=repr
)
def test_answers_to_rank_are_an_ordered_list(answers):
    with Judge("8 6", engine="scripted") as judge, pytest.raises(ConfigError, match="a list of at least two strings"):
        judge.rank("q", answers)


def test_files_may_be_paths_and_one_must_be_named(tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"question": "q", "answer_1": "a", "answer_2": "b"}\n')
    with Judge("8 6", engine="scripted") as judge:
        stats = judge.judge_file(tmp_path / "pairs.jsonl", out=tmp_path / "out.jsonl")
        assert (stats.judged, stats.winners) == (1, {"1": 1})
        assert (tmp_path / "out.run.json").exists()
        with pytest.raises(ConfigError, match="no input given"):
            judge.judge_file(out="out.jsonl")
