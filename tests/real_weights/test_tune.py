"""A real small model is tuned with labels, and the judge without weights that this makes judges."""

import json

import pytest

from judgelm import Judge
from judgelm.prompts.judge_card import find_card
from tests.real_weights.conftest import EXAMPLES
from tests.support.in_process import exit_code

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_real_model_is_tuned_and_judges(base_gguf, example_pairs, tmp_path):
    folder, figures = tmp_path / "judge", tmp_path / "figures.json"
    options = ("--engine", "transformers", "--dtype", "float32", "--json", figures)
    assert exit_code("judgelm", "tune", base_gguf, "--labels", EXAMPLES, "-o", folder, *options) == 0
    tuned = json.loads(figures.read_text(encoding="utf-8"))
    assert tuned["n"] == len(example_pairs)
    assert set(tuned["candidates"]) == {"yes-no", "letters", "grade"}
    assert [each["failed"] for each in tuned["candidates"].values()] == [0, 0, 0]
    card = find_card(str(folder))
    assert (card.model, set(card.identity)) == (str(base_gguf.resolve()), {"gguf_sha256"})
    first = example_pairs[0]
    with Judge(str(folder), engine="transformers", dtype="float32") as judge:
        judgment = judge.compare(first["question"], first["answer_1"], first["answer_2"])
    [tuned_row] = [
        json.loads(line)
        for line in (folder / "candidates" / f"{card.template}.jsonl").read_text(encoding="utf-8").splitlines()
        if json.loads(line)["id"] == first["id"]
    ]
    odds = [shown.log_odds for shown in judgment.shown]
    assert odds == pytest.approx([shown.get("log_odds") for shown in tuned_row["shown"]], abs=1e-3)
