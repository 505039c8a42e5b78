"""Layouts of preferences: chosen and rejected answers, battles, pairs of responses, tool calls and images."""

import csv
import json

import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.data.readers.rows import Row
from judgelm.data.samples import SampleStream
from judgelm.data.sources.registry import recognise
from judgelm.errors import InputError
from judgelm.records import Label


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def pair(labelled, row):
    """Reads one row: its sample, its label and the text of the answer that wins."""
    read, _ = labelled(row)
    [sample], [label] = read.samples.values(), read.labels.values()
    return sample, label, None if label.winner == "tie" else sample.answers[label.winner - 1]


PLAIN = {"prompt": "q", "chosen": "good", "rejected": "bad"}
HH = {
    "chosen": "\n\nHuman: Hi\n\nAssistant: Hello!\n\nHuman: What is 2+2?\n\nAssistant: 4",
    "rejected": "\n\nHuman: Hi\n\nAssistant: Hello!\n\nHuman: What is 2+2?\n\nAssistant: 5",
}
ULTRA = {"prompt": "q", "chosen": [user("q"), assistant("good")], "rejected": [user("q"), assistant("bad")]}
SIDES = {"conversation_a": [user("q"), assistant("a")], "conversation_b": [user("q"), assistant("b")]}
ARENA = {"question_id": "58210e39b3fd4441a2bd4a518bb44c2d", "model_a": "m", "model_b": "n", "winner": "model_b"} | SIDES
WINNERS = {"winner_model_a": 1, "winner_model_b": 0, "winner_tie": 0}
TEXTS = {"prompt": '["q"]', "response_a": '["a"]', "response_b": '["b"]'}
OTHER_TURNS = {"response_a": '["a", "x"]', "response_b": '["b", "y"]'}
RESPONSES = {"id": 30192, "model_a": "m", "model_b": "n"} | TEXTS
KAGGLE = RESPONSES | WINNERS


def test_the_chosen_answer_stands_first_about_half_the_time_and_the_label_follows(labelled):
    read, _ = labelled(*({"prompt": f"q{number}", "chosen": "good", "rejected": "bad"} for number in range(400)))
    winners = [label.winner for label in read.labels.values()]
    # binomial with n 400, p 0.5: mean 200, deviation 10; the hash is fixed, so this cannot flicker
    assert 170 < winners.count(1) < 230
    assert {read.samples[name].answers[label.winner - 1] for name, label in read.labels.items()} == {"good"}


def test_the_place_depends_on_the_texts_and_not_on_which_was_chosen(labelled):
    sample, label, _ = pair(labelled, PLAIN)
    turned, other, _ = pair(labelled, PLAIN | {"chosen": "bad", "rejected": "good", "category": "c"})
    assert (sample.answers, sample.id, sample.metadata, label.scores) == (turned.answers, turned.id, {}, None)
    assert {label.winner, other.winner} == {1, 2}


HUMAN, ANSWER, ASKED = "\n\nHuman:", "\n\nAssistant:", "User: q\n\nAssistant: a\n\nUser: r"
PARAGRAPHS = f"{HUMAN} q\nr\n\ns{ANSWER}"
DIALOGUE = [user("q"), assistant("a"), user("r")]
SHAREGPT = {"from": "human", "value": "q"}
SYSTEM = {"role": "system", "content": "s"}


@pytest.mark.parametrize(
    ("fields", "question", "better"),
    [
        *(({field: "q", "chosen": "g", "rejected": "b"}, "q", "g") for field in ("prompt", "question", "instruction")),
        (HH, "User: Hi\n\nAssistant: Hello!\n\nUser: What is 2+2?", "4"),
        ({"chosen": f"{PARAGRAPHS} a\n\nb", "rejected": PARAGRAPHS}, "q\nr\n\ns", "a\n\nb"),
        ({"prompt": f"{HUMAN} q{ANSWER} a{HUMAN} r{ANSWER}", "chosen": " g", "rejected": " b"}, ASKED, " g"),
        ({"prompt": [user("q")], "chosen": [assistant("g")], "rejected": [assistant("b")]}, "q", "g"),
        ({"prompt": "q", "chosen": [assistant("g")], "rejected": str([assistant("b")])}, "q", "g"),  # as Python prints
        ({"prompt": [user("q")], "chosen": "g", "rejected": "b"}, "q", "g"),
        ({"chosen": [user("q"), assistant("g")], "rejected": [SHAREGPT, assistant("b")]}, "q", "g"),
        ({"prompt": [SYSTEM, user("q")], "chosen": "g", "rejected": "b"}, "System: s\n\nUser: q", "g"),
        ({"system": "s", "question": "q", "chosen": "g", "rejected": "b"}, "System: s\n\nUser: q", "g"),
        (ULTRA | {"system": "s"}, "System: s\n\nUser: q", "good"),
        ({"instruction": "q", "input": "x", "chosen": "g", "rejected": "b"}, "q\n\nx", "g"),
        ({"prompt": "r", "chosen": [*DIALOGUE, assistant("g")], "rejected": [*DIALOGUE, assistant("b")]}, ASKED, "g"),
        ({"prompt": "q", "chosen": [assistant([{"type": "text", "text": "g"}])], "rejected": "b"}, "q", "g"),
    ],
)
def test_the_question_of_a_preference(labelled, fields, question, better):
    sample, _, winning = pair(labelled, fields)
    assert (sample.question, winning) == (question, better)


def test_scores_and_models_follow_the_answers(labelled):
    more = {"prompt_id": "abc", "messages": ULTRA["chosen"], "score_chosen": 8.5, "score_rejected": 3.0}
    sample, label, winning = pair(labelled, ULTRA | more)
    assert (winning, sample.metadata, label.scores[label.winner - 1]) == ("good", {"prompt_id": "abc"}, 8.5)
    row = PLAIN | {"id": 30, "subset": "mt-bench-easy", "chosen_model": "good-m", "rejected_model": "bad-m"}
    sample, label, _ = pair(labelled, row)
    assert (sample.id, sample.category) == ("mt-bench-easy-30", "mt-bench-easy")
    assert sample.answer_models[label.winner - 1] == "good-m"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (PLAIN | {"chosen": 4}, 'field "chosen": expected text, got the number 4; write it as "4"'),
        ({"prompt": "q", "chosen": "g"}, 'field "rejected" is missing; each row must contain chosen, rejected'),
        ({"chosen": "g", "rejected": "b"}, 'field "prompt" is missing; each row must contain chosen, rejected'),
        (PLAIN | {"prompt": 4}, 'field "prompt": expected text, got the number 4'),
        (PLAIN | {"rejected": "good"}, "chosen and rejected are equal"),
        (PLAIN | {"chosen": ["a", "b"]}, 'field "chosen": expected text or a list of chat messages, got ["a", "b"]'),
        (PLAIN | {"chosen": []}, 'field "chosen": expected chat messages, got none'),
        (PLAIN | {"chosen": [{"role": "tool", "content": "x"}]}, 'field "chosen[0].role": expected user, assistant or'),
        (PLAIN | {"chosen": [assistant(None)]}, 'field "chosen[0].content": expected text, got null'),
        (PLAIN | {"chosen": [assistant([{"type": "image"}])]}, 'field "chosen[0].content": expected text or image'),
        (ULTRA | {"prompt": "another"}, 'field "chosen": the dialogue lacks the prompt'),
        (ULTRA | {"chosen": [*ULTRA["chosen"], user("thanks")]}, 'field "chosen": the last turn must be'),
        (HH | {"rejected": HH["rejected"].replace("Hello!", "Yo")}, "chosen and rejected differ at turn 2 of 4 and 4"),
        (HH | {"rejected": HH["rejected"].replace("2+2", "2+3")}, "chosen and rejected differ at turn 3 of 4 and 4"),
        (
            HH | {"rejected": HH["rejected"] + f"{HUMAN} A?\n\nAssistant: No"},
            "chosen and rejected differ at turn 4 of 4 and 6",
        ),
        ({"system": "s", "chosen": "g", "rejected": "b"}, "no question before the answers in chosen and rejected"),
        (PLAIN | {"score_chosen": 5, "score_rejected": 5}, "score_chosen and score_rejected are both 5"),
        (PLAIN | {"score_chosen": 3, "score_rejected": 5}, "score_chosen 3 is lower than score_rejected 5"),
        (PLAIN | {"score_chosen": 5}, 'field "score_rejected": expected a finite number, got null'),
    ],
)
def test_a_bad_preference_is_a_reject(labelled, row, message):
    [reject] = labelled(PLAIN | {"prompt": "first"}, row)[1]
    assert reject.startswith(f"pairs.jsonl:2: {message}")


def test_arena_battles_keep_their_order(labelled):
    parts = [user([{"type": "text", "text": "q"}]), assistant("a")]
    copied = {"judge": "arena_user_973", "full_conversation": [{"user": "q"}]}
    sample, label, _ = pair(labelled, ARENA | copied | {"conversation_a": parts})
    assert (sample.question, sample.answers, sample.answer_models) == ("q", ("a", "b"), ("m", "n"))
    assert (sample.id, label) == (ARENA["question_id"], Label(sample_id=sample.id, winner=2))
    assert sample.metadata == {"judge": "arena_user_973"}


@pytest.mark.parametrize(("winner", "both_bad"), [("tie", False), ("tie (bothbad)", True), ("both_bad", True)])
def test_arenas_ties_of_two_bad_answers_say_so(labelled, winner, both_bad):
    sample, label, _ = pair(labelled, ARENA | {"winner": winner})
    assert (label.winner, sample.metadata.get("both_bad", False)) == ("tie", both_bad)


def test_arena_conversations_that_share_their_earlier_turns(labelled):
    sides = {f"conversation_{side}": json.dumps([*DIALOGUE, assistant(side)]) for side in "ab"}
    sample, _, _ = pair(labelled, ARENA | sides | {"turn": 2})
    assert (sample.question, sample.answers) == (ASKED, ("a", "b"))


def test_mt_bench_votes_on_the_first_turn_are_named_by_question_models_judge_and_turn(labelled):
    row = ARENA | {"question_id": 81, "judge": "author_2", "turn": 1}
    for side, last in (("conversation_a", "x"), ("conversation_b", "y")):
        row[side] = [*SIDES[side], user("r"), assistant(last)]
    sample, _, _ = pair(labelled, row)
    assert (sample.id, sample.question, sample.answers) == ("81:m:n:author_2:1", "q", ("a", "b"))
    assert sample.metadata["messages_after_vote"] == 4
    [message] = labelled(ARENA, row | {"turn": 2})[1]
    assert message.startswith("pairs.jsonl:2: conversation_a and conversation_b differ at turn 2 of 4 and 4")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"conversation_b": None}, 'field "conversation_b": expected text, got null'),
        ({"winner": "neither"}, 'field "winner": expected 1=first, 2=second, a side'),
        ({"winner": "a", "model_b": "a"}, 'field "winner": "a" is ambiguous'),
        ({"score_a": 1, "score_b": 5, "winner": "A"}, "winner 1 contradicts the scores 1 and 5"),
        ({"evaluation_order": 2}, 'field "evaluation_order": this is vote 2 of a session'),
    ],
)
def test_a_bad_battle_is_a_reject(labelled, fields, message):
    [reject] = labelled(ARENA, ARENA | {"question_id": "f" * 32} | fields)[1]
    assert reject.startswith(f"pairs.jsonl:2: {message}")


def test_kaggle_rows_from_a_table(tmp_path):
    with (tmp_path / "train.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, KAGGLE)
        table.writeheader()
        table.writerows([KAGGLE, KAGGLE | {"id": 2, "winner_model_a": 0, "winner_tie": 1}])
    read = read_labels(str(tmp_path / "train.csv"))
    assert [label.winner for label in read.labels.values()] == [1, "tie"]
    sample = read.samples["30192"]
    assert (sample.question, sample.answers, sample.answer_models) == ("q", ("a", "b"), ("m", "n"))


@pytest.mark.parametrize(
    ("row", "question", "better"),
    [
        ({"question": "q", "response_a": "a", "response_b": "b", "winner": "A"}, "q", "a"),
        ({"prompt": "q", "response_a": "a", "response_b": "b", "score_a": 7, "score_b": 2}, "q", "a"),
        ({"prompt": [user("q")], "response_a": "a", "response_b": "b", "winner": "model_a"}, "q", "a"),
        ({"prompt": ["q"], "response_a": ["a"], "response_b": ["b"], "winner": 1}, "q", "a"),
        # a text in brackets is not a list of turns
        ({"prompt": "[1, 2]", "response_a": '["a"]', "response_b": "b", "winner": 1}, "[1, 2]", '["a"]'),
    ],
)
def test_responses_of_other_shapes(labelled, row, question, better):
    sample, _, winning = pair(labelled, row)
    assert (sample.question, sample.answers, winning) == (question, (better, "b"), better)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"response_b": '["b", "c"]'}, 'field "response_b": expected 1 strings, one per prompt, got 2'),
        ({"response_b": "[null]"}, 'field "response_b[0]": expected text, got null'),
        ({"response_b": '["\\ud83d"]'}, 'field "response_b[0]": contains half a surrogate pair'),
        ({"prompt": '["q", "r"]'} | OTHER_TURNS, "response_a and response_b differ"),
        ({"winner_tie": 1}, "exactly one of winner_model_a, winner_model_b, and winner_tie must be 1, got 2"),
        ({"winner_model_a": 0}, "exactly one of winner_model_a, winner_model_b, and winner_tie must be 1, got 0"),
        ({"winner_model_a": 0.4}, 'field "winner_model_a": expected 0 or 1, got the number 0.4'),
        ({"winner_model_b": None}, 'field "winner_model_b": expected 0 or 1, got null'),
        ({"prompt": ""}, "no question before the answers in response_a and response_b"),
        ({"prompt": None}, 'field "prompt": expected text, got null'),
    ],
)
def test_a_bad_pair_of_responses_is_a_reject(labelled, fields, message):
    [reject] = labelled(KAGGLE, KAGGLE | {"id": 7} | fields)[1]
    assert reject.startswith(f"pairs.jsonl:2: {message}")


def test_rows_without_winner_are_samples_without_label(labelled):
    with pytest.raises(InputError, match="none of the 1 rows has a usable label"):
        labelled(RESPONSES)
    [sample] = SampleStream(["pairs.jsonl"])
    assert (sample.id, sample.answers) == ("30192", ("a", "b"))


@pytest.mark.parametrize(
    ("row", "name", "question"),
    [
        (PLAIN, "preference", "prompt"),
        (HH, "preference", "chosen, rejected"),
        (KAGGLE, "responses", "prompt"),
        ({"question": "q", "answers": ["a"], "winner": 1}, "plain", "question"),
    ],
)
def test_recognised_layouts(row, name, question):
    layout = recognise(Row("f", 1, row))
    assert (layout.name, layout.fields["question"]) == (name, question)


def test_fastchat_games_that_disagree_are_ties_and_failed_ones_no_label(labelled):
    base = {"model_1": "m", "model_2": "n", "judge": ["gpt-4", "pair-v2"], "turn": 1}
    games = [("model_1", "model_1"), ("model_2", "model_1"), ("error", "tie")]
    rows = [{"question_id": 80 + i, "g1_winner": first, "g2_winner": second} for i, (first, second) in enumerate(games)]
    read, _ = labelled(*(base | row for row in rows))
    assert {name: label.winner for name, label in read.labels.items()} == {"80:m:n:1": 1, "81:m:n:1": "tie"}
    assert (read.unlabelled, read.samples) == (1, {})


def test_the_real_mmlu_pro_pairs_are_labels_by_question_and_models(shared_data):
    read = read_labels(str(shared_data / "mmlu_pro" / "pairs.jsonl"))
    assert (len(read.labels), read.rejected, read.unlabelled) == (1688, 0, 0)
    assert read.labels["3273:Meta-Llama-3_1-8B-Instruct:Qwen1.5-7B-Chat"].winner == 1


def test_the_real_mt_bench_games_of_a_repeated_pair_are_votes(shared_data):
    read = read_labels(str(shared_data / "mt_bench" / "skycamp_gpt-4_pair.jsonl"))
    # each of the five pairs was judged twice: question 5 a tie both times, the others with two outcomes
    assert {name: label.winner for name, label in read.labels.items()} == {"5:gpt-3.5-turbo:gpt-4:1": "tie"}
    assert read.split["4:gpt-3.5-turbo:gpt-4:1"] == (2, 1)
    assert (read.voted, len(read.split), read.rejected) == (5, 4, 0)


REQUEST = {"role": "user", "content": "Book it?"}
CALL = {"id": "x1", "type": "function", "function": {"name": "book", "arguments": '{"seat": 4}'}}
CALL_TEXT = '[{"name": "book", "arguments": {"seat": 4}}]'


def sample(write, prompt, chosen, rejected, **more):
    [sample] = SampleStream([write({"prompt": prompt, "chosen": chosen, "rejected": rejected} | more)])
    return sample


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (assistant(None) | {"tool_calls": [CALL]}, CALL_TEXT),
        (assistant("I book.") | {"tool_calls": [CALL | {"id": "x2"}]}, f"I book.\n\n{CALL_TEXT}"),
        (
            assistant(None) | {"function_call": {"name": "book", "arguments": "x"}},
            '[{"name": "book", "arguments": "x"}]',
        ),
        ({"from": "function_call", "value": '{"name": "book"}'}, '{"name": "book"}'),
    ],
)
def test_calls_are_part_of_the_answer_as_json(write, message, text):
    assert set(sample(write, [REQUEST], [message], [assistant("No.")]).answers) == {text, "No."}


def test_an_answer_of_nothing_is_refused_and_results_of_tools_point_to_trajectories(write):
    with pytest.raises(InputError, match=r"chosen\[0\].content"):
        sample(write, [REQUEST], [assistant(None)], [assistant("No.")])
    with pytest.raises(InputError, match="--mode trajectory"):
        sample(write, [REQUEST, {"role": "tool", "content": "4"}], [assistant("Yes.")], [assistant("No.")])


@pytest.mark.parametrize("name", ["conversations", "messages"])
def test_a_dialogue_with_one_chosen_and_one_rejected_message(write, name):
    turns = [{"from": "human", "value": "Hi?"}, {"from": "gpt", "value": "Yes?"}, {"from": "human", "value": "Why?"}]
    read = sample(write, None, {"from": "gpt", "value": "So."}, {"from": "gpt", "value": "Oh."}, **{name: turns})
    assert (read.question, set(read.answers)) == ("User: Hi?\n\nAssistant: Yes?\n\nUser: Why?", {"So.", "Oh."})


@pytest.mark.parametrize(
    ("part", "more"),
    [
        ({"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}, {}),
        ({"type": "image", "image": "https://a.example/b.png"}, {}),
        ({"type": "image"}, {"images": ["https://a.example/b.png"]}),
    ],
)
def test_images_of_the_question_are_the_samples(write, part, more):
    asked = {"role": "user", "content": [part, {"type": "text", "text": "What is it?"}]}
    read = sample(write, [asked], [assistant("A fox.")], [assistant("A cat.")], **more)
    assert (read.question, read.images) == ("What is it?", ("https://a.example/b.png",))


def test_images_that_cannot_be_shown_are_refused(write):
    with pytest.raises(InputError, match=r"prompt\[0\]"):
        sample(write, [{"role": "user", "content": [{"type": "image"}]}], [assistant("A fox.")], [assistant("A cat.")])
    picture = {"type": "image_url", "image_url": "https://a.example/b.png"}
    with pytest.raises(InputError, match="answers with images"):
        sample(write, [REQUEST], [assistant([picture])], [assistant("No.")])
