"""Each published schema, on rows written by hand in it."""

import json

import pytest

from judgelm.data.labelled_set import read_labelled
from judgelm.data.sources.registry import get_source
from judgelm.errors import ConfigError, InputError

HELPSTEER3 = {
    "domain": "code",
    "language": "python",
    "context": [{"role": "user", "content": "Sort it."}],
    "response1": "sorted(x)",
    "response2": "x",
    "overall_preference": -2,
    "individual_preference": [{"score": -2}],
}
PREFERENCE_COLLECTION = {
    "orig_criteria": "Is it right?",
    "orig_instruction": "2 + 2?",
    "orig_reference_answer": "4",
    "orig_response_A": "five",
    "orig_response_B": "4",
    "orig_score_A": "1",
    "orig_score_B": "5",
    "orig_preference": "B",
    "orig_feedback": "B is right.",
    "instruction": "a whole prompt",
    "output": "Feedback: B is right. [RESULT] B",
}
FEEDBACK_COLLECTION = {
    "orig_criteria": "Is it right?",
    "orig_instruction": "2 + 2?",
    "orig_reference_answer": "4",
    "orig_response": "about 4",
    "orig_score": "3",
    "orig_feedback": "Nearly.",
    **{f"orig_score{level}_description": f"level {level}" for level in range(1, 6)},
}
NECTAR = {
    "prompt": "\n\nHuman: Name a prime. \n\nAssistant: ",
    "answers": [
        {"answer": "8", "model": "m8", "rank": 3.0},
        {"answer": "7", "model": "m7", "rank": 1.0},
        {"answer": "9", "model": "m9", "rank": 2.0},
    ],
    "turns": 1,
    "source": ["a"],
    "good_natured": True,
}
OFFSETBIAS = {"instruction": "Correct it.", "output_1": "right", "output_2": "a long one", "label": 1}
ULTRAFEEDBACK = {
    "prompt": "Name a prime.",
    "prompt_id": "x",
    "chosen": [{"role": "user", "content": "Name a prime."}, {"role": "assistant", "content": "7"}],
    "rejected": [{"role": "user", "content": "Name a prime."}, {"role": "assistant", "content": "8"}],
    "messages": [{"role": "user", "content": "Name a prime."}, {"role": "assistant", "content": "7"}],
    "score_chosen": 8.5,
    "score_rejected": 3.0,
}
HH = {
    "chosen": "\n\nHuman: Name a prime.\n\nAssistant: 7",
    "rejected": "\n\nHuman: Name a prime.\n\nAssistant: 8",
}
ARENA = {
    "question_id": "b1",
    "model_a": "m1",
    "model_b": "m2",
    "winner": "tie (bothbad)",
    "conversation_a": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "a"}],
    "conversation_b": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "b"}],
    "turn": 1,
}
KAGGLE = {
    "id": "30192",
    "model_a": "m1",
    "model_b": "m2",
    "prompt": '["Hi"]',
    "response_a": '["a"]',
    "response_b": '["b"]',
    "winner_model_a": "0",
    "winner_model_b": "1",
    "winner_tie": "0",
}
PANDALM = {
    "inputs": {"instruction": "Find one.", "input": "data", "response1": "a", "response2": "b"},
    "outputs": {"evaluation_result": "Tie", "evaluation_reason": "Alike.", "reference_response": "c"},
}
JUDGELM = {
    "question_id": 0,
    "question_body": "\nA tattoo?",
    "answer1_body": "No.",
    "answer2_body": "A rose.",
    "score": [2.0, 8.0],
    "text": "2 8\nThe second helps.",
    "reference": {"text": "A bird."},
    "score_w_reference": [3.0, 7.0],
    "text_w_reference": "3 7\nNearer.",
}


def entries(name, tmp_path, *rows):
    """The rows that a schema makes, and the reasons of its rejects."""
    path = tmp_path / "published.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rejects = []
    made = [entry.row for entry in get_source(name).entries([str(path)], rejects.append)]
    return made, [reject.reason for reject in rejects]


def test_helpsteer3_prefers_the_first_response_below_zero(tmp_path):
    rows = [HELPSTEER3, HELPSTEER3 | {"overall_preference": 1, "context": "Other."}]
    rows.append(HELPSTEER3 | {"overall_preference": 0, "context": "Third."})
    made, rejects = entries("helpsteer3", tmp_path, *rows)
    assert [row["winner"] for row in made] == [1, 2, "tie"]
    assert (made[0]["question"], made[0]["answer_1"], made[0]["category"]) == ("Sort it.", "sorted(x)", "code")
    assert made[0]["metadata"]["overall_preference"] == -2
    assert rejects == []


def test_a_strength_outside_the_published_range_is_a_reject(tmp_path):
    made, rejects = entries("helpsteer3", tmp_path, HELPSTEER3, HELPSTEER3 | {"overall_preference": 4})
    assert len(made) == 1
    assert rejects == ['field "overall_preference": expected a number from -3 to 3, got 4']


def test_prometheus_pairs_have_reference_reason_and_rubric(tmp_path):
    [row], _ = entries("preference_collection", tmp_path, PREFERENCE_COLLECTION)
    assert (row["winner"], row["reference"], row["reason"]) == (2, "4", "B is right.")
    assert row["metadata"] == {"rubric": "[Is it right?]", "orig_score_A": "1", "orig_score_B": "5"}


def test_prometheus_answers_have_a_grade_and_the_rubrics_levels(tmp_path):
    [row], rejects = entries("feedback_collection", tmp_path, FEEDBACK_COLLECTION)
    assert (row["answer"], row["scores"], row["reference"]) == ("about 4", [3], "4")
    assert row["metadata"]["rubric"].splitlines()[:2] == ["[Is it right?]", "Score 1: level 1"]
    assert rejects == []


@pytest.mark.parametrize("grade", ["6", "2.5", "good", None])
def test_a_grade_that_is_none_is_a_reject(tmp_path, grade):
    made, rejects = entries(
        "feedback_collection", tmp_path, FEEDBACK_COLLECTION, FEEDBACK_COLLECTION | {"orig_score": grade}
    )
    assert (len(made), len(rejects)) == (1, 1)


def test_nectar_is_its_best_against_its_worst_answer(tmp_path):
    [row], _ = entries("nectar", tmp_path, NECTAR)
    assert row["question"] == "Name a prime."
    assert {row["answer_1"], row["answer_2"]} == {"7", "8"}
    winner = row["winner"]
    assert (row[f"answer_{winner}"], row["answer_models"][winner - 1]) == ("7", "m7")


def test_nectars_shared_best_rank_is_a_reject(tmp_path):
    shared = [{"answer": text, "model": "m", "rank": rank} for text, rank in (("7", 1), ("5", 1), ("8", 3))]
    made, rejects = entries("nectar", tmp_path, NECTAR, NECTAR | {"answers": shared})
    assert len(made) == 1
    assert rejects == ['field "answers": the best or the worst rank is shared; leave the row out']


@pytest.mark.parametrize("answers", [[], "7", [1, 2], [{"answer": "7"}, {"answer": "8"}], [{"rank": 1}, {"rank": 2}]])
def test_nectars_answers_that_are_none_are_rejects(tmp_path, answers):
    made, rejects = entries("nectar", tmp_path, NECTAR, NECTAR | {"answers": answers})
    assert (len(made), len(rejects)) == (1, 1)


def test_offsetbias_keeps_the_order_and_the_label(tmp_path):
    [row], _ = entries("offsetbias", tmp_path, OFFSETBIAS)
    assert (row["question"], row["answer_1"], row["winner"]) == ("Correct it.", "right", 1)


def test_the_large_arena_sets_parts_of_text_are_joined_and_its_copy_of_the_dialogues_left_out(tmp_path):
    sides = {
        side: [
            {"role": role, "content": [{"type": "text", "text": text, "image": None, "mimeType": None}]}
            for role, text in (("user", "Hi"), ("assistant", side))
        ]
        for side in ("conversation_a", "conversation_b")
    }
    vote = {"id": "v1", "model_a": "m1", "model_b": "m2", "winner": "both_bad", "evaluation_order": 1, "language": "en"}
    vote |= sides | {"full_conversation": [{"user": "Hi"}]}
    made, rejects = entries("arena", tmp_path, vote, vote | {"id": "v2", "evaluation_order": 2})
    assert (made[0]["winner"], made[0]["answer_2"]) == ("tie", "conversation_b")
    assert made[0]["metadata"] == {"evaluation_order": 1, "language": "en", "both_bad": True}
    assert len(rejects) == 1  # the second vote of a session


def test_judgelm_keeps_both_judgments(tmp_path):
    [row], _ = entries("judgelm", tmp_path, JUDGELM)
    assert (row["score"], row["score_w_reference"]) == ([2, 8], [3, 7])
    assert row["text"] == "2 8\nThe second helps."
    assert row["reference"] == {"text": "A bird."}


def test_judgelms_validation_set_is_joined_by_question(tmp_path):
    statistics = {"score": [{"bleu": 1.0}, {"bleu": 2.0}]}
    pairs = [{"question_id": n, "question_body": f"q{n}", "answer1_body": "a", "answer2_body": "b"} for n in (1, 2, 3)]
    tables = {
        "judgelm_val_5k.jsonl": [row | statistics for row in pairs],
        "judgelm_val_5k_gpt4.jsonl": [
            {"question_id": 2, "text": "8 7\nBetter.", "score": [8.0, 7.0]},
            {"question_id": 1, "text": "error", "score": [-1, -1]},
            {"question_id": 3, "text": "error", "score": [-1, -1]},
        ],
        "judgelm_val_5k_gpt4_with_reference.jsonl": [
            {"question_id": 1, "text": "3 4\nNearer.", "score": [3.0, 4.0]},
        ],
        "judgelm_val_5k_references.jsonl": [{"question_id": 1, "reference": {"text": "r"}}],
    }
    for name, rows in tables.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    rejects = []
    made = [
        entry.row for entry in get_source("judgelm").entries([str(tmp_path / name) for name in tables], rejects.append)
    ]
    # question 1 has a judgment with reference alone, 2 one without, 3 none
    assert [(row["question_id"], row["score"], row["score_w_reference"]) for row in made] == [
        ("1", None, [3, 4]),
        ("2", [8, 7], None),
    ]
    assert [reject.reason.partition(",")[0] for reject in rejects] == ["no judgment that can be read"]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("helpsteer3", HELPSTEER3), ("preference_collection", PREFERENCE_COLLECTION), ("nectar", NECTAR),
        ("offsetbias", OFFSETBIAS), ("preference", ULTRAFEEDBACK), ("arena", ARENA), ("responses", KAGGLE),
        ("pandalm_train", PANDALM), ("judgelm", JUDGELM),
    ],
)  # fmt: skip
def test_the_builder_reads_what_a_schema_makes(tmp_path, name, row):
    made, _ = entries(name, tmp_path, row)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in made))
    [pair] = read_labelled(str(path), source=name)
    assert pair.label is not None
    assert str(pair.winner) == str(made[0].get("winner") or 2)


def test_a_file_of_another_schema_is_refused_with_its_fields(tmp_path):
    with pytest.raises(InputError, match=r"helpsteer3: it lacks context, response1.*has the fields chosen, rejected"):
        entries("helpsteer3", tmp_path, HH)
    with pytest.raises(
        InputError,
        match=r"no row of arena: it lacks conversation_a, conversation_b and has the fields chosen, rejected",
    ):
        entries("arena", tmp_path, HH)


def test_an_unknown_schema_is_refused():
    assert get_source("helpsteer3").name == "helpsteer3"
    with pytest.raises(ConfigError, match="source 'helpsteer' does not exist; did you mean helpsteer3"):
        get_source("helpsteer")
