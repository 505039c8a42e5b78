"""`judgelm study position-bias` on GPT-4's real reviews in both orders."""

import json

import pytest
import typer
from typer.testing import CliRunner

from judgelm.cli.commands import add_command
from judgelm.cli.study.pairs import position_bias_command
from judgelm.errors import ConfigError

APP = typer.Typer()
add_command(APP, position_bias_command, "study")


def studied(tmp_path, *arguments):
    done = CliRunner().invoke(
        APP, [*map(str, arguments), "-o", str(tmp_path / "study"), "--bootstrap", "100", "--json", "-"]
    )
    return done, {row["group"]: row for row in json.loads(done.stdout)["tables"][0]["rows"]} if done.stdout else {}


def test_all_of_qloras_ratings_counted_by_another_way(shared_data, tmp_path):
    files = sorted((shared_data / "qlora_ratings" / "relative-gpt-3.5").glob("*.jsonl"))
    reviews = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    # by the two answers' ids, whichever file they are in: no two of these seven models wrote the same text
    pairs = {}
    for review in reviews:
        first, second = review["answer1_id"], review["answer2_id"]
        lead = review["score"][0] - review["score"][1]
        pairs.setdefault((review["question_id"], *sorted((first, second))), {})[first] = lead
    leads = [tuple(orders.values()) for orders in pairs.values() if len(orders) == 2]
    alike = sum((one > 0) - (one < 0) == (other < 0) - (other > 0) for one, other in leads)
    done, rows = studied(tmp_path, *files)
    assert (done.exit_code, rows["all"]["n"], len(leads)) == (0, 480, 480)  # six models; flan's ids differ in its files
    assert rows["all"]["consistency"]["value"] == pytest.approx(alike / 480)
    assert rows["all"]["lead"]["value"] == pytest.approx(sum(map(sum, leads)) / 960)


def test_two_models_that_wrote_the_same_text_are_two_pairs(tmp_path):
    def write(name, first, second, *scores):
        row = {"question_id": 1, "answer1_id": first, "answer2_id": second, "score": scores}
        (tmp_path / name).write_text(json.dumps(row) + "\n")
        return tmp_path / name

    files = [
        write("a-7b-vs-gpt-3.5-gpt4-reviewer.jsonl", "same", "g", 8, 6),
        write("b-7b-vs-gpt-3.5-gpt4-reviewer.jsonl", "same", "g", 5, 6),
        write("gpt-3.5-vs-a-7b-gpt4-reviewer.jsonl", "g", "same", 6, 8),
        write("gpt-3.5-vs-b-7b-gpt4-reviewer.jsonl", "g", "same", 5, 6),
    ]
    done, rows = studied(tmp_path, *files)
    # of a the same answer wins in both orders; of b the second place does: one pair in two is alike
    assert (done.exit_code, rows["all"]["n"], rows["all"]["consistency"]["value"]) == (0, 2, 0.5)
    assert [rows[path.stem]["consistency"]["value"] for path in files[:2]] == [1.0, 0.0]
    assert isinstance(studied(tmp_path, files[0], files[0])[0].exception, ConfigError)


def test_gpt_4s_own_order_effects_by_model(shared_data, tmp_path):
    folder = shared_data / "qlora_ratings" / "relative-gpt-3.5"
    arguments = []
    for model, name in {
        "vicuna-13b": "vicuna-13b",
        "65b-alpaca": "65b-alpaca-vicuna-generations-topp0.9-temp0.7",
        "13b-flan": "13b-flan-vicuna-generations-topp0.9-temp0.7",
    }.items():
        arguments += [f"{model}={folder}/{name}-vs-gpt-3.5-gpt4-reviewer.jsonl"]
        arguments += [f"{model}={folder}/gpt-3.5-vs-{name}-gpt4-reviewer.jsonl"]
    arguments += ["-o", str(tmp_path / "study"), "--bootstrap", "100", "--json", "-"]
    done = CliRunner().invoke(APP, arguments, catch_exceptions=False)
    rows = {row["group"]: row for row in json.loads(done.stdout)["tables"][0]["rows"]}
    # counted by a script of its own from the files: of 80 pairs 38 alike, 37 toward the first, 5 toward the second
    vicuna = rows["vicuna-13b"]
    assert [vicuna[key]["value"] for key in ("consistency", "toward_first", "toward_second")] == [
        38 / 80, 37 / 80, 5 / 80,
    ]  # fmt: skip
    assert rows["65b-alpaca"]["consistency"]["value"] == 1.0
    # its answers have other ids in the two files, so nothing says that they are the same
    assert (rows["13b-flan"]["n"], rows["13b-flan"]["alone"]) == (0, 160)
    assert rows["all"]["n"] == 160
    assert (tmp_path / "study" / "figures" / "consistency.svg").exists()
