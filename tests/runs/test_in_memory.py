"""Rows in memory: dictionaries, samples, DataFrames, and asynchronous calls, with the same judgments as files."""

import asyncio
import json

import pandas as pd
import pytest

from judgelm import Judge
from judgelm.errors import ConfigError, InputError
from judgelm.records import PairVerdict, Sample
from judgelm.runs.run_files import read_judgments

ROWS = [
    {"id": "x", "question": "Which is larger?", "answer_1": "an elephant", "answer_2": "a mouse"},
    {"id": "y", "question": "Which is older?", "answer_1": "Rome", "answer_2": "Paris", "reference": "Rome"},
    {"question": "Which is red?", "answer_1": "grass", "answer_2": "blood"},
]


@pytest.fixture
def judge():
    with Judge("8 3", engine="scripted") as loaded:
        yield loaded


def test_rows_get_the_same_judgments_as_a_file_in_their_order(judge, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    judge.judge_file(path, out=tmp_path / "out.jsonl", both_orders=True)
    filed = [each.to_dict() | {"provenance": ""} for each in read_judgments(tmp_path / "out.jsonl").values()]
    judged = judge.compare_many(ROWS)
    assert [each.to_dict() for each in judged] == sorted(
        filed, key=lambda row: [each.sample_id for each in judged].index(row["id"])
    )
    assert [each.sample_id for each in judged][:2] == ["x", "y"]


def test_a_frame_is_returned_with_the_columns_of_export(judge):
    frame = pd.DataFrame(ROWS, index=[5, 6, 7]).assign(reason="mine")
    judged = judge.run(frame, both_orders=False)
    assert list(judged.columns) == [
        *frame.columns,
        "verdict",
        "probability",
        "scores",
        "consistent",
        "judge_reason",
        "failure",
    ]
    assert (list(judged.index), list(judged["verdict"]), list(judged["scores"])) == ([5, 6, 7], [1, 1, 1], ["8 3"] * 3)
    assert list(frame.columns) == [*ROWS[1], "reason"]  # the input is unchanged


def test_other_modes_and_columns(judge):
    samples = [Sample(id="1", question="q", answers=("a", "b"))]
    assert judge.run(samples)[0].verdict == PairVerdict(winner=1)
    [ranked] = Judge("8 3 5", engine="scripted").rank_many([{"question": "q", "answers": ["a", "b", "c"]}])
    assert ranked.verdict.order == ((0,), (2,), (1,))
    [graded] = Judge("7", engine="scripted").grade_many([{"question": "q", "answer": "a"}])
    assert graded.scores == (7.0,)
    rows = [{"documents": ["It is red."], "answer": "It is red. It is big."}]
    [grounded] = Judge("Yes", engine="scripted").run(
        rows, mode="grounded", claims="sentences", columns={"context": "documents"}
    )
    assert [shown.part for shown in grounded.shown] == ["It is red.", "It is big."]
    assert judge.run([]) == []


@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        ([*ROWS, {**ROWS[0], "id": "z", "answer_1": None}], 'rows:4: field "answer_1": expected text, got null'),
        ([{**ROWS[0], "answer_2": 3}], 'rows:1: field "answer_2": expected text, got the number 3'),
        ([ROWS[0], "text"], "rows:2: expected a dictionary, got str"),
        ([ROWS[0], ROWS[0]], 'rows:2: id "x" appears more than once'),
        ([Sample(id="1", question="q", answers=("a", "b"))] * 2, "rows:2: id '1' appears more than once"),
        ([Sample(id="1", question="q", answers=("a",))], "sample 1: expected 2 answers, got 1"),
    ],
)
def test_rows_that_cannot_be_used_are_refused_by_number(judge, rows, finding):
    with pytest.raises(InputError, match=finding):
        judge.compare_many(rows)


def test_a_missing_column_is_named(judge):
    with pytest.raises(InputError, match="rows:1: has no column 'prompt'; its columns are id, question"):
        judge.run(ROWS, columns={"question": "prompt"})


def test_asynchronous_calls_share_one_engine(judge):
    async def ask():
        both = await asyncio.gather(*(judge.acompare("q", "a", str(index), both_orders=False) for index in range(20)))
        streamed = [each async for each in judge.astream(ROWS, both_orders=True)]
        return both, streamed

    both, streamed = asyncio.run(ask())
    assert {each.winner for each in both} == {1}
    assert {each.sample_id for each in streamed} == {each.sample_id for each in judge.compare_many(ROWS)}


def test_asynchronous_calls_judge_as_the_others_do(judge):
    calls = {
        "compare": (("q", "a", "b"), {"both_orders": False}),
        "grade": (("q", "a"), {"reference": "r", "reasons": "all"}),
        "rank": (("q", ["a", "b"]), {"permutations": 2}),
    }

    async def ask():
        return [await getattr(judge, f"a{name}")(*texts, **options) for name, (texts, options) in calls.items()]

    judgments = asyncio.run(ask())
    for (name, (texts, options)), judgment in zip(calls.items(), judgments, strict=True):
        assert judgment == getattr(judge, name)(*texts, **options)
    assert judgments[0].winner == 1


def test_cancelled_calls_are_dropped(judge):
    async def ask():
        task = asyncio.create_task(judge.acompare("q", "a", "b"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async for judgment in judge.astream(ROWS):
            return judgment

    assert asyncio.run(ask()).sample_id
    assert judge.compare("q", "a", "b", both_orders=False).winner == 1  # the engine is free again


def test_synchronous_calls_wait_for_no_asynchronous_ones(judge):
    async def ask():
        task = asyncio.create_task(judge.acompare("q", "a", "b"))
        await asyncio.sleep(0)
        with pytest.raises(ConfigError, match="asynchronous judgments are running"):
            judge.compare("q", "a", "b")
        await task

    asyncio.run(ask())
