"""`judgelm study position-bias` on GPT-4's real reviews in both orders."""

import json

import typer
from typer.testing import CliRunner

from judgelm.cli.study_position_bias import position_bias_command

APP = typer.Typer()
APP.command()(position_bias_command)


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
