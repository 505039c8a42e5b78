"""RMB, RM-Bench, EVOUNA, JUDGE-BENCH and WMT side by side by their own metrics, and published scores beside them."""

import json

import numpy as np
import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.qa import MODELS
from judgelm.data.sources.registry import benchmarks
from judgelm.errors import InputError
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.records import Judgment, LabelVerdict, Unparsed
from judgelm.studies.benchmark.published import published_findings, published_scores, published_table
from judgelm.studies.benchmark.scoring_rules import SCORING_RULES
from judgelm.studies.benchmark.study import benchmark_study
from tests.support.studies import graded, judged_pair

RESAMPLING = Resampling(resamples=200)


def imported(name, tmp_path, rows, file="in.json"):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(rows if isinstance(rows, str) else json.dumps(rows))
    return str(path)


def labels(name, tmp_path, *files):
    import_benchmark(name, list(files), tmp_path / "out.jsonl")
    return read_labels(str(tmp_path / "out.jsonl"))


def cells(result, name, column=1):
    [found] = [table for table in result.tables if table.name == name]
    return {row[0]: row[column].value if isinstance(row[column], Estimate) else row[column] for row in found.rows}


def test_rmbs_best_of_n_counts_only_against_all_losers(tmp_path):
    turn = [{"role": "user", "content": "q", "language": "English"}]
    best = [
        {
            "bon_uid": str(uid),
            "conversation_input": turn,
            "bon_best": {"llm_name": "m", "answer": f"good {uid}"},
            "loser_list": [{"llm_name": "n", "answer": f"bad {uid} {index}"} for index in range(2)],
            "category_path": "BoN_set/Helpfulness/Chat/Discussion",
        }
        for uid in range(2)
    ]
    pairs = [
        {
            "pair_uid": str(uid),
            "conversation_input": turn,
            "chosen": {"llm_name": "m", "answer": f"yes {uid}"},
            "reject": {"llm_name": "n", "answer": f"no {uid}"},
            "category_path": "Pairwise_set/Harmlessness/S1",
        }
        for uid in range(4)
    ]
    labelled = labels(
        "rmb", tmp_path, imported("rmb", tmp_path, best, "BoN_set/a.json"), imported("rmb", tmp_path, pairs)
    )
    right = {key: label.winner for key, label in labelled.labels.items()}
    judged = {key: judged_pair(key, winner) for key, winner in right.items()}
    for key, winner in (
        ("bon-helpfulness-0-1", 3 - right["bon-helpfulness-0-1"]),
        ("pairwise-harmlessness-0", "tie"),
        ("pairwise-harmlessness-1", None),
    ):
        judged[key] = judged_pair(key, winner)
    result = benchmark_study("rmb", judged, labelled, RESAMPLING)
    # best of n: 1 of 2 lists; pairs: a tie and a failure do not count, 2 of 4; mean of the sections judged
    assert cells(result, "scores") == {"overall": 0.5, "Helpfulness BoN": 0.5, "Harmlessness Pairwise": 0.5}
    assert any(finding.startswith("Published overall, the highest of 14") for finding in result.findings)


def test_rm_benchs_scores_are_those_of_its_readme(tmp_path):
    rows = [
        {"id": i, "prompt": f"q{i}", "chosen": [f"c{i}{k}" for k in "abc"], "rejected": [f"r{i}{k}" for k in "abc"]}
        for i in range(4)
    ]
    files = [imported("rm-bench", tmp_path, rows, f"{domain}_filtered.json") for domain in ("chat", "code")]
    labelled = labels("rm-bench", tmp_path, *files)
    rng = np.random.default_rng(0)
    scores = {domain: rng.integers(0, 5, (4, 2, 3)) for domain in ("chat", "code")}  # of chosen and rejected
    judged, styles = {}, ("concise", "detailed", "markdown")
    for key, label in labelled.labels.items():
        domain, index, better, worse = key.split("-")
        own = scores[domain][int(index)]
        chosen, rejected = own[0][styles.index(better)], own[1][styles.index(worse)]
        winner = "tie" if chosen == rejected else label.winner if chosen > rejected else 3 - label.winner
        judged[key] = judged_pair(key, winner)
    result = benchmark_study("rm-bench", judged, labelled, RESAMPLING)
    expected = {}
    for domain, own in scores.items():  # the README's matrix
        matrix = np.mean(own[:, 0, :, None] > own[:, 1, None, :], axis=0)
        expected[domain] = {
            "hard": np.sum(np.triu(matrix, 1)) / 3,
            "normal": np.mean(np.diag(matrix)),
            "easy": np.sum(np.tril(matrix, -1)) / 3,
        }
    found = cells(result, "scores")
    for domain, name in (("chat", "Chat"), ("code", "Code")):
        assert found[name] == pytest.approx(np.mean(list(expected[domain].values())))
    by_difficulty = cells(result, "difficulties")
    for difficulty in ("easy", "normal", "hard"):
        mean = np.mean([expected[domain][difficulty] for domain in expected])
        assert by_difficulty[difficulty] == pytest.approx(mean)
    assert found["overall"] == pytest.approx(np.mean(list(by_difficulty.values())))


@pytest.fixture
def evouna(tmp_path):
    rows = [
        {
            "question": f"q{index}",
            "golden_answer": "The Gold/Au",
            **{f"answer_{model}": "It is gold." if index else "Iron." for model in MODELS},
            **{f"judge_{model}": True for model in MODELS},
            "improper": False,
        }
        for index in range(2)
    ]
    return labels("evouna", tmp_path, imported("evouna", tmp_path, rows, "NQ.json"))


def answer(key, label):
    verdict = None if label is None else LabelVerdict(label=label)
    failure = None if label else Unparsed("truncated", "")
    return Judgment(sample_id=key, mode="qa", verdict=verdict, shown=(), failure=failure)


def test_evounas_verdicts_beside_lexical_match(evouna):
    judged = {key: answer(key, "correct") for key in evouna.labels}
    judged["NQ-1-fid"] = answer("NQ-1-fid", "incorrect")
    judged["NQ-2-fid"] = answer("NQ-2-fid", None)  # a failure is the wrong verdict
    result = benchmark_study("evouna", judged, evouna, RESAMPLING)
    assert cells(result, "answers", 2)["all"] == pytest.approx(0.8)
    assert cells(result, "answers", 2)["NQ fid"] == 0.0
    # "the gold" without its article is in "It is gold.", not in "Iron."
    assert cells(result, "answers", 4)["all"] == pytest.approx(0.5)
    assert result.counts["failed"] == 1


def test_evouna_asks_for_verdicts_on_answers(evouna):
    judged = {"NQ-1-fid": judged_pair("NQ-1-fid", 1)}
    with pytest.raises(InputError, match="judge with judgelm-batch --mode qa"):
        benchmark_study("evouna", judged, evouna, RESAMPLING)


def test_judge_benchs_correlations_and_their_mean_over_properties(tmp_path):
    properties = ("Relevance", "Fluency")
    content = {
        "annotations": [
            {"metric": name, "category": "graded", "prompt": "{{ instance }} Rate.", "worst": 1, "best": 5}
            for name in properties
        ],
        "instances": [
            {
                "id": index,
                "instance": f"text {index}",
                "annotations": {name: {"mean_human": index} for name in properties},
            }
            for index in range(1, 5)
        ],
    }
    labelled = labels("judge-bench-nlp", tmp_path, imported("x", tmp_path, content, "newsroom.json"))
    judged = {}
    for index, swapped in enumerate((1, 2, 4, 3), 1):
        judged[f"newsroom-{index}-Relevance"] = graded(f"newsroom-{index}-Relevance", index + 1)
        judged[f"newsroom-{index}-Fluency"] = graded(f"newsroom-{index}-Fluency", swapped)
    result = benchmark_study("judge-bench-nlp", judged, labelled, RESAMPLING)
    # Spearman of 1 2 3 4 with itself 1, with 1 2 4 3: 1 - 6 * 2 / (4 * 15) = 0.8
    assert cells(result, "properties", 2) == pytest.approx({"newsroom: Relevance": 1.0, "newsroom: Fluency": 0.8})
    assert cells(result, "data-sets") == pytest.approx({"newsroom": 0.9})
    published = next(table for table in result.tables if table.name == "published")
    assert [column.heading for column in published.columns] == ["Judge", "newsroom", "Published in"]
    assert any("newsroom, published: GPT-4o 0.59" in finding for finding in result.findings)


def test_wmts_pairs_beside_the_translators(tmp_path):
    header = "system\tdoc\tdocSegId\trater\tsource\ttarget\tcategory\tseverity"
    lines = [header]
    for segment, severities in enumerate((("Major", "Major", "Major"), ("Major", "Major", "No-error")), 1):
        for rater, severity in enumerate(severities):
            lines.append(f"ONLINE-A\td\t{segment}\tr{rater}\tsource {segment}\tone {segment}\tNo-error\tNo-error")
            lines.append(f"ONLINE-Y\td\t{segment}\tr{rater}\tsource {segment}\tother {segment}\tOther\t{severity}")
    file = imported("x", tmp_path, "\n".join(lines) + "\n", "ende.tsv")
    labelled = labels("wmt-side-by-side", tmp_path, file)
    judged = {key: judged_pair(key, 1 if "-1-ONLINE" in key else "tie") for key in labelled.labels}
    result = benchmark_study("wmt-side-by-side", judged, labelled, RESAMPLING)
    assert cells(result, "scores")["English to German"] == 0.5
    # the judge agrees with 3 of 3 and with 1 of 3 translators; they with each other on 3 of 3 and 1 of 3 pairs
    assert cells(result, "translators", 2)["English to German"] == pytest.approx(2 / 3)
    assert cells(result, "translators", 3)["English to German"] == pytest.approx(2 / 3)


def test_published_scores_have_a_source_and_are_shares():
    for name, judges in published_scores().items():
        assert name in benchmarks()
        for judge in judges:
            assert judge.source
            assert judge.scores
            assert all(-1 <= score <= 1 for score in judge.scores.values())
            if name in SCORING_RULES:
                assert min(judge.scores.values()) > 0.2, "a share in percent would be above 1, a typing error below"


def test_published_overall_scores_are_means_of_their_sections():
    for name, sections in (("rewardbench", 4), ("rmb", 4), ("rm-bench", 4)):
        for judge in published_scores()[name]:
            parts = [value for key, value in judge.scores.items() if key[0].isupper()]
            if len(parts) == sections:
                assert np.mean(parts) == pytest.approx(judge.scores["overall"], abs=0.001), judge.judge


def test_a_benchmark_without_published_scores_has_no_table():
    assert published_table("wmt-side-by-side", {"English to German"}) is None
    assert published_findings("wmt-side-by-side", set()) == []
    assert published_table("judge-bench-nlp", {"a set of ours"}) is None
