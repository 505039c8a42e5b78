"""`train/dpo.py`: rows of two judgments, prompts in both orders, and a judge that learns to prefer second answers."""

import re
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import CardError, ConfigError, InputError
from judgelm.jsonl import read_jsonl
from judgelm.judge import Judge
from judgelm.modes import Pairwise, Reasoned
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import find_card
from judgelm.prompts.truncation import Truncator
from judgelm.records import Sample
from judgelm.runs.batch import BatchHooks, BatchJob, run_batch
from judgelm.serialization import judgment_from_row
from judgelm.training.dpo import dpo_facts, find_tuned_card
from judgelm.training.finished_judge import save_judge
from judgelm.training.grpo import in_both_orders
from judgelm.training.rows.builder import FastTokenizer
from judgelm.training.rows.dataset import Schedule, build_epochs
from judgelm.training.rows.dpo import PreferenceRowBuilder, PreferenceRowOptions
from judgelm.training.rows.pairs import JudgingPromptBuilder, JudgingPromptOptions
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
        ({"scale": [1, 5]}, {}, CardError, r"scale \[1, 10\], but .*\[1, 5\]"),
        ({"loss_on": "all"}, {}, ConfigError, "^loss_on"),
        ({}, {"beta": 0.0}, ConfigError, "^beta"),
        ({"judgments": []}, {}, InputError, r"no usable pairs .*\(40 without two judgments\)"),
        ({"judgments": ["nowhere.jsonl"]}, {}, InputError, r"cannot read nowhere\.run\.json"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tiny_judge, files, tmp_path, judge, options, error, finding):
    with pytest.raises(error, match=finding):
        tune(tiny_judge, tmp_path / "out", files, judge=judge, **options)


PAIR = {"id": "1", "question": "what is it", "answer_1": "a fox", "answer_2": "a dog"}
STATED = PAIR | {"chosen": "8 6\nAnswer 1 can jump.", "rejected": "3 7\nAnswer 2 is lazy."}
GIVEN = "[Q] what is it\n[1] a fox\n[2] a dog\n[S]"
REORDERED = "[Q] what is it\n[1] a dog\n[2] a fox\n[S]"


@pytest.fixture
def write(tmp_path):
    return lambda *rows, name="rows.jsonl": write_rows(tmp_path / name, rows)


@pytest.fixture
def run(tmp_path):
    """Judgments of a file by a judge whose replies are scripted."""

    def judged(path, script, name="judged.jsonl", **options):
        mode = Pairwise(**({"template": TEMPLATE, "both_orders": True} | options))
        out = str(tmp_path / name)
        run_batch(BatchJob(inputs=(path,), out=out), mode, ScriptedEngine(script), hooks=BatchHooks())
        return out

    return judged


def read(tokenizer, *paths, epoch=0, **options):
    """The rows as text (prompt, chosen, rejected), and the counts."""
    settings = PreferenceRowOptions(**({"template": TEMPLATE, "window": 300, "swap_prob": 0} | options))
    made = PreferenceRowBuilder(tokenizer, settings)
    columns = ("prompt_ids", "chosen_ids", "rejected_ids")
    texts = [tuple(tokenizer.decode(getattr(row, name)) for name in columns) for row in made.read(paths, epoch)]
    return texts, made.counts


@pytest.mark.parametrize(
    ("rejected", "options", "chosen", "expected"),
    [
        (STATED["rejected"], {}, "8 6\nAnswer 1 can jump.</s>", "3 7\nAnswer 2 is lazy.</s>"),
        ("3 7", {}, "8 6\n", "3 7\n"),  # no reason stands against none, and a bare score line has no end
        (STATED["rejected"], {"reason_prob": 0}, "8 6\n", "3 7\n"),
        # where only the reasons differ they are kept
        ("8 6\nAnswer 2 is lazy.", {"reason_prob": 0}, "8 6\nAnswer 1 can jump.</s>", "8 6\nAnswer 2 is lazy.</s>"),
    ],
)
def test_a_row_may_carry_both_judgments(tokenizer, write, rejected, options, chosen, expected):
    [texts], counts = read(tokenizer, write(STATED | {"rejected": rejected}), **options)
    assert texts == (GIVEN, chosen, expected)
    assert (counts.made, counts.with_reason, counts.scores) == (1, "</s>" in chosen, {8.0, 6.0})


def test_both_judgments_are_swapped_or_none(tokenizer, write):
    texts, counts = read(tokenizer, write(STATED), swap_prob=1)
    assert texts == [(REORDERED, "6 8\nAnswer 2 can jump.</s>", "7 3\nAnswer 1 is lazy.</s>")]
    assert counts.swapped == 1
    # "the first" may be an answer or a sentence's beginning; what cannot be read has no other way round
    for rejected in ("3 7\nThe first is 2, the second 1 of 2.", "I like both"):
        [texts], counts = read(tokenizer, write(STATED | {"rejected": rejected}), swap_prob=1)
        assert (texts[0], counts.swapped, counts.not_swapped) == (GIVEN, 0, 1)


def test_the_reference_and_the_judgments_made_with_it_are_dropped_together(tokenizer, write):
    path = write(STATED | {"reference": "a big fox", "chosen_w_reference": "9 1", "rejected_w_reference": "1 9"})
    [(prompt, *targets)], _ = read(tokenizer, path, reference_drop_prob=0)
    assert ("[R] a big fox" in prompt, targets) == (True, ["9 1\n", "1 9\n"])
    [texts], _ = read(tokenizer, path, reference_drop_prob=1)
    assert texts == (GIVEN, "8 6\nAnswer 1 can jump.</s>", "3 7\nAnswer 2 is lazy.</s>")
    [texts], _ = read(tokenizer, write(STATED | {"reference": "a big fox"}), reference_drop_prob=0)
    assert texts[0] == GIVEN  # nobody judged with it


def test_a_judges_own_wrong_replies_are_rejected_in_the_order_it_was_shown(tokenizer, write, run):
    path = write(PAIR | {"score": [8, 6]})
    judged = run(path, {"what is it|a fox|a dog": "3 7\n", "what is it|a dog|a fox": "9 2\n"})
    texts, counts = read(tokenizer, path, judged, judgments=(judged,))
    # shown exchanged, the teacher's 8 6 is 6 8
    assert (texts, counts.made) == ([(GIVEN, "8 6\n", "3 7\n"), (REORDERED, "6 8\n", "9 2\n")], 2)


def test_what_is_wrong_is_another_winner_or_by_choice_a_score_far_off(tokenizer, write, run):
    path = write(PAIR | {"score": [8, 6]}, PAIR | {"id": "2", "question": "q2", "score": [8, 6]})
    judged = run(path, {"what is it|a fox|a dog": "9 3\n", "*": "1 9\n"}, both_orders=False)
    texts, counts = read(tokenizer, path, judged, judgments=(judged,))
    assert (len(texts), counts.left_out) == (1, {"judge was right": 1})
    # of 8 6, the first reply's 9 3 is 3 off at most, the second's 1 9 is 7
    counts = [len(read(tokenizer, path, judged, judgments=(judged,), min_distance=by)[0]) for by in (3.0, 3.5, 7.0)]
    assert counts == [2, 1, 1]


def test_what_the_judge_saw_decides_which_judgment_of_the_teacher_is_chosen(tokenizer, write, run):
    row = {"question_id": "1", "question_body": "what is it", "answer1_body": "a fox", "answer2_body": "a dog"}
    path = write(row | {"reference": {"text": "a big fox"}, "score": [8, 6], "score_w_reference": [2, 9]})
    without = run(path, {"*": "5 5\n"}, "without.jsonl", both_orders=False, reference="ignore")
    having = run(path, {"*": "5 5\n"}, "with.jsonl", both_orders=False)
    options = {"reference_drop_prob": 1.0}  # a reply made with a reference keeps it
    [texts], _ = read(tokenizer, path, without, judgments=(without,), **options)
    assert texts == (GIVEN, "8 6\n", "5 5\n")
    [(prompt, *targets)], _ = read(tokenizer, path, having, judgments=(having,), **options)
    assert ("[R] a big fox" in prompt, targets) == (True, ["2 9\n", "5 5\n"])
    assert len(read(tokenizer, path, without, having, judgments=(without, having), **options)[0]) == 2


def test_an_unreadable_reply_is_rejected_as_it_was_written(tokenizer, write, run):
    path = write(PAIR | {"score": [8, 6]})
    judged = run(path, {"what is it|a fox|a dog": "both are fine\n", "*": "8/10, 99/10\n"})
    texts, _ = read(tokenizer, path, judged, judgments=(judged,))
    assert [rejected for _, _, rejected in texts] == ["both are fine\n", "8/10, 99/10\n"]


def test_what_does_not_join_is_counted(tokenizer, write, run):
    seen = write(PAIR | {"id": "other"}, PAIR, name="seen.jsonl")
    judged = run(seen, {"*": "3 7\n"}, both_orders=False)
    labelled = write(
        PAIR | {"score": [8, 6]}, PAIR | {"id": "unseen", "score": [8, 6]}, PAIR | {"id": "nobody", "chosen": "8 6"},
        {"id": "one", "question": "q", "answer": "a"},
    )  # fmt: skip
    texts, counts = read(tokenizer, labelled, judged, judgments=(judged,))
    assert len(texts) == 1
    reasons = ("without two judgments", "no teacher scores", "not a pair", "judgment of no labelled pair")
    assert counts.left_out == dict.fromkeys(reasons, 1)


@pytest.mark.parametrize("change", [{"question": "q2"}, {"answer_1": "a dog", "answer_2": "a fox"}])
def test_replies_about_other_texts_are_refused(tokenizer, write, run, change):
    judged = run(write(PAIR | change, name="seen.jsonl"), {"*": "3 7\n"})
    path = write(PAIR | {"score": [8, 6]})
    with pytest.raises(InputError, match="differs from the judged text"):
        read(tokenizer, path, judged, judgments=(judged,))


@pytest.mark.parametrize(
    ("row", "options", "reason"),
    [
        (STATED | {"rejected": STATED["chosen"]}, {}, "chosen and rejected alike"),
        # a preference set's chosen and rejected are answers, not judgments
        ({"question": "q", "chosen": "8 6", "rejected": "3 7"}, {}, "without two judgments"),
        (STATED, {"scale": (1, 5)}, "scores outside the scale"),
    ],
)
def test_where_nothing_is_left_a_sentence_says_why(tokenizer, write, row, options, reason):
    with pytest.raises(InputError, match=rf"no usable pairs of judgments \(1 {reason}\)"):
        read(tokenizer, write(row), **options)


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"template": "judgelm-v1"}, "with template 'judgelm-v1'"),
        ({"scale": (1, 5)}, r"judged on scale \[1, 5\]"),
        ({"manifest": None}, r"cannot read judged\.run\.json"),
        ({"manifest": "{}"}, "not a valid judgelm-batch manifest"),
    ],
)
def test_judgments_of_other_options_are_refused(tokenizer, write, run, tmp_path, options, finding):
    path, manifest = write(PAIR | {"score": [8, 6]}), tmp_path / "judged.run.json"
    judged = run(path, {"*": "3 7\n"}, **{name: value for name, value in options.items() if name != "manifest"})
    if "manifest" in options:
        manifest.unlink() if options["manifest"] is None else manifest.write_text(options["manifest"])
    with pytest.raises(InputError, match=finding):
        read(tokenizer, path, judged, judgments=(judged,))


def test_the_rows_of_all_epochs_are_made_anew_when_the_judgments_change(tokenizer, write, run, tmp_path):
    path = write(PAIR | {"score": [8, 6]})
    schedule = Schedule(epochs=2.0, steps=None, batch=1, group_by_length=True, seed=0)

    def laid_out(reply):
        judged = run(path, {"*": reply}, f"{reply[0]}.jsonl", both_orders=False)
        options = PreferenceRowOptions(template=TEMPLATE, window=300, judgments=(judged,))
        return build_epochs(tokenizer, options, [path, judged], schedule, tmp_path / "rows", PreferenceRowBuilder)

    rows = laid_out("3 7\n")
    assert (rows.epochs, len(rows.dataset)) == (2, 2)
    assert set(rows.dataset.column_names) == {"sample_id", "prompt_ids", "chosen_ids", "rejected_ids"}
    assert tokenizer.decode(laid_out("5 5\n").dataset[0]["rejected_ids"]) == "5 5\n"


REASONED = "reasoned-compact"
PROMPT_OPTIONS = JudgingPromptOptions(template=REASONED, window=200, reply_tokens=64)


def pair(first, second, **label):
    return {"question": "q", "answers": [first, second]} | label


def test_the_prompts_are_those_of_the_mode(tokenizer, write):
    path = write(pair("a", "b", winner="2"))
    builder = JudgingPromptBuilder(tokenizer, PROMPT_OPTIONS)
    [row] = builder.read([path])
    requests = next(Reasoned(template=REASONED, both_orders=True)(Sample(id="0", question="q", answers=("a", "b"))))
    truncator = Truncator(FastTokenizer(tokenizer), PROMPT_OPTIONS.window)
    texts = [truncator.truncate(request.prompt, PROMPT_OPTIONS.reply_tokens).text for request in requests]
    assert [row.prompt, row.swapped, row.winner] == [*texts, 2]


def test_ties_and_what_does_not_fit_are_left_out_and_counted(tokenizer, write):
    long = "word " * 300
    path = write(
        pair("a", "b", winner="tie"),
        pair("a", "b", preference=0.5),
        pair("a", "b", winner="1", question=long),
        pair("a", long, preference=0.9),  # is cut
        pair("a", "b", scores=[3, 7]),
    )
    builder = JudgingPromptBuilder(tokenizer, PROMPT_OPTIONS)
    assert [row.winner for row in builder.read([path])] == [1, 2]
    assert dict(builder.counts.left_out) == {"a tie": 2, "too long": 1}
    assert (builder.counts.made, builder.counts.cut) == (2, 1)


def test_both_orders_stand_side_by_side_and_whole_steps_alone(tokenizer, write, tmp_path):
    path = write(*(pair(f"a{index}", "b", winner=str(1 + index % 2), id=str(index)) for index in range(5)))
    schedule = Schedule(epochs=1, steps=None, batch=4, group_by_length=False, seed=0)
    built = build_epochs(tokenizer, PROMPT_OPTIONS, [path], schedule, tmp_path / "rows", JudgingPromptBuilder)
    paired = in_both_orders(built, step=4)
    shown = [paired.dataset[index] for index in range(len(paired.dataset))]
    assert [(row["pair"], row["order"]) for row in shown] == [(index // 2, index % 2) for index in range(8)]
    for given, swapped in zip(shown[::2], shown[1::2], strict=True):
        number = int(given["sample_id"])
        assert given["best"] == 1 + number % 2 == 3 - swapped["best"]
        assert f"[1] a{number}\n[2] b" in given["prompt"]
        assert f"[1] b\n[2] a{number}" in swapped["prompt"]
    assert paired.per_epoch == 10


def test_reasons_of_teacher_and_judge_are_set_against_each_other(tokenizer, write, run):
    path = write(PAIR | {"score": [8, 6], "reason": "Answer 1 can jump."})
    replies = {True: "Answer 2 is lazy.", False: "3 7\n"}
    judged = run(path, lambda prompt: replies[bool(prompt.prefill)], reasons="all", both_orders=False)
    [texts], _ = read(tokenizer, path, judged, judgments=(judged,))
    assert texts == (GIVEN, "8 6\nAnswer 1 can jump.</s>", "3 7\nAnswer 2 is lazy.</s>")


def test_a_pair_whose_answers_are_equal_after_the_cut_is_left_out(tokenizer, write):
    long = "a big fox jumps " * 100
    equal = STATED | {"id": "2", "answer_1": f"{long}over", "answer_2": f"{long}lazy"}
    texts, counts = read(tokenizer, write(STATED, equal))
    assert (len(texts), counts.left_out) == (1, {"equal after cut": 1})


def test_a_file_of_ties_is_refused(tokenizer, write):
    with pytest.raises(InputError, match=r"no usable rows \(1 a tie\)"):
        list(JudgingPromptBuilder(tokenizer, PROMPT_OPTIONS).read([write(pair("a", "b", winner="tie"))]))
