"""A judge that sees, in a run with images: random weights, on the CPU."""

import json

import pytest

from judgelm.errors import EngineError
from judgelm.judge import Judge
from judgelm.runs.run_files import read_judgments
from tests.support.tiny_vision import make_llava, write_image


def test_a_judge_that_sees_is_shown_the_images_and_one_that_does_not_refuses(tiny_model, tmp_path):
    rows = [
        {
            "id": str(number),
            "question": "what is it",
            "answer": "a red fox",
            "reference": "a fox",
            "image": f"{number}.png",
        }
        for number in range(2)
    ]
    for number in range(2):
        write_image(tmp_path / f"{number}.png", number)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = make_llava(tmp_path / "judge", ["what is the capital of france a red fox 1 2 3"] * 20)
    found = {}
    with Judge(str(model), engine="transformers") as judge:
        for images in ("ignore", "use"):
            out = tmp_path / f"{images}.jsonl"
            judge.judge_file(str(path), out=str(out), mode="multimodal", images=images, wording="chat")
            found[images] = read_judgments(out)
    # 16 tokens stand for the image, and the line end behind it for one or two
    added = [found["use"][row["id"]].prompt_tokens - found["ignore"][row["id"]].prompt_tokens for row in rows]
    assert all(16 <= tokens <= 18 for tokens in added)
    assert len({one.shown[0].text for one in found["ignore"].values()}) == 1  # the questions differ in images alone
    with Judge(str(tiny_model), engine="transformers") as judge, pytest.raises(EngineError, match="does not support"):
        judge.judge_file(str(path), out=str(tmp_path / "refused.jsonl"), mode="multimodal", images="use")
