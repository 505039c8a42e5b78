"""GSM8K, MMLU-Pro, extractive QA and MM-Vet."""

import json
from collections import Counter

import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.graded import VisualQuestion, read_capabilities
from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.qa import sample_by_type, type_counts
from judgelm.errors import ConfigError, InputError
from judgelm.records import Sample
from judgelm.studies.truth_file import AnswerTruth, PairTruth, by_sample, truth_from_row


@pytest.fixture
def write(tmp_path):
    def write(name, value, lines=True):
        text = "".join(json.dumps(row) + "\n" for row in value) if lines else json.dumps(value)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def imported(name, tmp_path, *files):
    done = import_benchmark(name, files, tmp_path / "out.jsonl", overwrite=True)
    truth = tmp_path / "out.truth.jsonl"
    return done, lines_of(tmp_path / "out.jsonl"), lines_of(truth) if truth.exists() else []


SOLVED = {
    "question": "2 + 2?",
    "ground_truth": "2 + 2 = <<2+2=4>>4\nA: 4",
    "6b_finetuning": {"is_correct": False, "solution": "It is 5.\nA: 5"},
    "175b_finetuning": {"is_correct": True, "solution": "A: 4"},
}


def test_gsm8ks_solutions_are_answers_with_a_known_truth(tmp_path, write):
    _, rows, truth = imported("gsm8k", tmp_path, write("solutions.jsonl", [SOLVED]))
    assert [(row["id"], row["answer"], row["reference"]) for row in rows] == [
        ("gsm8k-1/6b_finetuning", "It is 5.\nA: 5", "4"),
        ("gsm8k-1/175b_finetuning", "A: 4", "4"),
    ]
    found = by_sample(truth_from_row(AnswerTruth, row, "truth") for row in truth)
    one = found["gsm8k-1/175b_finetuning"]
    assert (one.truth, one.agent, one.question, one.answer) == (True, "175b_finetuning", "gsm8k-1", "4")
    assert not found["gsm8k-1/6b_finetuning"].truth


def test_gsm8ks_questions_alone_are_for_an_answering_run(tmp_path, write):
    path = write("test.jsonl", [{"question": "2 + 998?", "answer": "2 + 998 = 1,000\n#### 1,000"}])
    _, [row], truth = imported("gsm8k", tmp_path, path)
    assert ("answer" in row, row["reference"], truth) == (False, "1000", [])


def test_a_question_without_a_final_number_is_not_gsm8ks(tmp_path, write):
    with pytest.raises(InputError, match="no final number behind"):
        imported("gsm8k", tmp_path, write("x.jsonl", [{"question": "Who?", "answer": "Nobody."}]))


MMLU = {"question_id": 70, "category": "law", "question": "Which?", "options": ["x", "y", "z"], "answer": "B"}
OUTPUTS = {"m1": {"text": "The answer is (B).", "l2": "B"}, "m2": {"text": "The answer is (C).", "l2": "C"}}


def test_mmlu_pros_outputs_of_several_models(tmp_path, write):
    _, rows, truth = imported("mmlu-pro", tmp_path, write("outputs.jsonl", [MMLU | {"outputs": OUTPUTS}]))
    assert [row["id"] for row in rows] == ["mmlu-pro-70/m1", "mmlu-pro-70/m2"]
    assert rows[0]["metadata"]["options"] == ["x", "y", "z"]
    assert [(row["truth"], row["answer"]) for row in truth] == [(True, "B"), (False, "B")]


def test_mmlu_pros_published_results_name_the_model_in_the_file(tmp_path, write):
    rows = [MMLU | {"answer_index": 1, "src": "s", "pred": "B", "model_outputs": "No idea."}]
    _, [row], [truth] = imported("mmlu-pro", tmp_path, write("model_outputs_Big-7B_5shots.json", rows, lines=False))
    # The prediction is a guess: nothing can be extracted from the text.
    assert (row["answer_models"], truth["truth"]) == (["Big-7B"], False)


@pytest.mark.parametrize("field", ["model_outputs", "generated_text"])
def test_mmlu_pros_published_results_are_answers_whatever_the_text_is_called(tmp_path, write, field):
    rows = [MMLU | {"answer_index": 1, "src": "s", "pred": "B", field: "The answer is (B)."}]
    _, [row], [truth] = imported("mmlu-pro", tmp_path, write("model_outputs_m_5shots.json", rows, lines=False))
    assert (row["id"], row["answer"], truth["truth"]) == ("mmlu-pro-70/m", "The answer is (B).", True)


def test_questions_that_a_base_model_invents_behind_its_answer_are_not_its_answer(tmp_path, write):
    text = "So it is y. The answer is (B).\n\nQuestion:\nWhich?\nAnswer: The answer is (C)."
    path = write("model_outputs_m_5shots.json", [MMLU | {"generated_text": text}], lines=False)
    _, [row], [truth] = imported("mmlu-pro", tmp_path, path)
    assert (row["answer"], truth["truth"]) == ("So it is y. The answer is (B).", True)


def test_results_of_several_models_that_say_generated_text_are_imported_together(tmp_path, write):
    files = [write(f"model_outputs_{m}_5shots.json", [MMLU | {"generated_text": m}], lines=False) for m in "ab"]
    done, rows, _ = imported("mmlu-pro", tmp_path, *files)
    assert ([row["id"] for row in rows], done.rejects) == (["mmlu-pro-70/a", "mmlu-pro-70/b"], [])


def test_a_question_that_a_model_answers_twice_counts_once_and_the_first_answer_stands(tmp_path, write):
    rows = [MMLU | {"generated_text": text} for text in ("The answer is (B).", "The answer is (C).")]
    done, [row], _ = imported("mmlu-pro", tmp_path, write("model_outputs_m_5shots.json", rows))
    assert row["answer"] == "The answer is (B)."
    [reject] = done.rejects
    assert reject.line == 2
    assert "a second answer of m to question mmlu-pro-70; the first, in " in reject.reason
    assert "m_5shots.json:1, counts" in reject.reason


def test_a_prediction_without_its_text_is_no_answer(tmp_path, write):
    path = write("model_outputs_m_5shots.json", [MMLU | {"pred": "B", "reply": "The answer is (B)."}])
    with pytest.raises(InputError, match=r"expected model_outputs or generated_text, and its fields are .*reply"):
        imported("mmlu-pro", tmp_path, path)


def test_mmlu_pros_pairs_have_a_right_and_a_wrong_answer(tmp_path, write):
    pair = {"question_id": 70, "model_a": "m2", "model_b": "m1", "label": "B"}
    files = (
        write("outputs.jsonl", [MMLU | {"outputs": OUTPUTS}]),
        write("pairs.jsonl", [pair, pair | {"model_a": "m3"}]),
    )
    done, [row], truth = imported("mmlu-pro", tmp_path, *files)
    assert (row["id"], row["winner"], row["answer_2"]) == ("mmlu-pro-70/m2/m1", 2, "The answer is (B).")
    assert by_sample(truth_from_row(PairTruth, one, "truth") for one in truth)[row["id"]].answer == "B"
    assert "no output of m3 for mmlu-pro-70" in done.rejects[0].message


def test_pairs_of_models_whose_results_stand_in_two_files(tmp_path, write):
    texts = {"m1": "The answer is (B).", "m2": "The answer is (C)."}
    files = [
        write(f"model_outputs_{m}_5shots.json", [MMLU | {"model_outputs": t}], lines=False) for m, t in texts.items()
    ]
    pair = {"question_id": 70, "model_a": "m1", "model_b": "m2", "label": "A"}
    _, [row], _ = imported("mmlu-pro", tmp_path, *files, write("pairs.jsonl", [pair]))
    assert (row["answer_1"], row["answer_2"], row["winner"]) == (*texts.values(), 1)


def test_mmlu_pros_questions_alone_have_no_answers(tmp_path, write):
    _, [row], truth = imported("mmlu-pro", tmp_path, write("test.jsonl", [MMLU]))
    assert (row["reference"], "answer" in row, truth) == ("B", False, [])


def test_a_gold_letter_beyond_the_options_is_a_reject(tmp_path, write):
    done, _, _ = imported("mmlu-pro", tmp_path, write("test.jsonl", [MMLU, MMLU | {"question_id": 71, "answer": "D"}]))
    assert "expected a letter of 3 options" in done.rejects[0].message


HOTPOT = {"_id": "h1", "question": "Where?", "answer": "Paris", "context": [["France", ["Paris is its capital."]]]}


def test_predictions_are_answers_to_judge(tmp_path, write):
    path = write("dev.jsonl", [HOTPOT | {"pred_answer": "Lyon", "model": "m1", "context": "Paris is its capital."}])
    _, [row], _ = imported("hotpotqa", tmp_path, path)
    assert (row["answer"], row["answer_models"]) == ("Lyon", ["m1"])


def test_one_qa_set_is_not_taken_for_another(tmp_path, write):
    drop = {
        "history_1": {
            "passage": "It was 3.",
            "qa_pairs": [{"query_id": "d1", "question": "How many?", "answer": {"number": "3"}}],
        }
    }
    path = write("drop.json", drop, lines=False)
    _, [row], _ = imported("drop", tmp_path, path)
    assert row["reference"] == "3"
    with pytest.raises(InputError, match="has the shape of drop, not of quoref"):
        imported("quoref", tmp_path, path)


def test_flat_rows_could_be_of_any_qa_set_and_hotpotqas_own_are_its(tmp_path, write):
    flat = write("flat.jsonl", [HOTPOT | {"context": "One paragraph.\n\nAnother."}])
    _, [row], _ = imported("drop", tmp_path, flat)
    assert row["metadata"]["data_set"] == "drop"
    with pytest.raises(InputError, match="has the shape of hotpotqa, not of drop"):
        imported("drop", tmp_path, write("dev.json", [HOTPOT], lines=False))


MM_VET = {
    "v1_0": {
        "imagename": "v1_0.png",
        "question": "What is x?",
        "answer": "-1<AND>-5",
        "imagesource": "somewhere",
        "capability": ["ocr", "math"],
    },
    "v1_1": {"imagename": "v1_1.png", "question": "What is d?", "answer": "1.25<OR>5/4", "capability": ["ocr"]},
}


def test_mm_vet_becomes_rows_that_mode_multimodal_and_the_study_read(tmp_path, write):
    files = (
        write("mm-vet.json", MM_VET, lines=False),
        write("llava.json", {"v1_0": "x = -1", "v1_1": "5/4"}, lines=False),
    )
    _, [first, _], _ = imported("mm-vet", tmp_path, *files)
    assert (first["id"], first["reference"], first["answer"]) == ("v1_0", "-1<AND>-5", "x = -1")
    assert (first["category"], first["images"]) == ("math+ocr", ["images/v1_0.png"])
    assert read_capabilities(tmp_path / "out.jsonl")["v1_0"] == VisualQuestion(
        ("math", "ocr"), '["images/v1_0.png"]', "llava"
    )


def test_mm_vet_without_its_questions_is_refused(tmp_path, write):
    with pytest.raises(InputError, match="got 0 and 1"):
        imported("mm-vet", tmp_path, write("llava.json", {"v1_0": "x"}, lines=False))


def test_a_question_that_a_model_did_not_answer_is_a_reject(tmp_path, write):
    files = (write("mm-vet.json", MM_VET, lines=False), write("llava.json", {"v1_0": "x = -1"}, lines=False))
    done, rows, _ = imported("mm-vet", tmp_path, *files)
    assert len(rows) == 1
    assert "no answer to v1_1" in done.rejects[0].message


def test_the_real_gsm8k(shared_data, tmp_path):
    done, _, truth = imported("gsm8k", tmp_path, str(shared_data / "gsm8k" / "example_model_solutions.jsonl.gz"))
    assert (done.rows, done.truths, len(done.rejects)) == (4 * 1319, 4 * 1319, 0)
    right = Counter(row["agent"] for row in truth if row["truth"])
    assert right == {"6b_finetuning": 286, "175b_finetuning": 458, "6b_verification": 515, "175b_verification": 742}
    done, _, _ = imported("gsm8k", tmp_path, str(shared_data / "gsm8k" / "test.jsonl"))
    assert (done.rows, done.truths) == (1319, 0)
    assert not (tmp_path / "out.truth.jsonl").exists()  # the earlier import's


def test_the_real_mmlu_pro(shared_data, tmp_path):
    outputs = str(shared_data / "mmlu_pro" / "mmlu_pro_outputs_420.jsonl.gz")
    done, _, truth = imported("mmlu-pro", tmp_path, outputs)
    assert (done.rows, len(done.categories)) == (420 * 5, 14)
    known = {row["id"]: row["truth"] for row in truth}
    done, rows, _ = imported("mmlu-pro", tmp_path, outputs, str(shared_data / "mmlu_pro" / "pairs.jsonl"))
    assert (done.rows, done.rejects) == (1688, [])
    for row in rows:
        key, *models = row["id"].split("/")
        # exactly one of the two is right, and it is the winner
        assert [known[f"{key}/{model}"] for model in models] == [row["winner"] == 1, row["winner"] == 2]
    assert len(read_labels(str(tmp_path / "out.jsonl")).labels) == 1688


def questions(data_set="hotpotqa", **counts):
    return [
        Sample(id=f"{kind}{i}", question="q", answers=(), metadata={"data_set": data_set, "answer_type": kind})
        for kind, count in counts.items()
        for i in range(count)
    ]


def test_small_types_are_whole_and_large_ones_drawn_in_proportion():
    # without the 500 yes/no questions there are 4,000; name: 1000 * 3000/4000 = 750, place: 1000 * 910/4000 = 227.5,
    # rounded to 228; the 90 jobs are fewer than 100 and all kept
    everything = questions(name=3000, place=910, job=90, bool=500)
    assert type_counts(sample_by_type(everything)) == {"name": 750, "place": 228, "job": 90}


def test_quoref_is_without_dates_and_years():
    kept = sample_by_type(questions("quoref", name=50, date=50, year=50, bool=50))
    assert type_counts(kept) == {"name": 50}
    assert type_counts(sample_by_type(questions("drop", date=50, bool=50))) == {"date": 50}


def test_a_small_data_set_is_kept_whole():
    everything = questions(name=300, place=200)
    assert sample_by_type(everything) == everything


def test_what_is_drawn_depends_on_ids_and_seed_alone():
    everything = questions(name=2000, place=500)
    one, backwards = sample_by_type(everything, target=100), sample_by_type(everything[::-1], target=100)
    assert {sample.id for sample in one} == {sample.id for sample in backwards}
    assert {sample.id for sample in one} != {sample.id for sample in sample_by_type(everything, target=100, seed=1)}


def test_no_target_is_refused():
    with pytest.raises(ConfigError, match="target is 0"):
        sample_by_type(questions(name=1), target=0)
