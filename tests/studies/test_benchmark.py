"""Benchmarks by their own metrics: rows as imported, judged by a script, worked by hand, and published scores."""

import gzip
import json

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from judgelm.cli.study.pairs import benchmark_command
from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.qa import MODELS
from judgelm.data.sources.registry import benchmarks
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge
from judgelm.metrics.agreement import two_orders
from judgelm.modes import Pairwise
from judgelm.modes.multi import Multi
from judgelm.records import Judgment, LabelVerdict, Unparsed
from judgelm.runs.runner import judge
from judgelm.studies.benchmark.published import published_findings, published_scores, published_table
from judgelm.studies.benchmark.scoring_rules import SCORING_RULES
from judgelm.studies.benchmark.study import benchmark_study
from judgelm.studies.pair_labels import by_id
from tests.support.studies import (
    HOW,
    both_orders,
    cells,
    graded,
    import_rows,
    judged_in_both_orders,
    judged_pair,
    run_study,
    table,
)


def study(name, labelled, winners):
    """The study of judgments with these winners, by sample id."""
    return benchmark_study(name, {key: judged_pair(key, winner) for key, winner in winners.items()}, labelled, HOW)


def test_rewardbenchs_sections(tmp_path):
    subsets = ["math-prm", "math-prm", "hep-go", "alpacaeval-easy"]
    base = {"prompt": "q", "chosen": "a", "rejected": "b"}
    rows = [base | {"prompt": f"q{i}", "subset": subset, "id": i} for i, subset in enumerate(subsets)]
    labelled = import_rows("rewardbench", tmp_path, {"in.json": rows})
    right = {key: label.winner for key, label in labelled.labels.items()}
    judged = right | {"math-prm-1": 3 - right["math-prm-1"], "hep-go-2": "tie", "alpacaeval-easy-3": None}
    # math-prm 1/2, hep-go a tie 1/2, alpacaeval-easy a failure 1/2; Reasoning (984/2 + 164/2) / (984 + 164)
    assert cells(study("rewardbench", labelled, judged), "scores") == {"overall": 0.5, "Chat": 0.5, "Reasoning": 0.5}
    result = study("rewardbench", labelled, judged | {"hep-go-2": right["hep-go-2"]})
    reasoning = (984 * 0.5 + 164 * 1) / (984 + 164)
    scores = {"overall": (reasoning + 0.5) / 2, "Chat": 0.5, "Reasoning": reasoning}
    assert (cells(result, "scores"), result.counts["failed"]) == (pytest.approx(scores), 1)


def test_judgebenchs_vote_over_both_orders(tmp_path):
    base = {"question": "q", "original_id": "7", "response_model": "m", "label": "A>B", "source": "livecodebench"}
    rows = [base | {"pair_id": f"p{i}", "response_A": f"a{i}", "response_B": f"b{i}"} for i in range(4)]
    labelled = import_rows("judgebench", tmp_path, {"in.json": rows})
    replies = {  # in each order: right twice, right and a tie, right and wrong, right and not readable
        "q|a0|b0": "8 6\n", "q|b0|a0": "6 8\n", "q|a1|b1": "8 6\n", "q|b1|a1": "7 7\n",
        "q|a2|b2": "8 6\n", "q|b2|a2": "8 6\n", "q|a3|b3": "8 6\n", "q|b3|a3": "well\n",
    }  # fmt: skip
    result = benchmark_study("judgebench", judged_in_both_orders(labelled.samples.values(), replies), labelled, HOW)
    assert cells(result, "scores") == {"overall": 0.75, "both orders agree": pytest.approx(1 / 3)}
    once = by_id(judge(labelled.samples.values(), Pairwise(), ScriptedEngine(replies)))
    assert "4 pairs were judged in one order" in benchmark_study("judgebench", once, labelled, HOW).warnings[0]


def test_llmbars_two_orders_and_adversarial_sets(tmp_path):
    labelled = import_rows("llmbar", tmp_path, {
        f"{folder}/dataset.json": [
            {"input": folder, "output_1": f"a{i}", "output_2": f"b{i}", "label": 1} for i in range(count)
        ]
        for folder, count in (("Natural", 1), ("Neighbor", 1), ("Manual", 2))
    })  # fmt: skip
    replies = {"*": "8 6\n", "Natural|b0|a0": "6 8\n", "Manual|b0|a0": "6 8\n"}
    result = benchmark_study("llmbar", judged_in_both_orders(labelled.samples.values(), replies), labelled, HOW)
    # Natural 1; Neighbor 1/2 (first place wins); Manual (1 + 1/2) / 2; Adversarial (1/2 + 3/4) / 2
    assert cells(result, "subsets") == {"Natural": 1.0, "Neighbor": 0.5, "Manual": 0.75}
    assert cells(result, "scores") == {"Natural": 1.0, "Adversarial": 0.625, "both orders agree": 0.5}


def without_scores(key, given, swapped):
    """A judgment of a judge that writes no scores; LLMBar's winners are in sample order, None is unreadable."""
    winner = None if None in (given, swapped) else int(given) if given == swapped else "tie"
    return both_orders(key, given, swapped and str(3 - int(swapped)), winner)


@pytest.mark.parametrize("folder", ["Natural", "Adversarial_Neighbor"])
@pytest.mark.parametrize(
    "name", ["ChatGPT/CoT", "ChatGPT/Vanilla", "GPT-4/CoT", "GPT-4/Rating", "GPT-4/Swap", "GPT-4/Vanilla", "LLaMA2/CoT"]
)
def test_llmbars_published_counts_come_out_of_its_judges_outputs(shared_data, tmp_path, folder, name):
    home = shared_data / "llmbar" / folder
    published = json.loads((home / "evaluators" / name / "statistics.json").read_text())
    rows = json.loads(gzip.decompress((home / "evaluators" / name / "result.json.gz").read_bytes()))
    import_benchmark("llmbar", [str(home / "dataset.json")], tmp_path / "rows.jsonl")
    winners = [[row["results"][-1][f"swap = {swap}"]["winner"] for swap in (False, True)] for row in rows]
    result = {f"{folder}-{i}": without_scores(f"{folder}-{i}", *pair) for i, pair in enumerate(winners, 1)}
    [ours] = table(benchmark_study("llmbar", result, read_labels(str(tmp_path / "rows.jsonl")), HOW), "orders")
    names = {"correct_False": "given_right", "correct_True": "swapped_right", "correct_both": "both_right"}
    for theirs, key in (names | {"equal": "equal"}).items():
        assert f"{round(ours[key].value * ours[key].n)} / {ours[key].n}" == published[theirs].split(" =")[0]
    assert ours["unreadable"] == sum(winner is None for pair in winners for winner in pair)
    labels = [str(row["label"]) for row in rows]
    for place, key in enumerate(("given_kappa", "swapped_kappa")):
        read = [(pair[place], label) for pair, label in zip(winners, labels, strict=True) if pair[place] is not None]
        assert ours[key].value == pytest.approx(cohen_kappa_score(*zip(*read, strict=True)))
        # the published one compares winners written 0 and 1 with labels 1 and 2
        theirs = published[("kappa_False", "kappa_True")[place]]
        coded = [int(pair[place] == "1") for pair in winners]
        assert theirs == pytest.approx(cohen_kappa_score(coded, [int(label) for label in labels]))
        assert abs(theirs - ours[key].value) > 0.02
    if not ours["unreadable"]:
        assert ours["kappa"].value == pytest.approx(published["kappa_agreement"])


def test_two_unreadable_orders_are_equal_in_llmbars_count_alone():
    given, swapped = [1, None, None, -1, 1], [1, None, 1, 1, -1]
    result = two_orders(given, swapped, [1, 1, 1, 1, -1], list(range(5)), HOW)
    assert (result.n, result.unreadable, result.agree.n) == (5, 3, 3)
    # equal are the first, and the second, which says nothing twice
    shares = (result.equal, result.agree, result.given_right, result.swapped_right, result.both_right)
    assert [share.value for share in shares] == pytest.approx([2 / 5, 1 / 3, 1 / 5, 4 / 5, 1 / 5])
    # read in both orders: (1, 1), (-1, 1), (1, -1): 1/3 observed, 2/3 * 2/3 + 1/3 * 1/3 = 5/9 by chance
    assert result.kappa.value == pytest.approx((1 / 3 - 5 / 9) / (4 / 9))
    nothing = two_orders([None], [None], [1], ["q"], HOW)
    assert (nothing.equal.value, nothing.agree, nothing.kappa) == (1.0, None, None)


def test_auto_j_wants_both_orders_right_and_reports_by_group(tmp_path):
    scenarios = ["text_summarization", "post_summarization", "code_generation", "chitchat", "my_own"]
    texts = [{"prompt": f"q{i}", "response 1": f"a{i}", "response 2": f"b{i}", "label": 0} for i in range(5)]
    rows = [row | {"scenario": scenario} for row, scenario in zip(texts, scenarios, strict=True)]
    labelled = import_rows("auto-j", tmp_path, {"in.json": rows})
    replies = {  # right in both orders; one each way; wrong in both; right and unreadable; right in both
        "q0|a0|b0": "8 6\n", "q0|b0|a0": "6 8\n", "q1|a1|b1": "8 6\n", "q1|b1|a1": "8 6\n",
        "q2|a2|b2": "6 8\n", "q2|b2|a2": "8 6\n", "q3|a3|b3": "8 6\n", "q3|b3|a3": "well\n",
        "q4|a4|b4": "8 6\n", "q4|b4|a4": "6 8\n",
    }  # fmt: skip
    result = benchmark_study("auto-j", judged_in_both_orders(labelled.samples.values(), replies), labelled, HOW)
    assert cells(result, "scores") == pytest.approx({"overall": 2 / 5, "both orders agree": 3 / 4})
    rows = {row["group"]: row for row in table(result, "groups")}
    assert result.findings[1].startswith("Agreement by group: Summarization 50.0 % (95 % interval")
    assert [(name, row["agreement"].value) for name, row in rows.items()] == [
        ("Summarization", 0.5), ("Code", 0.0), ("General Communication", 0.0), ("none of the 8 groups", 1.0),
        ("Overall", pytest.approx(2 / 5)),
    ]  # fmt: skip
    assert (rows["Summarization"]["consistency"].value, rows["Summarization"]["scenarios"]) == (0.5, 2)
    assert rows["General Communication"]["consistency"] is None  # nothing was read in both orders
    assert (rows["Overall"]["consistency"].value, rows["Overall"]["consistency"].n) == (0.75, 4)


def test_fair_eval_has_accuracy_and_the_kappa_that_its_import_promises(tmp_path):
    def lines(side, **fields):
        return "".join(json.dumps({"question_id": i, "text": f"{side}{i}"} | fields) + "\n" for i in range(5))

    files = {"question.jsonl": lines("q", category="generic")}
    for side, model in (("a", "gpt35"), ("b", "vicuna-13b")):
        files[f"answer_{model}.jsonl"] = lines(side, model_id=f"{model}:v1")
    files["review_human.txt"] = "GPT35\nVICUNA13B\nTIE\nGPT35\nVICUNA13B\n"
    labelled = import_rows("faireval", tmp_path, files)
    replies = {  # first; a tie by the means; a tie; first by the one order that can be read; nothing
        "q0|a0|b0": "8 6\n", "q0|b0|a0": "6 8\n", "q1|a1|b1": "8 6\n", "q1|b1|a1": "8 6\n",
        "q2|a2|b2": "9 7\n", "q2|b2|a2": "9 7\n", "q3|a3|b3": "well\n", "q3|b3|a3": "5 7\n",
        "q4|a4|b4": "well\n", "q4|b4|a4": "well\n",
    }  # fmt: skip
    result = benchmark_study("faireval", judged_in_both_orders(labelled.samples.values(), replies), labelled, HOW)
    [row] = table(result, "people")
    assert (row["pairs"], row["unreadable"], row["one_order"]) == (5, 1, 1)
    assert row["accuracy"].value == cells(result, "scores")["overall"] == pytest.approx(3 / 5)
    assert row["kappa"].value == pytest.approx(cohen_kappa_score([1, 0, 0, 1], [1, -1, 0, 1]))
    assert row["kappa"].n == 4


def test_rewardbench_2_with_ties(tmp_path):
    base = {"prompt": "q", "chosen": ["8a"], "rejected": ["3b", "3c", "3d"], "subset": "Focus", "id": "1"}
    changes = [
        {}, {"id": "2", "prompt": "q2", "rejected": ["8b", "3c", "3d"]}, {"id": "3", "prompt": "q3", "subset": "Math"},
        {"id": "tied:0", "subset": "Ties", "chosen": ["8a", "8b"], "rejected": ["5c"]},
        {"id": "ref:0", "subset": "Ties", "rejected": ["5c"]},
    ]  # fmt: skip
    labelled = import_rows("rewardbench-2", tmp_path, {"in.json": [base | change for change in changes]})

    def script(prompt):
        answers = [span.text for span in prompt.spans if span.kind == "answer"]
        if "q3" in "".join(span.text for span in prompt.spans):
            raise LookupError
        return " ".join(answer.strip()[0] for answer in answers) + "\n"

    result = by_id(judge(labelled.samples.values(), Multi(), ScriptedEngine(script)))
    # Focus (1 + 1/2) / 2; Math failed: 1/4; Ties all right, by 3 against a spread of 0: 1.01
    assert cells(benchmark_study("rewardbench-2", result, labelled, HOW), "scores") == pytest.approx(
        {"overall": (0.75 + 0.25 + 1.01) / 3, "Focus": 0.75, "Math": 0.25, "Ties": 1.01}
    )


def test_rm_benchs_scores_are_those_of_its_readme(tmp_path):
    rows = [
        {"id": i, "prompt": f"q{i}", "chosen": [f"c{i}{k}" for k in "abc"], "rejected": [f"r{i}{k}" for k in "abc"]}
        for i in range(4)
    ]
    labelled = import_rows("rm-bench", tmp_path, {f"{domain}_filtered.json": rows for domain in ("chat", "code")})
    rng = np.random.default_rng(0)
    scores = {domain: rng.integers(0, 5, (4, 2, 3)) for domain in ("chat", "code")}  # of chosen and rejected
    judged, styles = {}, ("concise", "detailed", "markdown")
    for key, label in labelled.labels.items():
        domain, index, better, worse = key.split("-")
        own = scores[domain][int(index)]
        chosen, rejected = own[0][styles.index(better)], own[1][styles.index(worse)]
        judged[key] = "tie" if chosen == rejected else label.winner if chosen > rejected else 3 - label.winner
    result = study("rm-bench", labelled, judged)
    expected = {}
    for domain, own in scores.items():  # the README's matrix
        matrix = np.mean(own[:, 0, :, None] > own[:, 1, None, :], axis=0)
        hard, easy = np.sum(np.triu(matrix, 1)) / 3, np.sum(np.tril(matrix, -1)) / 3
        expected[domain] = {"easy": easy, "normal": np.mean(np.diag(matrix)), "hard": hard}
    by_difficulty, scores = cells(result, "difficulties"), cells(result, "scores")
    means = {name: np.mean([expected[domain][name] for domain in expected]) for name in ("easy", "normal", "hard")}
    assert {name: by_difficulty[name] for name in means} == pytest.approx(means)
    known = [np.mean(list(numbers.values())) for numbers in (means, *expected.values())]
    assert [scores[name] for name in ("overall", "Chat", "Code")] == pytest.approx(known)


def test_a_benchmark_without_its_own_metric_points_to_eval():
    with pytest.raises(ConfigError, match=r"pandalm: use `judgelm eval` .*: rewardbench"):
        benchmark_study("pandalm", {}, None)


def test_the_command_reads_the_benchmarks_name_next_to_the_rows(tmp_path):
    rows = [{"prompt": "q", "chosen": "a", "rejected": "b", "subset": "donotanswer", "id": 1}]
    import_rows("rewardbench", tmp_path, {"in.json": rows})
    with Judge("8 6\n", engine="scripted") as judge_8_6:
        judge_8_6.judge_file(str(tmp_path / "rows.jsonl"), out=str(tmp_path / "run.jsonl"))
    arguments = (tmp_path / "run.jsonl", "-r", tmp_path / "rows.jsonl")
    result = run_study(benchmark_command, tmp_path, *arguments)
    assert result["title"] == "rewardbench by its own protocol"
    assert [row["name"] for row in result["tables"][0]["rows"]] == ["overall", "Safety"]
    (tmp_path / "rows.protocol.json").unlink()
    with pytest.raises(InputError, match="pass --name"):
        run_study(benchmark_command, tmp_path, *arguments, "--overwrite")


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
    result, rows = prometheus(judgments, labelled)
    kept = [key for key in grades if key != lost]
    mine, means = [grades[key] for key in kept], [np.mean(triples[key]) for key in kept]
    row = rows["judge and GPT-4"]
    assert (row["answers"], result.counts["failed"]) == (319, 1)
    known = {"pearson": stats.pearsonr, "kendall": stats.kendalltau, "spearman": stats.spearmanr}
    for name, correlation in known.items():
        assert row[name].value == pytest.approx(correlation(mine, means).statistic)
    assert row["kappa"].value == pytest.approx(cohen_kappa_score(mine, [sorted(triples[key])[1] for key in kept]))
    for first, second in ((0, 1), (0, 2), (1, 2)):
        itself = rows[f"GPT-4, grades {first + 1} and {second + 1}"]
        pair = [[three[place] for three in triples.values()] for place in (first, second)]
        assert itself["pearson"].value == pytest.approx(stats.pearsonr(*pair).statistic)
        assert itself["kendall"].low < itself["kendall"].value < itself["kendall"].high
        assert itself["weighted_kappa"].n == 320
    assert result.findings[0].startswith("Pearson's correlation of the judge with GPT-4 is 0.")
    json.dumps(result.to_json(), allow_nan=False)
    # always the same grade
    result, rows = prometheus({key: graded(key, 4) for key in labelled.samples}, labelled)
    row = rows["judge and GPT-4"]
    assert [row[name] for name in ("pearson", "kendall", "spearman", "kappa", "weighted_kappa")] == [None] * 5
    assert result.warnings[0] == "judge and GPT-4: no correlation (constant: grades)."


@pytest.fixture
def evouna(tmp_path):
    rows = [{"question": f"q{index}", "golden_answer": "The Gold/Au", "improper": False} for index in range(2)]
    for row, answer in zip(rows, ("Iron.", "It is gold."), strict=True):
        row |= {f"answer_{model}": answer for model in MODELS} | {f"judge_{model}": True for model in MODELS}
    return import_rows("evouna", tmp_path, {"NQ.json": rows})


def answer(key, label):
    verdict, failure = (LabelVerdict(label=label), None) if label else (None, Unparsed("truncated", ""))
    return Judgment(sample_id=key, mode="qa", verdict=verdict, shown=(), failure=failure)


def test_evounas_verdicts_beside_lexical_match(evouna):
    changed = {"NQ-1-fid": "incorrect", "NQ-2-fid": None}  # a failure is the wrong verdict
    judged = {key: answer(key, changed.get(key, "correct")) for key in evouna.labels}
    result = benchmark_study("evouna", judged, evouna, HOW)
    shares = cells(result, "answers", 2)
    assert (shares["all"], shares["NQ fid"], result.counts["failed"]) == (pytest.approx(0.8), 0.0, 1)
    # "the gold" without its article is in "It is gold.", not in "Iron."
    assert cells(result, "answers", 4)["all"] == pytest.approx(0.5)


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
        for published in judges:
            assert all((published.source, published.scores))
            assert all(-1 <= score <= 1 for score in published.scores.values())
            if name in SCORING_RULES:
                assert min(published.scores.values()) > 0.2, "a share in percent would be above 1, a typing error below"
            parts = [value for key, value in published.scores.items() if key[0].isupper()]
            if name in ("rewardbench", "rm-bench") and len(parts) == 4:
                assert np.mean(parts) == pytest.approx(published.scores["overall"], abs=0.001), published.judge
    # a benchmark without published scores
    assert (published_table("evouna"), published_findings("evouna")) == (None, [])
