"""`judgelm train` before it trains: rows, names, and copies of the recipes."""

import subprocess
import sys

import pytest

from judgelm.cli.training import CONFIGS, RECIPES

SCORED = "question,answer_1,answer_2,score_1,score_2\nq,a,b,9,3\n"
WON = "question,answer_1,answer_2,winner\nq,a,b,1\nr,a,b,2\n"
GRADED = '{"question": "q", "answer_1": "a", "answer_2": "b"}\n'


@pytest.fixture
def rows(tmp_path):
    def write(text):
        path = tmp_path / ("rows.jsonl" if text.startswith("{") else "rows.csv")
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("recipe", "text", "finding"),
    [
        ("sft", WON, "winners but no scores"),
        ("sft", GRADED, "scores"),
        ("preference", GRADED, "winner"),
        ("grpo", "question,answer_1\nq,a\n", "rows.csv"),
        ("sft", "", "rows.csv"),
    ],
)
def test_rows_without_labels_for_the_recipe_are_refused(cli, rows, recipe, text, finding):
    for given in (["--train_data", rows(text)], [f"--train_data={rows(text)}"]):
        code, _, errors = cli("judgelm", "train", recipe, "--config", "few_pairs", *given)
        assert code == 1
        assert finding in errors
        assert str(rows(text)) in errors


def test_rows_without_a_field_of_the_prompt_are_refused(cli, rows, tmp_path):
    (tmp_path / "mine.txt").write_text("{policy} {answer}\nreply: Yes/No")
    given = ("--train_data", rows(WON), "--prompt", tmp_path / "mine.txt")
    code, _, errors = cli("judgelm", "train", "preference", "--config", "few_pairs", *given)
    assert (code, "rows.csv:2" in errors, "shows {policy}" in errors) == (1, True, True)


def test_rows_are_checked_before_torch_is_loaded(rows):
    script = (
        "import sys; from judgelm.cli import main; sys.argv = ['judgelm', *sys.argv[1:]]\n"
        "try: main.main()\n"
        "except SystemExit as end: print(end.code, sorted({'torch', 'trl', 'transformers'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", script, "train", "sft", "--train_data", str(rows(WON)), "--output_dir", "out"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "1 []\n"


def test_unknown_recipes_and_settings_are_refused(cli):
    for arguments, finding in {
        ("stf",): "did you mean sft?",
        ("sft", "--config", "few_pair"): "did you mean few_pairs?",
        (): "available: grpo, preference, reward, sft",
    }.items():
        code, _, errors = cli("judgelm", "train", *arguments, "--output_dir", "out")
        assert (code, finding in errors) == (1, True), errors


def test_copy_writes_the_recipes_and_overwrites_nothing(cli, tmp_path):
    assert cli("judgelm", "train", "--copy", tmp_path / "mine")[0] == 0
    for name, source in {
        "train/sft.py": RECIPES / "sft.py",
        "configs/train/few_pairs.yaml": CONFIGS / "train/few_pairs.yaml",
        "configs/accelerate/zero3.yaml": CONFIGS / "accelerate/zero3.yaml",
    }.items():
        assert (tmp_path / "mine" / name).read_bytes() == source.read_bytes()
    (tmp_path / "mine/train/sft.py").write_text("mine")
    code, _, errors = cli("judgelm", "train", "--copy", tmp_path / "mine")
    assert code == 1
    assert "exists; choose a different folder" in errors
    assert (tmp_path / "mine/train/sft.py").read_text() == "mine"
