"""`judgelm study leaderboard`: matches of runs in each order, of AlpacaEval's annotations, and the study's files."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from judgelm.cli.commands import add_command
from judgelm.cli.study.pairs import leaderboard_command
from judgelm.errors import ConfigError, InputError
from judgelm.records import Judgment, PairDistribution, PairVerdict, Sample, Shown, Unparsed
from judgelm.runs.serialization import judgment_row
from judgelm.studies.leaderboard import matches_of_run

APP = typer.Typer()
add_command(APP, leaderboard_command, "study")
FAILURE = Unparsed("off_grammar", "hm")


def both(key, given, swapped, winner=1, distributions=(None, None)):
    """Scores in the order shown."""
    shown = tuple(
        Shown(order=order, text="", scores=scores, distribution=distribution)
        for order, scores, distribution in zip(((0, 1), (1, 0)), (given, swapped), distributions, strict=True)
    )
    return Judgment(sample_id=key, mode="pair", verdict=PairVerdict(winner=winner), shown=shown)


def pair(key, models=("a", "b"), question="q"):
    return Sample(id=key, question=question, answers=("x", "y"), answer_models=models)


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
    failed = Judgment(
        sample_id="2", mode="pair", verdict=None, shown=(Shown(order=(0, 1), text="", failure=FAILURE),),
        failure=FAILURE,
    )  # fmt: skip
    half = both("4", (8, 3), None)
    half = Judgment(
        sample_id="4", mode="pair", verdict=half.verdict,
        shown=(half.shown[0], Shown(order=(1, 0), text="", failure=FAILURE)),
    )  # fmt: skip
    run = {"1": both("1", (8, 3), (3, 8)), "2": failed, "3": both("3", (8, 3), (3, 8)), "4": half}
    samples = {"1": pair("1"), "2": pair("2"), "3": pair("3", ("a", "a")), "4": pair("4")}
    judged = matches_of_run("judge", run, samples)
    assert (judged.pairs, judged.failed, judged.same_model, len(judged.matches)) == (4, 1, 1, 3)


def test_pairs_without_models_are_refused():
    with pytest.raises(InputError, match="judgment 1: its row does not name two models"):
        matches_of_run("judge", {"1": both("1", (8, 3), (3, 8))}, {"1": pair("1", ())})
    with pytest.raises(InputError, match="judgment 1: it is not among the rows; give the judged pairs with --rows"):
        matches_of_run("judge", {"1": both("1", (8, 3), (3, 8))}, {})


@pytest.fixture
def study(tmp_path):
    def study(*arguments):
        command = [*map(str, arguments), "-o", str(tmp_path / "study"), "--bootstrap", "100", "--json", "-"]
        done = CliRunner().invoke(APP, command)
        if done.exception is not None:
            raise done.exception
        return json.loads(done.stdout)

    return study


def write_run(folder, name, lean, seed=0):
    """A run of 40 questions on three models; a beats b beats c; `lean` is added to the answer shown first."""
    generator = np.random.default_rng(seed)
    strength = {"a": 2, "b": 1, "c": 0}
    rows, run = [], []
    for question in range(40):
        for models in (("a", "b"), ("b", "c"), ("c", "a")):
            key = f"{question}-{models[0]}"
            rows.append({
                "id": key, "question": f"q{question}", "answer_1": "x", "answer_2": "y",
                "model_1": models[0], "model_2": models[1],
            })  # fmt: skip
            scores = []
            for first, second in (models, models[::-1]):
                lead = strength[first] - strength[second] + lean + generator.normal(0, 2)
                scores.append((5 + round(lead), 5))
            run.append(judgment_row(both(key, *scores)))
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in run))
    return folder / name, folder / "pairs.jsonl"


def test_judges_are_rated_apart_with_position_and_rank_correlation(study, tmp_path):
    straight, pairs = write_run(tmp_path, "straight.jsonl", 0)
    leaning, _ = write_run(tmp_path, "leaning.jsonl", 2, seed=1)
    result = study(straight, f"first={leaning}", "--rows", pairs)
    ratings, judges, correlation = (table["rows"] for table in result["tables"])
    assert [row["model"] for row in ratings] == ["a", "b", "c"] * 2
    assert [row["judge"] for row in judges] == ["straight", "first"]
    assert judges[0]["first_position"]["low"] < 0 < judges[0]["first_position"]["high"]
    assert judges[1]["first_position"]["low"] > 0
    assert (correlation[0]["spearman"], correlation[0]["models"]) == (1.0, 3)
    assert (tmp_path / "study" / "figures" / "elo-1-straight.svg").is_file()


def test_the_first_finding_names_the_unbeaten_model_and_its_interval_is_open(study, tmp_path):
    rows, run = [], []
    for index in range(30):
        for models, winner in ((("top", "b"), 1), (("top", "c"), 1), (("b", "c"), 1 + index % 2)):
            key = f"{index}-{models}"
            rows.append({"id": key, "question": f"q{index}", "answer_1": "x", "answer_2": "y",
                         "model_1": models[0], "model_2": models[1]})  # fmt: skip
            scores = (8, 3) if winner == 1 else (3, 8)
            shown = (Shown(order=(0, 1), text="", scores=scores),)
            run.append(
                judgment_row(Judgment(sample_id=key, mode="pair", verdict=PairVerdict(winner=winner), shown=shown))
            )
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(row) + "\n" for row in run))
    result = study(tmp_path / "run.jsonl", "--rows", tmp_path / "pairs.jsonl")
    first = result["tables"][0]["rows"][0]
    assert (first["model"], first["elo"]["high"]) == ("top", None)
    assert "top is first" in result["findings"][0]
    assert "no upper bound" in result["findings"][0]
    assert any("one more tie of each model against a virtual player" in line for line in result["warnings"])
    assert any("always shown in the same order" in line for line in result["warnings"])
    assert (tmp_path / "study" / "figures" / "elo-1-run.svg").is_file()


def test_annotations_have_no_order(study, tmp_path):
    preferences = [1.2, 1.8, 1.5, 2, 1, None]
    rows = [
        {"instruction": str(index), "output_1": "x", "output_2": "y", "generator_1": "base", "generator_2": "m",
         "annotator": "judge", "preference": preference}
        for index, preference in enumerate(preferences)
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = study(tmp_path / "a.jsonl")
    # 0.2 + 0.8 + 0.5 + 1 + 0 of 5: even
    assert [row["elo"]["value"] for row in result["tables"][0]["rows"]] == pytest.approx([1000, 1000])
    assert result["counts"]["failed"] == 1
    assert any("order shown is unknown" in line for line in result["warnings"])


def test_inputs_that_make_no_sense_are_refused(study, tmp_path):
    run, _ = write_run(tmp_path, "run.jsonl", 0)
    with pytest.raises(ConfigError, match="also give the pairs that it judged, with --rows"):
        study(run)
    with pytest.raises(ConfigError, match="given twice"):
        study(run, run, "--rows", tmp_path / "pairs.jsonl")
