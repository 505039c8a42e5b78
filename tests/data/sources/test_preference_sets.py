"""Preference sets on disk, one made-up row of each: PPE, SafeRLHF, UltraFeedback."""

from tests.support.benchmark_files import imported

PPE = {"question_id": "p1", "prompt": "Name a metal.", "response_1": "Tin", "response_2": "Oak"}


def test_ppe_votes(labelled):
    found, _ = labelled(PPE | {"winner": "model_b", "model_a": "m1", "model_b": "m2"})
    [sample] = found.samples.values()
    assert (sample.id, sample.answers, sample.answer_models) == ("p1", ("Tin", "Oak"), ("m1", "m2"))
    assert found.labels["p1"].winner == 2


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


def test_a_later_row_without_a_field_of_the_first_is_a_reject(labelled):
    row = {"prompt": "q", "response_0": "a", "response_1": "b", "better_response_id": 0}
    found, [message] = labelled(row, {"prompt": "r", "response_0": "a", "better_response_id": 0})
    assert len(found.labels) == 1
    assert message.endswith('field "response_1": missing, although it is in the first row; remove the row')
