"""`train/dpo.py`: a judge that counts words learns from its own mistakes a teacher's taste for the second answer."""

import re
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import CardError, ConfigError, InputError
from judgelm.jsonl import read_jsonl
from judgelm.judge import Judge
from judgelm.modes import Pairwise
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import find_card
from judgelm.runs.batch import BatchHooks, BatchJob, run_batch
from judgelm.runs.serialization import judgment_from_row
from judgelm.training.dpo import dpo_facts, find_tuned_card
from judgelm.training.finished_judge import save_judge
from tests.support.recipe_runs import LORA, configure, merge_here, prepare, run_here, write_rows
from tests.support.tiny_judges import TEMPLATE, word_sample

SHAPE = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "save_strategy": "no", "logging_steps": 4}
SAMPLES = [word_sample(f"dpo {number}") for number in range(40)]


@pytest.fixture(scope="module")
def files(tiny_judge, tmp_path_factory):
    """Labels of a teacher who always prefers the second answer, and what the tiny judge says of the pairs."""
    folder = tmp_path_factory.mktemp("dpo")
    rows = [{"id": each.id, "question": each.question, "answers": each.answers, "scores": [2, 9]} for each in SAMPLES]
    labelled, judged = write_rows(folder / "labelled.jsonl", rows), str(folder / "judged.jsonl")
    engine = load_engine("transformers", EngineOptions(model=str(tiny_judge), dtype="float32", device="cpu"))
    run_batch(BatchJob(inputs=(labelled,), out=judged), Pairwise(template=TEMPLATE), engine, hooks=BatchHooks())
    engine.close()
    return labelled, judged


def tune(base, folder, files, *, judge=None, **options):
    """The recipe's trainer, its own arguments, and the model's."""
    own = {"judgments": [files[1]], "swap_prob": 0.0} | (judge or {})
    shape = SHAPE | {"max_steps": 24, "learning_rate": 3e-4} | options
    return prepare(base, folder, files[0], recipe="dpo", judge=own, **shape)


@pytest.fixture(scope="module")
def tuned(tiny_judge, files, tmp_path_factory):
    """A tuning that is done, and its folder."""
    out = tmp_path_factory.mktemp("tuned") / "judge"
    trainer, judge, model = tune(tiny_judge, out, files, judge={"eval_data": [files[0]]})
    trainer.train()
    card = find_tuned_card(model, judge)
    facts = dpo_facts(SimpleNamespace(judge=judge, args=trainer.args, base=model, tuned_from=card))
    save_judge(trainer, judge, model, facts=facts, tuned_from=card)
    return trainer, out


def test_the_verdicts_turn_to_the_chosen_ones(tuned, tiny_judge):
    trainer, out = tuned
    logged = [entry["rewards/margins"] for entry in trainer.state.log_history if "rewards/margins" in entry]
    assert logged[-1] > logged[0]
    mistaken = set(trainer.rows.dataset["sample_id"])
    assert len(mistaken) >= 15
    correct = []
    for folder in (tiny_judge, out):
        with Judge(str(folder)) as judge:
            pairs = [(each.question, *each.answers) for each in SAMPLES if each.id in mistaken]
            verdicts = [judge.compare(*pair, both_orders=False).verdict for pair in pairs]
        correct.append(sum(verdict is not None and verdict.winner == 2 for verdict in verdicts))
    assert correct[0] == 0
    assert correct[1] >= 0.8 * len(mistaken)


def test_the_prompts_are_those_that_the_judge_was_asked_with(tuned, files):
    trainer, _ = tuned
    tokens = {row["id"]: judgment_from_row(row).prompt_tokens for _, row in read_jsonl(files[1])}
    assert all(len(row["prompt_ids"]) == tokens[row["sample_id"]] for row in trainer.rows.dataset)


def test_trl_is_given_the_tokens_as_they_are(tuned):
    trainer, out = tuned
    tokenizer = AutoTokenizer.from_pretrained(out)
    batch = next(iter(trainer.get_train_dataloader()))
    targets = [ids[mask.bool()] for ids, mask in zip(batch["input_ids"], batch["completion_mask"], strict=True)]
    assert all(re.fullmatch(r"\d+ \d+\n", tokenizer.decode(target)) for target in targets)  # no end of sequence
    rows = trainer.rows.dataset.select(range(8))
    assert [target.tolist() for target in targets] == rows["chosen_ids"][:] + rows["rejected_ids"][:]


def test_the_card_says_what_it_was_and_what_was_done(tuned, tiny_judge):
    trainer, out = tuned
    card = find_card(str(out))
    facts = card.training
    # it was a judge of both before, and saw no reference here
    assert (card.template, card.template_sha, card.reference) == (TEMPLATE, get_template(TEMPLATE).sha, "both")
    assert (facts["method"], facts["beta"], facts["steps"]) == ("dpo", 0.1, 24)
    assert facts["began_from"] == {"judge": str(tiny_judge)}  # whose card says nothing of its training
    entries = [(entry["file"], len(entry["sha"])) for entry in (*facts["data"], *facts["judgments"])]
    assert entries == [("labelled.jsonl", 64), ("judged.jsonl", 64)]
    assert facts["rows"] + facts["rows_left_out"]["judge was right"] == len(SAMPLES)
    assert f"| began_from: judge | {tiny_judge} |" in (out / "README.md").read_text()
    [logged] = [entry for entry in trainer.state.log_history if "eval_agreement" in entry]
    assert logged["eval_delta_bias"] > 0.8  # shown in both orders, it prefers a position
    assert logged["eval_agreement"] == facts["metrics"]["agreement"]["value"]


def test_an_adapter_is_tuned_from_a_config_and_merged(tiny_judge, files, tmp_path, capsys):
    data = {"train_data": [files[0]], "judgments": [files[1]], "model_name_or_path": str(tiny_judge), "max_steps": 4}
    config, whole = configure(tmp_path, **SHAPE, **data, **LORA), tmp_path / "judge"
    assert run_here(config, recipe="dpo") is None
    assert re.search(r"train: \d+ rows \(\d+ pair\), \d+ swapped, .* left out: ", capsys.readouterr().out)
    assert not (tmp_path / "out/config.json").exists()
    assert merge_here(tmp_path / "out", whole) is None
    card = find_card(str(whole))
    assert (card.training["method"], card.training["merged"]["adapter"]) == ("dpo", "out")
    assert run_here(config, recipe="dpo").startswith(f"error: {tmp_path / 'out'}: contains a finished judge")


@pytest.mark.parametrize(
    ("judge", "options", "error", "finding"),
    [
        ({"train_data": []}, {}, ConfigError, "^train_data is empty"),
        ({"template": "judgelm-v1"}, {}, CardError, "trained with template 'judgelm-compact'"),
        ({"scale": [1, 5]}, {}, CardError, r"scale \[1, 10\], but .* scale \[1, 5\]"),
        ({"loss_on": "all"}, {}, ConfigError, "^loss_on"),
        ({}, {"beta": 0.0}, ConfigError, "^beta"),
        ({"judgments": []}, {}, InputError, r"no usable pairs of judgments \(40 without two judgments\)"),
        ({"judgments": ["nowhere.jsonl"]}, {}, InputError, r"cannot read nowhere\.run\.json"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tiny_judge, files, tmp_path, judge, options, error, finding):
    with pytest.raises(error, match=finding):
        tune(tiny_judge, tmp_path / "out", files, judge=judge, **options)
