import json
import subprocess
import sys
from pathlib import Path

import pytest

from judgelm.data.formats.review_tables import JoinedReview, join_reviews
from judgelm.data.labelled_set import read_labels
from judgelm.errors import InputError
from judgelm.jsonl import read_jsonl

SCRIPT = Path(__file__).parents[2] / "data_tools" / "convert.py"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, rows):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return name


def rows_of(path):
    return [row for _, row in read_jsonl(path)]


def convert(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)


def tables(*reviews, questions=2):
    """Two answers, `1x` and `1y`, to each question; reviews given as (id, question, answer, answer, text, score)."""
    names = ("review_id", "question_id", "answer1_id", "answer2_id", "text", "score")
    numbers = range(1, questions + 1)
    return (
        write("q.jsonl", [{"question_id": n, "text": f"q{n}", "category": "c"} for n in numbers]),
        [
            write(
                "a.jsonl",
                [{"answer_id": f"{n}{m}", "question_id": n, "text": m, "model_id": m} for n in numbers for m in "xy"],
            )
        ],
        [write("r.jsonl", [dict(zip(names, review, strict=True)) for review in reviews])],
    )


def test_reviews_are_joined_with_their_answers_and_question(folder):
    [review] = join_reviews(*tables(("r1", 1, "1x", "1y", "8 6\nwhy", [8.0, 6.0])))
    assert review == JoinedReview(
        row={
            "question_id": "r1",
            "question_body": "q1",
            "answer1_body": "x",
            "answer2_body": "y",
            "answer1_model_id": "x",
            "answer2_model_id": "y",
            "score": [8, 6],
            "text": "8 6\nwhy",
            "metadata": {"question_id": "1", "category": "c", "source": "r.jsonl:1"},
        },
        question_id="1",
        rebuilt=False,
    )


def test_a_text_that_does_not_open_with_its_scores_is_rebuilt(folder):
    [review] = join_reviews(*tables(("r1", 1, "1x", "1y", "First, I solve.\n7 8", [1.5, 7])))
    assert (review.row["text"], review.rebuilt) == ("1.5 7\nFirst, I solve.\n7 8", True)


@pytest.mark.parametrize(
    ("review", "finding"),
    [
        (("r1", 1, "1x", "1y", "8 6", [8, 6]), 'review_id "r1" appeared before'),
        ((None, 1, "1x", "1y", "8 6", [8, 6]), 'field "review_id" is missing'),
        (("r2", 3, "1x", "1y", "8 6", [8, 6]), 'field "question_id": "3" is in none of the given files'),
        (("r2", 1, "1x", "9y", "8 6", [8, 6]), 'field "answer2_id": "9y" is in none of the given files'),
        (("r2", 1, "1x", "2y", "8 6", [8, 6]), 'its answer in a.jsonl:4 belongs to another question than "1"'),
        (("r2", 1, "1x", "1y", "8 6", [-1, -1]), "score [-1, -1]: the source could not read this review"),
        (("r2", 1, "1x", "1y", "8 6", [8, 7]), 'score [8, 7] and the text, which opens "8 6", disagree'),
        (("r2", 1, "1x", "1y", "8 6", None), 'field "score" is missing'),
        (("r2", 1, "1x", "1y", None, [8, 6]), 'field "text": expected text, got null'),
        (("r2", 1, "1x", "1y", "8 6", [float("nan"), 6]), 'field "score": expected 2 finite numbers, got [null, 6]'),
    ],
)
def test_a_review_that_cannot_be_joined_is_a_reject(folder, review, finding):
    good, reject = join_reviews(*tables(("r1", 1, "1x", "1y", "8 6", [8, 6]), review))
    assert isinstance(good, JoinedReview)
    assert reject.message.startswith(f"r.jsonl:2: {finding}")


def test_an_answer_id_that_comes_twice_is_an_error(folder):
    questions, answers, reviews = tables(("r1", 1, "1x", "1y", "8 6", [8, 6]))
    with pytest.raises(InputError, match=r'a\.jsonl:1: answer_id "1x" appeared before in a\.jsonl:1; keep one'):
        list(join_reviews(questions, answers * 2, reviews))


def test_convert_reviews_counts_and_keeps_everything(folder):
    questions, [answers], [reviews] = tables(
        ("r1", 1, "1x", "1y", "8 6\nwhy", [8, 6]),
        ("r2", 2, "2x", "2y", "First.", [1, 2]),
        ("r3", 2, "2x", "2y", "?", [-1, -1]),
    )
    done = convert("reviews", "--questions", questions, "--answers", answers, "--reviews", reviews, "-o", "o.jsonl")
    counts = {line[10:].split(":")[0]: int(line[:8]) for line in done.stdout.splitlines()}
    assert counts == {"rows read": 3, "rows written": 2, "in o.jsonl": 2, "rebuilt": 1, "dropped": 1}
    assert [row["line"] for row in rows_of("o.rejects.jsonl")] == [3]
    assert list(read_labels("o.jsonl").labels) == ["r1", "r2"]
    assert not list(folder.glob("*.partial"))


def test_a_split_shares_no_question_and_repeats(folder):
    reviews = [(f"r{n}{k}", n, f"{n}x", f"{n}y", "8 6", [8, 6]) for n in range(1, 11) for k in range(3)]
    questions, [answers], [table] = tables(*reviews, questions=10)
    options = ("reviews", "--questions", questions, "--answers", answers, "--reviews", table, "-o", "o.jsonl")
    assert convert(*options, "--split-by", "question", "--holdout", "4", "--seed", "1").returncode == 0
    train, holdout = (rows_of(f"o.{side}.jsonl") for side in ("train", "holdout"))
    assert (len(train), len(holdout)) == (18, 12)
    assert not {row["metadata"]["question_id"] for row in train} & {row["metadata"]["question_id"] for row in holdout}
    convert(*options, "--split-by", "question", "--holdout", "4", "--seed", "1")
    assert rows_of("o.holdout.jsonl") == holdout
    done = convert(*options, "--split-by", "question", "--holdout", "10")
    assert (done.returncode, done.stderr) == (1, "--holdout 10: the files have 10 questions; leave some on each side\n")


PANDALM = {"idx": 1, "instruction": "i", "input": "c", "response1": True, "response2": "b", "cmp_key": "m_n"}
VOTES = {"annotator1": 2, "annotator2": 2, "annotator3": 0}


def test_convert_rows_keeps_winners_as_winners(folder):
    write("p.jsonl", [PANDALM | VOTES, PANDALM | {"idx": 2}])
    done = convert("rows", "p.jsonl", "-o", "o.jsonl")
    assert "dropped: no label; rows without one cannot be trained on (see o.rejects.jsonl)" in done.stdout
    [row] = rows_of("o.jsonl")
    assert (row["winner"], row["votes"], row["answer1_body"], "score" in row) == (2, [2, 2, "tie"], "True", False)
    assert read_labels("o.jsonl").labels == read_labels("p.jsonl").labels


def test_scores_stand_for_winners_only_when_asked(folder):
    write("p.jsonl", [PANDALM | VOTES])
    convert("rows", "p.jsonl", "-o", "o.jsonl", "--scores", "8", "4", "6")
    [row] = rows_of("o.jsonl")
    assert (row["score"], row["text"], row["question_body"]) == ([4, 8], "4 8\n", "i\n\nc")


def test_judgelm_rows_pass_through(folder):
    row = {
        "question_id": "1",
        "question_body": "\nq\n",
        "answer1_body": "a",
        "answer2_body": "b",
        "answer1_model_id": "m",
        "answer2_model_id": "n",
        "score": [8, 6.5],
        "text": "8 6.5\nwhy",
        "reference": {"text": "r"},
        "score_w_reference": [2, 9],
        "text_w_reference": "2 9\nyes",
    }
    write("j.jsonl", [row])
    convert("rows", "j.jsonl", "-o", "o.jsonl")
    [converted] = rows_of("o.jsonl")
    assert converted.pop("metadata") == {"category": None, "source": "j.jsonl:1"}
    assert converted == row


def test_an_id_of_another_file_is_a_reject(folder):
    write("p.jsonl", [PANDALM | VOTES])
    write("s.jsonl", [PANDALM | VOTES])
    convert("rows", "p.jsonl", "s.jsonl", "-o", "o.jsonl")
    [reject] = rows_of("o.rejects.jsonl")
    assert (reject["file"], reject["reason"][:36]) == ("s.jsonl", 'id "1" appeared before in another fi')


def test_a_missing_input_leaves_nothing_behind(folder):
    done = convert("rows", "none.jsonl", "-o", "o.jsonl")
    assert (done.returncode, done.stderr) == (1, "none.jsonl: no such file; check the path\n")
    assert list(folder.iterdir()) == []
