"""GSM8K, GSM-Symbolic and MMLU-Pro as benchmarks: answers with a known truth, pairs, and questions alone."""

import json
from collections import Counter
from pathlib import Path

import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.errors import InputError
from judgelm.studies.truth_file import AnswerTruth, PairTruth, by_sample, truth_from_row
from tests.support import benchmark_files


def with_truth(name, *files):
    """The result of an import, its rows and its lines of truth."""
    done, rows = benchmark_files.imported(name, Path.cwd(), *files)
    truth = Path("out.truth.jsonl")
    return done, rows, [json.loads(line) for line in truth.read_text().splitlines()] if truth.exists() else []


def test_gsm8ks_solutions_are_answers_with_a_known_truth(write):
    row = {"question": "2 + 2?", "ground_truth": "2 + 2 = <<2+2=4>>4\nA: 4"}
    row["6b_finetuning"] = {"is_correct": False, "solution": "It is 5.\nA: 5"}
    row["175b_finetuning"] = {"is_correct": True, "solution": "A: 4"}
    _, rows, truth = with_truth("gsm8k", write(row))
    wrong, right = "gsm8k-1/6b_finetuning", "gsm8k-1/175b_finetuning"
    answers = [(row["id"], row["answer"], row["reference"]) for row in rows]
    assert answers == [(wrong, "It is 5.\nA: 5", "4"), (right, "A: 4", "4")]
    truths = by_sample(truth_from_row(AnswerTruth, row, "truth") for row in truth)
    known = truths[right]
    assert (known.truth, known.agent, known.question, known.answer) == (True, "175b_finetuning", "gsm8k-1", "4")
    assert not truths[wrong].truth


def test_gsm8ks_questions_alone_are_for_an_answering_run(write):
    _, [row], truth = with_truth("gsm8k", write({"question": "2 + 998?", "answer": "2 + 998 = 1,000\n#### 1,000"}))
    assert ("answer" in row, row["reference"], truth) == (False, "1000", [])
    with pytest.raises(InputError, match="no final number after"):
        with_truth("gsm8k", write({"question": "Who?", "answer": "Nobody."}))


MMLU = {"question_id": 70, "category": "law", "question": "Which?", "options": ["x", "y", "z"], "answer": "B"}
RIGHT, WRONG = "The answer is (B).", "The answer is (C)."


def test_mmlu_pros_outputs_of_several_models(write):
    outputs = {"m1": {"text": RIGHT, "l2": "B"}, "m2": {"text": WRONG, "l2": "C"}}
    _, rows, truth = with_truth("mmlu-pro", write(MMLU | {"outputs": outputs}))
    assert [row["id"] for row in rows] == ["mmlu-pro-70/m1", "mmlu-pro-70/m2"]
    assert rows[0]["metadata"]["options"] == ["x", "y", "z"]
    assert [(row["truth"], row["answer"]) for row in truth] == [(True, "B"), (False, "B")]


@pytest.mark.parametrize(
    ("field", "text", "answer", "truth"),
    [
        ("model_outputs", RIGHT, RIGHT, True),
        ("model_outputs", "No idea.", "No idea.", False),  # the prediction is a guess: the text has no answer
        ("generated_text", f"So it is y. {RIGHT}", f"So it is y. {RIGHT}", True),
        # a base model goes on to invent questions
        ("generated_text", f"{RIGHT}\n\nQuestion:\nWhich?\nAnswer: {WRONG}", RIGHT, True),
    ],
)
def test_mmlu_pros_published_results_name_the_model_in_the_file(write, field, text, answer, truth):
    row = MMLU | {"answer_index": 1, "src": "s", "pred": "B", field: text}
    _, [row], [known] = with_truth("mmlu-pro", write(row, name="model_outputs_Big-7B_5shots.json"))
    assert (row["id"], row["answer_models"]) == ("mmlu-pro-70/Big-7B", ["Big-7B"])
    assert (row["answer"], known["truth"]) == (answer, truth)


def test_a_question_that_a_model_answers_twice_counts_once_and_the_first_answer_stands(write):
    twice = write(*(MMLU | {"generated_text": text} for text in (RIGHT, WRONG)), name="model_outputs_m_5shots.json")
    other = write(MMLU | {"generated_text": WRONG}, name="model_outputs_n_5shots.json")
    done, rows, _ = with_truth("mmlu-pro", twice, other)
    assert [(row["id"], row["answer"]) for row in rows] == [("mmlu-pro-70/m", RIGHT), ("mmlu-pro-70/n", WRONG)]
    assert [reject.line for reject in done.rejects] == [2]
    assert "a second answer from m to question mmlu-pro-70" in done.rejects[0].reason


def test_a_prediction_without_its_text_is_not_an_answer(write):
    path = write(MMLU | {"pred": "B", "reply": RIGHT}, name="model_outputs_m_5shots.json")
    with pytest.raises(InputError, match=r"expected model_outputs or generated_text, found the fields .*reply"):
        with_truth("mmlu-pro", path)


def test_mmlu_pros_pairs_have_a_right_and_a_wrong_answer_of_several_files(write):
    right = write(MMLU | {"model_outputs": RIGHT}, name="model_outputs_m1_5shots.json")
    wrong = write(MMLU | {"model_outputs": WRONG}, name="model_outputs_m2_5shots.json")
    pair = {"question_id": 70, "model_a": "m2", "model_b": "m1", "label": "B"}
    done, [row], truth = with_truth("mmlu-pro", right, wrong, write(pair, pair | {"model_a": "m3"}))
    assert (row["id"], row["winner"], row["answer_2"]) == ("mmlu-pro-70/m2/m1", 2, RIGHT)
    assert by_sample(truth_from_row(PairTruth, line, "truth") for line in truth)[row["id"]].answer == "B"
    assert "no output from m3 for mmlu-pro-70" in done.rejects[0].message


def test_mmlu_pros_questions_alone_have_no_answers_and_a_gold_letter_of_their_options(write):
    done, [row], truth = with_truth("mmlu-pro", write(MMLU, MMLU | {"question_id": 71, "answer": "D"}))
    assert (row["reference"], "answer" in row, truth) == ("B", False, [])
    assert "expected one of 3 letters" in done.rejects[0].message


def test_the_real_gsm8k(shared_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done, _, truth = with_truth("gsm8k", shared_data / "gsm8k" / "example_model_solutions.jsonl.gz")
    assert (done.rows, done.truths, len(done.rejects)) == (4 * 1319, 4 * 1319, 0)
    right = Counter(row["agent"] for row in truth if row["truth"])
    assert right == {"6b_finetuning": 286, "175b_finetuning": 458, "6b_verification": 515, "175b_verification": 742}
    done, _, _ = with_truth("gsm8k", shared_data / "gsm8k" / "test.jsonl")
    assert (done.rows, done.truths) == (1319, 0)
    assert not Path("out.truth.jsonl").exists()  # the earlier import's


def test_the_real_mmlu_pro(shared_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outputs = shared_data / "mmlu_pro" / "mmlu_pro_outputs_420.jsonl.gz"
    done, _, truth = with_truth("mmlu-pro", outputs)
    assert (done.rows, len(done.categories)) == (420 * 5, 14)
    known = {row["id"]: row["truth"] for row in truth}
    done, rows, _ = with_truth("mmlu-pro", outputs, shared_data / "mmlu_pro" / "pairs.jsonl")
    assert (done.rows, done.rejects) == (1688, [])
    for row in rows:
        key, *models = row["id"].split("/")
        # exactly one of the two is right, and it is the winner
        assert [known[f"{key}/{model}"] for model in models] == [row["winner"] == 1, row["winner"] == 2]
    assert len(read_labels("out.jsonl").labels) == 1688


def row(template, instance, answer="6 - 2 = 4\n#### 4", **fields):
    return {
        "id": template, "instance": instance, "question": f"Ann has {instance} pears.", "answer": answer,
        "original_id": 7, "original_question": "?", "original_answer": "#### 1", "canary": "do not train on this",
    } | fields  # fmt: skip


def test_a_row_is_a_question_with_its_number_and_its_template(imported):
    done, [first, second] = imported("gsm-symbolic", row(0, 0), row(0, 1, "...\n#### 1,045.0"), file="GSM_p1.jsonl")
    assert done.unlabelled == 2
    assert (first["id"], first["question"], first["reference"]) == ("gsm-symbolic-p1-0-0", "Ann has 0 pears.", "4")
    assert second["reference"] == "1045"
    ids = {"template": 0, "original_id": 7, "canary": "do not train on this"}
    assert first["metadata"] == ids | {"data_set": "GSM-Symbolic-P1", "solution": "6 - 2 = 4\n#### 4"}
    with pytest.raises(InputError, match="import the file as gsm-symbolic"):
        imported("gsm8k", row(0, 0))


@pytest.mark.parametrize(
    ("name", "data_set"),
    [
        ("GSM_p2.jsonl", "GSM-Symbolic-P2"),
        ("gsm-symbolic-P1-sample.jsonl", "GSM-Symbolic-P1"),
        ("p2/test.jsonl", "GSM-Symbolic-P2"),
        ("main/test.jsonl", "GSM-Symbolic"),
        ("GSM_symbolic.jsonl", "GSM-Symbolic"),
    ],
)
def test_the_file_name_gives_the_data_set(imported, name, data_set):
    _, [question] = imported("gsm-symbolic", row(0, 0), file=name)
    assert (question["metadata"]["data_set"], question["id"]) == (data_set, f"{data_set.lower()}-0-0")


@pytest.mark.parametrize(
    ("name", "finding"), [("problems.jsonl", "got none"), ("p1/GSM_p2.jsonl", "P1 and P2"), ("gsmp1.jsonl", "none")]
)
def test_ambiguous_file_names_are_refused(imported, name, finding):
    with pytest.raises(InputError, match=finding):
        imported("gsm-symbolic", row(0, 0), file=name)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"answer": "6 - 2 = 4"}, 'no final number after "####"'),
        ({"instance": "1"}, 'field "instance": expected a whole number'),
        ({"id": True}, 'field "id": expected a whole number'),
        ({"original_id": None}, 'field "original_id": expected a whole number'),
        ({"question": ["Ann"]}, "question"),
    ],
)
def test_unusable_rows_are_rejects(imported, fields, reason):
    done, rows = imported("gsm-symbolic", row(0, 0), row(0, 1) | fields, file="GSM_p1.jsonl")
    assert len(rows) == 1
    assert reason in done.rejects[0].message
