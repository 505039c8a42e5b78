"""Grades of models' answers by capability."""

import pytest

from judgelm.data.sources.graded import VisualQuestion
from judgelm.errors import InputError
from judgelm.metrics.resampling import Resampling
from judgelm.studies.capabilities import CapabilityOptions, capability_study
from tests.support.studies import graded, judged_pair

QUESTIONS = {
    "a": VisualQuestion(("ocr",), "1.png"),
    "b": VisualQuestion(("math", "ocr"), "2.png"),
    "c": VisualQuestion(("math", "ocr"), "3.png"),
    "d": VisualQuestion(("know",), "4.png"),
}


def run_of(**scores):
    return {sample_id: graded(sample_id, score) for sample_id, score in scores.items()}


def study_of(runs, questions=QUESTIONS, **options):
    return capability_study(runs, questions, CapabilityOptions(resampling=Resampling(resamples=100), **options))


def cells(table, model):
    return {row[1]: row[2:] for row in table.rows if row[0] == model}


def test_tables_per_capability_and_combination():
    result = study_of({"emu": run_of(a=10, b=4, c=7, d=None)})
    single, combined = (cells(table, "emu") for table in result.tables)
    n, failed, mean, share = single["ocr"]
    assert (n, failed, mean.value, share.value) == (3, 0, 7.0, pytest.approx(6 / 9))  # (10 + 4 + 7) / 3; (7 - 1) / 9
    assert single["know"] == (1, 1, None, None)
    assert (mean.low - 1, mean.high - 1) == pytest.approx((9 * share.low, 9 * share.high))  # rescaled with its mean
    assert single["all questions"][:2] == (4, 1)
    assert combined["ocr + math"][2].value == 5.5  # (4 + 7) / 2
    assert combined["ocr"][2] == 10.0  # one question: no interval


def test_failures_and_what_is_missing_are_counted_and_said():
    result = study_of({"emu": run_of(a=10, b=None, z=3)})
    assert result.counts["failed"] == 1
    assert result.counts["questions_without_judgment"] == 2
    assert result.counts["judgments_without_question"] == 1
    assert any("1 of 2 judgments failed" in one for one in result.warnings)


def test_models_side_by_side_with_scales_of_their_own():
    runs = {"emu": run_of(a=10, b=4, c=7, d=1), "llava": run_of(a=5, b=5, c=1, d=0)}
    result = study_of(runs, scales={"llava": (0, 5)})
    [bars, heat] = result.figures
    assert bars.categories == ("ocr", "math", "know", "all questions")
    assert [group.name for group in bars.groups] == ["emu", "llava"]
    assert bars.groups[1].values[0].value == pytest.approx(11 / 3 / 5)  # (5 + 5 + 1) / 3 of 0 to 5
    assert heat.values[heat.rows.index("know")] == (0.0, 0.0)  # 1 of 1 to 10, 0 of 0 to 5
    assert any("scales differ" in one for one in result.warnings)


def test_runs_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="is not a grade"):
        study_of({"emu": {"a": judged_pair("a", 1)}})
    with pytest.raises(InputError, match="none of its 1 judgments"):
        study_of({"emu": run_of(z=1)})


def test_a_run_over_several_models_answers_is_taken_apart():
    keys = [(number, model) for number in (1, 2) for model in ("emu", "llava")]
    questions = {f"{number}/{model}": VisualQuestion(("ocr",), f"{number}.png", model) for number, model in keys}
    run = {name: graded(name, 8 if "emu" in name else 2) for name in questions if name != "2/llava"}
    result = study_of({"all": run}, questions)
    assert cells(result.tables[0], "emu")["ocr"][:3] == (2, 0, 8.0)
    assert cells(result.tables[0], "llava")["ocr"][:3] == (1, 0, 2.0)
    assert result.counts["questions_without_judgment"] == 1
