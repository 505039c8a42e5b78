"""`train/reward.py`: a base learns to reward answers by their words, and is then read by `--mode reward`."""

import json
import shutil

import pytest
import torch
from transformers import AutoTokenizer, TrainerCallback

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ConfigError
from judgelm.judge import Judge
from judgelm.prompts.judge_card import find_card
from judgelm.training.finished_judge import save_judge
from judgelm.training.reward import RewardArguments, check_reward_arguments
from judgelm.training.rows.pairs import RewardRowBuilder, RewardRowOptions
from tests.support.in_process import exit_code
from tests.support.recipe_runs import FSDP_ON_CPU, LORA, finish, launch, losses_of, prepare, shape, train, write_rows
from tests.support.tiny_judges import CHAT, word_sample

SHAPE = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "save_strategy": "no", "logging_steps": 4}
SAMPLES = [word_sample(f"reward {number}") for number in range(48)]


def row_of(sample):
    """The answer with more words is better, the more so the more it has."""
    first, second = (len(answer.split()) for answer in sample.answers)
    preference = 0.5 + (first - second) / 20
    return {"id": sample.id, "question": sample.question, "answers": sample.answers, "preference": preference}


@pytest.fixture(scope="module")
def chat_base(tiny_model, tmp_path_factory):
    """The tiny base, which writes text, with a chat template."""
    folder = shutil.copytree(tiny_model, tmp_path_factory.mktemp("chat") / "base")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("rows") / "pairs.jsonl", map(row_of, SAMPLES))


@pytest.fixture(scope="module")
def trained(chat_base, rows, tmp_path_factory):
    """A training that is done, with evaluations, and its folder; the file's other tests read what it left."""
    out, own = tmp_path_factory.mktemp("trained") / "judge", {"eval_data": [rows], "margin_weight": 1.0}
    options = SHAPE | {"max_steps": 40, "learning_rate": 5e-3}
    trainer, judge, model = prepare(chat_base, out, rows, recipe="reward", judge=own, **options)
    trainer.train()
    save_judge(trainer, judge, model, facts={"method": "reward"})
    return trainer, out


def test_better_answers_get_higher_rewards_when_judged(trained):
    trainer, out = trained
    clear = [sample for sample in SAMPLES if abs(row_of(sample)["preference"] - 0.5) > 0.1]
    with Judge(str(out), dtype="float32") as judge:
        judgments = [judge.compare(sample.question, *sample.answers) for sample in clear]
    wanted = [1 if row_of(sample)["preference"] > 0.5 else 2 for sample in clear]
    correct = [judgment.winner == winner for judgment, winner in zip(judgments, wanted, strict=True)]
    assert sum(correct) >= 0.8 * len(clear)  # 0.5 by chance
    [evaluated] = [entry for entry in trainer.state.log_history if "eval_accuracy" in entry]
    assert evaluated["eval_agreement"] >= 0.8
    assert evaluated["eval_failed"] == 0


def test_training_and_judging_read_the_same_tokens(trained, chat_base):
    trainer, out = trained
    row = trainer.rows.dataset[0]
    sample = next(each for each in SAMPLES if each.id == row["sample_id"])
    chosen = sample.answers[0 if row_of(sample)["preference"] > 0.5 else 1]
    chat = [{"role": "user", "content": sample.question}, {"role": "assistant", "content": chosen}]
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert row["chosen_ids"] == tokenizer.apply_chat_template(chat)["input_ids"]


def test_trl_is_given_the_margins_of_soft_preferences(trained):
    trainer, _ = trained
    rows = trainer.rows.dataset.select(range(8))
    # preference 0.5 + (words - words) / 20 has the margin |words - words| / 10
    words = {sample.id: [len(answer.split()) for answer in sample.answers] for sample in SAMPLES}
    expected = [abs(first - second) / 10 for first, second in (words[name] for name in rows["sample_id"][:])]
    assert rows["margin"][:] == pytest.approx(expected)
    batch = next(iter(trainer.get_train_dataloader()))
    assert batch["margin"].tolist() == pytest.approx(expected)


def test_the_card_says_how_the_model_is_read(trained):
    _, out = trained
    card = find_card(str(out))
    assert (card.template, card.reading, card.prompt_format, card.reference) == ("reward", "reward", "chat", "without")
    config = json.loads((out / "config.json").read_text())
    assert (config["architectures"], len(config["id2label"])) == (["LlamaForSequenceClassification"], 1)


class Stopping(TrainerCallback):
    """Ends a training after its second step, as a preemption does."""

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step == 2


def test_a_stopped_training_resumes_with_its_head(chat_base, rows, tmp_path):
    # three short trainings: resuming is seen by ending where one that was not stopped ends
    def trainer(name):
        shape = SHAPE | {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
        return prepare(chat_base, tmp_path / name, rows, recipe="reward", **shape)[0]

    whole, stopped = trainer("whole"), trainer("stopped")
    whole.train()
    stopped.add_callback(Stopping())
    stopped.train()
    resumed = trainer("stopped")
    assert str(resumed.args.resume_from_checkpoint).endswith("checkpoint-2")
    resumed.train(resume_from_checkpoint=resumed.args.resume_from_checkpoint)
    assert torch.equal(resumed.model.score.weight, whole.model.score.weight)


def test_an_adapter_is_trained_from_a_config_and_judges(chat_base, rows, tmp_path):
    # a training of its own: adapters are saved and loaded another way, with their head
    options = SHAPE | {"save_strategy": "steps", "save_steps": 2, "max_steps": 2, "template": "reward"} | LORA
    out = train(tmp_path, recipe="reward", train_data=[rows], model_name_or_path=str(chat_base), **options)
    assert not (out / "config.json").exists()
    engine = load_engine("transformers", EngineOptions(model=str(out), dtype="float32"))
    assert engine.describe()["head"] == "reward"
    write_rows(tmp_path / "in.jsonl", [{"question": "what is it", "answers": ["paris", "a big red fox"]}])
    command = ["judgelm-batch", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--mode", "reward", "--model", out]
    assert exit_code(*command, "--dtype", "float32") == 0
    judged = json.loads((tmp_path / "out.jsonl").read_text())
    assert judged["scores"][0] != judged["scores"][1]


@pytest.mark.distributed
@pytest.mark.parametrize("cluster", ["zero3", "fsdp2"])
def test_two_processes_train_what_one_trains(chat_base, rows, tmp_path, monkeypatch, cluster):
    # sharded weights: the head is new, learns, judges at the evaluation and is saved whole
    monkeypatch.setenv("RECIPE", "train/reward.py")
    shared = {"train_data": [rows], "eval_data": [rows], "model_name_or_path": str(chat_base), "dtype": "float32"}
    shared |= {"template": "reward", "max_steps": 6, "save_steps": 6, "global_batch": 8, "learning_rate": 1e-3}
    script = FSDP_ON_CPU if cluster == "fsdp2" else "train/reward.py"
    process = launch(tmp_path / "two", cluster, script=script, **shared, **shape(2, 2))
    folders = tmp_path / "two/out", train(tmp_path / "one", recipe="reward", **shared, **shape(8, 1))
    finish(process)
    losses, expected = (losses_of(folder / "checkpoint-6") for folder in folders)
    assert losses == pytest.approx(expected, abs=1e-4)
    agreement, other = (find_card(str(folder)).training["metrics"]["agreement"]["value"] for folder in folders)
    assert agreement == pytest.approx(other, abs=0.05)
    with Judge(str(folders[0]), dtype="float32") as two_judge, Judge(str(folders[1])) as one_judge:
        first, second = (judge.compare("what is it", "paris", "a big red fox") for judge in (two_judge, one_judge))
    assert first.scores == pytest.approx(second.scores, abs=1e-2)


def test_rows_that_teach_no_preference_are_left_out_and_counted(chat_base, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(chat_base)
    labels = [
        {"answers": ["a", "b"], "preference": 0.5},
        {"answers": ["a", "b"]},
        {"answers": ["a"], "scores": [3]},
        {"answers": ["fox " * 90 + "a", "fox " * 90 + "b"], "winner": 1},
        {"answers": ["a", "b"], "winner": 2, "turns": [{"question": "q", "answers": ["a", "c"]}]},
        {"answers": ["a", "b"], "scores": [2, 9]},
    ]
    path = write_rows(tmp_path / "rows.jsonl", [{"id": str(n), "question": "q"} | row for n, row in enumerate(labels)])
    builder = RewardRowBuilder(tokenizer, RewardRowOptions(template="reward", window=64))
    [row] = filter(None, map(builder.build, builder.items([path])))
    assert (tokenizer.decode(row.chosen_ids)[-2:], row.margin) == ("b\n", 0.0)
    reasons = {"a tie", "no preference, scores or winner", "not a pair", "equal after cut"}
    assert builder.counts.left_out == dict.fromkeys(reasons | {"turns that are no dialogue"}, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "yes-no"}, "template is 'yes-no', but reward models"),
        ({"reason_prob": 1.0}, "reason_prob is 1.0, but reward models"),
        ({"margin_weight": -1.0}, "margin_weight is -1.0; expected"),
    ],
)
def test_options_of_other_recipes_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        check_reward_arguments(RewardArguments(train_data=["x"], **options))


def test_a_quantised_base_is_refused(chat_base, rows, tmp_path):
    with pytest.raises(ConfigError, match="an unquantised base"):
        prepare(chat_base, tmp_path, rows, recipe="reward", model={"load_in_4bit": True}, **SHAPE)
