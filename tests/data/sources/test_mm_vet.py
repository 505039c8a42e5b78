"""MM-Vet's files, made up here in its shape."""

import pytest

from judgelm.data.sources.mm_vet import mm_vet_rows
from judgelm.errors import InputError
from tests.support.benchmark_files import imported

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
