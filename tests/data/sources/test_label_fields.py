"""The documented label fields mean the same beside a question and two answers."""

import pytest

from judgelm.data.labelled_set import read_labelled, read_labels
from judgelm.errors import LabelCodeError
from tests.support.jsonl_files import write_rows

PAIR = {"question": "Name a fish.", "answer_1": "Tench", "answer_2": "Wren"}


@pytest.fixture
def labels(tmp_path):
    def read(*rows, **options):
        named = [PAIR | {"id": str(number)} | row for number, row in enumerate(rows)]
        read.rejects = []
        return read_labels(write_rows(tmp_path / "a.jsonl", named), on_reject=read.rejects.append, **options).labels

    return read


@pytest.mark.parametrize(
    ("fields", "winner", "votes"),
    [
        ({"annotator1": 2, "annotator2": 0, "annotator3": 2}, 2, (2, "tie", 2)),
        ({"annotator1": "B", "annotator2": None}, 2, (2,)),
        ({"label": "right"}, 2, ()),
        ({"g1_winner": "model_2", "g2_winner": "model_2"}, 2, (2, 2)),
        ({"g1_winner": "model_2", "g2_winner": "model_1"}, "tie", (2, 1)),
        ({"winner": 2, "annotator1": 2, "annotator2": 1}, 2, (2, 1)),
    ],
)
def test_votes_and_labels(labels, fields, winner, votes):
    [label] = labels(fields).values()
    assert (label.winner, label.votes) == (winner, votes)


@pytest.mark.parametrize(
    ("fields", "scores", "reason"),
    [
        ({"text": "3 8\nWrens fly."}, (3.0, 8.0), "Wrens fly."),
        ({"scores": [3, 8], "text": "3 8\nWrens fly."}, (3.0, 8.0), "Wrens fly."),
        ({"winner": 2, "text": "3 8\nWrens fly."}, (3.0, 8.0), "Wrens fly."),
        ({"winner": 2, "text": "Wrens fly."}, None, "Wrens fly."),
        ({"winner": 2, "text": "An article on wrens.", "reason": "They fly."}, None, "They fly."),
    ],
)
def test_a_review_in_text_has_the_reason(labels, fields, scores, reason):
    [label] = labels(fields).values()
    assert (label.winner, label.scores, label.reason) == (2, scores, reason)


def test_a_review_with_reference(labels):
    fields = {"reference": "Tench", "scores": [2, 3], "text_w_reference": "9 1\nIt is a fish."}
    assert labels(fields)["0"].winner == 2
    [label] = labels(fields, with_reference=True).values()
    assert (label.winner, label.reason) == (1, "It is a fish.")


def test_a_review_that_contradicts_the_winner_is_a_reject(labels):
    assert [*labels({"winner": 1}, {"winner": 1, "text": "3 8\nWrens fly."})] == ["0"]
    assert '"text"' in labels.rejects[0].reason


def test_a_failed_review_and_a_text_without_scores_are_no_label(labels):
    assert [*labels({"winner": 1}, {"scores": [-1, -1]}, {"text": "error"}, {"text": "Some article."})] == ["0"]


def test_words_in_label_name_winners_in_all_rows_or_in_none(labels):
    assert [*labels({"winner": 1, "label": "easy"}, {"winner": 2, "label": "hard"})] == ["0", "1"]
    for rows in ([{"label": "A"}, {"label": "easy"}], [{"label": "easy"}], [{"label": 0}, {"label": 1}]):
        with pytest.raises(LabelCodeError, match="--label-code"):
            labels(*rows)


def test_pairs_to_build_of_keep_their_reasons(tmp_path):
    path = write_rows(tmp_path / "a.jsonl", [PAIR | {"scores": [9, 2], "text": "9 2\nA tench is a fish."}])
    [pair] = read_labelled(str(path), source="mine")
    assert pair.plain.reason == "A tench is a fish."
