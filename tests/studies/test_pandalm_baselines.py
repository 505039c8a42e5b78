"""The released baselines of PandaLM against its human votes: published to two decimals, reached exactly."""

import json
from collections import Counter
from pathlib import Path

import pytest

from judgelm.records import Judgment, Label, PairVerdict, Shown, Unparsed
from judgelm.studies.evaluation import EvaluationOptions, evaluate

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "pandalm"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is absent")
WINNERS = {"0": "tie", "Tie": "tie", "1": 1, "2": 2}


def human_labels():
    labels = {}
    for row in json.loads((DATA / "testset-v1.json").read_text()):
        votes = tuple(WINNERS[str(row[f"annotator{i}"])] for i in (1, 2, 3))
        labels[str(row["idx"])] = Label(
            sample_id=str(row["idx"]), winner=Counter(votes).most_common(1)[0][0], votes=votes
        )
    return labels


def baseline(name, field):
    for row in json.loads((DATA / name).read_text()):
        key, text = str(row["idx"]), str(row[field])
        winner = WINNERS.get(text)
        failure = None if winner else Unparsed("off_grammar", text)
        shown = (Shown(order=(0, 1), text=text, failure=failure),)
        verdict = PairVerdict(winner=winner) if winner else None
        yield Judgment(sample_id=key, mode="pair", verdict=verdict, shown=shown, failure=failure)


@pytest.mark.parametrize(
    ("name", "field", "published"),
    [
        ("gpt-3.5-turbo-testset-v1.json", "gpt_result", (71.07, 58.79, 57.36, 57.55)),
        ("pandalm-7b-testset-v1.json", "pandalm_result", (66.77, 57.38, 57.50, 57.43)),
    ],
)
def test_published_numbers(name, field, published):
    result = evaluate(baseline(name, field), human_labels(), options=EvaluationOptions(failures="as_tie"))
    numbers = result.headline
    percent = [round(100 * x.value, 2) for x in (numbers.accuracy, numbers.precision, numbers.recall, numbers.f1)]
    assert percent == list(published)
    assert numbers.n == 999


def test_people_beside_gpt35():
    result = evaluate(baseline("gpt-3.5-turbo-testset-v1.json", "gpt_result"), human_labels())
    assert result.failure_codes == {"off_grammar": 25}
    # over the 974 judged pairs; 120 of the 999 have one dissenting vote of three, which agree in 1 of 3 pairs
    assert result.humans.human_human.value == pytest.approx(1 - 2 / 3 * 120 / 999, abs=0.01)
    assert result.humans.judge_human.value < result.humans.human_human.value
