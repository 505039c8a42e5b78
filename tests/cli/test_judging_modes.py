"""`judgelm-batch --mode single`, `multi` and `rubric`, with scripts and with a real small judge."""

import json
from pathlib import Path

import pytest
import yaml

from judgelm.runs.run_files import read_judgments
from tests.support.tiny_judges import word_sample

OWN = {"tone": {"question": "Kind?", "levels": {"rude": {"score": 1}, "kind": {"score": 2}}}}


@pytest.fixture
def rows(tmp_path):
    """A file of rows."""

    def write(rows, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text(
            "".join(json.dumps({"id": f"s{i}", "question": f"q{i}"} | row) + "\n" for i, row in enumerate(rows))
        )
        return path

    return write


def batch(cli, tmp_path, path, *arguments, engine="scripted"):
    out = tmp_path / "out.jsonl"
    found = cli("judgelm-batch", path, "-o", out, "--engine", engine, *arguments)
    return *found, (read_judgments(out) if out.exists() else {})


def test_single_answers_are_graded(cli, rows, tmp_path):
    path = rows([{"answer": "a", "reference": "r"}, {"answer": "a", "anchor": "b"}, {"answer": "a"}])
    (tmp_path / "script.json").write_text(json.dumps({"q0|r|a": " 7\n", "q1|b|a": "5 8\n", "q2|a": "9\n"}))
    code, _, said, found = batch(cli, tmp_path, path, "--mode", "single", "--model", tmp_path / "script.json")
    assert code == 0, said
    assert {key: one.scores for key, one in found.items()} == {"s0": (7,), "s1": (8,), "s2": (9,)}
    assert found["s1"].shown[0].anchor == 5
    assert "3, 8.00" in said  # graded, mean


def test_rows_without_what_an_answer_is_graded_beside_are_rejects(cli, rows, tmp_path):
    path = rows([{"answer": "a", "reference": "r"}, {"answer": "a"}])
    arguments = ("--mode", "single", "--mode-arg", "against=reference", "--model", "7", "--max-failure-rate", "1")
    code, _, said, found = batch(cli, tmp_path, path, *arguments)
    assert (code, list(found)) == (0, ["s0"])
    assert "no reference" in said


def test_many_answers_are_ranked_and_a_rerun_judges_nothing(cli, rows, tmp_path):
    path = rows([{"answers": ["a", "b", "c"]}, {"answers": ["a", "b"]}])
    script = {"q0|a|b|c": "5 1 8\n", "q0|b|c|a": "1 8 5\n", "q1|a|b": "3 3\n", "q1|b|a": "3 3\n"}
    (tmp_path / "script.json").write_text(json.dumps(script))
    arguments = ("--mode", "multi", "--mode-arg", "permutations=2", "--model", tmp_path / "script.json")
    code, _, said, found = batch(cli, tmp_path, path, *arguments)
    assert code == 0, said
    assert {key: one.verdict.order for key, one in found.items()} == {"s0": ((2,), (0,), (1,)), "s1": ((0, 1),)}
    assert {one.consistent for one in found.values()} == {True}
    assert "resuming: 2 samples are already judged" in batch(cli, tmp_path, path, *arguments)[2]


@pytest.fixture
def rubric_config(tmp_path):
    """A config file of a rubric."""

    def write(levels=None, **options):
        tone = OWN["tone"] | ({} if levels is None else {"levels": levels})
        path = tmp_path / "rubric.yaml"
        path.write_text(yaml.safe_dump({"mode": "rubric", "mode_arg": {"rubric": {"tone": tone}} | options}))
        return path

    return write


def test_a_rubric_comes_from_a_config_and_a_rerun_knows_it(cli, rows, tmp_path, rubric_config):
    path = rows([{"answer": "a"}, {"answer": "b"}])
    arguments = ("--config", rubric_config(dimensions=["tone"]), "--model", "Explanation: so, Answer: kind")
    code, _, said, found = batch(cli, tmp_path, path, *arguments)
    assert code == 0, said
    assert {one.scores for one in found.values()} == {(1,)}
    assert found["s0"].shown[0].part == "tone"
    assert "resuming: 2 samples are already judged" in batch(cli, tmp_path, path, *arguments)[2]
    rubric_config(levels=OWN["tone"]["levels"] | {"warm": {"score": 3}}, dimensions=["tone"])
    code, _, said, _ = batch(cli, tmp_path, path, *arguments)
    assert code == 1
    assert "holds judgments of another run" in said


def test_the_example_config_runs(cli, rows, tmp_path):
    config = Path(__file__).parents[2] / "configs" / "judge" / "rubric.yaml"
    arguments = ("--config", config, "--model", "Answer: friendly", "--max-failure-rate", "1")
    code, _, said, found = batch(cli, tmp_path, rows([{"answer": "a"}]), *arguments)
    assert code == 0, said
    assert [(one.part, one.label) for one in found["s0"].shown] == [
        ("tone", "friendly"), ("next_step", None), ("helpfulness", None),
    ]  # fmt: skip


def test_a_flag_of_another_mode_is_an_error(cli, rows, tmp_path):
    code, _, said, _ = batch(
        cli, tmp_path, rows([{"answer": "a"}]), "--mode", "rubric", "--model", "x", "--both-orders"
    )
    assert code == 1
    assert "mode rubric: unknown option both_orders" in said


def test_a_real_judge_grades_beside_a_reference_of_full_score(cli, rows, tmp_path, tiny_judge):
    # the judge scores an answer by its number of words; a reference of ten words has the forced score by right
    texts = [word_sample(f"single {i}").answers[1] for i in range(20)]
    ten = " ".join(["fox"] * 10)
    path = rows([{"question": "what is red", "answer": text, "reference": ten} for text in texts])
    arguments = ("--mode", "single", "--distribution", "--reasons", "all", "--model", tiny_judge)
    code, _, said, found = batch(cli, tmp_path, path, *arguments, engine="transformers")
    assert code == 0, said
    errors = [abs(found[f"s{i}"].scores[0] - len(text.split())) for i, text in enumerate(texts)]
    assert sum(errors) / len(errors) < 1.5
    shown = [one.shown[0] for one in found.values()]
    assert all(abs(one.grades.expected - one.scores[0]) < 2 for one in shown)
    assert all(one.reason for one in shown)


def test_two_answers_in_both_orders_get_the_pair_modes_scores(cli, rows, tmp_path, tiny_judge):
    samples = [word_sample(f"multi {i}") for i in range(10)]
    path = rows([{"question": one.question, "answers": one.answers} for one in samples])
    model = ("--model", tiny_judge, "--overwrite")
    ranked = batch(
        cli, tmp_path, path, "--mode", "multi", "--mode-arg", "permutations=2", *model, engine="transformers"
    )
    paired = batch(cli, tmp_path, path, "--both-orders", *model, engine="transformers")
    assert (ranked[0], paired[0]) == (0, 0)
    assert {key: one.scores for key, one in ranked[3].items()} == {key: one.scores for key, one in paired[3].items()}
    winners = {((0,), (1,)): 1, ((1,), (0,)): 2, ((0, 1),): "tie"}
    assert all(winners[one.verdict.order] == paired[3][key].winner for key, one in ranked[3].items())


def test_too_many_answers_for_the_window_are_too_long(cli, rows, tmp_path, tiny_judge):
    # 40 answers of 60 words keep at least 16 tokens each, 640 together, in a window of 512
    path = rows([{"answers": [" ".join(["fox"] * 60)] * 40}])
    arguments = ("--mode", "multi", "--model", tiny_judge, "--max-failure-rate", "1")
    code, _, said, found = batch(cli, tmp_path, path, *arguments, engine="transformers")
    assert code == 0, said
    assert found["s0"].failure.code == "too_long"
