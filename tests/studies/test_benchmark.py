"""Runs by their benchmarks' own metrics: rows as imported, judged by a script."""

import json
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from judgelm.cli.commands import add_command
from judgelm.cli.study.pairs import benchmark_command
from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.importer import import_benchmark
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge
from judgelm.metrics.resampling import Resampling
from judgelm.modes import Multi, Pairwise
from judgelm.records import Sample
from judgelm.runs.runner import judge
from judgelm.studies.benchmark.scoring_rules import SCORING_RULES
from judgelm.studies.benchmark.study import benchmark_study
from judgelm.studies.pair_labels import by_id
from tests.support.studies import judged_pair

HOW = Resampling(resamples=200)


def imported(name, tmp_path, rows, file="in.jsonl"):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_benchmark(name, [str(path)], tmp_path / f"{name}.jsonl", overwrite=True)
    return read_labels(str(tmp_path / f"{name}.jsonl"))


def cells(result, table):
    [found] = [one for one in result.tables if one.name == table]
    return {row[0]: row[1] if isinstance(row[1], float) else row[1].value for row in found.rows}


def test_rewardbenchs_sections(tmp_path):
    subsets = ["math-prm", "math-prm", "hep-go", "alpacaeval-easy"]
    rows = [
        {"prompt": f"q{i}", "chosen": "a", "rejected": "b", "subset": subset, "id": i}
        for i, subset in enumerate(subsets)
    ]
    labelled = imported("rewardbench", tmp_path, rows)
    right = {key: label.winner for key, label in labelled.labels.items()}
    judged = {
        "math-prm-0": right["math-prm-0"],
        "math-prm-1": 3 - right["math-prm-1"],
        "hep-go-2": "tie",
        "alpacaeval-easy-3": None,
    }
    result = benchmark_study("rewardbench", {key: judged_pair(key, one) for key, one in judged.items()}, labelled, HOW)
    # math-prm 1/2, hep-go a tie 1/2, alpacaeval-easy a failure 1/2; Reasoning (984/2 + 164/2) / (984 + 164)
    assert cells(result, "scores") == {"overall": 0.5, "Chat": 0.5, "Reasoning": 0.5}
    judged["hep-go-2"] = right["hep-go-2"]
    result = benchmark_study("rewardbench", {key: judged_pair(key, one) for key, one in judged.items()}, labelled, HOW)
    reasoning = (984 * 0.5 + 164 * 1) / (984 + 164)
    assert cells(result, "scores")["Reasoning"] == pytest.approx(reasoning)
    assert cells(result, "scores")["overall"] == pytest.approx((reasoning + 0.5) / 2)
    assert result.counts["failed"] == 1


def test_judgebenchs_vote_over_both_orders(tmp_path):
    base = {"question": "q", "original_id": "7", "response_model": "m", "label": "A>B"}
    rows = [
        base | {"pair_id": f"p{i}", "source": "livecodebench", "response_A": f"a{i}", "response_B": f"b{i}"}
        for i in range(4)
    ]
    labelled = imported("judgebench", tmp_path, rows)
    replies = {  # in each order: right twice, right and a tie, right and wrong, right and not readable
        "q|a0|b0": "8 6\n", "q|b0|a0": "6 8\n", "q|a1|b1": "8 6\n", "q|b1|a1": "7 7\n",
        "q|a2|b2": "8 6\n", "q|b2|a2": "8 6\n", "q|a3|b3": "8 6\n", "q|b3|a3": "well\n",
    }  # fmt: skip
    found = by_id(judge(labelled.samples.values(), Pairwise(both_orders=True), ScriptedEngine(replies)))
    result = benchmark_study("judgebench", found, labelled, HOW)
    assert cells(result, "scores") == {"overall": 0.75, "both orders agree": pytest.approx(1 / 3)}
    once = by_id(judge(labelled.samples.values(), Pairwise(), ScriptedEngine(replies)))
    assert "4 pairs were judged in one order" in benchmark_study("judgebench", once, labelled, HOW).warnings[0]


def test_llmbars_two_orders_and_adversarial_sets(tmp_path):
    files = []
    for folder, count in (("Natural", 1), ("Neighbor", 1), ("Manual", 2)):
        path = tmp_path / folder / "dataset.json"
        path.parent.mkdir()
        rows = [{"input": folder, "output_1": f"a{i}", "output_2": f"b{i}", "label": 1} for i in range(count)]
        path.write_text(json.dumps(rows))
        files.append(str(path))
    import_benchmark("llmbar", files, tmp_path / "out.jsonl")
    labelled = read_labels(str(tmp_path / "out.jsonl"))
    replies = {"*": "8 6\n", "Natural|b0|a0": "6 8\n", "Manual|b0|a0": "6 8\n"}
    found = by_id(judge(labelled.samples.values(), Pairwise(both_orders=True), ScriptedEngine(replies)))
    result = benchmark_study("llmbar", found, labelled, HOW)
    # Natural 1; Neighbor 1/2 (first place wins); Manual (1 + 1/2) / 2; Adversarial (1/2 + 3/4) / 2
    assert cells(result, "subsets") == {"Natural": 1.0, "Neighbor": 0.5, "Manual": 0.75}
    assert cells(result, "scores") == {"Natural": 1.0, "Adversarial": 0.625, "both orders agree": 0.5}


def test_auto_j_wants_both_orders_right(tmp_path):
    base = {"scenario": "chitchat", "prompt": "q", "label": 2}
    labelled = imported("auto-j", tmp_path, [base | {"response 1": f"a{i}", "response 2": f"b{i}"} for i in range(2)])
    replies = {"q|a0|b0": "7 7\n", "q|b0|a0": "7 7\n", "q|a1|b1": "7 7\n", "q|b1|a1": "8 7\n"}
    found = by_id(judge(labelled.samples.values(), Pairwise(both_orders=True), ScriptedEngine(replies)))
    result = benchmark_study("auto-j", found, labelled, HOW)
    assert cells(result, "scores") == {"overall": 0.5, "both orders agree": 0.5}


def test_rewardbench_2_with_ties(tmp_path):
    base = {"prompt": "q", "chosen": ["8a"], "rejected": ["3b", "3c", "3d"], "subset": "Focus", "id": "1"}
    rows = [base, base | {"id": "2", "prompt": "q2", "chosen": ["8a"], "rejected": ["8b", "3c", "3d"]}]
    rows += [base | {"id": "3", "prompt": "q3", "subset": "Math"}]
    rows += [base | {"id": "tied:0", "subset": "Ties", "chosen": ["8a", "8b"], "rejected": ["5c"]}]
    rows += [base | {"id": "ref:0", "subset": "Ties", "chosen": ["8a"], "rejected": ["5c"]}]
    labelled = imported("rewardbench-2", tmp_path, rows)

    def script(prompt):
        answers = [span.text for span in prompt.spans if span.kind == "answer"]
        if "q3" in "".join(span.text for span in prompt.spans):
            raise LookupError
        return " ".join(answer.strip()[0] for answer in answers) + "\n"

    found = by_id(judge(labelled.samples.values(), Multi(), ScriptedEngine(script)))
    result = benchmark_study("rewardbench-2", found, labelled, HOW)
    # Focus (1 + 1/2) / 2; Math failed: 1/4; Ties all right, by 3 against a spread of 0: 1.01
    scores = cells(result, "scores")
    assert (scores["Focus"], scores["Math"], scores["Ties"]) == (0.75, 0.25, pytest.approx(1.01))
    assert scores["overall"] == pytest.approx((0.75 + 0.25 + 1.01) / 3)


def test_what_it_does_not_measure_it_says_who_does(tmp_path):
    labelled = imported(
        "auto-j", tmp_path, [{"scenario": "c", "prompt": "q", "label": 0, "response 1": "a", "response 2": "b"}]
    )
    with pytest.raises(ConfigError, match=r"pandalm: measured by `judgelm eval` .* knows: rewardbench"):
        benchmark_study("pandalm", {}, labelled)
    with pytest.raises(InputError, match="no judgment has a label"):
        benchmark_study("auto-j", {"x": judged_pair("x", 1)}, labelled)
    assert {"rewardbench", "rewardbench-2", "judgebench"} <= SCORING_RULES.keys()


def test_the_command_reads_the_name_beside_the_rows(tmp_path):
    rows = [{"prompt": "q", "chosen": "a", "rejected": "b", "subset": "donotanswer", "id": 1}]
    imported("rewardbench", tmp_path, rows)
    with Judge("8 6\n", engine="scripted") as one:
        one.judge_file(str(tmp_path / "rewardbench.jsonl"), out=str(tmp_path / "run.jsonl"))
    app = typer.Typer()
    add_command(app, benchmark_command, "study")
    arguments = [tmp_path / "run.jsonl", "-r", tmp_path / "rewardbench.jsonl", "-o", tmp_path / "x", "--bootstrap", 100]
    done = CliRunner().invoke(app, [*map(str, arguments), "--json", "-"], catch_exceptions=False)
    found = json.loads(done.stdout)
    assert found["title"] == "rewardbench by its own protocol"
    assert [row["name"] for row in found["tables"][0]["rows"]] == ["overall", "Safety"]
    (tmp_path / "rewardbench.protocol.json").unlink()
    with pytest.raises(InputError, match="pass --name"):
        CliRunner().invoke(app, [*map(str, arguments), "--overwrite"], catch_exceptions=False)


def test_samples_of_other_shapes_are_refused(tmp_path):
    base = {"prompt": "q", "chosen": ["8a"], "rejected": ["3b", "3c", "3d"], "subset": "Focus", "id": "1"}
    labelled = imported("rewardbench-2", tmp_path, [base])
    pair = Sample(id="1", question="q", answers=("a", "b"))
    found = by_id(judge([pair], Pairwise(), ScriptedEngine({"*": "8 6\n"})))
    with pytest.raises(InputError, match='id "1": the number of answers differs'):
        benchmark_study("rewardbench-2", found, labelled, HOW)
    unknown = {"1": replace(found["1"], hashes=None)}
    with pytest.raises(InputError, match="not the scores of 4 answers"):
        benchmark_study("rewardbench-2", unknown, labelled, HOW)
