"""Preferences whose messages hold calls of tools, images, or one message alone."""

import pytest

from judgelm.data.samples import SampleStream
from judgelm.errors import InputError
from tests.support.jsonl_files import write_rows

ASKED = {"role": "user", "content": "Book it?"}
CALL = {"id": "x1", "type": "function", "function": {"name": "book", "arguments": '{"seat": 4}'}}
CALL_TEXT = '[{"name": "book", "arguments": {"seat": 4}}]'


def said(content, **more):
    return {"role": "assistant", "content": content, **more}


@pytest.fixture
def sample(tmp_path):
    def read(prompt, chosen, rejected, **more):
        row = {"prompt": prompt, "chosen": chosen, "rejected": rejected} | more
        [sample] = SampleStream([str(write_rows(tmp_path / "a.jsonl", [row]))])
        return sample

    return read


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (said(None, tool_calls=[CALL]), CALL_TEXT),
        (said("I book.", tool_calls=[CALL | {"id": "x2"}]), f"I book.\n\n{CALL_TEXT}"),
        (
            said(None, function_call={"name": "book", "arguments": "seat 4"}),
            '[{"name": "book", "arguments": "seat 4"}]',
        ),
        ({"from": "function_call", "value": '{"name": "book"}'}, '{"name": "book"}'),
    ],
)
def test_calls_are_part_of_the_answer_as_json(sample, message, text):
    assert set(sample([ASKED], [message], [said("No.")]).answers) == {text, "No."}


def test_an_answer_of_nothing_is_refused_and_results_of_tools_point_to_trajectories(sample):
    with pytest.raises(InputError, match=r"chosen\[0\].content"):
        sample([ASKED], [said(None)], [said("No.")])
    with pytest.raises(InputError, match="--mode trajectory"):
        sample([ASKED, {"role": "tool", "content": "4"}], [said("Yes.")], [said("No.")])


@pytest.mark.parametrize("name", ["conversations", "messages"])
def test_a_dialogue_beside_one_chosen_and_one_rejected_message(sample, name):
    turns = [{"from": "human", "value": "Hi?"}, {"from": "gpt", "value": "Yes?"}, {"from": "human", "value": "Why?"}]
    found = sample(None, {"from": "gpt", "value": "So."}, {"from": "gpt", "value": "Oh."}, **{name: turns})
    assert found.question == "User: Hi?\n\nAssistant: Yes?\n\nUser: Why?"
    assert set(found.answers) == {"So.", "Oh."}


@pytest.mark.parametrize(
    ("part", "more"),
    [
        ({"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}, {}),
        ({"type": "image", "image": "https://a.example/b.png"}, {}),
        ({"type": "image"}, {"images": ["https://a.example/b.png"]}),
    ],
)
def test_images_of_the_question_are_the_samples(sample, part, more):
    asked = {"role": "user", "content": [part, {"type": "text", "text": "What is it?"}]}
    found = sample([asked], [said("A fox.")], [said("A cat.")], **more)
    assert (found.question, found.images) == ("What is it?", ("https://a.example/b.png",))


def test_images_that_cannot_be_shown_are_refused(sample):
    with pytest.raises(InputError, match=r"prompt\[0\]"):
        sample([{"role": "user", "content": [{"type": "image"}]}], [said("A fox.")], [said("A cat.")])
    with pytest.raises(InputError, match="answers with images"):
        sample([ASKED], [said([{"type": "image_url", "image_url": "https://a.example/b.png"}])], [said("No.")])
