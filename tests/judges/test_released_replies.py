"""Replies of released judges, parsed as their own parsers do, and where ours differ."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.jsonl import read_jsonl
from judgelm.judges.released import released_judge
from judgelm.records import Scores, Unparsed


def reader(card, task):
    return released_judge(card).tasks[task].reply


read_pandalm, read_auto_j = reader("pandalm", "pair"), reader("auto-j", "pair")
read_auto_j_rating = reader("auto-j", "single")
read_prometheus_score, read_prometheus_letter = reader("prometheus-2", "single"), reader("prometheus-2", "pair")


def code(reading):
    if isinstance(reading, Unparsed):
        return reading.code
    return reading.values[0] if isinstance(reading, Scores) else reading


def replies(shared_data, dialect):
    for _, row in read_jsonl(shared_data / "dialects" / dialect / "replies.jsonl"):
        yield row["reply"].get("text", row["reply"].get("content")), row["parsed"]


def test_pandalm_as_its_code_but_that_garbage_is_no_tie(shared_data):
    for text, parsed in replies(shared_data, "pandalm_prompt_only"):
        expected = {1: "1", 2: "2", 0: "tie"}[parsed]
        if parsed == 0 and not text.lower().startswith("tie"):
            expected = "off_grammar"
        assert code(read_pandalm(text)) == expected, text


def test_auto_j_as_its_code(shared_data):
    for text, parsed in replies(shared_data, "autoj_pairwise_prompt_only"):
        assert code(read_auto_j(text)) == {0: "1", 1: "2", 2: "tie", -1: "off_grammar"}[parsed], text


def test_auto_js_rating_as_its_code_but_that_none_is_no_0(shared_data):
    for text, parsed in replies(shared_data, "autoj_single_prompt_only"):
        assert code(read_auto_j_rating(text)) == (parsed or "off_grammar"), text


def test_prometheus_score_as_its_code(shared_data):
    for text, parsed in replies(shared_data, "prometheus_absolute"):
        expected = parsed or ("out_of_range" if text == "[RESULT] 6" else "off_grammar")
        assert code(read_prometheus_score(text)) == expected, text


def test_prometheus_letter_as_its_code_and_with_a_full_stop(shared_data):
    for text, parsed in replies(shared_data, "prometheus_relative"):
        expected = {"A": "1", "B": "2", None: "off_grammar"}[parsed] if text != "[RESULT] A." else "1"
        assert code(read_prometheus_letter(text)) == expected, text


@pytest.mark.parametrize(
    ("read", "text", "code", "why"),
    [
        (read_pandalm, "Both\n1", "off_grammar", "no verdict in the format of the judge's card"),
        (read_auto_j_rating, "Rating: [[7.", "off_grammar", "expected 1 number"),
        (read_auto_j_rating, "Rating: [[10.5]]", "out_of_range", "10.5 is outside 1 to 10"),
        (read_prometheus_score, "[RESULT] 4\n[RESULT] 3", "off_grammar", "verdicts: 4 on line 1 and 3 on line 2"),
        (read_prometheus_score, "[RESULT] 6", "out_of_range", "6 is outside 1 to 5"),
    ],
)
def test_a_reply_without_a_judgment_keeps_its_text_and_the_reason(read, text, code, why):
    failure = read(text)
    assert (failure.code, failure.text) == (code, text)
    assert why in failure.why


DECIDES = "So, the final decision is Response"


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        # who names several answers, or something else, decides nothing; who says why, does
        (read_auto_j, f"{DECIDES} 1 / Response 2 / Tie.", "off_grammar"),
        (read_auto_j, f"{DECIDES} 1 or Tie", "off_grammar"),
        (read_auto_j, f"{DECIDES} 12", "off_grammar"),
        (read_auto_j, "So, the final decision is Tied up", "off_grammar"),
        (read_auto_j, f"{DECIDES} 2, since Response 1 is wrong.", "2"),
        (read_auto_j, "final decision is Response 1", "1"),
        (read_auto_j, f"{DECIDES} 1. So, the final decision is Tie", "tie"),
        (read_auto_j_rating, "Good.\n\nRating: [[0]]", "out_of_range"),
        (read_auto_j_rating, "Good.\n\nRating: [[1]]", 1),
        (read_auto_j_rating, "Good.\n\nRating: [[10]]", 10),
        (read_auto_j_rating, "Good.\n\nRating: [[a]]", "off_grammar"),
        # the last rating counts, whatever stands in brackets around it
        (read_auto_j_rating, "[[x]] Rating: [[3]]. No, Rating: [[7]], for [[this]].", 7),
        (read_auto_j_rating, "3]]", "off_grammar"),
        (read_prometheus_score, "Good. [RESULT] 4.", 4),
        (read_prometheus_score, "Good. **[RESULT] 4**", 4),
        (read_prometheus_score, "Good.\n[RESULT] 4\n\nI hope that this helps.", 4),
        (read_prometheus_score, "[RESULT] 4\n[RESULT] 4", 4),
        (read_prometheus_score, "[RESULT]：4", 4),
        (read_prometheus_score, "[RESULT] ４。", 4),
        (read_prometheus_score, "[RESULT] 2 (it names the wrong year)", 2),
        (read_prometheus_score, "[RESULT] 2（年份错误）。", 2),
        (read_prometheus_score, "[RESULT] 2 (or 3)", "off_grammar"),
        (read_prometheus_score, "[RESULT] 2 (perhaps three)", "off_grammar"),
        (read_prometheus_score, "[RESULT] 4/10", "off_grammar"),
        (read_prometheus_score, "[RESULT] 3-4", "off_grammar"),
        (read_prometheus_score, "[RESULT] -1", "off_grammar"),
        (read_prometheus_score, "Score 4: good. Score 5: better.", "off_grammar"),
        (read_prometheus_score, "[RESULT] 0", "out_of_range"),
        # a score in a sentence is a mention, whatever the sentence says
        (read_prometheus_score, "Nothing here can earn a score of 5.", "off_grammar"),
        (read_prometheus_score, "It stays far from score 5", "off_grammar"),
        (read_prometheus_score, "That is anything but a [RESULT] 5", "off_grammar"),
        (read_prometheus_score, "I would not go as far as **[RESULT] 5**", "off_grammar"),
        (read_prometheus_score, "It cannot reach a score of 5. Score: 2", 2),
        (read_prometheus_score, "It lacks a year.\n\nOverall score of 3 out of 5.", 3),
        (read_prometheus_letter, "This cannot be [RESULT] B", "off_grammar"),
        (read_auto_j, "I cannot say: final decision is Tie", "tie"),
        (read_auto_j_rating, "It is never Rating: [[9]]", "off_grammar"),
        (read_prometheus_letter, "Feedback: A is better than B. [RESULT] A", "1"),
        (read_prometheus_letter, "x [RESULT] **B**", "2"),
        (read_prometheus_letter, "x [RESULT] b", "2"),
        (read_prometheus_letter, "[RESULT] A\n\n[RESULT] B", "off_grammar"),
        (read_prometheus_letter, "[RESULT] A is better", "off_grammar"),
        (read_prometheus_letter, "[RESULT] Tie", "off_grammar"),
    ],
)
def test_replies(read, text, expected):
    assert code(read(text)) == expected


WORDS = st.lists(
    st.sampled_from(["the", "answer", "is", "far", "from", "no", "score", "of", "result", "5"]), min_size=1
)


@given(WORDS, st.sampled_from(["score of", "score", "a score of"]), st.integers(1, 5))
def test_a_score_within_a_sentence_is_no_grade(words, mention, grade):
    sentence = " ".join(["It", *words, mention, str(grade)])
    assert code(read_prometheus_score(f"{sentence}.")) == "off_grammar"
    assert code(read_prometheus_score(f"{sentence}. [RESULT] 2")) == 2
    assert code(read_prometheus_score(f"{sentence}.\nScore: 2")) == 2


def test_the_published_feedback_has_the_grade_of_its_mark_alone(shared_data):
    with gzip.open(shared_data / "prometheus/vicuna_eval.json.gz") as file:
        rows = json.load(file)
    graded = [pair for row in rows for pair in zip(row["gpt4_feedback"], row["gpt4_score"], strict=True)]
    assert len(graded) == 960
    assert {code(read_prometheus_score(text)) for text, _ in graded} == {"off_grammar"}
    for form in ("{} [RESULT] {}", "{}\n[RESULT] {}/5", "{}\n\nScore: {}"):
        assert all(code(read_prometheus_score(form.format(text, score))) == score for text, score in graded)
