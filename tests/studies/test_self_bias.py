import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from statsmodels.miscmodels.ordinal_model import OrderedModel

from judgelm.data.sources.rating_tables import RatingTable, read_ratings
from judgelm.errors import InputError
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.metrics.self_bias import BiasModel, design_of, fit_ordinal, redundant
from judgelm.studies.self_bias import debiased_ratings, paired_ratings, study_self_bias
from judgelm.studies.self_bias_fits import SelfBiasOptions
from tests.support.studies import table

HELM = ("GPT-4", "GPT-3.5 Turbo", "Claude v1.3", "Command-Xlarge-Beta")
QUICK = Resampling(resamples=100)


def helm_shaped(items=40, *, annotators=1, seed=0, unlabelled=0):
    """Four models, two judges, scores 1 to 5, as HELM-Instruct; GPT-4 gives itself a point more where there is room."""
    generator = np.random.default_rng(seed)
    rows = []
    for item in range(items):
        for model in HELM:
            for dimension in ("Helpfulness", "Harmlessness"):
                shared = {"item": str(item), "dimension": dimension, "model": model, "task": "t", "check": ""}
                shared["length"] = float(generator.integers(20, 200))
                human = int(generator.integers(1, 6))
                if item >= unlabelled:
                    people = [min(5, human + int(generator.integers(0, 2))) for _ in range(annotators)]
                    rows += [
                        shared | {"judge": "human", "annotator": str(i), "score": score}
                        for i, score in enumerate(people)
                    ]
                for judge in ("GPT-4", "Claude v1.3"):
                    score = human + int(generator.integers(-1, 2)) + (judge == model == "GPT-4")
                    rows.append(shared | {"judge": judge, "annotator": "", "score": min(5, max(1, score))})
    frame = pd.DataFrame(rows)
    return RatingTable(frame=frame.assign(score=frame["score"].astype(float)))


def study(ratings=None, **options):
    options = {"resampling": QUICK, "draws": 5} | options
    return study_self_bias(ratings or helm_shaped(), SelfBiasOptions(**options))


def figure(result, name):
    return next(one for one in result.figures if one.name == name)


def test_data_of_helm_instructs_shape_is_studied_as_a_whole():
    result = study()
    [gpt] = [
        row["estimate"]
        for row in table(result, "coefficients")
        if row["term"] == "self-bias (gamma)" and row["level"] == "GPT-4"
    ]
    assert gpt.value > 0.05
    assert gpt.level == 0.90
    families = {row["level"] for row in table(result, "coefficients") if row["term"] == "family-bias (lambda)"}
    assert families == {"GPT"}  # Claude v1.3 has no relative among the models
    assert "positive for GPT-4 +0." in result.findings[0]
    assert {row["fit"] for row in table(result, "ordinal")} == {"dimension: Harmlessness", "dimension: Helpfulness"}
    assert [row["judge"] for row in table(result, "length")] == ["Claude v1.3", "GPT-4"]


def test_without_checks_there_is_the_main_regression_and_its_slices():
    result = study(checks=False)
    assert {"coefficients", "slices"} <= {one.name for one in result.tables}
    assert not {"checks", "ordinal", "length"} & {one.name for one in result.tables}


def test_the_heat_map_has_a_human_row_and_a_frame_around_own_completions():
    found = figure(study(checks=False), "mean-scores")
    assert found.rows == ("human", "Claude v1.3", "GPT-4")
    assert found.columns == ("Claude v1.3", "Command-Xlarge-Beta", "GPT-3.5 Turbo", "GPT-4")
    assert found.marked == {(1, 0), (2, 3)}
    frame = helm_shaped().frame
    mine = frame[(frame["judge"] == "human") & (frame["model"] == "GPT-4")]["score"]
    assert found.values[0][3] == pytest.approx(mine.mean() / 5)


def test_several_annotators_are_measured_and_make_the_reference():
    [first, second] = table(study(helm_shaped(annotators=3), checks=False), "annotators")
    assert (first["dimension"], second["dimension"]) == ("Harmlessness", "Helpfulness")
    assert 0 < first["alpha"].low < first["alpha"].value < 1
    assert first["gold_accuracy"] is None  # no gold rows


def test_gold_rows_give_the_accuracy_and_no_estimate_of_bias():
    ratings = helm_shaped()
    people = ratings.frame[ratings.frame["judge"] == "human"]
    both = pd.concat([ratings.frame, people.assign(judge="gold")], ignore_index=True)
    result = study(RatingTable(frame=both), checks=False)
    assert [row["gold_accuracy"].value for row in table(result, "annotators")] == [1.0, 1.0]
    assert result.counts["judges"] == 2


def test_attention_checks_are_scored_and_take_no_part_in_the_fit():
    ratings = helm_shaped()
    spoiled = ratings.frame[ratings.frame["judge"] == "GPT-4"].assign(check="reversed_words", score=1.0)
    result = study(RatingTable(frame=pd.concat([ratings.frame, spoiled], ignore_index=True)), checks=False)
    assert [row["passed"].value for row in table(result, "attention-checks")] == [1.0, 1.0]
    assert result.counts["ratings used"] == 40 * 4 * 2 * 2


def test_few_labels_in_the_file_are_used_as_they_are():
    result = study(helm_shaped(unlabelled=30), checks=False)
    [first, _] = table(result, "few-labels")
    assert first["truth"] is None
    assert first["covered"] is None
    assert first["stratified"].n == 10 * 4 * 2
    assert first["width"] < 0.9  # judges here are close to the humans
    assert result.counts["ratings without a reference"] == 30 * 4 * 2 * 2


def test_all_labels_in_the_file_are_hidden_but_for_a_share():
    [first, _] = table(study(checks=False, label_share=0.25), "few-labels")
    assert first["stratified"].n == 0.25 * 40 * 4 * 2
    assert 0 <= first["covered"].value <= 1


def test_debiased_scores_are_on_the_scale_of_the_dimension():
    frame = debiased_ratings(helm_shaped())
    own = frame[(frame["judge"] == "GPT-4") & (frame["model"] == "GPT-4")]
    assert np.allclose(own["score"] - own["debiased"], 5 * own["bias"])
    assert (frame[frame["judge"] == "Claude v1.3"].query("model == 'GPT-4'")["bias"] == 0).all()


def test_slices_that_are_too_small_are_said_and_left_out():
    ratings = helm_shaped()
    rare = ratings.frame.assign(task=np.where(ratings.frame["item"] == "0", "rare", "common"))
    keep = (rare["task"] == "common") | ((rare["dimension"] == "Helpfulness") & rare["model"].isin(HELM[:2]))
    result = study(RatingTable(frame=rare[keep].reset_index(drop=True)), checks=False)
    assert any(warning.startswith("No fit for task rare: self-bias: 4 ratings") for warning in result.warnings)
    assert result.counts["fits that failed"] == 1
    [row] = [row for row in table(result, "slices") if row["fit"] == "task: rare"]
    assert row["term"].startswith("no fit: self-bias: 4 ratings")


def test_a_fit_that_did_not_converge_is_counted_and_stands_in_the_table_without_a_number(monkeypatch):
    monkeypatch.setattr("judgelm.metrics.self_bias._MOST_STEPS", 2)
    result = study()
    why = "the search for the estimates did not converge"
    assert result.counts["fits that failed"] == 2
    assert {(row["fit"], row["term"], row["estimate"]) for row in table(result, "ordinal")} == {
        ("dimension: Harmlessness", f"no fit: {why}", None),
        ("dimension: Helpfulness", f"no fit: {why}", None),
    }
    assert f"No fit for dimension Harmlessness: {why}." in result.warnings
    assert not any(figure.name == "self-bias-ordinal" for figure in result.figures)


def test_strangers_and_judges_without_completions_are_said():
    ratings = helm_shaped()
    frame = ratings.frame.assign(judge=ratings.frame["judge"].replace("Claude v1.3", "Prometheus"))
    result = study(RatingTable(frame=frame), checks=False)
    assert "No family is known of Prometheus" in result.warnings[0]
    assert "Prometheus rated no completion of their own" in result.warnings[1]


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"reference": "nobody"}, "no judge's score has a reference by 'nobody'"),
        ({"model": BiasModel(indicator="polite")}, 'no column "polite"'),
        ({"by": ("source",)}, 'no column "source"'),
        ({"families": {"A": ["GPT-4"], "B": ["GPT-4"]}}, "GPT-4 is in A and in B"),
    ],
)
def test_what_cannot_be_done_is_an_input_error(options, finding):
    with pytest.raises(InputError, match=finding):
        study(checks=False, **options)


@pytest.fixture(scope="module")
def released():
    """The study of the two released dimensions that are whole in the public repository."""
    folder = os.environ.get("JUDGELM_PLAY_FAVORITES")
    if not folder:
        pytest.skip("JUDGELM_PLAY_FAVORITES does not name the folder of the released Play Favorites data")
    files = [Path(folder) / f"{name}.csv" for name in ("Faithfulness", "Logical correctness")]
    return study_self_bias(read_ratings(files), SelfBiasOptions(other_reference="both", draws=20, resampling=QUICK))


def signs(result, table_name, fit=None):
    """Judge -> +1, -1, or 0 where the interval holds 0."""
    return {
        row["level"]: (row["estimate"].low > 0) - (row["estimate"].high < 0)
        for row in table(result, table_name)
        if row["term"] == "self-bias (gamma)" and isinstance(row["estimate"], Estimate) and row.get("fit") == fit
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_released_ratings_are_all_used(released):
    assert released.counts["ratings used"] == 63222
    assert released.counts["rows rejected"] == 0
    assert released.warnings == ()  # every fit converged


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_papers_findings_on_the_released_dimensions_come_out(released):
    correctness = signs(released, "slices", "dimension: Logical correctness")
    faithfulness = signs(released, "slices", "dimension: Faithfulness")
    assert all(correctness[judge] == 1 for judge in ("GPT-3.5 Turbo", "GPT-4o", "Claude 3.5 Sonnet"))
    assert faithfulness["Llama 3 8B"] == -1
    assert faithfulness["Mistral Large"] == 1
    pooled = {
        row["level"]: row["estimate"]
        for row in table(released, "coefficients")
        if row["term"] == "family-bias (lambda)"
    }
    assert pooled["Claude"].low > 0  # section 5.2: Claude and GPT favour their families
    assert pooled["GPT"].low > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_papers_robustness_checks_agree_on_the_released_dimensions(released):
    fits = {row["fit"] for row in table(released, "checks")}
    assert len(fits) == 3 + 2 + 2 * 4 + 4  # length, specification, references both ways, weak models
    for fit in fits:
        found = signs(released, "checks", fit)
        assert found.get("GPT-4o", 1) == 1, fit
        assert found.get("Claude 3.5 Sonnet", 1) == 1, fit
        assert found.get("Llama 3 8B", -1) == -1, fit
    assert signs(released, "ordinal", "dimension: Faithfulness")["Llama 3 8B"] == -1
    assert signs(released, "ordinal", "dimension: Logical correctness")["GPT-4o"] == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:Maximum Likelihood optimization failed")  # its differences hide that it is there
def test_another_optimiser_finds_the_ordinal_fit_of_the_released_faithfulness():
    folder = os.environ.get("JUDGELM_PLAY_FAVORITES")
    if not folder:
        pytest.skip("JUDGELM_PLAY_FAVORITES does not name the folder of the released Play Favorites data")
    paired = paired_ratings(read_ratings([Path(folder) / "Faithfulness.csv"]), SelfBiasOptions())
    design = design_of(paired.frame, BiasModel(), intercepts=False)
    gone = redundant(design.matrix, constant=True)
    levels = np.unique(paired.frame["rating_raw"].to_numpy(), return_inverse=True)[1]
    rows, counts = np.unique(np.column_stack([design.matrix[:, ~gone], levels]), axis=0, return_counts=True)

    class Counted(OrderedModel):
        def loglikeobs(self, params):
            return counts * super().loglikeobs(params)

    theirs = Counted(rows[:, -1].astype(int), rows[:, :-1], distr="logit").fit(method="newton", maxiter=50, disp=False)
    ours = [term for term, left in zip(fit_ordinal(paired).terms, gone, strict=True) if not left]
    assert len(ours) > 20
    for term, value in zip(ours, theirs.params, strict=False):
        assert term.estimate.value == pytest.approx(value, abs=1e-5), term.level
