"""Verdicts of several judges made one."""

import pytest

from judgelm.records import GradeVerdict, LabelVerdict, PairVerdict, RankingVerdict, Unparsed
from judgelm.runs.panel import Opinion, combine, verdict_text


def pairs(*winners):
    return [Opinion(verdict=PairVerdict(winner=one)) for one in winners]


@pytest.mark.parametrize(
    ("winners", "panel"),
    [
        ((1, 1, 2), 1),
        ((2, "tie", 2), 2),
        ((1, 2), "tie"),
        ((1, 1, 2, 2, "tie"), "tie"),
        ((1, "tie"), "tie"),
        (("tie", "tie", 1), "tie"),
        ((2,), 2),
    ],
)
def test_a_pair_goes_to_the_winner_with_most_votes_or_is_a_tie(winners, panel):
    assert combine(pairs(*winners), "vote", comparable=True).verdict == PairVerdict(winner=panel)


def test_labels_without_a_majority_are_undecided():
    labels = [Opinion(verdict=LabelVerdict(label=one)) for one in ("correct", "incorrect", "correct")]
    assert combine(labels, "vote", comparable=True).verdict == LabelVerdict(label="correct")
    split = combine(labels[:2], "vote", comparable=True)
    assert (split.code, split.why) == ("undecided", "a split vote: correct 1, incorrect 1")


def test_the_mean_can_overrule_the_votes():
    # two judges prefer the second by 1, one the first by 6: means 7 and 17/3
    scored = [
        Opinion(verdict=PairVerdict(winner=2), scores=(6, 7)),
        Opinion(verdict=PairVerdict(winner=2), scores=(6, 7)),
        Opinion(verdict=PairVerdict(winner=1), scores=(9, 3)),
    ]
    voted, meant = (combine(scored, rule, comparable=True) for rule in ("vote", "mean"))
    assert (voted.verdict.winner, meant.verdict.winner) == (2, 1)
    assert voted.scores == meant.scores == (7, pytest.approx(17 / 3))


def test_means_are_given_only_where_all_have_scores_on_one_scale():
    scored = [Opinion(verdict=PairVerdict(winner=1), scores=(8, 6)), *pairs(1)]
    assert combine(scored, "vote", comparable=True).scores is None
    assert combine(scored[:1] * 2, "vote", comparable=False).scores is None


def test_probabilities_are_averaged_where_all_have_one():
    opinions = [Opinion(verdict=PairVerdict(winner=1), probability=one) for one in (0.9, 0.6)]
    assert combine(opinions, "vote", comparable=True).probability == pytest.approx(0.75)
    assert combine([*opinions, *pairs(1)], "vote", comparable=True).probability is None


def test_rankings_are_put_together_by_bordas_count():
    # of three answers: 1>2>3 gives 2 1 0, 1>2=3 gives 2 0.5 0.5, 3>2>1 gives 0 1 2: 4, 2.5, 2.5
    orders = [((0,), (1,), (2,)), ((0,), (1, 2)), ((2,), (1,), (0,))]
    opinions = [Opinion(verdict=RankingVerdict(order=order)) for order in orders]
    assert combine(opinions, "vote", comparable=True).verdict == RankingVerdict(order=((0,), (1, 2)))


def test_grades_have_a_mean_and_no_vote():
    grades = [Opinion(verdict=GradeVerdict(score=one), scores=(one,)) for one in (7, 8)]
    assert combine(grades, "mean", comparable=True).verdict == GradeVerdict(score=7.5)
    with pytest.raises(ValueError, match="grades are numbers"):
        combine(grades, "vote", comparable=True)


def test_what_cannot_be_put_together_is_refused():
    ranked = [Opinion(verdict=RankingVerdict(order=order)) for order in (((0,), (1,)), ((0,), (1,), (2,)))]
    with pytest.raises(ValueError, match="different numbers of answers"):
        combine(ranked, "vote", comparable=True)
    with pytest.raises(ValueError, match="different kinds"):
        combine([*pairs(1), ranked[0]], "vote", comparable=True)
    with pytest.raises(ValueError, match="of no judge"):
        combine([], "vote", comparable=True)
    assert not isinstance(combine(pairs(1), "vote", comparable=True), Unparsed)


@pytest.mark.parametrize(
    ("verdict", "word"),
    [
        (PairVerdict(winner="tie"), "tie"),
        (LabelVerdict(label="correct"), "correct"),
        (GradeVerdict(score=7.5), "7.5"),
        (RankingVerdict(order=((1,), (0, 2))), "2>1=3"),
    ],
)
def test_every_verdict_has_a_word(verdict, word):
    assert verdict_text(verdict) == word
