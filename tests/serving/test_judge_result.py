"""What is made of judgments: hand-worked distributions, both orders, other scales, and what is not known."""

import pytest

from judgelm.dialects.contract import JudgeTask, sample_of
from judgelm.records import GradeDistribution, Judgment, PairDistribution, PairVerdict, Shown, Truncation, Unparsed
from judgelm.serving.judge_result import judge_result, likeliest_winner

PAIR = JudgeTask(dialect="x", kind="pair", sample=sample_of("q", ("a", "b")))
GRADE = JudgeTask(dialect="x", kind="grade", sample=sample_of("q", ("a",)), scale=(1, 5))


def shown_pair(*lines, order=(0, 1), unassigned=0.0, **fields):
    """A prompt whose distribution has these (s1, s2, probability), the likeliest one written."""
    whole = sum(share for *_, share in lines)
    distribution = PairDistribution(
        expected=(sum(s1 * share for s1, _, share in lines) / whole, sum(s2 * share for _, s2, share in lines) / whole),
        first_better=sum(share * ((s1 > s2) + (s1 == s2) / 2) for s1, s2, share in lines) / whole,
        tie=sum(share for s1, s2, share in lines if s1 == s2) / whole,
        unassigned=unassigned,
        likeliest=lines,
    )
    s1, s2, _ = max(lines, key=lambda line: line[2])
    return Shown(order=order, text=f"{s1} {s2}", scores=(s1, s2), **{"distribution": distribution, **fields})


def result_of(case, *shown, scale=(1, 10), draws=1, key="id"):
    judgment = Judgment(sample_id=key, mode="pair", verdict=PairVerdict(winner="tie"), shown=shown)
    return judge_result(case, judgment, scale=scale, draws=draws)


@pytest.mark.parametrize(
    ("first_better", "tie", "winner"),
    [
        *((0.7, 0.2, 1), (0.3, 0.2, 2)),  # 0.6, 0.2, 0.2
        (0.55, 0.5, "tie"),  # 0.3, 0.5, 0.2
        (0.5, 0.1, "tie"),  # 0.45 each: neither is better
        *((0.6, 0.4, 1), (0.4, 0.4, 2)),  # 0.4, 0.4, 0.2: as likely as the tie, and a winner says more
        (0.5 + 1e-12, 0.0, "tie"),
    ],
)
def test_the_likeliest_of_three_wins(first_better, tie, winner):
    assert likeliest_winner(first_better, tie) == winner


def test_a_pair_is_what_its_distribution_says_not_its_likeliest_line():
    result = result_of(PAIR, shown_pair((8, 8, 0.4), (8, 6, 0.35), (9, 5, 0.25)))
    assert result.winner == 1  # 0.6 against 0.4, though 8 8 was written
    # 0.4 * 8 + 0.35 * 8 + 0.25 * 9; 0.4 * 8 + 0.35 * 6 + 0.25 * 5
    assert result.scores == (8.25, 6.55)
    assert (result.first_better, result.tie, result.notes) == (0.8, 0.4, ())


def test_both_orders_are_put_back_and_averaged():
    given = shown_pair((8, 6, 1.0))
    swapped = shown_pair((9, 3, 0.5), (4, 8, 0.5), order=(1, 0))  # of the second, then of the first answer
    result = result_of(PAIR, given, swapped, draws=400)
    # the first has 8, and 3 or 8 in the other order: (8 + 5.5) / 2; the second 6, and 9 or 4: (6 + 6.5) / 2
    assert result.scores == (6.75, 6.25)
    assert (result.first_better, result.winner) == (0.75, 1)
    assert set(result.draws) == {(8, 6), (3, 9), (8, 4)}
    assert result.draws.count((8, 6)) == pytest.approx(200, abs=40)


def test_an_order_blind_judge_finds_the_same_whichever_answer_is_shown_first():
    lines = ((8, 6, 0.3), (6, 8, 0.3), (7, 7, 0.3), (9, 2, 0.1))
    given = result_of(PAIR, shown_pair(*lines))
    swapped = result_of(PAIR, shown_pair(*((s2, s1, share) for s1, s2, share in lines)))
    assert (given.winner, swapped.winner) == (1, 2)
    assert given.first_better == pytest.approx(1 - swapped.first_better)
    assert given.scores == swapped.scores[::-1]


def test_draws_repeat_and_follow_the_distribution():
    shown = shown_pair((8, 6, 0.75), (5, 7, 0.25))
    few, many = (result_of(PAIR, shown, draws=count).draws for count in (3, 1000))
    assert many[:3] == few
    assert many.count((8, 6)) == pytest.approx(750, abs=60)
    assert result_of(PAIR, shown, draws=1000, key="other").draws != many


def test_a_grade_has_its_scores_and_what_lies_above_the_middle():
    grades = GradeDistribution(expected=6.25, unassigned=0.2, likeliest=((7, 0.5), (5, 0.3)))
    shown = Shown(order=(0,), text="7", scores=(7,), grades=grades)
    result = result_of(GRADE, shown)
    assert [score for score, _ in result.grades] == [7, 5]
    assert [share for _, share in result.grades] == pytest.approx([0.625, 0.375])
    assert (result.scores, result.correct, result.notes) == ((6.25,), 0.625, ())


def test_another_scale_becomes_one_to_ten():
    # 0 to 4 by 0.5: 4 is 10, 2 is the middle, 5.5, and not above it
    grades = GradeDistribution(expected=3.0, unassigned=0.0, likeliest=((4.0, 0.5), (2.0, 0.5)))
    result = result_of(GRADE, Shown(order=(0,), text="4", scores=(4.0,), grades=grades), scale=(0, 4))
    assert (result.scores, result.grades, result.correct) == ((7.75,), ((5.5, 0.5), (10.0, 0.5)), 0.5)
    pair = result_of(PAIR, shown_pair((1, 0, 1.0)), scale=(0, 1))
    assert (pair.scores, pair.draws) == ((10.0, 1.0), ((10.0, 1.0),))


def test_without_probabilities_the_score_line_is_used_with_a_note():
    result = result_of(PAIR, shown_pair((8, 6, 1.0), distribution=None), draws=2)
    [note] = result.notes
    assert (result.winner, result.scores, result.first_better) == (1, (8, 6), 1.0)
    assert result.draws == ((8, 6), (8, 6))
    assert "does not return probabilities" in note
    grade = result_of(GRADE, Shown(order=(0,), text="7", scores=(7,)))
    assert (grade.grades, grade.correct) == (((7, 1.0),), 1.0)


def test_lines_with_little_probability_are_not_relied_on():
    result = result_of(PAIR, shown_pair((6, 8, 0.2), (9, 1, 0.1), unassigned=0.7))
    [note] = result.notes
    assert (result.winner, result.scores) == (2, (6, 8))
    assert "is only 0.3" in note


def test_notes_are_not_repeated():
    lack = Unparsed("truncated", "", "no end within 256 tokens")
    cut = (Truncation(answer=0, tokens_before=900, tokens_after=400),)
    shown = shown_pair((8, 6, 1.0), truncations=cut, reason="so", reason_failure=lack)
    doubtful = JudgeTask(dialect="x", kind="pair", sample=PAIR.sample, doubt="doubtful")
    result = result_of(doubtful, shown, shown)
    assert (result.reason, len(result.notes)) == ("so", 3)
    words = ("doubtful", "from 900 to 400 tokens", "truncated, no end within")
    assert all(word in note for word, note in zip(words, result.notes, strict=True))
