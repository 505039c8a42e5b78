"""Rows of dialogues and of trajectories: plain ones, inspect_ai's logs and tau-bench's results."""

import json

import pytest

from judgelm.data.judged_texts import text_hashes
from judgelm.data.readers.rows import Row
from judgelm.data.samples import SampleStream
from judgelm.data.sources.dialogues import dialogue_sample
from judgelm.data.sources.trajectories import trajectory_sample
from judgelm.errors import InputError
from judgelm.records import Sample
from tests.support.trajectories import calls, chat

TURNS = [{"question": "q1", "answers": ["a1", "b1"]}, {"question": "q2", "answers": ["a2", "b2"], "reference": "r2"}]


def conversation(*texts):
    return [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts)]


def dialogue(**fields):
    return dialogue_sample(Row("d.jsonl", 7, fields))


def test_the_last_turn_is_the_question():
    sample = dialogue(id="x", turns=TURNS, model_a="m", model_b="n", subject="maths")
    texts = {"question": "q2", "answers": ("a2", "b2"), "reference": "r2"}
    metadata = {"turns": TURNS, "subject": "maths"}
    assert sample == Sample(id="x", answer_models=("m", "n"), metadata=metadata, **texts)


def test_one_assistants_dialogue():
    turns = [{"question": turn["question"], "answers": turn["answers"][:1]} for turn in TURNS]
    assert dialogue(turns=turns).answers == ("a2",)
    assert dialogue(turns=turns).id == dialogue(turns=turns).id != dialogue(turns=turns[1:]).id


def test_two_sides_become_turns_and_a_system_message_precedes_the_question():
    row = {
        "conversation_a": conversation("q1", "a1", "q2", "a2"),
        "conversation_b": conversation("q1", "b1", "q2", "b2"),
    }
    sample = dialogue(question_id=81, turn=2, winner="model_a", **row)
    assert sample.metadata == {"turns": [{key: turn[key] for key in ("question", "answers")} for turn in TURNS]}
    first = dialogue(question_id=81, turn=1, **row)  # the vote was given after the first turn
    assert (first.question, first.answers) == ("q1", ("a1", "b1"))
    system = [{"role": "system", "content": "Be brief."}]
    sample = dialogue(conversation_a=system + conversation("q", "a"), conversation_b=system + conversation("q", "b"))
    assert sample.question == "Be brief.\n\nq"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"turns": ["q1", "q2"]}, 'd.jsonl:7: field "turns": expected a list of'),
        ({"turns": []}, 'field "turns": expected a list of'),
        ({"turns": [{"answers": ["a"]}]}, 'field "question": expected text, got null'),
        ({"turns": [{"question": "q", "answers": [7]}]}, '"answers": expected a list of strings, .* the number 7'),
        ({"turns": [TURNS[0] | {"answers": ["a"]}, TURNS[1]]}, r"d.jsonl:7: turns\[0\].answers: expected 2"),
        ({"turns": TURNS, "question": "another"}, "d.jsonl:7: turns: the last turn differs"),
        (
            {"conversation_a": conversation("q", "a"), "conversation_b": conversation("p", "b")},
            "the user's turns differ",
        ),
        (
            {"conversation_a": conversation("q", "a"), "conversation_b": conversation("q", "b", "r")},
            '_b": expected alternating user',
        ),
        ({"conversation_a": conversation("q", "a")}, 'field "conversation_b" is missing'),
    ],
)
def test_other_rows_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        dialogue(**fields)


HELLO = {"role": "user", "content": "Hello"}


def trajectory(**fields):
    return trajectory_sample(Row("t.jsonl", 3, fields))


def stream(tmp_path, content, name="in.json"):
    path = tmp_path / name
    path.write_text(json.dumps(content), encoding="utf-8")
    return SampleStream([str(path)])


def labels(stream):
    return [stream.labels(row, False)[0] for row, _ in stream.pairs()]


def test_the_task_is_the_users_first_text_where_the_row_has_no_question():
    sample = trajectory(id="x", trajectories=[chat()], category="shop", seed=3)
    assert (sample.id, sample.question, sample.category) == ("x", "Where is order 7?", "shop")
    assert json.loads(sample.answers[0]) == chat()
    assert sample.metadata == {"seed": 3}
    assert trajectory(trajectories=[chat()], question="Find order 7.").question == "Find order 7."


def test_hashes_cover_calls_results_and_reference():
    first = text_hashes(trajectory(id="x", trajectories=[chat()], reference=chat()))
    for other in (chat(arguments='{"id": 8}'), chat(result="lost")):
        assert text_hashes(trajectory(id="x", trajectories=[other], reference=chat())).answers != first.answers
        assert text_hashes(trajectory(id="x", trajectories=[chat()], reference=other)).context != first.context


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ({"trajectories": []}, 'field "trajectories": expected trajectories: one or two lists'),
        ({"trajectories": "a"}, 'field "trajectories": expected trajectories'),
        ({"trajectories": chat()}, r'field "trajectories\[0\]": expected a .*list of chat messages'),
        ({"trajectories": [chat(), [{"role": "user"}, 7]]}, r'field "trajectories\[1\]": messages\[1\]: expected'),
        ({"trajectories": [chat()], "reference": [7]}, r'field "reference": messages\[0\]'),
        ({"trajectories": [chat()[2:]]}, 'field "question": missing, and there is no user message'),
        ({"trajectories": [chat(), [HELLO]]}, 'field "question": missing, and the trajectories begin with different'),
        ({"trajectories": [[HELLO | {"content": "\ud800"}]]}, r'field "trajectories\[0\]": contains half a surrogate'),
    ],
)
def test_rows_without_trajectories_are_refused(fields, finding):
    with pytest.raises(InputError, match=f"t.jsonl:3: {finding}"):
        trajectory(**fields)


def test_labels_are_those_of_plain_rows(tmp_path):
    pair = {"trajectories": [chat(), chat(last="No.")], "winner": "model_a"}
    assert labels(stream(tmp_path, [pair]))[0].winner == 1
    assert labels(stream(tmp_path, [{"trajectories": [chat()], "score": 0.5}]))[0].scores == (0.5,)
    assert labels(stream(tmp_path, [{"trajectories": [chat()]}])) == [None]


def inspect_log(**fields):
    """A log with one sample, as inspect_ai writes it."""
    sample = {"id": 7, "epoch": 2, "input": "Where is order 7?", "target": "shipped", "messages": chat(), **fields}
    return {"version": 2, "status": "success", "eval": {"task": "shop", "dataset": {"samples": 1}}, "samples": [sample]}


def test_inspect_logs(tmp_path):
    [sample] = stream(tmp_path, inspect_log(scores={"includes": {"value": "C"}}, metadata={"seed": 3}))
    assert (sample.id, sample.question, sample.reference) == ("7-2", "Where is order 7?", "shipped")
    assert sample.metadata == {"seed": 3}
    asked = [{"role": "user", "content": "Where is order 7?"}]
    [sample] = stream(tmp_path, inspect_log(input=asked, target=["shipped", "sent"]))
    assert (sample.question, sample.reference) == ("Where is order 7?", "shipped or sent")


def test_inspect_scores(tmp_path):
    for value, score in (("C", 1.0), ("P", 0.5), ("I", 0.0), ("N", 0.0), (0.25, 0.25), (True, 1.0)):
        [label] = labels(stream(tmp_path, inspect_log(scores={"includes": {"value": value}})))
        assert label.scores == (score,)
    for none in (None, {}, {"a": {"value": 1}, "b": {"value": 0}}):
        assert labels(stream(tmp_path, inspect_log(scores=none))) == [None]
    with pytest.raises(InputError, match=r'field "scores.a": expected a number or C, P, I, N'):
        labels(stream(tmp_path, inspect_log(scores={"a": {"value": {"b": 1}}})))


def test_inspect_attachments_are_put_back(tmp_path):
    moved = chat(result="attachment://ab12")
    [sample] = stream(tmp_path, inspect_log(messages=moved, attachments={"ab12": "shipped on Monday"}))
    assert json.loads(sample.answers[0])[3]["content"] == "shipped on Monday"
    with pytest.raises(InputError, match=r'field "attachments": attachment://ab12 not found'):
        list(stream(tmp_path, inspect_log(messages=moved)))


def tau_row(actions, **fields):
    """A result as tau-bench writes it."""
    task = {"instruction": "You want to know where order 7 is.", "actions": actions, "outputs": []}
    return {"task_id": 4, "trial": 1, "reward": 1.0, "info": {"task": task}, "traj": chat()} | fields


def test_tau_bench(tmp_path):
    [sample] = stream(tmp_path, [tau_row([{"name": "find_order", "kwargs": {"id": 7}}])])
    assert (sample.id, sample.question) == ("4-1", "You want to know where order 7 is.")
    assert json.loads(sample.reference) == calls(("find_order", {"id": 7}))
    assert labels(stream(tmp_path, [tau_row([])]))[0].scores == (1.0,)
    [sample] = stream(tmp_path, [tau_row([])])
    assert sample.reference is None
    for broken in ({"info": None}, {"info": {"task": {}}}):
        with pytest.raises(InputError, match='field "info": expected a task'):
            list(stream(tmp_path, [tau_row([], **broken)]))
    with pytest.raises(InputError, match=r'field "info.task.actions": messages\[0\].tool_calls\[0\]'):
        list(stream(tmp_path, [tau_row([{"kwargs": {}}])]))
