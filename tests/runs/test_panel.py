"""Several judges' runs joined into one."""

from dataclasses import replace

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, RunError
from judgelm.modes import Pairwise, make_mode
from judgelm.records import LabelVerdict, PairVerdict, RankingVerdict
from judgelm.runs.batch import BatchHooks, BatchJob, run_batch
from judgelm.runs.panel import Opinion, Panel, aggregate, combine
from judgelm.runs.run_files import read_judgments
from tests.support.jsonl_files import write_rows


@pytest.fixture
def run(tmp_path):
    """Run a judge over questions 0, 1, ...; its replies in their order. The run file."""

    def judge(name, *replies, mode=None, answers=("a", "b")):
        pairs = tmp_path / f"pairs{len(answers)}.jsonl"
        write_rows(pairs, ({"id": f"p{i}", "question": f"q{i}", "answers": list(answers)} for i in range(len(replies))))
        script = {f"q{i}|{'|'.join(answers)}": text for i, text in enumerate(replies)}
        out = tmp_path / f"{name}.jsonl"
        engine = ScriptedEngine(script | {"never": ""})
        run_batch(BatchJob(inputs=(str(pairs),), out=str(out)), mode or Pairwise(), engine, hooks=BatchHooks())
        return out

    return judge


@pytest.fixture
def three(run):
    return run("a", "8 6", "8 6", "well", "5 5"), run("b", "7 6", "4 6", "9 1", "no"), run("c", "1 9", "2 9", "x", "-")


def joined(tmp_path, runs, **options):
    panel = Panel(runs=tuple(runs), out=tmp_path / "out.jsonl", **options)
    stats, counts = aggregate(panel)
    return read_judgments(panel.out), stats, counts


def test_votes_are_counted_and_failures_are_none(tmp_path, three):
    judgments, stats, counts = joined(tmp_path, three)
    assert {key: judgment.winner for key, judgment in judgments.items()} == {"p0": 1, "p1": 2, "p2": None, "p3": None}
    assert judgments["p0"].votes == {"a": "1", "b": "1", "c": "2"}
    assert judgments["p2"].votes == {"a": None, "b": "1", "c": None}
    failure = judgments["p2"].failure
    assert (failure.code, failure.text) == ("undecided", "off_grammar 2")
    assert failure.why == "1 of 3 families have a verdict; 2 required"
    assert (stats.judged, stats.failures) == (4, {"undecided": 2})
    # b gave verdicts on p0, p1 and p2; the panel decided p0 and p1, both as b did
    b = counts.judges["b"]
    assert (b.verdicts, b.failed, b.missing, b.same) == (3, 1, 0, 2)
    assert (counts.unanimous, counts.same_input) == (0, True)
    judgments, _, _ = joined(tmp_path, three, quorum=1, overwrite=True)  # one judge decides
    assert [judgments[key].winner for key in ("p2", "p3")] == [1, "tie"]


def test_the_mean_is_of_those_who_have_a_verdict(tmp_path, three):
    judgments, _, _ = joined(tmp_path, three, rule="mean", quorum=1)
    # p0: (8 + 7 + 1) / 3 against (6 + 6 + 9) / 3; p2: b alone
    assert (judgments["p0"].scores, judgments["p0"].winner) == ((round(16 / 3, 9), 7), 2)
    assert judgments["p2"].scores == (9, 1)


def test_a_family_has_one_vote(tmp_path, three):
    # a and b agree on p0 and are of one family: 1 against c's 2 is a tie. On p1 they are split, a tie; c says 2: tie
    judgments, _, counts = joined(tmp_path, three, families={"ab": ["a", "b"]})
    assert [judgments[key].winner for key in ("p0", "p1")] == ["tie", "tie"]
    assert judgments["p2"].failure.why == "1 of 2 families have a verdict; 2 required"
    assert [judge.family for judge in counts.judges.values()] == ["ab", "ab", "c"]


def test_what_a_run_lacks_is_missing(tmp_path, run):
    judgments, _, counts = joined(tmp_path, [run("a", "8 6", "8 6"), run("b", "8 6")])
    assert (judgments["p0"].winner, judgments["p1"].failure.code) == (1, "undecided")
    assert (counts.judges["b"].missing, counts.unanimous, counts.same_input) == (1, 1, False)


def test_a_rerun_adds_only_what_has_changed(tmp_path, run):
    runs = [run("a", "8 6", "8 6"), run("b", "8 6", "no")]
    joined(tmp_path, runs, quorum=1)
    before = (tmp_path / "out.jsonl").read_bytes()
    joined(tmp_path, runs, quorum=1)
    assert (tmp_path / "out.jsonl").read_bytes() == before
    with pytest.raises(RunError, match=r"panel\.quorum: was 1, now 2"):
        joined(tmp_path, runs, quorum=2)
    assert joined(tmp_path, runs, quorum=2, overwrite=True)[1].failures == {"undecided": 1}


def test_rankings_and_grades(tmp_path, run):
    multi, single = make_mode("multi", {}), make_mode("single", {})
    ranked = [run("a", "9 5 1", mode=multi, answers="abc"), run("b", "8 9 1", mode=multi, answers="abc")]
    judgments, _, _ = joined(tmp_path, ranked, overwrite=True)
    # 2 1 0 and 1 2 0 points: the first two are tied
    assert (judgments["p0"].votes, judgments["p0"].verdict.order) == ({"a": "1>2>3", "b": "2>1>3"}, ((0, 1), (2,)))
    graded = [run("c", "8", mode=single, answers="a"), run("d", "9", mode=single, answers="a")]
    with pytest.raises(ConfigError, match="use --rule mean"):
        joined(tmp_path, graded, overwrite=True)
    assert joined(tmp_path, graded, rule="mean", overwrite=True)[0]["p0"].verdict.score == 8.5
    with pytest.raises(ConfigError, match="a and c have different kinds of verdicts"):
        joined(tmp_path, [ranked[0], graded[0]], overwrite=True)


def test_scores_on_different_scales_have_no_mean(tmp_path, run):
    runs = [run("a", "8 6"), run("b", "4 3", mode=Pairwise(scale=(1, 5)))]
    with pytest.raises(ConfigError, match="different modes or scales; use --rule vote"):
        joined(tmp_path, runs, rule="mean")
    judgments, _, _ = joined(tmp_path, runs)
    assert (judgments["p0"].winner, judgments["p0"].scores) == (1, None)


def test_what_is_no_panel_is_refused(tmp_path, run):
    a, b = run("a", "8 6"), run("b", "8 6")
    for options, finding in (
        ({"runs": (a,)}, "at least two runs with different names"),
        ({"runs": (a, a)}, "at least two runs with different names"),
        ({"runs": (a, b), "out": b}, "would overwrite"),
        ({"runs": (a, b), "families": {"x": ["nobody"]}}, "judge 'nobody' not found; available: a, b, script"),
        ({"runs": (a, b), "quorum": 3}, "expected 1 to 2"),
    ):
        with pytest.raises(ConfigError, match=finding):
            Panel(**({"out": tmp_path / "out.jsonl"} | options))
    with pytest.raises(RunError, match=r"nowhere\.jsonl: run not found"):
        Panel(runs=(a, tmp_path / "nowhere.jsonl"), out=tmp_path / "out.jsonl")


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
    opinions = [Opinion(verdict=PairVerdict(winner=winner)) for winner in winners]
    assert combine(opinions, "vote", comparable=True).verdict == PairVerdict(winner=panel)


def test_labels_without_a_majority_are_undecided():
    labels = [Opinion(verdict=LabelVerdict(label=label)) for label in ("correct", "incorrect", "correct")]
    assert combine(labels, "vote", comparable=True).verdict == LabelVerdict(label="correct")
    split = combine(labels[:2], "vote", comparable=True)
    assert (split.code, split.why) == ("undecided", "the vote was split: correct 1, incorrect 1")


def test_the_mean_can_overrule_the_votes():
    # two judges prefer the second by 1, one the first by 6: means 7 and 17/3
    second, first = ({"verdict": PairVerdict(winner=winner)} for winner in (2, 1))
    scored = [*[Opinion(**second, scores=(6, 7))] * 2, Opinion(**first, scores=(9, 3))]
    voted, meant = (combine(scored, rule, comparable=True) for rule in ("vote", "mean"))
    assert (voted.verdict.winner, meant.verdict.winner) == (2, 1)
    assert voted.scores == meant.scores == (7, pytest.approx(17 / 3))


def test_means_are_given_only_where_all_have_a_probability_and_scores_on_one_scale():
    bare = Opinion(verdict=PairVerdict(winner=1))
    scored = replace(bare, scores=(8, 6))
    probable = [replace(bare, probability=probability) for probability in (0.9, 0.6)]
    assert combine(probable, "vote", comparable=True).probability == pytest.approx(0.75)
    assert combine([*probable, bare], "vote", comparable=True).probability is None
    assert combine([scored, bare], "vote", comparable=True).scores is None
    assert combine([scored, scored], "vote", comparable=False).scores is None


def test_rankings_are_combined_by_borda_count():
    # of three answers: 1>2>3 gives 2 1 0, 1>2=3 gives 2 0.5 0.5, 3>2>1 gives 0 1 2: 4, 2.5, 2.5
    orders = ((0,), (1,), (2,)), ((0,), (1, 2)), ((2,), (1,), (0,))
    opinions = [Opinion(verdict=RankingVerdict(order=order)) for order in orders]
    assert combine(opinions, "vote", comparable=True).verdict == RankingVerdict(order=((0,), (1, 2)))
