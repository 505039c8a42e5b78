"""Labels of rows: documented fields, reviews, and votes of several rows with one id, in any order."""

from itertools import permutations

import pytest

from judgelm.data.labelled_set import read_labelled, read_labelled_set, read_labels
from judgelm.data.samples import SampleStream
from judgelm.errors import InputError, LabelCodeError


def vote(winner, key="q1", **fields):
    return {"id": key, "winner": winner} | fields


def annotation(first, second, preference, **fields):
    return {"instruction": "Name a prime.", "output_1": first, "output_2": second, "preference": preference} | fields


def test_the_majority_is_the_label_in_every_order_of_the_rows(labelled):
    for rows in permutations([vote(1), vote(2), vote(2), vote("tie", "q2")]):
        found = labelled(*rows)[0]
        assert {key: label.winner for key, label in found.labels.items()} == {"q1": 2, "q2": "tie"}
        assert (sorted(found.labels["q1"].votes), found.voted, found.split, found.rejected) == ([1, 2, 2], 1, {}, 0)


def test_votes_without_a_majority_are_neither_a_label_nor_a_tie(labelled):
    found = labelled(vote(1), vote(2), vote(1, "q2"), vote(1, "q2"), vote(2, "q2"), vote("tie", "q2"))[0]
    assert found.labels == {}
    split = {key: sorted(votes, key=str) for key, votes in found.split.items()}
    assert split == {"q1": [1, 2], "q2": [1, 1, 2, "tie"]}
    [note] = found.notes()
    assert note.startswith("2 ids have labels in several rows;")
    assert "2 with no majority" in note


def test_rows_without_a_label_are_not_votes(labelled):
    found = labelled(vote(None), vote(1), vote(None))[0]
    assert (found.labels["q1"].winner, found.unlabelled, found.voted) == (1, 2, 0)


def test_scores_of_several_rows_are_means_that_never_contradict_the_majority(labelled):
    def scored(*scores):
        return labelled(*({"id": "q1", "score": pair} for pair in scores))[0].labels["q1"]

    assert scored([8, 6], [9, 3]).scores == (8.5, 4.5)
    # two of three for the second, yet the mean of the first is higher: (9 + 4 + 4) / 3 against (1 + 5 + 5) / 3
    label = scored([9, 1], [4, 5], [4, 5])
    assert (label.winner, label.scores) == (2, None)


def test_several_grades_of_one_answer_are_their_mean(labelled):
    rows = [{"id": "q1", "question": "q", "answer": "a", "score": score} for score in (4, 7)]
    found = labelled(*rows)[0]
    assert (found.labels["q1"].scores, found.labels["q1"].winner, found.split) == ((5.5,), None, {})


def test_one_pair_of_alpaca_eval_is_named_alike_in_both_orders_of_its_outputs(labelled):
    rows = [annotation("9", "7", 2.0), annotation("7", "9", 1.0), annotation("9", "7", 1.0), annotation("9", "8", 1.0)]
    for order in permutations(rows):
        found = labelled(*order)[0]
        [pair, other] = sorted(found.labels, key=lambda key: -len(found.labels[key].votes))
        right = found.samples[pair].answers.index("7") + 1
        assert (found.labels[pair].winner, len(found.labels[pair].votes)) == (right, 3)
        assert found.labels[other].votes == ()


def test_further_votes_on_a_pair_are_judged_once_and_counted(write):
    path = write(annotation("9", "7", 2.0), annotation("7", "9", 1.0), annotation("9", "7", 1.0, id="named"))
    stream = SampleStream([path], repeats="skip")
    assert [sample.answers for sample in stream] == [("9", "7"), ("9", "7")]
    assert (stream.repeated, stream.read, stream.rejected) == (1, 3, 0)
    with pytest.raises(InputError, match="jsonl:2: this pair appears more than once"):
        list(SampleStream([path]))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"question": "p"}, "the question"),
        ({"answer_1": "c"}, "answer 1"),
        ({"answers": [*"abc"], "answer_1": None, "answer_2": None, "winner": None, "scores": [1, 2, 3]}, "the number"),
    ],
)
def test_rows_of_one_id_with_other_texts_are_refused(write, change, part):
    row = {"id": "q1", "question": "q", "answer_1": "a", "answer_2": "b", "winner": 1}
    with pytest.raises(InputError, match=f'pairs.jsonl:2: {part}.* differs from an earlier row with id "q1"'):
        read_labels(write(row, row | change))


def test_exchanged_rows_of_one_id_vote_for_the_same_answer(labelled):
    row = {"id": "q1", "question": "q", "answer_1": "good", "answer_2": "bad", "winner": 1}
    turned = row | {"answer_1": "bad", "answer_2": "good", "winner": 2}
    found = labelled(row, turned, turned)[0]
    assert (found.labels["q1"].winner, found.labels["q1"].votes) == (1, (1, 1, 1))
    assert found.samples["q1"].answers == ("good", "bad")


def test_a_file_of_samples_needs_no_label(write):
    path = write({"id": "q1", "question": "q", "answer_1": "a", "answer_2": "b"})
    assert read_labelled_set(path).labels == {}
    with pytest.raises(InputError, match="none of the 1 rows has a usable label"):
        read_labels(path)


PAIR = {"id": "0", "question": "Name a fish.", "answer_1": "Tench", "answer_2": "Wren"}


def numbered(*rows):
    return [PAIR | {"id": str(number)} | row for number, row in enumerate(rows)]


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
def test_votes_and_labels(labelled, fields, winner, votes):
    [label] = labelled(PAIR | fields)[0].labels.values()
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
def test_a_review_in_text_has_the_reason(labelled, fields, scores, reason):
    [label] = labelled(PAIR | fields)[0].labels.values()
    assert (label.winner, label.scores, label.reason) == (2, scores, reason)


def test_a_review_with_reference(labelled):
    row = PAIR | {"reference": "Tench", "scores": [2, 3], "text_w_reference": "9 1\nIt is a fish."}
    assert labelled(row)[0].labels["0"].winner == 2
    [label] = labelled(row, with_reference=True)[0].labels.values()
    assert (label.winner, label.reason) == (1, "It is a fish.")


def test_a_review_that_contradicts_the_winner_is_a_reject(labelled):
    found, [message] = labelled(*numbered({"winner": 1}, {"winner": 1, "text": "3 8\nWrens fly."}))
    assert [*found.labels] == ["0"]
    assert '"text"' in message


def test_a_failed_review_and_a_text_without_scores_are_not_labels(labelled):
    rows = numbered({"winner": 1}, {"scores": [-1, -1]}, {"text": "error"}, {"text": "Some article."})
    assert [*labelled(*rows)[0].labels] == ["0"]


def test_words_in_label_name_winners_in_all_rows_or_in_none(labelled):
    rows = numbered({"winner": 1, "label": "easy"}, {"winner": 2, "label": "hard"})
    assert [*labelled(*rows)[0].labels] == ["0", "1"]
    for rows in ([{"label": "A"}, {"label": "easy"}], [{"label": "easy"}], [{"label": 0}, {"label": 1}]):
        with pytest.raises(LabelCodeError, match="--label-code"):
            labelled(*numbered(*rows))


def test_pairs_to_build_of_keep_their_reasons(write):
    path = write(PAIR | {"scores": [9, 2], "text": "9 2\nA tench is a fish."})
    [pair] = read_labelled(path, source="mine")
    assert pair.plain.reason == "A tench is a fish."
