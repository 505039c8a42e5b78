"""MM-Vet's files, made up here in its shape."""

import json

import pytest

from judgelm.data.sources.graded import VisualQuestion, mm_vet_rows, read_capabilities
from judgelm.errors import InputError

QUESTIONS = {
    "v1_0": {
        "imagename": "v1_0.png",
        "question": "What is x?",
        "answer": "-1<AND>-5",
        "imagesource": "somewhere",
        "capability": ["ocr", "math"],
    },
    "v1_1": {"imagename": "v1_0.png", "question": "And d?", "answer": "1.25<OR>5/4", "capability": ["math"]},
}


@pytest.fixture
def mm_vet(tmp_path):
    path = tmp_path / "mm-vet.json"
    path.write_text(json.dumps(QUESTIONS))
    return path


def test_questions_become_plain_rows(mm_vet):
    first, second = mm_vet_rows(str(mm_vet))
    assert first == {
        "id": "v1_0",
        "question": "What is x?",
        "reference": "-1<AND>-5",
        "category": "math+ocr",
        "images": ["images/v1_0.png"],
        "capabilities": ["math", "ocr"],
    }
    assert second["reference"] == "1.25<OR>5/4"


def test_a_models_answers_are_joined_by_id(mm_vet, tmp_path):
    answers = tmp_path / "llava.json"
    answers.write_text(json.dumps({"v1_1": "1.25", "v1_0": "x = 3"}))
    rows = list(mm_vet_rows(str(mm_vet), [str(answers)]))
    assert [(row["id"], row["answer"]) for row in rows] == [("v1_0", "x = 3"), ("v1_1", "1.25")]
    assert all(row["answer_models"] == ["llava"] for row in rows)


def test_of_several_models_answers_the_ids_say_whose_they_are(mm_vet, tmp_path):
    for model in ("llava", "emu"):
        (tmp_path / f"{model}.json").write_text(json.dumps({"v1_1": model, "v1_0": model}))
    rows = list(mm_vet_rows(str(mm_vet), [str(tmp_path / "llava.json"), str(tmp_path / "emu.json")]))
    assert [(row["id"], row["answer"]) for row in rows] == [
        ("v1_0/llava", "llava"), ("v1_0/emu", "emu"), ("v1_1/llava", "llava"), ("v1_1/emu", "emu"),
    ]  # fmt: skip
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "emu.json").write_text(json.dumps({"v1_0": "x"}))
    with pytest.raises(InputError, match=r"other/emu.json: .*emu.json has the same name"):
        list(mm_vet_rows(str(mm_vet), [str(tmp_path / "emu.json"), str(tmp_path / "other" / "emu.json")]))


def test_a_question_without_an_answer_is_an_error(mm_vet, tmp_path):
    answers = tmp_path / "llava.json"
    answers.write_text(json.dumps({"v1_1": "1.25"}))
    with pytest.raises(InputError, match="no answer to v1_0"):
        list(mm_vet_rows(str(mm_vet), [str(answers)]))


def test_the_original_codes_samples_have_their_answers(tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text(json.dumps({**QUESTIONS["v1_0"], "answer1_body": "x = 3", "question_id": 0}))
    [row] = mm_vet_rows(str(path))
    assert (row["id"], row["answer"], row["reference"]) == ("0", "x = 3", "-1<AND>-5")


def test_images_within_a_question_of_version_2(tmp_path):
    path = tmp_path / "mm-vet-v2.json"
    question = "Which came first?<IMG>v2_0_0.jpg<IMG>or<IMG>v2_0_1.png"
    path.write_text(json.dumps({"v2_0": {"question": question, "answer": "a", "capability": ["seq"]}}))
    [row] = mm_vet_rows(str(path))
    assert row["question"] == "Which came first? (image 1) or (image 2)"
    assert row["images"] == ["images/v2_0_0.jpg", "images/v2_0_1.png"]


def test_capabilities_by_id(mm_vet, tmp_path):
    assert read_capabilities(mm_vet) == {
        "v1_0": VisualQuestion(("math", "ocr"), "v1_0.png"),
        "v1_1": VisualQuestion(("math",), "v1_0.png"),
    }
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps(row) for row in mm_vet_rows(str(mm_vet))))
    assert read_capabilities(rows)["v1_0"].capabilities == ("math", "ocr")


@pytest.mark.parametrize(
    ("row", "finding"),
    [
        ({"id": "1", "capability": []}, "expected a list of texts"),
        ({"capability": ["ocr"]}, "no id"),
    ],
)
def test_rows_that_do_not_say_are_errors(tmp_path, row, finding):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(InputError, match=finding):
        read_capabilities(path)


def test_a_gold_answer_of_tags_alone_is_an_error(tmp_path):
    path = tmp_path / "mm-vet.json"
    path.write_text(json.dumps({"v1_0": {**QUESTIONS["v1_0"], "answer": "<OR>"}}))
    with pytest.raises(InputError, match="tags and no answer"):
        list(mm_vet_rows(str(path)))


def test_a_question_without_an_image_is_left_out_and_said(tmp_path):
    path = tmp_path / "mm-vet.json"
    path.write_text(json.dumps({"v1_0": {**QUESTIONS["v1_0"], "imagename": ""}, "v1_1": QUESTIONS["v1_1"]}))
    rejects = []
    assert [row["id"] for row in mm_vet_rows(str(path), on_reject=rejects.append)] == ["v1_1"]
    assert "no image" in rejects[0].message
