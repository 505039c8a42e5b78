"""Winners and scores in the form that clients want, and the words beside them."""

import pytest

from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask, sample_of
from judgelm.dialects.replies import consistent_scores, winner_sentence, winner_with_ties, words_and_verdict

CASE = JudgeTask(dialect="any", kind="pair", sample=sample_of("q", ("a", "b")))
LINES = "{verdict}\n{words}"


def test_a_tie_is_said_to_clients_that_know_one():
    tie = JudgeResult(winner="tie", first_better=0.6, scores=(7.0, 7.0))
    assert (winner_with_ties(CASE, tie), winner_with_ties(CASE, tie, ties=False)) == ("tie", 1)
    assert winner_sentence(CASE, tie) == "Both assistants are equally good."
    assert winner_sentence(CASE, tie, ties=False) == "Assistant 1 is better."
    assert (consistent_scores(CASE, tie), consistent_scores(CASE, tie, ties=False)) == (("7", "7"), ("7.05", "6.95"))


@pytest.mark.parametrize(
    ("winner", "scores", "shown"),
    [
        (1, (8.254, 6.0), ("8.25", "6")),
        (1, (6.0, 8.0), ("7.05", "6.95")),
        (2, (7.001, 7.002), ("6.95", "7.05")),  # the same, as the client reads them
        (1, (9.9, 10.0), ("10", "9.9")),  # 9.95 and 0.05 more are 10
        (2, (9.99, 9.98), ("9.9", "10")),  # 10.03 would be above the scale
        (1, (1.01, 1.02), ("1.1", "1")),  # 0.96 would be below it
        ("tie", (1.0, 2.0), ("1.5", "1.5")),
        (2, (7.25, 7.0), ("7.07", "7.17")),  # the mean, 7.125, is rounded before they are put 0.1 apart
    ],
)
def test_scores_that_contradict_the_winner_become_their_mean(winner, scores, shown):
    assert consistent_scores(CASE, JudgeResult(winner=winner, scores=scores)) == shown


@pytest.mark.parametrize(
    ("most", "layout", "text"),
    [
        (None, "{words}\n\n{verdict}", "Some words.\n\n[[A]]"),
        (18, "{words}\n\n{verdict}", "Some words.\n\n[[A]]"),
        (17, "{words}\n\n{verdict}", "Some words\n\n[[A]]"),
        (12, "{words}\n\n{verdict}", "Some\n\n[[A]]"),  # five characters, the last of them a blank
        (8, "{words}\n\n{verdict}", "S\n\n[[A]]"),
        (7, "{words}\n\n{verdict}", "[[A]]"),
        (1, "{words}\n\n{verdict}", "[[A]]"),
        (10, LINES, "[[A]]\nSome"),
    ],
)
def test_words_are_cut_where_there_is_no_room_and_the_verdict_never(most, layout, text):
    assert words_and_verdict(ChatRequest(messages=(), max_tokens=most), "Some words.", "[[A]]", layout) == text
