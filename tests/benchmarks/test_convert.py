"""Review tables joined with their answers, and labelled rows of any format, as JudgeLM rows."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import convert
from benchmarks.convert import JoinedReview, join_reviews
from judgelm.data.labelled_set import read_labels
from judgelm.jsonl import read_jsonl


def write(name, rows):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return name


def rows_of(path):
    return [row for _, row in read_jsonl(path)]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the recipe in an empty folder: exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def main(*arguments):
        monkeypatch.setattr(sys, "argv", ["convert.py", *arguments, "-o", "o.jsonl"])
        capsys.readouterr()
        return convert.main(), *capsys.readouterr()

    return main


def tables(*reviews, questions=2):
    """Two answers, `1x` and `1y`, to each question; reviews given as (id, question, answer, answer, text, score)."""
    names = ("review_id", "question_id", "answer1_id", "answer2_id", "text", "score")
    numbers = range(1, questions + 1)
    answers = [{"answer_id": f"{n}{m}", "question_id": n, "text": m, "model_id": m} for n in numbers for m in "xy"]
    return (
        write("q.jsonl", [{"question_id": n, "text": f"q{n}", "category": "c"} for n in numbers]),
        [write("a.jsonl", answers)],
        [write("r.jsonl", [dict(zip(names, review, strict=True)) for review in reviews])],
    )


GOOD = ("r1", 1, "1x", "1y", "8 6\nwhy", [8.0, 6.0])


def test_reviews_are_joined_with_their_answers_and_question(run):
    rebuilt = ("r2", 1, "1x", "1y", "First, I solve.\n7 8", [1.5, 7])
    first, second = join_reviews(*tables(GOOD, rebuilt))
    row = {
        "question_id": "r1", "question_body": "q1", "answer1_body": "x", "answer2_body": "y", "answer1_model_id": "x",
        "answer2_model_id": "y", "score": [8, 6], "text": "8 6\nwhy",
        "metadata": {"question_id": "1", "category": "c", "source": "r.jsonl:1"},
    }  # fmt: skip
    assert first == JoinedReview(row=row, question_id="1", rebuilt=False)
    assert (second.row["text"], second.rebuilt) == ("1.5 7\nFirst, I solve.\n7 8", True)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({0: "r1"}, 'review_id "r1" appeared before'),
        ({0: None}, 'field "review_id" is missing'),
        ({1: 3}, 'field "question_id": "3" is in none of the given files'),
        ({3: "9y"}, 'field "answer2_id": "9y" is in none of the given files'),
        ({3: "2y"}, 'its answer in a.jsonl:4 belongs to another question than "1"'),
        ({5: [-1, -1]}, "score [-1, -1]: the source could not read this review"),
        ({5: [8, 7]}, 'score [8, 7] and the text, which opens "8 6", disagree'),
        ({5: None}, 'field "score" is missing'),
        ({4: None}, 'field "text": expected text, got null'),
        ({5: [float("nan"), 6]}, 'field "score": expected 2 finite numbers, got [null, 6]'),
    ],
)
def test_a_review_that_cannot_be_joined_is_a_reject(run, change, finding):
    review = ("r2", *GOOD[1:])
    good, reject = join_reviews(*tables(GOOD, tuple(change.get(place, value) for place, value in enumerate(review))))
    assert isinstance(good, JoinedReview)
    assert reject.message.startswith(f"r.jsonl:2: {finding}")


def test_reviews_are_counted_and_split_by_question(run, tmp_path):
    reviews = [(f"r{n}{k}", n, f"{n}x", f"{n}y", "8 6", [8, 6]) for n in range(1, 11) for k in range(3)]
    questions, [answers], [table] = tables(*reviews, ("r", 2, "2x", "2y", "?", [-1, -1]), questions=10)
    options = ("reviews", "--questions", questions, "--answers", answers, "--reviews", table)
    code, out, _ = run(*options)
    counts = {line[10:].split(":")[0]: int(line[:8]) for line in out.splitlines()}
    assert (code, counts) == (0, {"rows read": 31, "rows written": 30, "in o.jsonl": 30, "rebuilt": 0, "dropped": 1})
    assert [row["line"] for row in rows_of("o.rejects.jsonl")] == [31]
    assert not list(tmp_path.glob("*.partial"))
    split = ("--split-by", "question", "--seed", "1", "--holdout")
    assert run(*options, *split, "4")[0] == 0
    train, holdout = (rows_of(f"o.{side}.jsonl") for side in ("train", "holdout"))
    assert (len(train), len(holdout)) == (18, 12)
    assert not {row["metadata"]["question_id"] for row in train} & {row["metadata"]["question_id"] for row in holdout}
    run(*options, *split, "4")
    assert rows_of("o.holdout.jsonl") == holdout
    code, _, error = run(*options, *split, "10")
    assert (code, error) == (1, "--holdout 10: the files have 10 questions; leave some on each side\n")


PANDALM = {"idx": 1, "instruction": "i", "input": "c", "response1": True, "response2": "b", "cmp_key": "m_n"}
VOTES = {"annotator1": 2, "annotator2": 2, "annotator3": 0}


def test_winners_stay_winners_unless_scores_stand_for_them(run):
    write("p.jsonl", [PANDALM | VOTES, PANDALM | {"idx": 2}])
    write("s.jsonl", [PANDALM | VOTES])
    _, out, _ = run("rows", "p.jsonl", "s.jsonl")
    assert "dropped: no label; rows without one cannot be trained on (see o.rejects.jsonl)" in out
    [row] = rows_of("o.jsonl")
    assert (row["winner"], row["votes"], row["answer1_body"], "score" in row) == (2, [2, 2, "tie"], "True", False)
    assert read_labels("o.jsonl").labels == read_labels("p.jsonl").labels
    assert rows_of("o.rejects.jsonl")[1]["reason"].startswith('id "1" appeared before in another file')
    run("rows", "p.jsonl", "--scores", "8", "4", "6")
    [row] = rows_of("o.jsonl")
    assert (row["score"], row["text"], row["question_body"]) == ([4, 8], "4 8\n", "i\n\nc")
