import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from judgelm.cli.study_self_bias import self_bias_command
from judgelm.errors import ConfigError


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(self_bias_command)

    def call(*arguments):
        return CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)

    return call


@pytest.fixture
def ratings(tmp_path):
    """Two models of one family judge each other and themselves; each gives itself 1 of 5 more."""
    path = tmp_path / "ratings.csv"
    lines = ["prompt,aspect,judge,model,score,polite"]
    for item in range(20):
        for place, model in enumerate(("left", "right", "other")):
            human = 1 + (item + 2 * place) % 4
            lines.append(f"{item},tone,human,{model},{human},")
            lines += [
                f"{item},tone,{judge},{model},{human + (judge == model)},{(item + place) % 2}"
                for judge in ("left", "right")
            ]
    path.write_text("\n".join(lines) + "\n")
    return path


NAMED = ("--item-column", "prompt", "--dimension-column", "aspect", "--bootstrap", 100, "--draws", 2)


def test_the_command_writes_the_study_and_prints_json(run, ratings, tmp_path):
    families = tmp_path / "families.yaml"
    families.write_text("pair: [left, right]\n")
    done = run(
        ratings, "-o", tmp_path / "out", *NAMED, "--families", families, "--indicator", "polite",
        "--debiased", tmp_path / "debiased.jsonl", "--json", "-",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    [table] = [table for table in found["tables"] if table["name"] == "coefficients"]
    own = [row["estimate"]["value"] for row in table["rows"] if row["term"] == "self-bias (gamma)"]
    assert own == pytest.approx([0.2, 0.2])  # 1 of 5
    assert (tmp_path / "out").is_dir()
    first = json.loads((tmp_path / "debiased.jsonl").read_text().splitlines()[0])
    assert first["judge"] == first["model"] == "left"
    assert first["debiased"] == pytest.approx(first["reference"])


def test_families_must_be_lists(run, ratings, tmp_path):
    families = tmp_path / "families.yaml"
    families.write_text("pair: left\n")
    with pytest.raises(ConfigError, match=r"expected family: \[model, ...\]"):
        run(ratings, "-o", tmp_path / "out", *NAMED, "--families", families)


def test_the_command_loads_no_statistics_before_it_runs():
    heavy = "{'statsmodels', 'pandas', 'numba', 'scipy', 'sklearn'}"
    code = f"import sys, judgelm.cli.study_self_bias; print(len({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "0\n"
