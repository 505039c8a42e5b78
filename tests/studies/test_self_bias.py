"""`judgelm study self-bias`: data of HELM-Instruct's shape as a whole, and the released Play Favorites ratings."""

import itertools
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from judgelm.data.sources.rating_tables import RatingTable, read_ratings
from judgelm.errors import InputError
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.metrics.self_bias import BiasModel
from judgelm.studies.self_bias import debiased_ratings, study_self_bias
from judgelm.studies.self_bias_fits import SelfBiasOptions
from tests.support.studies import table

HELM = ("GPT-4", "GPT-3.5 Turbo", "Claude v1.3", "Command-Xlarge-Beta")
QUICK = Resampling(resamples=100)


def helm_shaped(*, annotators=1, unlabelled=0):
    """Four models, two judges, scores 1 to 5, as HELM-Instruct; GPT-4 gives itself a point more where there is room."""
    generator = np.random.default_rng(0)
    rows = []
    for item, model, dimension in itertools.product(range(40), HELM, ("Helpfulness", "Harmlessness")):
        shared = {"item": str(item), "dimension": dimension, "model": model, "task": "t", "check": ""}
        shared["length"] = float(generator.integers(20, 200))
        human = int(generator.integers(1, 6))
        for person in range(annotators if item >= unlabelled else 0):
            score = min(5, human + int(generator.integers(0, 2)))
            rows.append(shared | {"judge": "human", "annotator": str(person), "score": score})
        for judge in ("GPT-4", "Claude v1.3"):
            score = human + int(generator.integers(-1, 2)) + (judge == model == "GPT-4")
            rows.append(shared | {"judge": judge, "annotator": "", "score": min(5, max(1, score))})
    return RatingTable(frame=pd.DataFrame(rows).astype({"score": float}))


def study(ratings=None, **options):
    return study_self_bias(ratings or helm_shaped(), SelfBiasOptions(resampling=QUICK, draws=5, **options))


def test_data_of_helm_instructs_shape_is_studied_as_a_whole():
    result = study()
    terms = {(row["term"], row["level"]): row["estimate"] for row in table(result, "coefficients")}
    gpt = terms["self-bias (gamma)", "GPT-4"]
    assert (gpt.value > 0.05, gpt.level) == (True, 0.90)
    # Claude v1.3 has no relative among the models
    assert [level for term, level in terms if term == "family-bias (lambda)"] == ["GPT"]
    assert "positive for GPT-4 +0." in result.findings[0]
    assert {row["fit"] for row in table(result, "ordinal")} == {"dimension: Harmlessness", "dimension: Helpfulness"}
    assert [row["judge"] for row in table(result, "length")] == ["Claude v1.3", "GPT-4"]


def test_the_heat_map_has_a_human_row_and_a_frame_around_own_completions():
    result = study(checks=False)
    names = {part.name for part in result.tables}
    assert names & {"coefficients", "slices", "checks", "ordinal", "length"} == {"coefficients", "slices"}
    [figure] = [figure for figure in result.figures if figure.name == "mean-scores"]
    assert (figure.rows, figure.columns) == (("human", "Claude v1.3", "GPT-4"), tuple(sorted(HELM)))
    assert figure.marked == {(1, 0), (2, 3)}
    mean = helm_shaped().frame.query("judge == 'human' and model == 'GPT-4'")["score"].mean()
    assert figure.values[0][3] == pytest.approx(mean / 5)


def test_several_annotators_are_measured_and_make_the_reference():
    rows = table(study(helm_shaped(annotators=3), checks=False), "annotators")
    dimensions = [(row["dimension"], row["gold_accuracy"]) for row in rows]
    assert dimensions == [("Harmlessness", None), ("Helpfulness", None)]  # no gold rows
    assert 0 < rows[0]["alpha"].low < rows[0]["alpha"].value < 1


def test_gold_rows_and_attention_checks_give_accuracies_and_take_no_part_in_the_fit():
    frame = helm_shaped().frame
    gold = frame[frame["judge"] == "human"].assign(judge="gold")
    spoiled = frame[frame["judge"] == "GPT-4"].assign(check="reversed_words", score=1.0)
    result = study(RatingTable(frame=pd.concat([frame, gold, spoiled], ignore_index=True)), checks=False)
    for name, key in (("annotators", "gold_accuracy"), ("attention-checks", "passed")):
        assert [row[key].value for row in table(result, name)] == [1.0, 1.0]
    assert (result.counts["judges"], result.counts["ratings used"]) == (2, 40 * 4 * 2 * 2)


def test_few_labels_are_used_as_they_are_and_all_are_hidden_but_for_a_share():
    result = study(helm_shaped(unlabelled=30), checks=False)
    [first, _] = table(result, "few-labels")
    assert (first["truth"], first["covered"], first["stratified"].n) == (None, None, 10 * 4 * 2)
    assert first["width"] < 0.9  # judges here are close to the humans
    assert result.counts["ratings without a reference"] == 30 * 4 * 2 * 2
    # of all labels but a share are hidden
    [first, _] = table(study(checks=False, label_share=0.25), "few-labels")
    assert first["stratified"].n == 0.25 * 40 * 4 * 2
    assert 0 <= first["covered"].value <= 1


def test_debiased_scores_are_on_the_scale_of_the_dimension():
    frame = debiased_ratings(helm_shaped())
    own = frame.query("judge == 'GPT-4' and model == 'GPT-4'")
    assert np.allclose(own["score"] - own["debiased"], 5 * own["bias"])
    assert (frame.query("judge == 'Claude v1.3' and model == 'GPT-4'")["bias"] == 0).all()


def test_slices_that_are_too_small_are_reported_and_left_out():
    ratings = helm_shaped()
    rare = ratings.frame.assign(task=np.where(ratings.frame["item"] == "0", "rare", "common"))
    keep = (rare["task"] == "common") | ((rare["dimension"] == "Helpfulness") & rare["model"].isin(HELM[:2]))
    result = study(RatingTable(frame=rare[keep].reset_index(drop=True)), checks=False)
    assert any(warning.startswith("No fit for task rare: self-bias: 4 ratings") for warning in result.warnings)
    assert result.counts["fits that failed"] == 1
    [row] = [row for row in table(result, "slices") if row["fit"] == "task: rare"]
    assert row["term"].startswith("no fit: self-bias: 4 ratings")


def test_a_fit_that_did_not_converge_is_counted_and_has_no_number_in_the_table(monkeypatch):
    monkeypatch.setattr("judgelm.metrics.ordered_logit._MAX_STEPS", 2)
    result = study()
    rows = {(row["fit"], row["term"], row["estimate"]) for row in table(result, "ordinal")}
    why, names = "the fit did not converge", ("Harmlessness", "Helpfulness")
    assert rows == {(f"dimension: {name}", f"no fit: {why}", None) for name in names}
    assert result.counts["fits that failed"] == 2
    assert f"No fit for dimension Harmlessness: {why}." in result.warnings
    assert not any(figure.name == "self-bias-ordinal" for figure in result.figures)


def test_unknown_families_and_judges_without_completions_are_reported():
    ratings = helm_shaped()
    frame = ratings.frame.replace({"judge": {"Claude v1.3": "Prometheus"}})
    result = study(RatingTable(frame=frame), checks=False)
    assert "Unknown family: Prometheus" in result.warnings[0]
    assert "Prometheus did not rate their own completions" in result.warnings[1]


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"reference": "nobody"}, "no judge's score has a reference score by 'nobody'"),
        ({"model": BiasModel(indicator="polite")}, 'no column "polite"'),
        ({"by": ("source",)}, 'no column "source"'),
        ({"families": {"A": ["GPT-4"], "B": ["GPT-4"]}}, "GPT-4 is in both A and B"),
    ],
)
def test_invalid_options_are_input_errors(options, finding):
    with pytest.raises(InputError, match=finding):
        study(checks=False, **options)


def signs(result, table_name, fit=None):
    """Judge -> +1, -1, or 0 where the interval holds 0."""
    return {
        row["level"]: (row["estimate"].low > 0) - (row["estimate"].high < 0)
        for row in table(result, table_name)
        if row["term"] == "self-bias (gamma)" and isinstance(row["estimate"], Estimate) and row.get("fit") == fit
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_papers_findings_and_robustness_checks_on_the_released_dimensions_come_out():
    # the two released dimensions that are whole in the public repository; every rating is used
    folder = os.environ.get("JUDGELM_PLAY_FAVORITES")
    if not folder:
        pytest.skip("JUDGELM_PLAY_FAVORITES does not name the folder of the released Play Favorites data")
    files = [Path(folder) / f"{name}.csv" for name in ("Faithfulness", "Logical correctness")]
    options = SelfBiasOptions(other_reference="both", draws=20, resampling=QUICK)
    released = study_self_bias(read_ratings(files), options)
    assert (released.counts["ratings used"], released.counts["rows rejected"]) == (63222, 0)
    assert released.warnings == ()  # every fit converged
    correctness = signs(released, "slices", "dimension: Logical correctness")
    faithfulness = signs(released, "slices", "dimension: Faithfulness")
    assert all(correctness[judge] == 1 for judge in ("GPT-3.5 Turbo", "GPT-4o", "Claude 3.5 Sonnet"))
    assert (faithfulness["Llama 3 8B"], faithfulness["Mistral Large"]) == (-1, 1)
    pooled = {(row["term"], row["level"]): row["estimate"] for row in table(released, "coefficients")}
    for family in ("Claude", "GPT"):  # section 5.2: they favour their families
        assert pooled["family-bias (lambda)", family].low > 0
    fits = {row["fit"] for row in table(released, "checks")}
    assert len(fits) == 3 + 2 + 2 * 4 + 4  # length, specification, references both ways, weak models
    for fit in fits:
        result = {"GPT-4o": 1, "Claude 3.5 Sonnet": 1, "Llama 3 8B": -1} | signs(released, "checks", fit)
        assert (result["GPT-4o"], result["Claude 3.5 Sonnet"], result["Llama 3 8B"]) == (1, 1, -1), fit
    assert signs(released, "ordinal", "dimension: Faithfulness")["Llama 3 8B"] == -1
    assert signs(released, "ordinal", "dimension: Logical correctness")["GPT-4o"] == 1
