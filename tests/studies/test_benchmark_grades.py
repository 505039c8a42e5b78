"""A judge's grades against GPT-4's three, as Prometheus' makers compare them, and GPT-4 against itself."""

import json

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.importer import import_benchmark
from judgelm.errors import InputError
from judgelm.metrics.resampling import Resampling
from judgelm.records import Judgment, PairVerdict
from judgelm.studies.benchmark.study import benchmark_study
from tests.support.studies import graded

HOW = Resampling(resamples=100)


@pytest.fixture(scope="module")
def labelled(shared_data, tmp_path_factory):
    out = tmp_path_factory.mktemp("prometheus") / "rows.jsonl"
    import_benchmark("prometheus", [str(shared_data / "prometheus" / "vicuna_eval.json.gz")], out)
    return read_labels(str(out))


def correlations(result):
    [table] = result.tables
    keys = [column.key for column in table.columns]
    return {row[0]: dict(zip(keys, row, strict=True)) for row in table.rows}


def test_the_judge_is_compared_with_means_and_medians_and_gpt_4_with_itself(labelled):
    generator = np.random.default_rng(0)
    triples = {key: sample.metadata["gpt4_score"] for key, sample in labelled.samples.items()}
    grades = {key: int(np.clip(max(three) + generator.integers(-1, 2), 1, 5)) for key, three in triples.items()}
    lost = next(iter(grades))
    judgments = {key: graded(key, None if key == lost else grade) for key, grade in grades.items()}
    result = benchmark_study("prometheus", judgments, labelled, HOW)
    found = correlations(result)
    kept = [key for key in grades if key != lost]
    mine, means = [grades[key] for key in kept], [np.mean(triples[key]) for key in kept]
    judge = found["judge and GPT-4"]
    assert (judge["answers"], result.counts["failed"]) == (319, 1)
    assert judge["pearson"].value == pytest.approx(stats.pearsonr(mine, means).statistic)
    assert judge["kendall"].value == pytest.approx(stats.kendalltau(mine, means).statistic)
    assert judge["spearman"].value == pytest.approx(stats.spearmanr(mine, means).statistic)
    assert judge["kappa"].value == pytest.approx(cohen_kappa_score(mine, [sorted(triples[key])[1] for key in kept]))
    for first, second in ((0, 1), (0, 2), (1, 2)):
        itself = found[f"GPT-4, gradings {first + 1} and {second + 1}"]
        pair = [[three[place] for three in triples.values()] for place in (first, second)]
        assert itself["pearson"].value == pytest.approx(stats.pearsonr(*pair).statistic)
        assert itself["kendall"].low < itself["kendall"].value < itself["kendall"].high
        assert itself["weighted_kappa"].n == 320
    assert result.findings[0].startswith("Pearson's correlation of the judge with GPT-4 is 0.")
    json.dumps(result.to_json(), allow_nan=False)


def test_a_judge_that_always_gives_the_same_grade_has_no_correlation(labelled):
    judgments = {key: graded(key, 4) for key in labelled.samples}
    result = benchmark_study("prometheus", judgments, labelled, HOW)
    judge = correlations(result)["judge and GPT-4"]
    assert [judge[name] for name in ("pearson", "kendall", "spearman", "kappa", "weighted_kappa")] == [None] * 5
    assert result.warnings[0] == "judge and GPT-4: no correlation (constant: grades)."


def test_verdicts_on_pairs_are_refused_with_what_to_do(labelled):
    key = next(iter(labelled.samples))
    pair = Judgment(sample_id=key, mode="pair", verdict=PairVerdict(winner=1), shown=())
    with pytest.raises(
        InputError, match=f"judgment {key} is no grade of one answer; judge with judgelm-batch --card prometheus-2"
    ):
        benchmark_study("prometheus", {key: pair}, labelled, HOW)
