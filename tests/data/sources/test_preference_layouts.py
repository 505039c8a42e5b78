import csv
import json
from pathlib import Path

import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.data.readers.rows import Row
from judgelm.data.samples import SampleStream
from judgelm.data.sources.registry import recognise
from judgelm.errors import InputError
from judgelm.records import Label

DATA = Path(__file__).parents[4] / "shared" / "data"


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def labelled_sample(write, row):
    labelled = read_labels(write(row))
    [sample] = labelled.samples.values()
    [label] = labelled.labels.values()
    return sample, label


def winning(sample, label):
    return sample.answers[label.winner - 1]


def rejected(write, good, *rows):
    """Messages of the rows after a good one, as samples and as labels."""
    messages = []
    read_labels(write(good, *rows), on_reject=lambda reject: messages.append(reject.message))
    return messages


PLAIN = {"prompt": "q", "chosen": "good", "rejected": "bad"}
HH = {
    "chosen": "\n\nHuman: Hi\n\nAssistant: Hello!\n\nHuman: What is 2+2?\n\nAssistant: 4",
    "rejected": "\n\nHuman: Hi\n\nAssistant: Hello!\n\nHuman: What is 2+2?\n\nAssistant: 5",
}
ULTRA = {
    "prompt": "q",
    "prompt_id": "abc",
    "chosen": [user("q"), assistant("good")],
    "rejected": [user("q"), assistant("bad")],
    "messages": [user("q"), assistant("good")],
    "score_chosen": 8.5,
    "score_rejected": 3.0,
}
ARENA = {
    "question_id": "58210e39b3fd4441a2bd4a518bb44c2d",
    "model_a": "m",
    "model_b": "n",
    "winner": "model_b",
    "judge": "arena_user_973",
    "conversation_a": [user("q"), assistant("a")],
    "conversation_b": [user("q"), assistant("b")],
    "turn": 1,
}
KAGGLE = {
    "id": 30192,
    "model_a": "m",
    "model_b": "n",
    "prompt": '["q"]',
    "response_a": '["a"]',
    "response_b": '["b"]',
    "winner_model_a": 1,
    "winner_model_b": 0,
    "winner_tie": 0,
}


@pytest.mark.parametrize("field", ["prompt", "question", "instruction"])
def test_plain_chosen_and_rejected(write, field):
    sample, label = labelled_sample(write, {field: "q", "chosen": "good", "rejected": "bad"})
    assert (sample.question, sorted(sample.answers), winning(sample, label)) == ("q", ["bad", "good"], "good")
    assert (sample.metadata, label.scores) == ({}, None)


def test_the_chosen_answer_stands_first_about_half_the_time_and_the_label_follows(write):
    rows = [{"prompt": f"q{number}", "chosen": "good", "rejected": "bad"} for number in range(400)]
    labelled = read_labels(write(*rows))
    winners = [label.winner for label in labelled.labels.values()]
    # binomial with n 400, p 0.5: mean 200, deviation 10; the hash is fixed, so this cannot flicker
    assert 170 < winners.count(1) < 230
    assert all(winning(labelled.samples[name], label) == "good" for name, label in labelled.labels.items())


def test_the_place_depends_on_the_texts_and_not_on_which_was_chosen(write):
    sample, label = labelled_sample(write, PLAIN)
    turned, other = labelled_sample(write, PLAIN | {"chosen": "bad", "rejected": "good", "category": "c"})
    assert (sample.answers, sample.id) == (turned.answers, turned.id)
    assert {label.winner, other.winner} == {1, 2}


def test_hh_dialogues_share_the_question_and_differ_in_the_last_turn(write):
    sample, label = labelled_sample(write, HH)
    assert sample.question == "User: Hi\n\nAssistant: Hello!\n\nUser: What is 2+2?"
    assert (sorted(sample.answers), winning(sample, label)) == (["4", "5"], "4")


def test_an_hh_dialogue_of_one_question_is_that_question(write):
    row = {
        "chosen": "\n\nHuman: q\nmore\n\nstill\n\nAssistant: a\n\nb",
        "rejected": "\n\nHuman: q\nmore\n\nstill\n\nAssistant:",
    }
    sample, label = labelled_sample(write, row)
    assert (sample.question, winning(sample, label), sorted(sample.answers)) == (
        "q\nmore\n\nstill",
        "a\n\nb",
        ["", "a\n\nb"],
    )


def test_an_hh_prompt_with_the_answers_apart(write):
    row = {"prompt": "\n\nHuman: q\n\nAssistant: a\n\nHuman: r\n\nAssistant:", "chosen": " good", "rejected": " bad"}
    sample, label = labelled_sample(write, row)
    assert (sample.question, winning(sample, label)) == ("User: q\n\nAssistant: a\n\nUser: r", " good")


def test_ultrafeedback_messages_with_scores(write):
    sample, label = labelled_sample(write, ULTRA)
    assert (sample.question, winning(sample, label), sample.metadata) == ("q", "good", {"prompt_id": "abc"})
    assert sorted(label.scores) == [3.0, 8.5]
    assert label.scores[label.winner - 1] == 8.5


@pytest.mark.parametrize(
    ("fields", "question"),
    [
        ({"prompt": [user("q")], "chosen": [assistant("g")], "rejected": [assistant("b")]}, "q"),
        ({"prompt": "q", "chosen": [assistant("g")], "rejected": [assistant("b")]}, "q"),
        ({"prompt": [user("q")], "chosen": "g", "rejected": "b"}, "q"),
        (
            {"chosen": [user("q"), assistant("g")], "rejected": [{"from": "human", "value": "q"}, assistant("b")]},
            "q",
        ),
        (
            {"prompt": [{"role": "system", "content": "s"}, user("q")], "chosen": "g", "rejected": "b"},
            "System: s\n\nUser: q",
        ),
        ({"system": "s", "question": "q", "chosen": "g", "rejected": "b"}, "System: s\n\nUser: q"),
        (
            {
                "system": "s",
                "prompt": "q",
                "chosen": [user("q"), assistant("g")],
                "rejected": [user("q"), assistant("b")],
            },
            "System: s\n\nUser: q",
        ),
        ({"instruction": "q", "input": "x", "chosen": "g", "rejected": "b"}, "q\n\nx"),
        (
            {
                "prompt": "r",
                "chosen": [user("q"), assistant("a"), user("r"), assistant("g")],
                "rejected": [user("q"), assistant("a"), user("r"), assistant("b")],
            },
            "User: q\n\nAssistant: a\n\nUser: r",
        ),
        ({"prompt": "q", "chosen": [assistant([{"type": "text", "text": "g"}])], "rejected": "b"}, "q"),
    ],
)
def test_where_the_question_of_a_preference_stands(write, fields, question):
    sample, label = labelled_sample(write, fields)
    assert (sample.question, winning(sample, label)) == (question, "g")


def test_rewardbench_rows_are_named_by_subset_and_id(write):
    row = PLAIN | {"id": 30, "subset": "mt-bench-easy", "chosen_model": "good-m", "rejected_model": "bad-m"}
    sample, label = labelled_sample(write, row)
    assert (sample.id, sample.category) == ("mt-bench-easy-30", "mt-bench-easy")
    assert sample.answer_models[label.winner - 1] == "good-m"
    assert sample.answer_models[2 - label.winner] == "bad-m"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (PLAIN | {"chosen": 4}, 'field "chosen": expected text, got the number 4; write it as "4"'),
        ({"prompt": "q", "chosen": "g"}, 'field "rejected" is missing; each row needs chosen, rejected and a prompt'),
        ({"chosen": "g", "rejected": "b"}, 'field "prompt" is missing; each row needs chosen, rejected and a prompt'),
        (PLAIN | {"prompt": 4}, 'field "prompt": expected text, got the number 4'),
        (PLAIN | {"rejected": "good"}, "chosen and rejected are the same text; leave the row out"),
        (PLAIN | {"chosen": ["a", "b"]}, 'field "chosen": expected a text or a list of chat messages, got ["a", "b"]'),
        (PLAIN | {"chosen": []}, 'field "chosen": expected chat messages, got none'),
        (
            PLAIN | {"chosen": [{"role": "tool", "content": "x"}]},
            'field "chosen[0].role": expected user, assistant or system, got "tool"; leave the row out',
        ),
        (PLAIN | {"chosen": [assistant(None)]}, 'field "chosen[0].content": expected text, got null'),
        (
            PLAIN | {"chosen": [assistant([{"type": "image", "image": "x"}])]},
            'field "chosen[0].content": expected parts of text only, got {"type": "image", "image": "x"}',
        ),
        (
            ULTRA | {"prompt": "another"},
            'field "chosen": its dialogue does not hold the prompt; leave the prompt out, or keep the answer alone',
        ),
        (
            ULTRA | {"chosen": [user("q"), assistant("good"), user("thanks")]},
            "field \"chosen\": its last turn is the user's, expected the assistant's; cut the dialogue after an answer",
        ),
        (
            HH | {"rejected": HH["rejected"].replace("Hello!", "Yo")},
            "chosen and rejected part at turn 2 of 4 and 4, before the last one; a pair is one dialogue with two",
        ),
        (
            HH | {"rejected": HH["rejected"].replace("2+2", "2+3")},
            "chosen and rejected part at turn 3 of 4 and 4, before the last one",
        ),
        (
            HH | {"rejected": HH["rejected"] + "\n\nHuman: Sure?\n\nAssistant: No"},
            "chosen and rejected part at turn 4 of 4 and 6, before the last one",
        ),
        (
            {"system": "s", "chosen": "g", "rejected": "b"},
            "no question before the answers in chosen and rejected; add a prompt",
        ),
        (
            PLAIN | {"score_chosen": 5, "score_rejected": 5},
            "score_chosen and score_rejected are both 5; the row states no preference",
        ),
        (PLAIN | {"score_chosen": 5}, 'field "score_rejected": expected a finite number, got null'),
    ],
)
def test_a_bad_preference_is_a_reject(write, row, message):
    [found] = rejected(write, PLAIN | {"prompt": "first"}, row)
    assert found.startswith(f"pairs.jsonl:2: {message}")


def test_arena_battles_keep_their_order(write):
    sample, label = labelled_sample(write, ARENA)
    assert (sample.question, sample.answers, sample.answer_models) == ("q", ("a", "b"), ("m", "n"))
    assert (sample.id, label) == (ARENA["question_id"], Label(sample_id=sample.id, winner=2))
    assert sample.metadata == {"judge": "arena_user_973"}


@pytest.mark.parametrize(
    ("winner", "expected", "metadata"),
    [
        ("model_a", 1, {}),
        ("tie", "tie", {}),
        ("tie (bothbad)", "tie", {"both_bad": True}),
        ("both_bad", "tie", {"both_bad": True}),
        ("A", 1, {}),
        ("b", 2, {}),
    ],
)
def test_arena_winners(write, winner, expected, metadata):
    sample, label = labelled_sample(write, ARENA | {"winner": winner, "judge": None})
    assert (label.winner, sample.metadata) == (expected, {"judge": None} | metadata)


def test_arena_conversations_that_share_their_earlier_turns(write):
    start = [user("q"), assistant("a"), user("r")]
    row = ARENA | {
        "conversation_a": json.dumps([*start, assistant("x")]),
        "conversation_b": json.dumps([*start, assistant("y")]),
        "turn": 2,
    }
    sample, _ = labelled_sample(write, row)
    assert (sample.question, sample.answers) == ("User: q\n\nAssistant: a\n\nUser: r", ("x", "y"))


def test_mt_bench_votes_on_the_first_turn_are_named_by_question_models_judge_and_turn(write):
    row = ARENA | {"question_id": 81, "judge": "author_2", "turn": 1}
    row["conversation_a"] = [user("q"), assistant("a"), user("r"), assistant("x")]
    row["conversation_b"] = [user("q"), assistant("b"), user("r"), assistant("y")]
    sample, _ = labelled_sample(write, row)
    assert (sample.id, sample.question, sample.answers) == ("81:m:n:author_2:1", "q", ("a", "b"))
    assert sample.metadata["messages_after_vote"] == 4
    [message] = rejected(write, ARENA, row | {"turn": 2})
    assert message.startswith("pairs.jsonl:2: conversation_a and conversation_b part at turn 2 of 4 and 4, before the")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"conversation_b": None}, 'field "conversation_b": expected text, got null'),
        (
            {"winner": "neither"},
            'field "winner": expected 1=first, 2=second, a side such as model_a, or tie, got "neither"',
        ),
        (
            {"winner": "a", "model_b": "a"},
            'field "winner": "a" names one side and the other side\'s model; write 1 or 2',
        ),
        ({"score_a": 1, "score_b": 5, "winner": "A"}, "winner 1 contradicts the scores 1 and 5; correct one"),
        ({"evaluation_order": 2}, 'field "evaluation_order": vote 2 of its session, whose earlier turns are not in'),
    ],
)
def test_a_bad_battle_is_a_reject(write, fields, message):
    [found] = rejected(write, ARENA, ARENA | {"question_id": "f" * 32} | fields)
    assert found.startswith(f"pairs.jsonl:2: {message}")


def test_kaggle_rows_from_a_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Path("train.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, KAGGLE)
        table.writeheader()
        table.writerow(KAGGLE)
        table.writerow(KAGGLE | {"id": 2, "winner_model_a": 0, "winner_tie": 1})
    labelled = read_labels("train.csv")
    assert [label.winner for label in labelled.labels.values()] == [1, "tie"]
    sample = labelled.samples["30192"]
    assert (sample.question, sample.answers, sample.answer_models) == ("q", ("a", "b"), ("m", "n"))


@pytest.mark.parametrize(
    "row",
    [
        {"question": "q", "response_a": "a", "response_b": "b", "winner": "A"},
        {"prompt": "q", "response_a": "a", "response_b": "b", "score_a": 7, "score_b": 2},
        {"prompt": [user("q")], "response_a": "a", "response_b": "b", "winner": "model_a"},
        {"prompt": ["q"], "response_a": ["a"], "response_b": ["b"], "winner": 1},
    ],
)
def test_responses_of_other_shapes(write, row):
    sample, label = labelled_sample(write, row)
    assert (sample.question, sample.answers, label.winner) == ("q", ("a", "b"), 1)


def test_a_text_in_brackets_is_no_list_of_turns(write):
    row = {"prompt": "[1, 2]", "response_a": '["a"]', "response_b": "b", "winner": 1}
    sample, _ = labelled_sample(write, row)
    assert (sample.question, sample.answers) == ("[1, 2]", ('["a"]', "b"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"response_b": '["b", "c"]'}, 'field "response_b": expected 1 texts, one for each prompt, got 2'),
        ({"response_b": "[null]"}, 'field "response_b[0]": expected text, got null; leave the row out'),
        ({"response_b": '["\\ud83d"]'}, 'field "response_b[0]": holds half a surrogate pair'),
        (
            {"prompt": '["q", "r"]', "response_a": '["a", "x"]', "response_b": '["b", "y"]'},
            "response_a and response_b part at turn 2 of 4 and 4, before the last one",
        ),
        ({"winner_tie": 1}, "expected 1 in one of winner_model_a, winner_model_b, winner_tie, got 2 such"),
        ({"winner_model_a": 0}, "expected 1 in one of winner_model_a, winner_model_b, winner_tie, got 0 such"),
        ({"winner_model_a": 0.4}, 'field "winner_model_a": expected 0 or 1, got the number 0.4'),
        ({"winner_model_b": None}, 'field "winner_model_b": expected 0 or 1, got null; fill it in'),
        ({"prompt": ""}, "no question before the answers in response_a and response_b"),
        ({"prompt": None}, 'field "prompt": expected text, got null'),
    ],
)
def test_a_bad_pair_of_responses_is_a_reject(write, fields, message):
    [found] = rejected(write, KAGGLE, KAGGLE | {"id": 7} | fields)
    assert found.startswith(f"pairs.jsonl:2: {message}")


def test_rows_without_winner_are_samples_without_label(write):
    row = {name: value for name, value in KAGGLE.items() if not name.startswith("winner")}
    [sample] = SampleStream([write(row)])
    assert (sample.id, sample.answers) == ("30192", ("a", "b"))
    with pytest.raises(InputError, match="none of its 1 rows has a label"):
        read_labels(write(row))


@pytest.mark.parametrize(
    ("row", "name", "question"),
    [(PLAIN, "preference", "prompt"), (HH, "preference", "chosen, rejected"), (KAGGLE, "responses", "prompt")],
)
def test_what_was_recognised_is_shown(row, name, question):
    found = recognise(Row("f", 1, row))
    assert (found.name, found.fields["question"]) == (name, question)


def test_fastchat_games_that_disagree_are_ties_and_failed_ones_no_label(write):
    base = {"model_1": "m", "model_2": "n", "judge": ["gpt-4", "pair-v2"], "turn": 1}
    games = [("model_1", "model_1"), ("model_2", "model_1"), ("error", "tie")]
    rows = [base | {"question_id": 80 + i, "g1_winner": g1, "g2_winner": g2} for i, (g1, g2) in enumerate(games)]
    labelled = read_labels(write(*rows))
    assert {name: label.winner for name, label in labelled.labels.items()} == {"80:m:n:1": 1, "81:m:n:1": "tie"}
    assert (labelled.unlabelled, labelled.samples) == (1, {})
    with pytest.raises(InputError, match="rows hold labels but no answers to judge"):
        SampleStream([write(*rows)])


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the real data sets are not at {DATA}")
def test_mmlu_pro_pairs_are_labels_by_question_and_models():
    labelled = read_labels(str(DATA / "mmlu_pro" / "pairs.jsonl"))
    assert (len(labelled.labels), labelled.rejected, labelled.unlabelled) == (1688, 0, 0)
    assert labelled.labels["3273:Meta-Llama-3_1-8B-Instruct:Qwen1.5-7B-Chat"].winner == 1


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the real data sets are not at {DATA}")
def test_mt_bench_games_of_a_repeated_pair_are_votes():
    labelled = read_labels(str(DATA / "mt_bench" / "skycamp_gpt-4_pair.jsonl"))
    # each of the five pairs was judged twice: question 5 a tie both times, the others with two outcomes
    assert {name: label.winner for name, label in labelled.labels.items()} == {"5:gpt-3.5-turbo:gpt-4:1": "tie"}
    assert labelled.split["4:gpt-3.5-turbo:gpt-4:1"] == (2, 1)
    assert (labelled.voted, len(labelled.split), labelled.rejected) == (5, 4, 0)
