"""LLMBar's, Auto-J's and FairEval's counts over both orders, against what their makers' own code counts."""

import gzip
import json

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.pairs import AUTO_J_GROUPS
from judgelm.engines.scripted import ScriptedEngine
from judgelm.metrics.agreement import two_orders
from judgelm.metrics.resampling import Resampling
from judgelm.modes import Pairwise
from judgelm.records import Judgment, PairVerdict, Shown, Unparsed
from judgelm.runs.runner import judge
from judgelm.studies.benchmark.study import benchmark_study
from judgelm.studies.pair_labels import by_id
from tests.support.studies import table

HOW = Resampling(resamples=100)
LLMBAR = [
    (folder, judge_name)
    for folder in ("Natural", "Adversarial_Neighbor")
    for judge_name in (
        *("ChatGPT/CoT", "ChatGPT/Vanilla", "GPT-4/CoT", "GPT-4/Rating", "GPT-4/Swap", "GPT-4/Vanilla", "LLaMA2/CoT"),
    )
]


def shown(order, winner):
    """An order of a judge that writes no scores; LLMBar's winners are in sample order."""
    if winner is None:
        return Shown(order=order, text="?", failure=Unparsed("off_grammar", "?"))
    return Shown(order=order, text=winner, label=str(1 + order.index(int(winner) - 1)))


def judgment(key, given, swapped):
    failure = Unparsed("off_grammar", "?") if None in (given, swapped) else None
    verdict = PairVerdict(winner=int(given) if given == swapped else "tie") if failure is None else None
    orders = (shown((0, 1), given), shown((1, 0), swapped))
    return Judgment(sample_id=key, mode="released", verdict=verdict, shown=orders, failure=failure)


@pytest.mark.parametrize(("folder", "judge_name"), LLMBAR)
def test_llmbars_published_counts_come_out_of_its_judges_outputs(shared_data, tmp_path, folder, judge_name):
    home = shared_data / "llmbar" / folder
    published = json.loads((home / "evaluators" / judge_name / "statistics.json").read_text())
    rows = json.loads(gzip.decompress((home / "evaluators" / judge_name / "result.json.gz").read_bytes()))
    import_benchmark("llmbar", [str(home / "dataset.json")], tmp_path / "rows.jsonl")
    winners = [[row["results"][-1][f"swap = {swap}"]["winner"] for swap in (False, True)] for row in rows]
    found = {f"{folder}-{i}": judgment(f"{folder}-{i}", *pair) for i, pair in enumerate(winners, 1)}
    [ours] = table(benchmark_study("llmbar", found, read_labels(str(tmp_path / "rows.jsonl")), HOW), "orders")
    names = {
        "correct_False": "given_right", "correct_True": "swapped_right", "correct_both": "both_right", "equal": "equal"
    }  # fmt: skip
    for theirs, name in names.items():
        assert f"{round(ours[name].value * ours[name].n)} / {ours[name].n}" == published[theirs].split(" =")[0]
    assert ours["unreadable"] == sum(winner is None for pair in winners for winner in pair)
    labels = [str(row["label"]) for row in rows]
    for place, name in enumerate(("given_kappa", "swapped_kappa")):
        read = [(pair[place], label) for pair, label in zip(winners, labels, strict=True) if pair[place] is not None]
        assert ours[name].value == pytest.approx(cohen_kappa_score(*zip(*read, strict=True)))
        # the published one compares winners written 0 and 1 with labels 1 and 2
        theirs = published[("kappa_False", "kappa_True")[place]]
        coded = [int(pair[place] == "1") for pair in winners]
        assert theirs == pytest.approx(cohen_kappa_score(coded, [int(label) for label in labels]))
        assert abs(theirs - ours[name].value) > 0.02
    if not ours["unreadable"]:
        assert ours["kappa"].value == pytest.approx(published["kappa_agreement"])


def test_two_unreadable_orders_are_equal_in_llmbars_count_alone():
    given, swapped = [1, None, None, -1, 1], [1, None, 1, 1, -1]
    found = two_orders(given, swapped, [1, 1, 1, 1, -1], list(range(5)), HOW)
    assert (found.n, found.unreadable) == (5, 3)
    assert found.equal.value == pytest.approx(2 / 5)  # the first, and the second, which says nothing twice
    assert (found.agree.value, found.agree.n) == (pytest.approx(1 / 3), 3)
    assert (found.given_right.value, found.swapped_right.value) == (pytest.approx(1 / 5), pytest.approx(4 / 5))
    assert found.both_right.value == pytest.approx(1 / 5)
    # read in both orders: (1, 1), (-1, 1), (1, -1): 1/3 observed, 2/3 * 2/3 + 1/3 * 1/3 = 5/9 by chance
    assert found.kappa.value == pytest.approx((1 / 3 - 5 / 9) / (4 / 9))
    nothing = two_orders([None], [None], [1], ["q"], HOW)
    assert (nothing.equal.value, nothing.agree, nothing.kappa) == (1.0, None, None)


def test_auto_js_58_scenarios_are_in_8_groups_once_each():
    scenarios = [scenario for group in AUTO_J_GROUPS.values() for scenario in group]
    assert (len(AUTO_J_GROUPS), len(scenarios), len(set(scenarios))) == (8, 58, 58)


def test_auto_j_reports_agreement_and_consistency_by_group_and_overall(tmp_path):
    scenarios = ["text_summarization", "post_summarization", "code_generation", "chitchat", "my_own"]
    rows = [
        {"scenario": scenario, "prompt": f"q{i}", "label": 0, "response 1": f"a{i}", "response 2": f"b{i}"}
        for i, scenario in enumerate(scenarios)
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_benchmark("auto-j", [str(tmp_path / "in.jsonl")], tmp_path / "rows.jsonl")
    details = json.loads((tmp_path / "rows.protocol.json").read_text())["details"]
    assert details["groups"]["Exam Questions"][0] == "math_reasoning"
    labelled = read_labels(str(tmp_path / "rows.jsonl"))
    replies = {  # right in both orders; one each way; wrong in both; right and unreadable; right in both
        "q0|a0|b0": "8 6\n", "q0|b0|a0": "6 8\n", "q1|a1|b1": "8 6\n", "q1|b1|a1": "8 6\n",
        "q2|a2|b2": "6 8\n", "q2|b2|a2": "8 6\n", "q3|a3|b3": "8 6\n", "q3|b3|a3": "well\n",
        "q4|a4|b4": "8 6\n", "q4|b4|a4": "6 8\n",
    }  # fmt: skip
    found = by_id(judge(labelled.samples.values(), Pairwise(both_orders=True), ScriptedEngine(replies)))
    result = benchmark_study("auto-j", found, labelled, HOW)
    rows = {row["group"]: row for row in table(result, "groups")}
    assert result.findings[1].startswith("Agreement by group: Summarization 50.0 % (95 % interval")
    assert list(rows) == ["Summarization", "Code", "General Communication", "none of the 8 groups", "Overall"]
    assert {name: row["agreement"].value for name, row in rows.items()} == {
        "Summarization": 0.5, "Code": 0.0, "General Communication": 0.0, "none of the 8 groups": 1.0,
        "Overall": pytest.approx(2 / 5),
    }  # fmt: skip
    assert (rows["Summarization"]["consistency"].value, rows["Summarization"]["scenarios"]) == (0.5, 2)
    assert rows["General Communication"]["consistency"] is None  # nothing was read in both orders
    assert (rows["Overall"]["consistency"].value, rows["Overall"]["consistency"].n) == (0.75, 4)


def fair_eval(tmp_path, labels):
    questions = [{"question_id": i, "text": f"q{i}", "category": "generic"} for i in range(len(labels))]
    texts = {"question.jsonl": questions}
    for side, model in (("a", "gpt35"), ("b", "vicuna-13b")):
        texts[f"answer_{model}.jsonl"] = [
            {"question_id": i, "text": f"{side}{i}", "model_id": f"{model}:v1"} for i in range(len(labels))
        ]
    paths = []
    for name, rows in texts.items():
        paths.append(tmp_path / name)
        paths[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    paths.append(tmp_path / "review_human.txt")
    names = {1: "GPT35", 2: "VICUNA13B", "tie": "TIE"}
    paths[-1].write_text("".join(f"{names[label]}\n" for label in labels))
    import_benchmark("faireval", [str(path) for path in paths], tmp_path / "rows.jsonl")
    return read_labels(str(tmp_path / "rows.jsonl"))


def test_fair_eval_has_accuracy_and_the_kappa_that_its_import_promises(tmp_path):
    labelled = fair_eval(tmp_path, [1, 2, "tie", 1, 2])
    replies = {  # first; a tie by the means; a tie; first by the one order that can be read; nothing
        "q0|a0|b0": "8 6\n", "q0|b0|a0": "6 8\n", "q1|a1|b1": "8 6\n", "q1|b1|a1": "8 6\n",
        "q2|a2|b2": "9 7\n", "q2|b2|a2": "9 7\n", "q3|a3|b3": "well\n", "q3|b3|a3": "5 7\n",
        "q4|a4|b4": "well\n", "q4|b4|a4": "well\n",
    }  # fmt: skip
    found = by_id(judge(labelled.samples.values(), Pairwise(both_orders=True), ScriptedEngine(replies)))
    result = benchmark_study("faireval", found, labelled, HOW)
    [row] = table(result, "people")
    assert (row["pairs"], row["unreadable"], row["one_order"]) == (5, 1, 1)
    assert row["accuracy"].value == pytest.approx(3 / 5)
    assert row["kappa"].value == pytest.approx(cohen_kappa_score([1, 0, 0, 1], [1, -1, 0, 1]))
    assert row["kappa"].n == 4
    assert result.tables[0].rows[0][1].value == pytest.approx(3 / 5)
    assert "Cohen's kappa" in result.protocol
    assert np.isfinite(row["accuracy"].low)
