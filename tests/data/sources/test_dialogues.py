"""Rows of dialogues."""

import pytest

from judgelm.data.readers.rows import Row
from judgelm.data.sources.dialogues import dialogue_sample
from judgelm.errors import InputError
from judgelm.records import Sample

TURNS = [{"question": "q1", "answers": ["a1", "b1"]}, {"question": "q2", "answers": ["a2", "b2"], "reference": "r2"}]


def said(*texts):
    return [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts)]


def read(**fields):
    return dialogue_sample(Row("d.jsonl", 7, fields))


def test_the_last_turn_is_the_question():
    sample = read(id="x", turns=TURNS, model_a="m", model_b="n", subject="maths")
    texts = {"question": "q2", "answers": ("a2", "b2"), "reference": "r2"}
    metadata = {"turns": TURNS, "subject": "maths"}
    assert sample == Sample(id="x", answer_models=("m", "n"), metadata=metadata, **texts)


def test_one_assistants_dialogue():
    turns = [{"question": turn["question"], "answers": turn["answers"][:1]} for turn in TURNS]
    assert read(turns=turns).answers == ("a2",)
    assert read(turns=turns).id == read(turns=turns).id != read(turns=turns[1:]).id


def test_two_sides_become_turns():
    row = {"conversation_a": said("q1", "a1", "q2", "a2"), "conversation_b": said("q1", "b1", "q2", "b2")}
    sample = read(question_id=81, turn=2, winner="model_a", **row)
    assert sample.metadata == {"turns": [{key: turn[key] for key in ("question", "answers")} for turn in TURNS]}
    first = read(question_id=81, turn=1, **row)  # the vote was given after the first turn
    assert (first.question, first.answers) == ("q1", ("a1", "b1"))


def test_a_system_message_goes_before_the_first_question():
    system = [{"role": "system", "content": "Be brief."}]
    sample = read(conversation_a=system + said("q", "a"), conversation_b=system + said("q", "b"))
    assert sample.question == "Be brief.\n\nq"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"turns": ["q1", "q2"]}, 'd.jsonl:7: field "turns": expected a list of'),
        ({"turns": []}, 'field "turns": expected a list of'),
        ({"turns": [{"answers": ["a"]}]}, 'field "question": expected text, got null'),
        ({"turns": [{"question": "q", "answers": [7]}]}, '"answers": expected a list of strings, .* the number 7'),
        ({"turns": [TURNS[0] | {"answers": ["a"]}, TURNS[1]]}, r"d.jsonl:7: turns\[0\].answers: expected 2"),
        ({"turns": TURNS, "question": "another"}, "d.jsonl:7: turns: the last turn is not the sample's question"),
        ({"conversation_a": said("q", "a"), "conversation_b": said("p", "b")}, "the user's turns differ"),
        ({"conversation_a": said("q", "a"), "conversation_b": said("q", "b", "r")}, '_b": expected alternating user'),
        ({"conversation_a": said("q", "a")}, 'field "conversation_b" is missing'),
    ],
)
def test_other_rows_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        read(**fields)
