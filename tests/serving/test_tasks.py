"""Native questions out of JSON: the rows that judgelm-batch reads, and errors that name the field."""

import pytest

from judgelm.errors import InputError
from judgelm.modes import make_mode
from judgelm.records import Sample
from judgelm.serving.tasks import checked_sample, read_task

PLAIN = {"id": "7", "question": "q", "answer_1": "a", "answer_2": "b"}


def test_a_plain_row_is_a_pair():
    found = read_task(PLAIN | {"reference": "r", "difficulty": 3})
    assert (found.mode, found.options) == ("pair", {})
    assert found.sample == Sample(
        id="7", question="q", answers=("a", "b"), reference="r", metadata={"difficulty": 3}
    )  # fmt: skip


def test_mode_and_options_are_the_questions_own():
    body = {"mode": "multi", "options": {"permutations": 3}, "question": "q", "answers": ["a", "b", "c"]}
    found = read_task(body)
    assert (found.mode, found.options) == ("multi", {"permutations": 3})
    assert found.sample.answers == ("a", "b", "c")
    assert found.sample.id.startswith("c-")  # made of its content
    assert found.sample.metadata == {}


def test_other_formats_are_read_as_in_a_batch():
    judgelm = read_task({"question_body": "q", "answer1_body": "a", "answer2_body": "b"}).sample
    turns = [{"question": "q1", "answers": ["a1", "b1"]}, {"question": "q2", "answers": ["a2", "b2"]}]
    dialogue = read_task({"mode": "conversation", "turns": turns}).sample
    assert (judgelm.question, judgelm.answers) == ("q", ("a", "b"))
    assert (dialogue.question, dialogue.answers, dialogue.metadata["turns"]) == ("q2", ("a2", "b2"), turns)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (PLAIN | {"answer_2": 3}, '^field "answer_2": expected text, got'),
        (PLAIN | {"mode": ["pair"]}, '^field "mode"'),
        (PLAIN | {"options": [1]}, '^field "options"'),
        (PLAIN | {"options": {"permutations": 10**6}}, "at most 64 orders"),
        ({"question": "q", "answer_1": "a"}, "^fields not recognised.*answer_2"),
        ({"id": "1", "winner": 2}, "^rows have labels but no answers"),
        ({"instruction": "q", "output": "a"}, "one answer per instruction"),
        (PLAIN | {"images": ["/etc/passwd"]}, "only accepts data: URLs"),
        (PLAIN | {"image": "http://10.0.0.1/x.png"}, "only accepts data: URLs"),
        (PLAIN | {"images": ["data:image/png;base64,QQ==", "x.png"]}, "only accepts data: URLs"),
        (PLAIN | {"id": {"a": 1}}, '^field "id"'),
    ],
)
def test_what_is_wrong_is_named(body, message):
    with pytest.raises(InputError, match=message):
        read_task(body)


def test_images_of_the_asker_are_taken():
    url = "data:image/png;base64,QQ=="
    assert read_task({"question": "q", "answer": "a", "image": url}).sample.images == (url,)


def test_a_sample_is_settled_as_its_mode_wants_it():
    sample = read_task(PLAIN | {"reference": "r"}).sample
    assert checked_sample(sample, make_mode("pair", {})).reference == "r"
    assert checked_sample(sample, make_mode("pair", {"reference": "ignore"})).reference is None
    with pytest.raises(InputError, match="mode single: expected 1 answer, got 2"):
        checked_sample(sample, make_mode("single", {}))
    with pytest.raises(InputError, match='"reference" is required but missing'):
        checked_sample(read_task(PLAIN).sample, make_mode("pair", {"reference": "use"}))
    with pytest.raises(InputError, match="no anchor"):
        checked_sample(
            read_task({"question": "q", "answer": "a"}).sample, make_mode("single", {"against": "anchor"})
        )  # fmt: skip
