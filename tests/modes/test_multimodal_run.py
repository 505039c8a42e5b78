"""MM-Vet's files through a run with images, to a study: a random judge that sees, on the CPU."""

import json

import pytest

from judgelm.data.sources.graded import mm_vet_rows, read_capabilities
from judgelm.errors import EngineError
from judgelm.jsonl import encode_line
from judgelm.judge import Judge
from judgelm.runs.run_files import read_judgments
from judgelm.studies.capabilities import capability_study
from tests.support.tiny_vision import make_llava, write_image


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Two questions about two images, and a model's answers."""
    folder = tmp_path_factory.mktemp("mm-vet")
    (folder / "images").mkdir()
    questions, answers = {}, {}
    for number in range(2):
        write_image(folder / "images" / f"v1_{number}.png", number)
        question = {"question": "what is it", "answer": "a fox<OR>a dog", "capability": ["rec"]}
        questions[f"v1_{number}"] = {"imagename": f"v1_{number}.png"} | question
        answers[f"v1_{number}"] = "a red fox"
    (folder / "mm-vet.json").write_text(json.dumps(questions))
    (folder / "emu.json").write_text(json.dumps(answers))
    path = folder / "rows.jsonl"
    path.write_bytes(b"".join(map(encode_line, mm_vet_rows(str(folder / "mm-vet.json"), [str(folder / "emu.json")]))))
    return path


def test_a_judge_that_sees_is_shown_the_images_and_one_that_does_not_refuses(rows, tiny_model, tmp_path):
    model = make_llava(tmp_path / "judge", ["what is the capital of france a red fox 1 2 3"] * 20)
    with Judge(str(model), engine="transformers") as judge:
        for images in ("ignore", "use"):
            judge.judge_file(
                str(rows), out=str(tmp_path / f"{images}.jsonl"), mode="multimodal", images=images, wording="chat"
            )
    blind, seen = (read_judgments(tmp_path / f"{images}.jsonl") for images in ("ignore", "use"))
    # 16 tokens stand for the image, and the line end behind it for one or two
    added = {name: seen[name].prompt_tokens - blind[name].prompt_tokens for name in seen}
    assert all(16 <= tokens <= 18 for tokens in added.values())
    assert len({one.shown[0].text for one in blind.values()}) == 1  # the questions differ in their images alone
    with Judge(str(tiny_model), engine="transformers") as judge, pytest.raises(EngineError, match="does not support"):
        judge.judge_file(str(rows), out=str(tmp_path / "refused.jsonl"), mode="multimodal", images="use")


def test_grades_by_capability_of_a_scripted_judge(rows, tmp_path):
    with Judge(" 7\n", engine="scripted") as judge:
        judge.judge_file(str(rows), out=str(tmp_path / "run.jsonl"), mode="multimodal")
    result = capability_study({"emu": read_judgments(tmp_path / "run.jsonl")}, read_capabilities(rows))
    [everything, rec] = result.tables[0].rows
    assert everything[2:5] == rec[2:5] == (2, 0, 7.0)
