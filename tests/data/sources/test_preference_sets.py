"""Preference sets on disk, one made-up row of each: HelpSteer2 and 3, PPE, SafeRLHF, UltraFeedback."""

import pytest

from judgelm.errors import InputError
from tests.support.benchmark_files import imported

PPE = {"question_id": "p1", "prompt": "Name a metal.", "response_1": "Tin", "response_2": "Oak"}
CORRECT = PPE | {"response_3": "Zinc", "scores": [True, False, True], "sampled_conflict_pairs": [[0, 1], [1, 2]]}
STEER = {"prompt": "Name a metal.", "correctness": 3, "coherence": 4, "complexity": 1, "verbosity": 1}


def test_ppe_votes(labelled):
    found, _ = labelled(PPE | {"winner": "model_b", "model_a": "m1", "model_b": "m2"})
    [sample] = found.samples.values()
    assert (sample.id, sample.answers, sample.answer_models) == ("p1", ("Tin", "Oak"), ("m1", "m2"))
    assert found.labels["p1"].winner == 2


def test_ppe_correctness_is_read_whole_and_imported_as_its_drawn_pairs(labelled, tmp_path):
    found, _ = labelled(CORRECT)
    assert (found.samples["p1"].answers, found.labels["p1"].scores) == (("Tin", "Oak", "Zinc"), (1.0, 0.0, 1.0))
    _, rows = imported("ppe-correctness", tmp_path, "pairs.jsonl")
    made = [(row["answer_1"], row["answer_2"], row["winner"]) for row in rows]
    assert made == [("Tin", "Oak", 1), ("Oak", "Zinc", 2)]


@pytest.mark.parametrize("pairs", [[[0, 2]], [[0, 3]], [[0]], "0,1", []])
def test_ppe_pairs_without_a_right_and_a_wrong_answer_are_refused(write, tmp_path, pairs):
    with pytest.raises(InputError, match="sampled_conflict_pairs"):
        imported("ppe-correctness", tmp_path, write(CORRECT | {"sampled_conflict_pairs": pairs}))


def test_safe_rlhf_counts_from_zero_and_keeps_who_is_safer(write, tmp_path):
    row = {"prompt": "q", "response_0": "a", "response_1": "b", "better_response_id": 1, "safer_response_id": 0}
    _, [made] = imported("preferences", tmp_path, write(row))
    assert (made["answer_1"], made["winner"], made["metadata"]) == ("a", 2, {"safer_response_id": 0})


def test_ultrafeedback_takes_the_mean_of_the_ratings_and_not_the_overall_score(labelled):
    completions = [
        {"model": f"m{overall}", "response": "r", "fine-grained_score": mean, "overall_score": overall}
        for mean, overall in ((4.5, 8), (1.0, 10), (3.0, 6))
    ]
    [label] = labelled({"source": "s", "instruction": "q", "completions": completions})[0].labels.values()
    assert label.scores == (4.5, 1.0, 3.0)


def test_helpsteer2_pairs_stand_in_adjacent_rows(write, tmp_path):
    first, second = STEER | {"response": "Tin", "helpfulness": 4}, STEER | {"response": "Oak", "helpfulness": 1}
    alone = STEER | {"prompt": "Name a tree.", "response": "Elm", "helpfulness": 4}
    done, rows = imported("helpsteer2", tmp_path, write(second, first, alone))
    assert [(row["answer_1"], row["answer_2"], row["winner"]) for row in rows] == [("Oak", "Tin", 2)]
    assert rows[0]["metadata"]["ratings_2"]["helpfulness"] == 4
    assert [reject.reason for reject in done.rejects] == ["no second response to this prompt stands beside it"]


def test_a_later_row_without_a_field_of_the_first_is_a_reject(labelled):
    row = {"prompt": "q", "response_0": "a", "response_1": "b", "better_response_id": 0}
    found, [message] = labelled(row, {"prompt": "r", "response_0": "a", "better_response_id": 0})
    assert len(found.labels) == 1
    assert message.endswith('field "response_1" is missing, which the first row has; leave the row out')
