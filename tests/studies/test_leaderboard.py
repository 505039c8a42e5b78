"""`judgelm study leaderboard`: matches of runs in each order, of AlpacaEval's annotations, and the study's files."""

from dataclasses import replace

import numpy as np
import pytest

from judgelm.cli.study.pairs import leaderboard_command
from judgelm.errors import ConfigError, InputError
from judgelm.records import Judgment, PairDistribution, PairVerdict, Sample, Shown
from judgelm.studies.leaderboard import matches_of_run
from tests.support.judged_items import write_run
from tests.support.studies import FAILURE, judged_pair, run_study, write_rows


def study(folder, *arguments):
    return run_study(leaderboard_command, folder, *arguments)


def both(key, given, swapped, winner=1, distributions=(None, None)):
    """Scores in the order shown."""
    shown = tuple(
        Shown(order=order, text="", scores=scores, distribution=distribution)
        for order, scores, distribution in zip(((0, 1), (1, 0)), (given, swapped), distributions, strict=True)
    )
    return Judgment(sample_id=key, mode="pair", verdict=PairVerdict(winner=winner), shown=shown)


def pair(key, models=("a", "b")):
    return Sample(id=key, question="q", answers=("x", "y"), answer_models=models)


def distribution(first_better, unassigned=0.0):
    return PairDistribution(expected=(5, 5), first_better=first_better, tie=0.0, unassigned=unassigned, likeliest=())


def test_each_order_is_a_verdict_of_the_model_shown_first():
    judged = matches_of_run("judge", {"1": both("1", (8, 3), (5, 5))}, {"1": pair("1")})
    rows = [(match.first, match.second, match.preference, match.ordered) for match in judged.matches]
    assert rows == [("a", "b", 1.0, True), ("b", "a", 0.5, True)]


def test_probabilities_of_each_order_are_soft_verdicts():
    run = {"1": both("1", (8, 3), (5, 5), distributions=(distribution(0.9), distribution(0.4)))}
    judged = matches_of_run("judge", run, {"1": pair("1")})
    assert [match.preference for match in judged.matches] == [0.9, 0.4]
    assert judged.soft == 2
    run = {"1": both("1", (8, 3), (5, 5), distributions=(distribution(0.9), distribution(0.4, unassigned=0.9)))}
    assert [match.preference for match in matches_of_run("judge", run, {"1": pair("1")}).matches] == [0.9]


def test_a_judge_without_orders_gives_a_verdict_of_unknown_order():
    run = {"1": Judgment(sample_id="1", mode="panel", verdict=PairVerdict(winner="tie"), shown=())}
    [match] = matches_of_run("panel", run, {"1": pair("1")}).matches
    assert (match.preference, match.ordered) == (0.5, False)


def test_failures_and_pairs_of_one_model_are_counted():
    half = both("4", (8, 3), None)
    half = replace(half, shown=(half.shown[0], Shown(order=(1, 0), text="", failure=FAILURE)))
    run = {"1": both("1", (8, 3), (3, 8)), "2": judged_pair("2", None), "3": both("3", (8, 3), (3, 8)), "4": half}
    samples = {"1": pair("1"), "2": pair("2"), "3": pair("3", ("a", "a")), "4": pair("4")}
    judged = matches_of_run("judge", run, samples)
    assert (len(judged.comparisons), judged.failed, judged.same_model, len(judged.matches)) == (4, 1, 1, 3)


def test_pairs_without_models_are_refused():
    for rows, finding in (
        ({"1": pair("1", ())}, "does not have two model names"),
        ({}, "no row has this id; .* --rows"),
    ):
        with pytest.raises(InputError, match=finding):
            matches_of_run("judge", {"1": both("1", (8, 3), (3, 8))}, rows)


def row(key, question, models):
    texts = {"id": key, "question": question, "answer_1": "x", "answer_2": "y"}
    return texts | {"model_1": models[0], "model_2": models[1]}


def leaning_run(folder, name, lean, seed=0):
    """A run of 40 questions on three models; a beats b beats c; `lean` is added to the answer shown first."""
    generator = np.random.default_rng(seed)
    strength = {"a": 2, "b": 1, "c": 0}
    rows, run = [], []
    for question in range(40):
        for models in (("a", "b"), ("b", "c"), ("c", "a")):
            key = f"{question}-{models[0]}"
            rows.append(row(key, f"q{question}", models))
            scores = []
            for first, second in (models, models[::-1]):
                lead = strength[first] - strength[second] + lean + generator.normal(0, 2)
                scores.append((5 + round(lead), 5))
            run.append(both(key, *scores))
    return write_run(folder / name, run), write_rows(folder / "pairs.jsonl", rows)


def test_judges_are_rated_apart_with_position_and_rank_correlation(tmp_path):
    straight, pairs = leaning_run(tmp_path, "straight.jsonl", 0)
    leaning, _ = leaning_run(tmp_path, "leaning.jsonl", 2, seed=1)
    result = study(tmp_path, straight, f"first={leaning}", "--rows", pairs)
    ratings, _, judges, correlation = (table["rows"] for table in result["tables"])
    assert [row["model"] for row in ratings] == ["a", "b", "c"] * 2
    assert [row["judge"] for row in judges] == ["straight", "first"]
    assert judges[0]["first_position"]["low"] < 0 < judges[0]["first_position"]["high"]
    assert judges[1]["first_position"]["low"] > 0
    assert (correlation[0]["spearman"], correlation[0]["models"]) == (1.0, 3)
    assert (tmp_path / "study" / "figures" / "elo-1-straight.svg").is_file()
    for arguments, finding in (((straight,), "--rows"), ((straight, straight, "--rows", pairs), "given twice")):
        with pytest.raises(ConfigError, match=finding):
            study(tmp_path, *arguments)


def test_the_first_finding_names_the_unbeaten_model_and_its_interval_is_open(tmp_path):
    rows, run = [], []
    for index in range(30):
        for models, winner in ((("top", "b"), 1), (("top", "c"), 1), (("b", "c"), 1 + index % 2)):
            rows.append(row(f"{index}-{models}", f"q{index}", models))
            shown = (Shown(order=(0, 1), text="", scores=(8, 3) if winner == 1 else (3, 8)),)
            run.append(judged_pair(f"{index}-{models}", winner, shown=shown))
    pairs = write_rows(tmp_path / "pairs.jsonl", rows)
    result = study(tmp_path, write_run(tmp_path / "run.jsonl", run), "--rows", pairs)
    first = result["tables"][0]["rows"][0]
    assert (first["model"], first["elo"]["high"]) == ("top", None)
    assert "top ranks first" in result["findings"][0]
    assert "no upper bound" in result["findings"][0]
    assert any("tie added per model" in line for line in result["warnings"])
    assert any("always shown in the same order" in line for line in result["warnings"])
    assert (tmp_path / "study" / "figures" / "elo-1-run.svg").is_file()


def test_annotations_have_no_order(tmp_path):
    shared = {"output_1": "x", "output_2": "y", "generator_1": "base", "generator_2": "m", "annotator": "judge"}
    preferences = enumerate([1.2, 1.8, 1.5, 2, 1, None])
    rows = [shared | {"instruction": str(index), "preference": preference} for index, preference in preferences]
    result = study(tmp_path, write_rows(tmp_path / "a.jsonl", rows))
    # 0.2 + 0.8 + 0.5 + 1 + 0 of 5: even
    assert [row["elo"]["value"] for row in result["tables"][0]["rows"]] == pytest.approx([1000, 1000])
    assert result["counts"]["failed"] == 1
    assert any("order shown is unknown" in line for line in result["warnings"])
