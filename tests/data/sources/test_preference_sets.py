"""Preference sets on disk, one made-up row of each: HelpSteer2 and 3, PPE, SafeRLHF, UltraFeedback."""

import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.data.samples import SampleStream
from judgelm.errors import InputError
from tests.support.benchmark_files import imported

PPE = {"question_id": "p1", "prompt": "Name a metal.", "response_1": "Tin", "response_2": "Oak"}
CORRECT = PPE | {
    "response_3": "Zinc",
    "scores": [True, False, True],
    "sampled_conflict_pairs": [[0, 1], [1, 2]],
    "model_name": "m",
}
STEER = {"prompt": "Name a metal.", "correctness": 3, "coherence": 4, "complexity": 1, "verbosity": 1}


def rows_of(name, path, tmp_path):
    done, rows = imported(name, tmp_path, path)
    return rows, done.rejects


def test_ppe_votes(write):
    labelled = read_labels(write(PPE | {"winner": "model_b", "model_a": "m1", "model_b": "m2"}))
    [sample], [label] = labelled.samples.values(), labelled.labels.values()
    assert (sample.id, sample.answers, sample.answer_models) == ("p1", ("Tin", "Oak"), ("m1", "m2"))
    assert label.winner == 2


def test_ppe_correctness_is_read_whole_and_imported_as_its_drawn_pairs(write, tmp_path):
    path = write(CORRECT)
    [sample] = SampleStream([path])
    assert (sample.answers, read_labels(path).labels["p1"].scores) == (("Tin", "Oak", "Zinc"), (1.0, 0.0, 1.0))
    rows, _ = rows_of("ppe-correctness", path, tmp_path)
    assert [(row["answer_1"], row["answer_2"], row["winner"]) for row in rows] == [
        ("Tin", "Oak", 1),
        ("Oak", "Zinc", 2),
    ]


@pytest.mark.parametrize("pairs", [[[0, 2]], [[0, 3]], [[0]], "0,1", []])
def test_ppe_pairs_without_a_right_and_a_wrong_answer_are_refused(write, tmp_path, pairs):
    with pytest.raises(InputError, match="sampled_conflict_pairs"):
        rows_of("ppe-correctness", write(CORRECT | {"sampled_conflict_pairs": pairs}), tmp_path)


def test_safe_rlhf_counts_from_zero_and_keeps_who_is_safer(write, tmp_path):
    row = {"prompt": "q", "response_0": "a", "response_1": "b", "better_response_id": 1, "safer_response_id": 0}
    [made], _ = rows_of("preferences", write(row), tmp_path)
    assert (made["answer_1"], made["winner"], made["metadata"]) == ("a", 2, {"safer_response_id": 0})


def test_ultrafeedback_takes_the_mean_of_the_ratings_and_not_the_overall_score(write):
    completions = [
        {"model": "m1", "response": "good", "fine-grained_score": 4.5, "overall_score": 8},
        {"model": "m2", "response": "bad", "fine-grained_score": 1.0, "overall_score": 10},
        {"model": "m3", "response": "fair", "fine-grained_score": 3.0, "overall_score": 6},
    ]
    [label] = read_labels(write({"source": "s", "instruction": "q", "completions": completions})).labels.values()
    assert label.scores == (4.5, 1.0, 3.0)


def test_helpsteer2_pairs_stand_in_adjacent_rows(write, tmp_path):
    first, second = STEER | {"response": "Tin", "helpfulness": 4}, STEER | {"response": "Oak", "helpfulness": 1}
    alone = STEER | {"prompt": "Name a tree.", "response": "Elm", "helpfulness": 4}
    rows, rejects = rows_of("helpsteer2", write(second, first, alone), tmp_path)
    assert [(row["answer_1"], row["answer_2"], row["winner"]) for row in rows] == [("Oak", "Tin", 2)]
    assert rows[0]["metadata"]["ratings_2"]["helpfulness"] == 4
    assert [reject.reason for reject in rejects] == ["no second response to this prompt stands beside it"]


def test_a_later_row_without_a_field_of_the_first_is_a_reject(write):
    row = {"prompt": "q", "response_0": "a", "response_1": "b", "better_response_id": 0}
    messages = []
    path = write(row, {"prompt": "r", "response_0": "a", "better_response_id": 0})
    assert len(read_labels(path, on_reject=lambda each: messages.append(each.reason)).labels) == 1
    assert messages == ['field "response_1" is missing, which the first row has; leave the row out']
