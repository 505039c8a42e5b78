"""`judgelm report` without labels; with labels see test_eval.py."""

import json

import pytest

ROWS = [
    {"id": "sum", "question": "What is 2 + 2?", "answer_1": "4", "answer_2": "5", "winner": 1},
    {"id": "city", "question": "Where is\nthe Louvre?\x1b[2J", "answer_1": "Rome", "answer_2": "Paris", "winner": 2},
    {"id": "bird", "question": "Name a bird.", "answer_1": "Wren", "answer_2": "Trout", "winner": 1},
]
REPLIES = {"4|5": "9 2", "5|4": "2 9", "Rome|Paris": "7 4", "Paris|Rome": "8 3", "Wren|Trout": "?", "Trout|Wren": "?"}


@pytest.fixture
def judged(batch, tmp_path):
    """A run: right and consistent, an inconsistent pair whose mean is a tie, and a failure."""
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    by_answers = {f"{row['answer_1']}|{row['answer_2']}": row["question"] for row in ROWS}
    by_answers |= {f"{row['answer_2']}|{row['answer_1']}": row["question"] for row in ROWS}
    replies = {f"{by_answers[answers]}|{answers}": reply for answers, reply in REPLIES.items()}
    (tmp_path / "replies.json").write_text(json.dumps(replies))
    batch(tmp_path / "pairs.jsonl", "--both-orders", reply=tmp_path / "replies.json")
    return tmp_path


def test_verdicts_are_printed_with_questions_and_labels(cli, judged):
    code, out, _ = cli("judgelm", "report", judged / "out.jsonl", "--samples", judged / "pairs.jsonl")
    lines = [line.split() for line in out.splitlines() if line.strip()]
    assert code == 0
    assert ["first", "better", "-", "agree", "first", "better", "What", "is", "2", "+", "2?"] in lines
    # 7 4, and 8 3 for the swapped pair: (7 + 3) / 2 and (4 + 8) / 2 would be 5 and 6, the second
    assert ["second", "better", "-", "differ", "second", "better", "Where", "is", "the", r"Louvre?\x1b[2J"] in lines
    assert ["unparseable", "-", "-", "first", "better", "Name", "a", "bird."] in lines
    assert "3 pairs: 1 first better, 0 ties, 1 second better, 1 failed." in out
    assert "Both orders give the same winner in 1 of 2 pairs." in out
    assert "The verdict matches the label in 2 of 3 labelled pairs." in out
    assert "\x1b" not in out
    code, out, _ = cli("judgelm", "report", judged / "out.jsonl", "--limit", "1")  # ids stand for questions
    assert (code, "sum" in out, "city" in out, "label" in out) == (0, True, False, False)
    assert "2 more; use --limit" in out


def test_the_page_lists_every_pair_with_its_replies(cli, judged):
    page = judged / "verdicts.html"
    code, _, err = cli("judgelm", "report", judged / "out.jsonl", "-s", judged / "pairs.jsonl", "-o", page, "-q")
    html = page.read_text()
    assert (code, err) == (0, "")
    assert html.count('<details class="pair">') == 3
    assert '<span class="mark">order flip</span>' in html
    assert "shown answer 2, then answer 1" in html
    assert '<td data-who="label:">first better</td>' in html
    assert "Both orders give the same winner in 1 of 2 pairs." in html


def test_the_rows_as_json(cli, judged):
    code, out, _ = cli("judgelm", "report", judged / "out.jsonl", "-s", judged / "pairs.jsonl", "--json", "-")
    rows = {row["id"]: row for row in json.loads(out)}
    assert code == 0
    assert rows["bird"] == {
        "id": "bird", "question": "Name a bird.", "winner": None, "probability": None, "consistent": None,
        "failure": "off_grammar", "label": 1,
    }  # fmt: skip


def test_a_run_of_single_answers_is_refused(cli, batch, tmp_path):
    (tmp_path / "one.jsonl").write_text('{"id": "1", "question": "q", "answer": "a"}\n')
    batch(tmp_path / "one.jsonl", "--mode", "single", reply="8")
    code, _, err = cli("judgelm", "report", tmp_path / "out.jsonl")
    assert code == 1
    assert "mode single has no winner" in " ".join(err.split())


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (("--control", "length"), "--control requires labels"),
        (("--baseline", "other.jsonl"), "--baseline"),
        (("--reversed", "other.jsonl"), "--reversed requires labels"),
        (("-l", "pairs.jsonl", "--samples", "pairs.jsonl"), "--samples cannot be combined with --labels"),
    ],
)
def test_options_of_the_other_report_are_refused(cli, tmp_path, options, refused):
    code, _, err = cli("judgelm", "report", tmp_path / "out.jsonl", *options)
    assert (code, refused in " ".join(err.split())) == (1, True), err
