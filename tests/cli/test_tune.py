"""`judgelm tune` with an engine that returns word probabilities, and the resulting judges."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from judgelm.engines.catalog import ENGINES
from judgelm.errors import CardError
from judgelm.judge import Judge
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, find_card, write_card
from tests.support.jsonl_files import rows_of, write_rows
from tests.support.word_engine import WordEngine


@pytest.fixture(autouse=True)
def word_engine(monkeypatch, tmp_path):
    """Make `--engine scripted` return word probabilities; the model is the file `model`."""
    monkeypatch.setitem(ENGINES, "scripted", WordEngine)
    monkeypatch.setattr(WordEngine, "asked", 0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").write_text("weights")


@pytest.fixture
def labels(tmp_path):
    """Write 40 pairs: letters is right on all, yes-no and grade on the even ones, with differences of 2."""

    def write(n=40, **changed):
        rows = []
        for index in range(n):
            sign = 1 if index % 4 < 2 else -1
            alone = sign if index % 2 else -sign
            row = {"id": f"p{index}", "question": f"q{index}", "winner": 1 if sign > 0 else 2}
            rows.append(row | {"answer_1": f"{alone} {sign}", "answer_2": f"{-alone} {-sign}"} | changed)
        return write_rows(tmp_path / "labels.jsonl", rows)

    return write


@pytest.fixture
def tune(cli):
    """Tune the model into `judge`; return what `cli` returns."""

    def run(labels, *options, out="judge"):
        return cli("judgelm", "tune", "model", "--engine", "scripted", "--labels", labels, "-o", out, *options)

    return run


def test_labels_choose_the_reading_and_make_a_judge(tune, cli, labels, tmp_path):
    code, out, _ = tune(labels(), "--json", "figures.json")
    assert code == 0
    assert "letters is chosen" in out
    assert "held-out questions is 100.0 %" in out
    assert out.rstrip().endswith("use it: judgelm-batch pairs.jsonl -o out.jsonl --model judge --engine scripted")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [figures["candidates"][name]["accuracy"]["value"] for name in ("letters", "yes-no")] == [1.0, 0.5]
    assert figures["candidates"]["letters"]["orders_agree"] == 1.0
    card = find_card("judge")
    assert (card.model, card.template, card.reading) == (str(tmp_path / "model"), "letters", "letters")
    assert card.training["tuning"]["nested"]["n"] == 40
    assert "letters" in (tmp_path / "judge" / "README.md").read_text()
    code, _, err = cli("judgelm-batch", "labels.jsonl", "-o", "out.jsonl", "--engine", "scripted", "--model", "judge")
    assert code == 0
    assert "template letters (from the card)" in err
    assert [row["verdict"]["winner"] for row in rows_of("out.jsonl")] == [1, 1, 2, 2] * 10
    # a difference of 2 at the card's temperature
    certain = 1 / (1 + math.exp(-2 / card.calibration_temperature))
    assert rows_of("out.jsonl")[0]["probability"] == pytest.approx(certain)


def test_a_pair_is_judged_once(tune, labels, monkeypatch):
    monkeypatch.setattr(WordEngine, "breaks_at", 51)
    assert tune(labels())[0] == 130
    monkeypatch.setattr(WordEngine, "breaks_at", math.inf)
    assert tune(labels())[0] == 0
    judged = [len(rows_of(f"judge/candidates/{name}.jsonl")) for name in ("yes-no", "letters", "grade")]
    assert judged == [40, 40, 40]
    WordEngine.asked = 0
    assert tune(labels())[0] == 0
    assert WordEngine.asked == 0


def test_judgments_of_another_criterion_are_refused(tune, labels):
    assert tune(labels(), "--criterion", "It is polite.", "--reading", "letters")[0] == 0
    other = ("--criterion", "It is short.", "--reading", "letters")
    code, _, err = tune(labels(), *other)
    assert code == 1
    assert 'mode.criterion: was "It is polite.", now "It is short."' in err
    assert tune(labels(), *other, "--overwrite")[0] == 0
    assert find_card("judge").template in ("letters", "letters-criterion")


def test_a_named_reading_is_used_even_if_it_is_not_better(tune, labels):
    code, out, _ = tune(labels(), "--reading", "grade")
    assert (code, find_card("judge").template) == (0, "grade")
    assert "grade was the only candidate" in out


def test_a_criterion_is_kept_in_the_card(tune, labels):
    code, _, err = tune(labels(), "--criterion", "It is polite.", "--reading", "yes-no")
    assert code == 0
    assert "yes-no-criterion: 40 pairs" in err
    card = find_card("judge")
    assert (card.template, card.criterion) == ("yes-no-criterion", "It is polite.")  # the default with a criterion
    with Judge("judge", engine="scripted") as judge:
        assert judge.mode("pair").criterion == "It is polite."


def test_failures_count_as_wrong(tune, labels, tmp_path):
    rows = rows_of(labels())
    for row in rows[:8]:
        row["answer_1"] = "mute"
    code, _, _ = tune(write_rows(tmp_path / "labels.jsonl", rows), "--json", "figures.json")
    letters = json.loads((tmp_path / "figures.json").read_text())["candidates"]["letters"]
    assert (code, letters["failed"], letters["accuracy"]["value"]) == (0, 8, 0.8)


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (("--reading", "letter"), "did you mean letters?"),
        (("--criterion", " "), "--criterion is empty"),
        (("--limit", "19"), "expected at least 20 pairs with a winner, got 19"),
        (("--folds", "41"), "at least 41 questions (one per fold), got 40"),
        (("--seed", "-1"), "--seed"),
    ],
)
def test_invalid_options_are_refused_before_the_model_is_loaded(tune, labels, options, finding):
    code, _, err = tune(labels(), *options)
    assert (code, WordEngine.asked) == (1, 0)
    assert finding in err


def test_a_folder_with_a_model_is_refused(tune, labels, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    code, _, err = tune(labels(), out=".")
    assert (code, "contains a trained judge or a model" in err, (tmp_path / "candidates").exists()) == (1, True, False)


def test_another_criterion_than_that_of_the_labels_is_refused(tune, cli, labels):
    assert tune(labels(), "--criterion", "It is polite.", "--reading", "yes-no")[0] == 0
    batch = ("judgelm-batch", "labels.jsonl", "-o", "out.jsonl", "--engine", "scripted", "--model", "judge")
    code, _, err = cli(*batch, "--criterion", "It is short.")
    assert (code, "fitted with the criterion 'It is polite.'" in " ".join(err.split())) == (1, True)
    assert cli(*batch, "--criterion", "It is polite.")[0] == 0
    assert tune(labels(), "--reading", "yes-no", out="plain")[0] == 0
    batch = ("judgelm-batch", "labels.jsonl", "-o", "other.jsonl", "--engine", "scripted", "--model", "plain")
    code, _, err = cli(*batch, "--criterion", "It is short.")
    assert (code, "fitted with no criterion" in " ".join(err.split())) == (1, True)
    assert cli(*batch, "--criterion", "It is short.", "--ignore-card")[0] == 0


def test_labels_without_texts_and_trained_judges_folders_are_refused(tune, labels, tmp_path):
    write_card(tmp_path, Card(template="judgelm-v1", template_sha=get_template("judgelm-v1").sha))
    assert "contains a trained judge" in tune(labels(), out=".")[2]
    alone = write_rows(tmp_path / "alone.jsonl", [{"id": f"p{index}", "winner": 1} for index in range(30)])
    assert "have no texts" in tune(alone)[2]
    assert "none of the candidates judged a pair" in tune(labels(answer_1="mute"))[2]


def test_released_judges_are_not_tuned(cli, labels):
    tune = ("judgelm", "tune", "prometheus-eval/prometheus-7b-v2.0", "--engine", "scripted", "-o", "judge", "-l")
    assert "comes with its own prompts" in cli(*tune, labels())[2]


def test_a_model_without_chat_template_is_not_tuned(cli, labels, tiny_model):
    tune = ("judgelm", "tune", tiny_model, "--engine", "transformers", "-o", "judge", "-l")
    assert "the tokenizer has no chat template" in cli(*tune, labels())[2]


def test_another_model_under_the_same_name_is_refused(tune, cli, labels, tmp_path):
    tune(labels())
    (tmp_path / "model").write_text("other weights")
    batch = ("judgelm-batch", "labels.jsonl", "-o", "out.jsonl", "--engine", "scripted", "--model", "judge")
    code, _, err = cli(*batch)
    assert code == 1
    assert "judge.json was created for a different model" in err
    assert find_card("judge").identity["sha"][:12] in err
    assert cli(*batch, "--ignore-card")[0] == 0
    with pytest.raises(CardError, match="different model"):
        Judge("judge", engine="scripted")


def test_a_tuned_judge_can_be_tuned_again(tune, cli, labels):
    tune(labels())
    again = ("judgelm", "tune", "judge", "--engine", "scripted", "-l", "labels.jsonl", "-o", "next", "--ignore-card")
    assert cli(*again)[0] == 0
    assert find_card("next").model == find_card("judge").model


PAIR = (
    "Task: {question}\nNotes: {context}\nFirst:\n{answer_1}\nSecond:\n{answer_2}\nA, B, or C for a tie?\nreply: A/B/C\n"
)
LABEL = "Customer: {customer}\nQuestion: {question}\nAnswer: {answer}\nIs it right?\nreply: Yes/No\n"


@pytest.fixture
def prompts(tmp_path):
    """Write a prompt for pairs and a prompt for one answer, which show different fields."""
    for name, text in (("pair.txt", PAIR), ("label.txt", LABEL)):
        (tmp_path / name).write_text(text)
    return "--prompt", "pair.txt", "--prompt", "label.txt", "--reading", "yes-no"


def test_prompts_are_candidates_and_the_chosen_prompt_is_in_the_card(tune, cli, labels, prompts, tmp_path):
    code, out, _ = tune(labels(context="c", customer="x"), *prompts, "--json", "figures.json")
    assert code == 0
    assert "pair is chosen. On held-out questions" in out
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert {name: each["accuracy"]["value"] for name, each in figures["candidates"].items()} == {
        "pair": 1.0, "yes-no": 0.5, "label": 0.5,
    }  # fmt: skip
    card = find_card("judge")
    assert (card.template, card.prompt.file, card.prompt.name, card.prompt.text) == (
        "prompt:pair", "pair.txt", "pair", PAIR,
    )  # fmt: skip
    assert "prompt pair from pair.txt" in (tmp_path / "judge" / "README.md").read_text()
    assert rows_of("judge/candidates/label.jsonl")[0]["shown"][0]["order"] == [0]
    (tmp_path / "pair.txt").unlink()
    code, _, err = cli("judgelm-batch", "labels.jsonl", "-o", "out.jsonl", "--engine", "scripted", "--model", "judge")
    assert (code, "prompt pair (pair.txt)" in err) == (0, True)
    assert [row["verdict"]["winner"] for row in rows_of("out.jsonl")] == [1, 1, 2, 2] * 10
    with Judge("judge", engine="scripted") as judge:
        judgment = judge.compare("q", "0 1", "0 -1", fields={"context": "c"})
    # a difference of 2 at the card's temperature
    certain = 1 / (1 + math.exp(-2 / card.calibration_temperature))
    assert judgment.probability == pytest.approx(certain)


def test_rows_need_no_question_if_the_tuned_prompt_shows_none(tune, cli, labels, tmp_path):
    (tmp_path / "pair.txt").write_text(PAIR.replace("Task: {question}\n", ""))
    assert tune(labels(context="c"), "--prompt", "pair.txt", "--reading", "yes-no")[0] == 0
    assert find_card("judge").prompt is not None
    write_rows("rows.jsonl", [{"context": "c", "answer_1": "0 1", "answer_2": "0 -1"}])
    batch = ("judgelm-batch", "rows.jsonl", "-o", "out.jsonl", "--engine", "scripted", "--model")
    assert cli(*batch, "judge")[0] == 0
    assert rows_of("out.jsonl")[0]["verdict"]["winner"] == 1


@pytest.fixture
def with_doubts(tmp_path):
    """Write 160 pairs: letters is right where it is confident (strength 4), and by chance where it is not (0.1)."""
    rows = []
    for index in range(160):
        strength = 4 if index % 2 else 0.1
        right = 1 if index % 2 or index % 4 else -1
        sign = 1 if index % 8 < 4 else -1
        first = sign * right * strength
        row = {"id": f"p{index}", "question": f"q{index}", "winner": 1 if sign > 0 else 2}
        rows.append(row | {"answer_1": f"0 {first}", "answer_2": f"0 {-first}"})
    return write_rows(tmp_path / "labels.jsonl", rows)


def test_a_promise_makes_a_judge_that_abstains_where_it_is_in_doubt(tune, cli, with_doubts, tmp_path):
    code, out, err = tune(with_doubts, "--risk", "0.1", "--reading", "letters", "--json", "figures.json")
    assert code == 0, err
    assert "22 without an error, 52 with at most two" in " ".join(err.split())
    assert "With probability 0.9, at most 10 % of its verdicts" in " ".join(out.split())
    card = find_card("judge")
    promised = card.abstain
    assert 0.51 < promised.below < 0.99
    assert (promised.level, promised.confidence, promised.pairs, promised.wrong) == (0.1, 0.9, 80, 0)
    assert promised.decided == pytest.approx(40, abs=8)
    assert json.loads((tmp_path / "figures.json").read_text())["abstain"]["below"] == promised.below
    batch = ("judgelm-batch", with_doubts, "-o", "out.jsonl", "--engine", "scripted", "--model", "judge")
    code, _, err = cli(*batch)
    assert code == 0
    kinds = [row["verdict"]["kind"] for row in rows_of("out.jsonl")]
    assert kinds == ["abstain", "pair"] * 80
    assert re.search(r"abstained\W+80\b", err)
    assert all(row["failure"] is None for row in rows_of("out.jsonl"))
    code, out, err = cli("judgelm", "eval", "out.jsonl", "--labels", with_doubts)
    assert code == 0
    assert "abstained on 80" in " ".join((out + err).split())
    code, out, _ = cli("judgelm", "report", "out.jsonl")
    assert "80 abstained" in out
    assert cli("judgelm", "export", "out.jsonl", "--samples", with_doubts, "--to", "csv", "-o", "out.csv")[0] == 0
    assert (tmp_path / "out.csv").read_text().count("abstain") >= 80
    code, _, err = cli(*batch, "--overwrite", "--tie-threshold", "0.1")
    assert (code, "tie_threshold cannot be set" in err) == (1, True)


def test_a_promise_needs_enough_questions(tune, labels):
    code, _, err = tune(labels(), "--risk", "0.1")
    assert (code, "at least 22 questions for calibration" in " ".join(err.split())) == (1, True)


def test_a_judge_that_is_never_right_enough_gets_no_threshold(tune, tmp_path):
    rows = [
        {"id": f"p{n}", "question": f"q{n}", "winner": 1 + n % 3 % 2, "answer_1": "0 1", "answer_2": "0 -1"}
        for n in range(120)
    ]
    code, out, err = tune(write_rows(tmp_path / "labels.jsonl", rows), "--risk", "0.05", "--reading", "letters")
    assert code == 0, err
    assert "No threshold can promise" in out
    assert find_card("judge").abstain is None


@pytest.fixture
def by_length(tmp_path):
    """Write pairs, of which the answer with more words `big` wins; a model of random weights can tell them apart."""
    rows = []
    for index in range(60):
        better, worse = "a big fox and a big dog", "a small cat"
        winner = 1 + index % 2
        answers = (better, worse) if winner == 1 else (worse, better)
        row = {"id": f"p{index}", "question": f"what is {index}", "winner": winner}
        rows.append(row | {"answer_1": answers[0], "answer_2": answers[1]})
    return write_rows(tmp_path / "labels.jsonl", rows)


@pytest.mark.parametrize("options", [(), ("--prompt", "mine.txt", "--reading", "letters")])
def test_a_head_is_fitted_to_the_states_of_the_model(cli, by_length, tiny_chat, tmp_path, options):
    (tmp_path / "mine.txt").write_text(LABEL.replace("Customer: {customer}\n", ""))
    tune = ("judgelm", "tune", tiny_chat, "-l", by_length, "-o", "judge", "--dtype", "float32", *options)
    code, out, err = cli(*tune, "--json", "figures.json")
    assert code == 0, err
    assert "head is chosen" in out
    assert "not significantly better than the lengths" in out
    card = find_card("judge")
    assert card.prompt is None or card.prompt.name == "mine"
    assert 1 <= card.head.layer <= 2
    judged = cli("judgelm-batch", by_length, "-o", "out.jsonl", "--model", "judge", "--dtype", "float32")
    assert judged[0] == 0, judged[2]
    assert [row["verdict"]["winner"] for row in rows_of("out.jsonl")] == [1, 2] * 30
    with Judge("judge", dtype="float32") as judge:
        assert judge.engine.state_layers == (2 if card.head.terms.log_odds else card.head.layer)
        assert not judge.is_instruct
        assert (judge.name, judge.format.modes) == ("judge", ("pair", "multi"))
        ranked = judge.rank("what is it", ["a small cat", "a big fox and a big dog", "a small cat is big"])
        assert ranked.verdict.order[0] == (1,)
    # states are read again from the folder, and what belongs to other prompts is computed
    stored = (tmp_path / "judge" / "candidates").glob("*.states.npz")
    assert [path.stat().st_size > 0 for path in stored]
    assert cli(*tune)[0] == 0
    assert find_card("judge") == replace(card, training=find_card("judge").training)


def test_a_head_becomes_a_plain_checkpoint(cli, by_length, tiny_chat, tmp_path, caplog):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    assert cli("judgelm", "tune", tiny_chat, "-l", by_length, "-o", "judge", "--reading", "yes-no")[0] == 0
    write = ("judgelm", "judges", "checkpoint", "judge", "-o", "plain")
    code, _, err = cli(*write)
    assert (code, "LOAD REPORT" in err + caplog.text) == (0, False)
    assert "already exists" in cli(*write)[2]
    card = find_card("plain")
    assert (card.model, card.head.file, card.template) == (None, None, "yes-no")
    scores = {}
    for name in ("judge", "plain"):
        batch = ("judgelm-batch", by_length, "-o", f"{name}.out.jsonl", "--model", name, "--dtype", "float32")
        assert cli(*batch)[0] == 0
        scores[name] = [row["scores"] for row in rows_of(f"{name}.out.jsonl")]
    assert np.array(scores["plain"]) == pytest.approx(np.array(scores["judge"]), abs=1e-3)
    model = AutoModelForSequenceClassification.from_pretrained("plain", dtype="float32")
    assert (model.config.num_hidden_layers, model.config.num_labels) == (card.head.layer, 1)
    assert AutoTokenizer.from_pretrained("plain").chat_template


def test_a_head_for_bfloat16_is_refused_in_other_formats(cli, by_length, tiny_chat):
    tune = ("judgelm", "tune", tiny_chat, "-l", by_length, "-o", "judge", "--reading", "yes-no")
    assert cli(*tune, "--dtype", "bfloat16")[0] == 0
    assert find_card("judge").head.dtype == "bfloat16"
    batch = ("judgelm-batch", by_length, "-o", "out.jsonl", "--model", "judge")
    for name in ("float32", "float16"):
        code, _, err = cli(*batch, "--dtype", name)
        assert (code, f"run judgelm tune with --dtype {name}" in " ".join(err.split())) == (1, True)
    code, _, err = cli("judgelm", "judges", "checkpoint", "judge", "-o", "plain")
    assert (code, "different verdicts in vLLM" in " ".join(err.split()), Path("plain").exists()) == (1, True, False)
    assert cli(*batch)[0] == 0
    with Judge("judge") as judge:
        assert judge.engine.describe()["dtype"] == "bfloat16"


def test_a_head_for_float32_is_refused_in_bfloat16_only(cli, by_length, tiny_chat):
    tune = ("judgelm", "tune", tiny_chat, "-l", by_length, "-o", "judge", "--reading", "yes-no")
    assert cli(*tune, "--dtype", "float32")[0] == 0
    batch = ("judgelm-batch", by_length, "--model", "judge", "-o")
    for options in (("--dtype", "bfloat16"), ("--quantization", "8bit")):
        code, _, err = cli(*batch, "out.jsonl", *options)
        assert (code, f"remove {options[0]}" in " ".join(err.split())) == (1, True)
    verdicts = []
    for name in ("float32", "float16"):
        assert cli(*batch, f"{name}.jsonl", "--dtype", name)[0] == 0
        verdicts.append([row["verdict"] for row in rows_of(f"{name}.jsonl")])
    assert verdicts[0] == verdicts[1]


def test_a_head_is_used_as_it_was_fitted(cli, by_length, tiny_chat, tmp_path):
    tune = ("judgelm", "tune", tiny_chat, "-l", by_length, "-o", "judge", "--reading", "yes-no")
    assert cli(*tune)[0] == 0
    batch = ("judgelm-batch", by_length, "-o", "out.jsonl", "--model", "judge")
    for mode in ("label", "single", "correctness"):
        code, _, err = cli(*batch, "--mode", mode)
        assert (code, "head was fitted for mode pair; use --mode pair" in " ".join(err.split())) == (1, True)
    code, _, err = cli("judgelm", "tune", "judge", "-l", by_length, "-o", "again")
    assert (code, f"tune the model that it was made of: {tiny_chat}" in " ".join(err.split())) == (1, True)
    card = tmp_path / "judge" / "judge.json"
    written = json.loads(card.read_text())
    for changed in (
        {"dtype": "float99"},
        {"terms": {"kind": "pair", "intercept": "NaN"}},
        {"terms": {"kind": "pair", "row": 1}},
    ):
        card.write_text(json.dumps(written | {"head": written["head"] | changed}))
        code, _, err = cli(*batch)
        assert (code, "judge.json" in err, "head" in err) == (1, True, True)
    card.write_text(json.dumps(written | {"identity": {"sha": "0" * 64}}))
    code, _, err = cli("judgelm", "judges", "checkpoint", "judge", "-o", "plain")
    assert (code, "created for a different model" in " ".join(err.split()), Path("plain").exists()) == (1, True, False)


def test_a_damaged_head_is_refused(cli, by_length, tiny_chat, tmp_path):
    assert cli("judgelm", "tune", tiny_chat, "-l", by_length, "-o", "judge", "--reading", "yes-no")[0] == 0
    head = tmp_path / "judge" / "head.safetensors"
    batch = ("judgelm-batch", by_length, "-o", "out.jsonl", "--model", "judge")
    kept = head.read_bytes()
    head.write_bytes(kept[:-4] + b"\0\0\0\0")
    assert "not the head that belongs to judge.json" in cli(*batch)[2]
    head.unlink()
    assert "cannot read" in cli(*batch)[2]
    head.write_bytes(kept)
    assert "--engine transformers" in cli(*batch, "--engine", "vllm")[2]
    assert cli(*batch)[0] == 0


def test_a_changed_prompt_file_is_refused_until_it_is_judged_again(tune, labels, prompts, tmp_path):
    rows = labels(context="c", customer="x")
    assert tune(rows, *prompts)[0] == 0
    (tmp_path / "pair.txt").write_text(PAIR.replace("Task", "Job"))
    code, _, err = tune(rows, *prompts)
    assert (code, "template.sha" in err, "--overwrite" in err) == (1, True, True)
    assert tune(rows, *prompts, "--overwrite")[0] == 0
    assert "Job" in find_card("judge").prompt.text


def test_a_changed_prompt_in_the_card_is_refused(tune, cli, labels, prompts, tmp_path):
    tune(labels(context="c", customer="x"), *prompts)
    card = tmp_path / "judge" / "judge.json"
    card.write_text(card.read_text().replace("Task:", "Job:"))
    code, _, err = cli("judgelm-batch", "labels.jsonl", "-o", "out.jsonl", "--engine", "scripted", "--model", "judge")
    assert (code, "prompt:pair" in err, "restore the prompt" in err) == (1, True, True)


def test_the_criterion_of_a_prompt_is_kept(tune, labels, tmp_path):
    (tmp_path / "mine.txt").write_text("{criterion}\n{question}\n1: {answer_1}\n2: {answer_2}\nreply: A/B")
    options = ("--criterion", "It is polite.", "--reading", "yes-no", "--prompt", "mine.txt")
    assert tune(labels(), *options)[0] == 0
    with Judge("judge", engine="scripted") as judge:
        assert (judge.template.id, judge.mode("pair").criterion) == ("prompt:mine", "It is polite.")


@pytest.mark.parametrize(
    ("name", "text", "finding"),
    [
        ("mine.txt", PAIR, "labels.jsonl: sample p0: prompt mine shows {context}"),
        ("letters.txt", PAIR, "the name is already in use"),
        ("best.txt", "{question} {answer_1} {answer_2} {answer_3}\nreply: A/B/C", "best shows more than two answers"),
        ("none.txt", "{question}\nreply: Yes/No", "slots for answers: none"),
    ],
)
def test_unusable_prompts_are_refused_before_the_model_is_loaded(tune, labels, tmp_path, name, text, finding):
    (tmp_path / name).write_text(text)
    code, _, err = tune(labels(), "--prompt", name)
    assert (code, WordEngine.asked) == (1, 0)
    assert finding in err


def test_labels_of_one_answer_are_refused(tune, tmp_path):
    (tmp_path / "label.txt").write_text(LABEL)
    rows = [{"id": f"p{i}", "question": "q", "customer": "x", "answer": "1 1", "label": "yes"} for i in range(30)]
    code, _, err = tune(write_rows(tmp_path / "one.jsonl", rows), "--prompt", "label.txt")
    assert (code, WordEngine.asked) == (1, 0)
    assert len(err.strip().splitlines()) == 1


def numbered(count):
    return [
        {"id": f"p{n}", "question": f"q{n}", "answer_1": "1 0", "answer_2": "0 1", "winner": 1 + n % 2}
        for n in range(count)
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"id": "again", "question": "q0", "answer_1": "1 0", "answer_2": "0 1", "winner": 2},
        {"id": "again", "question": "q0", "answer_1": "0 1", "answer_2": "1 0", "winner": 1},
        {"id": "again", "question": "q0", "answer_1": "0 1", "answer_2": "1 0", "winner": "tie"},
    ],
)
def test_labels_that_disagree_on_a_pair_are_refused(tune, tmp_path, other):
    code, _, err = tune(write_rows(tmp_path / "labels.jsonl", [*numbered(30), other]))
    finding = "samples p0 and again have the same texts, but different labels; keep one of them"
    assert (code, finding in " ".join(err.split())) == (1, True), err
    assert not (tmp_path / "judge").exists()


def test_votes_that_disagree_on_a_pair_are_counted(tune, tmp_path):
    _, out, err = tune(write_rows(tmp_path / "labels.jsonl", [*numbered(30), numbered(1)[0] | {"winner": 2}]))
    assert "1 with no majority have no label" in " ".join(err.split())
    assert "29 pairs" in out


def test_winners_in_one_place_are_refused(tune, tmp_path):
    rows = [row | {"winner": 2 if number else "tie"} for number, row in enumerate(numbered(30))]
    code, _, err = tune(write_rows(tmp_path / "labels.jsonl", rows))
    assert (code, "the winner is always the second answer" in " ".join(err.split())) == (1, True), err
    assert not (tmp_path / "judge").exists()


def answers_of(kind):
    """60 answers; those with the words `big fox` are good."""
    for index in range(60):
        good = index % 3 != 0
        row = {
            "id": f"a{index}",
            "question": f"what is {index % 30}",
            "answer": "a big fox and a dog" if good else "a cat",
        }
        if kind == "label":
            row["label"] = ("Yes", "no")[not good] if index % 2 else good
        elif kind == "grade":
            row["score"] = 4 if good else 2
        else:
            row["criteria"] = [
                {"text": "It has a fox.", "met": good},
                {"text": "It is short.", "met": not good, "weight": 2},
            ]
        yield row


@pytest.mark.parametrize(("kind", "mode"), [("label", "label"), ("grade", "single"), ("checklist", "checklist")])
def test_labels_of_single_answers_make_a_judge(cli, tiny_chat, tmp_path, kind, mode):
    labels = write_rows(tmp_path / "labels.jsonl", answers_of(kind))
    scale = ("--scale", "1,5") if kind == "grade" else ()
    tune = ("judgelm", "tune", tiny_chat, "-l", labels, "-o", "judge", "--dtype", "float32", *scale)
    code, out, err = cli(*tune, "--json", "figures.json")
    assert code == 0, err
    assert "head is chosen" in out
    assert f"{120 if kind == 'checklist' else 60} answers" in out
    card = find_card("judge")
    assert (card.mode, card.head.terms.kind) == (mode, "grade" if kind == "grade" else "label")
    assert list(card.head.criteria) == (["It has a fox.", "It is short."] if kind == "checklist" else [])
    code, _, err = cli("judgelm-batch", labels, "-o", "out.jsonl", "--model", "judge", "--dtype", "float32")
    assert code == 0, err
    verdicts = [row["verdict"] for row in rows_of("out.jsonl")]
    good = [index % 3 != 0 for index in range(60)]
    if kind == "label":
        assert [each["label"] for each in verdicts] == [("no", "yes")[each] for each in good]
    elif kind == "grade":
        assert [each["score"] > 3 for each in verdicts] == good
        assert all(1 <= each["score"] <= 5 for each in verdicts)
    else:
        assert [(each["score"] < 0.5) for each in verdicts] == good  # the second criterion weighs more
        write_card(Path("judge"), replace(card, calibration_temperature=4 * card.calibration_temperature))
        again = ("judgelm-batch", labels, "-o", "again.jsonl", "--model", "judge", "--dtype", "float32")
        assert cli(*again)[0] == 0
        odds = [
            [math.log(shown["scores"][0] / (1 - shown["scores"][0])) for row in rows_of(file) for shown in row["shown"]]
            for file in ("out.jsonl", "again.jsonl")
        ]
        assert odds[0] == pytest.approx([4 * each for each in odds[1]], rel=1e-3)
        rows = [{"question": "q", "answer": "a", "criteria": ["It rhymes."]}]
        code, _, err = cli(
            "judgelm-batch", write_rows("other.jsonl", rows), "-o", "o.jsonl", "--model", "judge", "--dtype", "float32"
        )
        assert "tuned with labels for other criteria than 'It rhymes.'" in " ".join(err.split())
    code, _, err = cli("judgelm", "judges", "checkpoint", "judge", "-o", "plain")
    if kind == "checklist":
        assert "a head for each criterion of a checklist" in " ".join(err.split())
        return
    code, _, err = cli("judgelm-batch", labels, "-o", "plain.jsonl", "--model", "plain", "--dtype", "float32")
    assert code == 0, err
    plain = [row["verdict"] for row in rows_of("plain.jsonl")]
    if kind == "label":
        assert plain == verdicts
    else:
        assert [each["score"] for each in plain] == pytest.approx([each["score"] for each in verdicts], abs=1e-2)


def test_labels_of_claims_make_a_judge_for_mode_grounded(cli, tiny_chat, tmp_path):
    """Documents are shown as in mode `grounded`, and claims about the same documents are in the same fold."""
    rows = [
        {
            "id": row["id"],
            "question": "Summarise it.",
            "documents": [{"id": "a", "text": f"It is {index % 20}."}, {"id": "b", "text": row["answer"]}],
            "answer": "It has a fox.",
            "label": "supported" if "fox" in row["answer"] else "unsupported",
        }
        for index, row in enumerate(answers_of("label"))
    ]
    labels = write_rows(tmp_path / "labels.jsonl", rows)
    column = ("--column", "context=documents", "--dtype", "float32")
    options = ("--prompt", "grounded", "--json", "figures.json", *column)
    code, _, err = cli("judgelm", "tune", tiny_chat, "-l", labels, "-o", "judge", *options)
    assert code == 0, err
    assert json.loads(Path("figures.json").read_text())["questions"] == 40  # documents
    assert (find_card("judge").head.terms.kind, find_card("judge").prompt.name) == ("label", "grounded")
    judged = {}
    for mode in ("label", "grounded"):
        options = ("--model", "judge", "--mode", mode, *column)
        code, _, err = cli("judgelm-batch", labels, "-o", f"{mode}.jsonl", *options)
        assert code == 0, err
        judged[mode] = [(row["probability"], row["verdict"]["label"]) for row in rows_of(f"{mode}.jsonl")]
    assert [label == "supported" for _, label in judged["grounded"]] == [label == "yes" for _, label in judged["label"]]
    assert [p for p, _ in judged["grounded"]] == pytest.approx([p for p, _ in judged["label"]], abs=1e-4)
    write_card(
        Path("judge"),
        replace(find_card("judge"), prompt=None, template="yes-no", template_sha=get_template("yes-no").sha),
    )
    code, _, err = cli("judgelm-batch", labels, "-o", "other.jsonl", *options)
    assert "whose prompt does not show the context" in " ".join(err.split())


@pytest.mark.parametrize(
    ("change", "options", "finding"),
    [
        ({"label": "maybe"}, (), "label is 'maybe'; expected yes or no"),
        ({"label": 4}, (), "Put grades into a field score"),
        ({"label": "yes"}, (), "all labels are the same"),
        ({"score": 12}, (), "the grade 12 is not between 1 and 10; set --scale"),
        ({"score": 3}, ("--scale", "5"), "expected LOW,HIGH"),
        ({"score": 3}, ("--scale", "5,1"), "must be lower"),
        ({"label": "yes"}, ("--scale", "1,5"), "--scale requires grades"),
        ({"label": "yes"}, ("--risk", "0.1"), "--risk requires labelled pairs"),
        ({"criteria": [{"text": "a", "met": True}, "b"]}, (), "criterion 'b' has no label"),
        ({"criteria": [{"text": "a", "met": "yes"}]}, (), "met is 'yes'; write true or false"),
        ({"criteria": [{"text": "a", "met": True}]}, ("--criterion", "It is kind."), "not supported for a checklist"),
        ({"criteria": [{"text": "a", "met": True}]}, ("--reading", "letters"), "--reading does not fit"),
        ({"label": "yes"}, ("--reading", "letters"), "for mode label; use yes-no"),
        ({"score": 3}, ("--reading", "letters"), "for mode single; use yes-no or grade"),
        ({"score": 3}, ("--scale", "0,100"), "--scale 0,100: the reading grade needs at most 100 grades"),
        ({"score": 3}, ("--scale", "1,inf"), "must be lower"),
    ],
)
def test_unusable_labels_of_answers_are_refused(tune, tmp_path, change, options, finding):
    rows = [{"id": f"a{n}", "question": f"q{n}", "answer": "0"} | change for n in range(40)]
    code, _, err = tune(write_rows(tmp_path / "labels.jsonl", rows), *options)
    assert (code, finding in " ".join(err.split())) == (1, True), err
    assert not (tmp_path / "judge").exists()


def test_a_label_that_differs_in_another_row_is_refused(tune, tmp_path):
    rows = [{"id": f"a{n // 2}", "question": "q", "answer": "0", "label": "yes" if n % 2 else "no"} for n in range(40)]
    code, _, err = tune(write_rows(tmp_path / "labels.jsonl", rows))
    assert (code, "sample a0 has different labels in several rows" in " ".join(err.split())) == (1, True)


def test_labels_of_several_kinds_are_refused(tune, tmp_path):
    single = [{"id": f"a{n}", "question": f"q{n}", "answer": "0"} for n in range(60)]
    rows = [*numbered(30), *(row | {"label": "yes"} for row in single)]
    code, _, err = tune(write_rows(tmp_path / "labels.jsonl", rows))
    assert (code, "labels are of different kinds (label, pair)" in " ".join(err.split())) == (1, True), err


def test_rows_without_a_label_are_counted(tune, tmp_path):
    labels = ["yes", "no", "", "yes", "no"]
    rows = [{"id": f"a{n}", "question": f"q{n}", "answer": "0", "label": labels[n % 5]} for n in range(40)]
    code, out, err = tune(write_rows(tmp_path / "labels.jsonl", rows))
    assert (code, "32 answers" in out) == (0, True), err
    assert "8 rows have no label and are not used" in " ".join(err.split())


def test_a_prompt_with_another_scale_than_the_labels_is_refused(tune, tmp_path):
    (tmp_path / "five.txt").write_text("{answer}\nreply: 1-5\n")
    rows = [{"id": f"a{n}", "question": f"q{n}", "answer": "0", "score": 1 + n % 10} for n in range(40)]
    code, _, err = tune(write_rows(tmp_path / "labels.jsonl", rows), "--prompt", "five.txt", "--scale", "1,10")
    assert (code, "five has another scale than the labels (1 to 10)" in " ".join(err.split())) == (1, True), err
