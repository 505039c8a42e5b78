"""Benchmarks of grades and of short answers by their own metrics, and published scores beside them."""

import json

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.qa import MODELS
from judgelm.data.sources.registry import benchmarks
from judgelm.errors import InputError
from judgelm.metrics.resampling import Resampling
from judgelm.records import Judgment, LabelVerdict, Unparsed
from judgelm.studies.benchmark.published import published_findings, published_scores, published_table
from judgelm.studies.benchmark.scoring_rules import SCORING_RULES
from judgelm.studies.benchmark.study import benchmark_study
from tests.support.studies import cells, graded, import_rows, judged_pair, table

HOW = Resampling(resamples=100)


@pytest.fixture(scope="module")
def labelled(shared_data, tmp_path_factory):
    out = tmp_path_factory.mktemp("prometheus") / "rows.jsonl"
    import_benchmark("prometheus", [str(shared_data / "prometheus" / "vicuna_eval.json.gz")], out)
    return read_labels(str(out))


def prometheus(judgments, labelled):
    """The study's result and the rows of its only table by their names."""
    result = benchmark_study("prometheus", judgments, labelled, HOW)
    rows = table(result, result.tables[0].name)
    return result, {next(iter(row.values())): row for row in rows}


def test_the_judge_is_compared_with_means_and_medians_and_gpt_4_with_itself(labelled):
    generator = np.random.default_rng(0)
    triples = {key: sample.metadata["gpt4_score"] for key, sample in labelled.samples.items()}
    grades = {key: int(np.clip(max(three) + generator.integers(-1, 2), 1, 5)) for key, three in triples.items()}
    lost = next(iter(grades))
    judgments = {key: graded(key, None if key == lost else grade) for key, grade in grades.items()}
    result, found = prometheus(judgments, labelled)
    kept = [key for key in grades if key != lost]
    mine, means = [grades[key] for key in kept], [np.mean(triples[key]) for key in kept]
    row = found["judge and GPT-4"]
    assert (row["answers"], result.counts["failed"]) == (319, 1)
    assert row["pearson"].value == pytest.approx(stats.pearsonr(mine, means).statistic)
    assert row["kendall"].value == pytest.approx(stats.kendalltau(mine, means).statistic)
    assert row["spearman"].value == pytest.approx(stats.spearmanr(mine, means).statistic)
    assert row["kappa"].value == pytest.approx(cohen_kappa_score(mine, [sorted(triples[key])[1] for key in kept]))
    for first, second in ((0, 1), (0, 2), (1, 2)):
        itself = found[f"GPT-4, grades {first + 1} and {second + 1}"]
        pair = [[three[place] for three in triples.values()] for place in (first, second)]
        assert itself["pearson"].value == pytest.approx(stats.pearsonr(*pair).statistic)
        assert itself["kendall"].low < itself["kendall"].value < itself["kendall"].high
        assert itself["weighted_kappa"].n == 320
    assert result.findings[0].startswith("Pearson's correlation of the judge with GPT-4 is 0.")
    json.dumps(result.to_json(), allow_nan=False)


def test_a_judge_that_always_gives_the_same_grade_has_no_correlation(labelled):
    result, found = prometheus({key: graded(key, 4) for key in labelled.samples}, labelled)
    row = found["judge and GPT-4"]
    assert [row[name] for name in ("pearson", "kendall", "spearman", "kappa", "weighted_kappa")] == [None] * 5
    assert result.warnings[0] == "judge and GPT-4: no correlation (constant: grades)."


@pytest.fixture
def evouna(tmp_path):
    rows = [
        {"question": f"q{index}", "golden_answer": "The Gold/Au", "improper": False}
        | {f"answer_{model}": "It is gold." if index else "Iron." for model in MODELS}
        | {f"judge_{model}": True for model in MODELS}
        for index in range(2)
    ]
    return import_rows("evouna", tmp_path, {"NQ.json": rows})


def answer(key, label):
    verdict, failure = (LabelVerdict(label=label), None) if label else (None, Unparsed("truncated", ""))
    return Judgment(sample_id=key, mode="qa", verdict=verdict, shown=(), failure=failure)


def test_evounas_verdicts_beside_lexical_match(evouna):
    judged = {key: answer(key, "correct") for key in evouna.labels}
    judged["NQ-1-fid"] = answer("NQ-1-fid", "incorrect")
    judged["NQ-2-fid"] = answer("NQ-2-fid", None)  # a failure is the wrong verdict
    result = benchmark_study("evouna", judged, evouna, HOW)
    assert cells(result, "answers", 2)["all"] == pytest.approx(0.8)
    assert cells(result, "answers", 2)["NQ fid"] == 0.0
    # "the gold" without its article is in "It is gold.", not in "Iron."
    assert cells(result, "answers", 4)["all"] == pytest.approx(0.5)
    assert result.counts["failed"] == 1


def test_verdicts_on_pairs_are_refused_with_what_to_do(labelled, evouna):
    key = next(iter(labelled.samples))
    for name, rows, sample, way_out in (
        ("prometheus", labelled, key, "judge with judgelm-batch --card prometheus-2"),
        ("evouna", evouna, "NQ-1-fid", "judge with judgelm-batch --mode qa"),
    ):
        with pytest.raises(InputError, match=way_out):
            benchmark_study(name, {sample: judged_pair(sample, 1)}, rows, HOW)


def test_published_scores_have_a_source_and_are_shares_and_overall_ones_are_means():
    for name, judges in published_scores().items():
        assert name in benchmarks()
        for judge in judges:
            assert all((judge.source, judge.scores))
            assert all(-1 <= score <= 1 for score in judge.scores.values())
            if name in SCORING_RULES:
                assert min(judge.scores.values()) > 0.2, "a share in percent would be above 1, a typing error below"
            parts = [value for key, value in judge.scores.items() if key[0].isupper()]
            if name in ("rewardbench", "rm-bench") and len(parts) == 4:
                assert np.mean(parts) == pytest.approx(judge.scores["overall"], abs=0.001), judge.judge


def test_a_benchmark_without_published_scores_has_no_table():
    assert published_table("evouna") is None
    assert published_findings("evouna") == []
