"""Benchmarks with questions, answers and labels in separate files: MT-Bench, FairEval and MM-Vet."""

import json

import pytest

from judgelm.data.sources.mm_vet import mm_vet_rows
from judgelm.errors import InputError
from tests.support.benchmark_files import imported


def mt_bench(tmp_path, *files):
    done, rows = imported("mt-bench", tmp_path, *files)
    return done, {row["id"]: row for row in rows}


def vote(judge, winner, turn=1, first="alpaca", second="vicuna", **more):
    models = {"model_a": first, "model_b": second}
    return {"question_id": 81, "winner": winner, "judge": judge, "turn": turn} | models | more


def answers(model, *turns):
    return {"question_id": 81, "answer_id": "x", "model_id": model, "choices": [{"index": 0, "turns": list(turns)}]}


@pytest.fixture
def files(write):
    """Files of the question and of two models' answers."""
    rows = {model: answers(model, f"{model[0]}1", f"{model[0]}2") for model in ("alpaca", "vicuna")}
    question = {"question_id": 81, "category": "writing", "turns": ["Write.", "Rewrite."]}
    return [write(question, name="question.jsonl"), *(write(row, name=f"{model}.jsonl") for model, row in rows.items())]


def test_votes_with_their_conversations_are_enough(tmp_path, write):
    sides = {}
    for side in "ab":
        turns = [("user", "Write."), ("assistant", f"{side}1"), ("user", "Rewrite."), ("assistant", f"{side}2")]
        sides[f"conversation_{side}"] = [{"role": role, "content": text} for role, text in turns]
    votes = [vote("expert_0", "model_a", **sides), vote("expert_1", "tie (bothbad)", 2, **sides)]
    _, rows = mt_bench(tmp_path, write(*votes))
    first, second = rows["81:alpaca:vicuna:1"], rows["81:alpaca:vicuna:2"]
    assert (first["question"], first["answer_1"], first["answer_2"], first["winner"]) == ("Write.", "a1", "b1", 1)
    assert (second["question"], second["answer_1"], second["winner"]) == ("Rewrite.", "a2", "tie")
    assert [turn["answers"] for turn in second["metadata"]["turns"]] == [["a1", "b1"], ["a2", "b2"]]
    assert (len(first["metadata"]["turns"]), first["category"]) == (1, "writing")


def test_votes_are_joined_with_questions_answers_and_references(tmp_path, write, files):
    references = write(answers("gpt-4", "R1", "R2"), name="reference_answer/gpt-4.jsonl")
    votes = write(vote("expert_0", "model_b", 2), vote("expert_0", "model_a", second="llama"))
    done, rows = mt_bench(tmp_path, *files, references, votes)
    [row] = rows.values()
    assert (row["winner"], row["reference"], row["answer_models"]) == (2, "R2", ["alpaca", "vicuna"])
    assert [turn["reference"] for turn in row["metadata"]["turns"]] == ["R1", "R2"]
    assert "no answers of both models for question 81, turn 1" in done.rejects[0].message


def test_a_pair_that_people_saw_either_way_round_is_one_row(tmp_path, write, files):
    votes = [
        vote("expert_0", "model_a"),  # alpaca
        vote("expert_1", "model_a", first="vicuna", second="alpaca"),  # vicuna
        vote("expert_2", "model_b", first="vicuna", second="alpaca"),  # alpaca
        vote("author_1", "model_b"),
    ]
    _, rows = mt_bench(tmp_path, *files, write(*votes))
    [row] = rows.values()
    # alpaca has two of the experts' three votes; the author's is kept apart
    assert (row["winner"], row["votes"], row["metadata"]["other_votes"]) == (1, [1, 2, 1], {"author_1": 2})


def test_without_votes_every_pair_of_models_is_a_row_for_each_turn(tmp_path, write, files):
    done, rows = mt_bench(tmp_path, *files, write(answers("c", "c1", "c2")))
    assert (len(rows), done.unlabelled) == (3 * 2, 6)


def test_the_real_questions_need_answers_and_a_judges_verdicts_are_no_votes(shared_data, tmp_path):
    folder = shared_data / "mt_bench"
    with pytest.raises(InputError, match="no answers in"):
        mt_bench(tmp_path, folder / "question.jsonl", folder / "reference_answer_gpt-4.jsonl")
    with pytest.raises(InputError, match="a judge's verdicts, not human votes"):
        mt_bench(tmp_path, folder / "skycamp_gpt-4_pair.jsonl")


def test_the_real_questions_and_categories(shared_data, tmp_path, write):
    folder = shared_data / "mt_bench"
    questions = [json.loads(line) for line in (folder / "question.jsonl").read_text().splitlines()]
    turns = [answers(model, "x", "y") | {"question_id": row["question_id"]} for model in "ab" for row in questions]
    done, rows = mt_bench(tmp_path, folder / "question.jsonl", folder / "reference_answer_gpt-4.jsonl", write(*turns))
    assert (done.rows, len(done.categories), set(done.categories.values())) == (160, 8, {20})
    assert rows["101:a:b:1"]["reference"].startswith("If you have just overtaken")


def fair_files(write, tmp_path, labels="CHATGPT\nTIE\nVICUNA13B"):
    """Writes FairEval's files: questions, two models' answers and labels."""
    models = {"gpt35": "gpt-3.5-turbo:20230327", "vicuna": "vicuna-13b:20230322-clean-lang"}
    (tmp_path / "human.txt").write_text(labels)
    for name, model in models.items():
        rows = [{"question_id": number, "text": f"{name}{number}"} for number in (3, 2, 1)]
        write(*(row | {"answer_id": "x", "model_id": model} for row in rows), name=name)
    questions = [{"question_id": number, "text": f"q{number}", "category": "generic"} for number in (1, 2, 3)]
    return [write(*questions, name="question.jsonl"), *models, "human.txt"]


def test_faireval_joins_labels_by_line_and_answers_by_id_whichever_file_comes_first(tmp_path, write):
    questions, gpt, vicuna, labels = fair_files(write, tmp_path)
    _, rows = imported("faireval", tmp_path, questions, gpt, vicuna, labels)
    assert [row["winner"] for row in rows] == [1, "tie", 2]
    last = rows[2]
    assert (last["id"], last["question"]) == ("faireval-3", "q3")
    assert (last["answer_1"], last["answer_2"]) == ("gpt353", "vicuna3")
    _, rows = imported("faireval", tmp_path, vicuna, labels, gpt, questions)
    assert [row["winner"] for row in rows] == [2, "tie", 1]


@pytest.mark.parametrize(
    ("labels", "finding"),
    [("TIE\nTIE", "2 labels for 3 questions"), ("TIE\nTIE\nGPT4", r'human.txt:3: "GPT4" is neither TIE nor one of')],
)
def test_faireval_labels_that_do_not_fit_are_refused(tmp_path, write, labels, finding):
    with pytest.raises(InputError, match=finding):
        imported("faireval", tmp_path, *fair_files(write, tmp_path, labels))


def test_faireval_says_which_file_is_missing(tmp_path, write):
    questions, gpt, _, labels = fair_files(write, tmp_path)
    with pytest.raises(InputError, match="got 1 files of questions and 1 files of answers"):
        imported("faireval", tmp_path, questions, gpt, labels)
    with pytest.raises(InputError, match=r"expected one \.txt file"):
        imported("faireval", tmp_path, questions, gpt)


FILE = "mm-vet.json"
FIRST = {"imagename": "v1_0.png", "question": "What is x?", "answer": "-1<AND>-5", "capability": ["ocr", "math"]}
SECOND = {"imagename": "v1_0.png", "question": "And d?", "answer": "1.25<OR>5/4", "capability": ["math"]}
QUESTIONS = {"v1_0": FIRST, "v1_1": SECOND}


def test_questions_become_plain_rows_with_capabilities_by_id(write):
    first, second = mm_vet_rows(write(QUESTIONS, name=FILE))
    texts = {"id": "v1_0", "question": "What is x?", "reference": "-1<AND>-5", "category": "math+ocr"}
    assert first == texts | {"images": ["images/v1_0.png"], "capabilities": ["math", "ocr"]}
    assert second["reference"] == "1.25<OR>5/4"


def test_a_models_answers_are_joined_by_id_and_a_question_without_is_a_reject(write, tmp_path):
    done, [row] = imported(
        "mm-vet", tmp_path, write(QUESTIONS, name=FILE), write({"v1_0": "x = -1"}, name="llava.json")
    )
    assert (row["id"], row["reference"], row["answer"]) == ("v1_0", "-1<AND>-5", "x = -1")
    assert "no answer to v1_1" in done.rejects[0].message
    assert (row["capabilities"], row["answer_models"]) == (["math", "ocr"], ["llava"])
    with pytest.raises(InputError, match="got 0 and 1"):
        imported("mm-vet", tmp_path, tmp_path / "llava.json")


def test_of_several_models_answers_the_ids_name_the_model(write):
    files = [write({"v1_1": model, "v1_0": model}, name=f"{model}.json") for model in ("llava", "emu")]
    rows = list(mm_vet_rows(write(QUESTIONS, name=FILE), files))
    expected = [(f"{key}/{model}", model) for key in ("v1_0", "v1_1") for model in ("llava", "emu")]
    assert [(row["id"], row["answer"]) for row in rows] == expected
    with pytest.raises(InputError, match=r"other/emu.json: has the same model name as .*emu.json"):
        list(mm_vet_rows(write(QUESTIONS, name=FILE), [files[1], write({"v1_0": "x"}, name="other/emu.json")]))


def test_the_original_codes_samples_have_their_answers(write):
    [row] = mm_vet_rows(write(FIRST | {"answer1_body": "x = 3", "question_id": 0}, name="samples.jsonl"))
    assert (row["id"], row["answer"], row["reference"]) == ("0", "x = 3", "-1<AND>-5")


def test_images_within_a_question_of_version_2(write):
    question = "Which came first?<IMG>v2_0_0.jpg<IMG>or<IMG>v2_0_1.png"
    [row] = mm_vet_rows(write({"v2_0": {"question": question, "answer": "a", "capability": ["seq"]}}, name=FILE))
    assert row["question"] == "Which came first? (image 1) or (image 2)"
    assert row["images"] == ["images/v2_0_0.jpg", "images/v2_0_1.png"]


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"capability": []}, "expected a list of strings"),
        ({"answer": "<OR>"}, "found only tags"),
        ({"imagename": ""}, "no image"),
    ],
)
def test_a_question_that_cannot_be_asked_is_a_reject(write, change, finding):
    rejects = []
    rows = mm_vet_rows(write(QUESTIONS | {"v1_0": FIRST | change}, name=FILE), on_reject=rejects.append)
    assert [row["id"] for row in rows] == ["v1_1"]
    assert finding in rejects[0].message
