"""Published sets of questions with criteria, in the form of their published rows; the rows are ours."""

import re
from collections import Counter

import pytest

from judgelm.data.answers import CollectedAnswer, judged_rows, read_questions
from judgelm.data.samples import SampleStream
from judgelm.modes.checklist import Checklist, Criterion
from tests.support.jsonl_files import write_rows

HEALTHBENCH = {
    "prompt_id": "p-1",
    "prompt": [{"role": "user", "content": "My knee hurts."}],
    "rubrics": [
        {"criterion": "Asks since when.", "points": 5, "tags": ["axis:context_awareness"]},
        {"criterion": "Names a dose without asking.", "points": -4, "tags": []},
    ],
    "example_tags": ["theme:context_seeking"],
    "ideal_completions_data": None,
    "canary": "healthbench:0",
}
REWARDS = {
    "question": "What fever is high?",
    "reference_answer": "Above 39 degrees.",
    "question_source": "natural_reasoning",
    "rubric": [{"title": "Number", "description": "Essential Criteria: states 39 degrees.", "weight": 5}],
    "rubric_list": ["Essential Criteria: states 39 degrees."],
    "rubric_count": 1,
}
WILDBENCH = {
    "id": 3,
    "session_id": "s-3",
    "conversation_input": [
        {"role": "user", "content": "Write a rhyme.", "toxic": False},
        {"role": "assistant", "content": "About what?", "toxic": False},
        {"role": "user", "content": "Rain.", "toxic": False},
    ],
    "references": {"gpt-4": "Rain, rain, go away."},
    "checklist": ["Does it rhyme?", "Is it about rain?"],
    "primary_tag": "Creative Writing",
}
INFOBENCH = {
    "id": "task_1",
    "input": "Kale",
    "category": "Food",
    "instruction": "Name a soup.",
    "decomposed_questions": ["Is it a soup?"],
    "subset": "Easy_set",
    "question_label": [["Content"]],
}


def weights(row):
    return [(each["text"], each["weight"]) for each in row["metadata"]["criteria"]]


def test_healthbench(imported):
    _, [row] = imported("healthbench", HEALTHBENCH)
    assert (row["id"], row["question"]) == ("p-1", "My knee hurts.")
    assert weights(row) == [("Asks since when.", 5), ("Names a dose without asking.", -4)]


def test_rubrics_as_rewards(imported):
    _, rows = imported("rubrics-as-rewards", REWARDS, REWARDS)
    assert [row["id"] for row in rows] == ["pairs-1", "pairs-2"]
    assert (rows[0]["reference"], rows[0]["category"]) == ("Above 39 degrees.", "natural_reasoning")
    assert weights(rows[0]) == [("Essential Criteria: states 39 degrees.", 5)]


def test_wildbench(imported):
    _, [row] = imported("wildbench", WILDBENCH)
    assert (row["id"], row["category"]) == ("s-3", "Creative Writing")
    assert row["question"] == "User: Write a rhyme.\n\nAssistant: About what?\n\nUser: Rain."
    assert weights(row) == [("Does it rhyme?", 1), ("Is it about rain?", 1)]


def test_infobench_joins_its_input(imported):
    _, [row, other] = imported("infobench", INFOBENCH, INFOBENCH | {"id": "task_2", "input": ""})
    assert (row["question"], other["question"]) == ("Name a soup.\n\nKale", "Name a soup.")


@pytest.mark.parametrize(
    ("name", "row", "finding"),
    [
        ("healthbench", HEALTHBENCH | {"rubrics": [{"criterion": "c", "points": 0}]}, 'field "rubrics": .*weight 0'),
        ("healthbench", HEALTHBENCH | {"rubrics": [{"points": 1}]}, 'field "rubrics": expected text'),
        ("healthbench", HEALTHBENCH | {"rubrics": "be kind"}, 'field "rubrics": expected a list of criteria'),
        ("healthbench", HEALTHBENCH | {"prompt": [{"role": "robot", "content": "x"}]}, "expected user, assistant"),
        ("wildbench", WILDBENCH | {"checklist": []}, 'field "checklist": expected a list of criteria'),
        ("wildbench", WILDBENCH | {"session_id": None}, '"session_id" is missing'),
        ("infobench", INFOBENCH | {"decomposed_questions": ["a", "a"]}, "comes twice"),
    ],
)
def test_what_cannot_be_used_is_a_reject_that_says_why(imported, name, row, finding):
    good = {"healthbench": HEALTHBENCH, "wildbench": WILDBENCH, "infobench": INFOBENCH}[name]
    done, rows = imported(name, good, row)
    assert len(rows) == 1
    assert re.search(finding, done.rejects[0].message)


def test_with_answers_the_rows_are_judged_by_their_criteria(imported, tmp_path):
    _, rows = imported("healthbench", HEALTHBENCH)
    questions = read_questions(str(write_rows(tmp_path / "q.jsonl", rows)))
    answer = CollectedAnswer("m", "greedy", "Since when?", None, "question", "stop")
    judged = [row.row for row in judged_rows(questions, {"p-1": [answer]}, "question", counts=Counter())]
    [sample] = SampleStream([str(write_rows(tmp_path / "rows.jsonl", judged))])
    assert Checklist().criteria_of(sample)[1] == Criterion(text="Names a dose without asking.", weight=-4)
