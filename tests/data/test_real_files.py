from collections import Counter
from pathlib import Path

import pytest

from benchmarks.convert import JoinedReview, join_reviews
from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.reviews import read_results
from judgelm.parsing.scores import parse_pair_original

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the real data sets are not at {DATA}")

PANDALM = str(DATA / "pandalm" / "testset-v1.json")


@pytest.mark.parametrize(
    ("name", "counts"),
    [("gpt-3.5-turbo", {2: 476, 1: 460, "tie": 38, "off_grammar": 25}), ("pandalm-7b", {2: 459, 1: 433, "tie": 107})],
)
def test_pandalm_baselines(name, counts):
    judgments = read_results(str(DATA / "pandalm" / f"{name}-testset-v1.json"), parse_pair_original)
    outcomes = (j.verdict.winner if j.verdict else j.failure.code for j in judgments)
    assert Counter(outcomes) == counts


def vicuna_tables():
    folder = DATA / "vicuna_reviews"
    answers = sorted(str(path) for path in (folder / "answer").iterdir())
    reviews = sorted(str(path) for path in (folder / "review").iterdir())
    return str(folder / "question.jsonl"), answers, reviews


def test_all_640_vicuna_reviews_join_and_24_are_rebuilt():
    reviews = list(join_reviews(*vicuna_tables()))
    assert all(isinstance(review, JoinedReview) for review in reviews)
    assert len({review.row["question_id"] for review in reviews}) == len(reviews) == 640
    # The three math questions in each of eight files.
    assert Counter(review.question_id for review in reviews if review.rebuilt) == {"68": 8, "69": 8, "70": 8}


def test_qlora_ratings_are_labels_without_answers_and_their_failures_no_labels():
    rows = labels = 0
    for path in sorted((DATA / "qlora_ratings" / "relative-gpt-3.5").iterdir()):
        labelled = read_labels(str(path))
        assert labelled.samples == {}
        rows += len(labelled.labels) + labelled.unlabelled
        labels += len(labelled.labels)
    assert rows == 14 * 80
    assert labels > 1100
