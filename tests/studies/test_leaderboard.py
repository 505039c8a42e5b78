"""`judgelm study leaderboard`: matches, ratings and win rates of runs and of AlpacaEval's annotations."""

import re
from dataclasses import replace

import numpy as np
import pytest

from judgelm.cli.study.pairs import leaderboard_command
from judgelm.errors import ConfigError, InputError
from judgelm.records import Judgment, PairDistribution, PairVerdict, Sample, Shown
from judgelm.studies.leaderboard import matches_of_run
from tests.support.judged_items import write_run
from tests.support.studies import both_orders, judged_pair, run_study, write_rows

ROW = {
    "instruction": "i", "output_1": "long answer", "output_2": "short",
    "generator_1": "base", "generator_2": "m", "annotator": "judge",
}  # fmt: skip


def study(folder, *arguments):
    return run_study(leaderboard_command, folder, *arguments)


def pair(key, models=("a", "b")):
    return Sample(id=key, question="q", answers=("x", "y"), answer_models=models)


def soft_run(unassigned):
    """A run of one pair whose first places win with 0.9 and 0.4."""
    judgment, shares = both_orders("1", (8, 3), (5, 5)), {"expected": (5, 5), "tie": 0.0, "likeliest": ()}
    shown = (
        replace(judgment.shown[0], distribution=PairDistribution(first_better=0.9, unassigned=0.0, **shares)),
        replace(judgment.shown[1], distribution=PairDistribution(first_better=0.4, unassigned=unassigned, **shares)),
    )
    return {"1": replace(judgment, shown=shown)}


def test_each_order_is_a_verdict_of_the_model_shown_first():
    judged = matches_of_run("judge", {"1": both_orders("1", (8, 3), (5, 5))}, {"1": pair("1")})
    rows = [(match.first, match.second, match.preference, match.ordered) for match in judged.matches]
    assert rows == [("a", "b", 1.0, True), ("b", "a", 0.5, True)]
    # without orders
    run = {"1": Judgment(sample_id="1", mode="panel", verdict=PairVerdict(winner="tie"), shown=())}
    [match] = matches_of_run("panel", run, {"1": pair("1")}).matches
    assert (match.preference, match.ordered) == (0.5, False)


def test_probabilities_of_each_order_are_soft_verdicts():
    for unassigned, preferences in ((0.0, [0.9, 0.4]), (0.9, [0.9])):
        judged = matches_of_run("judge", soft_run(unassigned), {"1": pair("1")})
        assert ([match.preference for match in judged.matches], judged.soft) == (preferences, len(preferences))


def test_failures_and_pairs_of_one_model_are_counted():
    run = {key: both_orders(key, (8, 3), swapped) for key, swapped in (("1", (3, 8)), ("3", (3, 8)), ("4", None))}
    run["2"] = judged_pair("2", None)
    samples = {"1": pair("1"), "2": pair("2"), "3": pair("3", ("a", "a")), "4": pair("4")}
    judged = matches_of_run("judge", run, samples)
    assert (len(judged.comparisons), judged.failed, judged.same_model, len(judged.matches)) == (4, 1, 1, 3)


def test_pairs_without_models_are_refused():
    for rows, finding in (
        ({"1": pair("1", ())}, "does not have two model names"),
        ({}, "no row has this id; .* --rows"),
    ):
        with pytest.raises(InputError, match=finding):
            matches_of_run("judge", {"1": both_orders("1", (8, 3), (3, 8))}, rows)


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
            run.append(both_orders(key, *scores))
    return write_run(folder / name, run), write_rows(folder / "pairs.jsonl", rows)


def test_judges_are_rated_apart_with_position_and_rank_correlation(tmp_path):
    straight, pairs = leaning_run(tmp_path, "straight.jsonl", 0)
    leaning, _ = leaning_run(tmp_path, "leaning.jsonl", 2, seed=1)
    result = study(tmp_path, straight, f"first={leaning}", "--rows", pairs)
    ratings, _, judges, correlation = (table["rows"] for table in result["tables"])
    assert [row["model"] for row in ratings] == ["a", "b", "c"] * 2
    assert [row["judge"] for row in judges] == ["straight", "first"]
    unbiased, biased = (row["first_position"] for row in judges)
    assert unbiased["low"] < 0 < min(unbiased["high"], biased["low"])
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
    assert re.search("top is ranked first.*no upper bound", result["findings"][0])
    for warning in ("tie added per model", "always shown in the same order"):
        assert any(warning in line for line in result["warnings"])
    assert (tmp_path / "study" / "figures" / "elo-1-run.svg").is_file()


def test_annotations_have_no_order(tmp_path):
    preferences = enumerate([1.2, 1.8, 1.5, 2, 1, None])
    rows = [ROW | {"instruction": str(index), "preference": preference} for index, preference in preferences]
    result = study(tmp_path, write_rows(tmp_path / "a.jsonl", rows))
    # 0.2 + 0.8 + 0.5 + 1 + 0 of 5: even
    assert [row["elo"]["value"] for row in result["tables"][0]["rows"]] == pytest.approx([1000, 1000])
    assert result["counts"]["failed"] == 1
    assert any("order shown is unknown" in line for line in result["warnings"])


def win_rates(folder, *arguments):
    """The numbers, and the table of win rates."""
    result = study(folder, *arguments)
    return result, next(table for table in result["tables"] if table["name"] == "win-rates")


def test_win_rates_by_hand_with_what_was_not_judged_and_not_usable(tmp_path):
    preferences = [1.9, 1.6, 1.5, 0, 1, None, 0.5]
    annotations = [ROW | {"instruction": str(i), "preference": p} for i, p in enumerate(preferences)]
    result, table = win_rates(tmp_path, write_rows(tmp_path / "a.jsonl", annotations))
    # 0.9 + 0.6 + 0.5 + 0.5 + 0; two wins, two ties, one loss
    [row] = table["rows"]
    assert (row["win_rate"]["value"], row["discrete_win_rate"]["value"]) == (pytest.approx(0.5), pytest.approx(0.6))
    assert [row[name] for name in ("n", "n_wins", "n_draws", "n_wins_base", "not_judged")] == [5, 2, 2, 1, 1]
    assert any("a.jsonl:7" in line and "from 1 to 2, or 0 for a tie, got 0.5" in line for line in result["warnings"])


def test_annotators_and_models_are_never_pooled(tmp_path):
    changes = [{"preference": 2}, {"preference": 1, "annotator": "other"}, {"preference": 1.5, "generator_2": "n"}]
    _, table = win_rates(tmp_path, write_rows(tmp_path / "a.jsonl", [ROW | change for change in changes]))
    rows = [(row["annotator"], row["model"], row["win_rate"]["value"]) for row in table["rows"]]
    assert rows == [("judge", "m", 1.0), ("judge", "n", 0.5), ("other", "m", 0.0)]


def test_a_run_gives_win_rates_over_its_pairs(tmp_path):
    base = {"answer_1": "a", "answer_2": "b", "answer_models": ["base", "m"]}
    pairs = [base | {"id": str(i), "question": f"q{i}"} for i in range(3)]
    judgments = [judged_pair("0", 1, probability=0.8), judged_pair("1", 2), judged_pair("2", None)]
    run = write_run(tmp_path / "small.jsonl", judgments)
    _, table = win_rates(tmp_path, run, "--rows", write_rows(tmp_path / "pairs.jsonl", pairs))
    [row] = table["rows"]
    assert row["win_rate"]["value"] == pytest.approx(0.6)  # (0.2 + 1) / 2
    assert (row["model"], row["annotator"], row["not_judged"]) == ("m", "small", 1)
    with pytest.raises(ConfigError, match="--rows"):
        win_rates(tmp_path, run)


def test_pairs_of_two_models_in_either_order_are_one_row(tmp_path):
    texts = {"answer_1": "a", "answer_2": "bbb"}
    orders = [("base", "m"), ("m", "base"), ("m", "base")]
    pairs = [texts | {"id": str(i), "question": f"q{i}", "answer_models": models} for i, models in enumerate(orders)]
    run = write_run(tmp_path / "small.jsonl", [judged_pair(str(i), 1) for i in range(3)])
    [row] = win_rates(tmp_path, run, "--rows", write_rows(tmp_path / "pairs.jsonl", pairs))[1]["rows"]
    # m loses, wins, wins; its answers have 3, 1 and 1 characters
    assert [row[name] for name in ("model", "baseline", "n_wins", "n_wins_base")] == ["m", "base", 2, 1]
    assert row["avg_length"] == pytest.approx(5 / 3)
    assert row["length_note"] == "3 comparisons are too few (minimum: 10)"


def test_annotations_give_length_controlled_win_rates(tmp_path):
    rows = [ROW | {"instruction": str(i), "output_2": "x" * i**2, "preference": 1 + i % 7 / 7} for i in range(30)]
    [row] = win_rates(tmp_path, write_rows(tmp_path / "a.jsonl", rows))[1]["rows"]
    assert row["length_controlled_winrate"] is not None
    assert row["standard_error"] == pytest.approx(np.std([i % 7 / 7 for i in range(30)], ddof=1) / 30**0.5)
