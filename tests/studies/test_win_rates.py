"""`judgelm study win-rates` on AlpacaEval's annotations and on a judge's own run."""

import json

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from judgelm.cli.commands import add_command
from judgelm.cli.study.pairs import win_rates_command
from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.alpaca_eval import read_annotations
from judgelm.errors import ConfigError, InputError
from judgelm.records import Judgment, PairVerdict, Shown, Unparsed
from judgelm.runs.serialization import judgment_row

APP = typer.Typer()
add_command(APP, win_rates_command, "study")
ROW = {
    "instruction": "i", "output_1": "long answer", "output_2": "short",
    "generator_1": "base", "generator_2": "m", "annotator": "judge",
}  # fmt: skip


@pytest.fixture
def write(tmp_path):
    def write(name, rows):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path / name

    return write


@pytest.fixture
def study(tmp_path):
    def study(*arguments):
        command = [*map(str, arguments), "-o", str(tmp_path / "study"), "--bootstrap", "100", "--json", "-"]
        done = CliRunner().invoke(APP, command)
        if done.exception is not None:
            raise done.exception
        found = json.loads(done.stdout)
        return found, {row["model"]: row for row in found["tables"][0]["rows"]}

    return study


def test_a_continuous_preference_is_kept_as_a_probability(write):
    path = write("a.jsonl", [ROW | {"preference": 1.25}, ROW | {"preference": 2, "instruction": "j"}])
    assert [one.preference for one in read_annotations(str(path))] == [0.25, 1.0]
    # of the first output; 0 for the hard label that names the second
    assert [(one.winner, one.preference) for one in read_labels(str(path)).labels.values()] == [(1, 0.75), (2, 0.0)]


def test_win_rates_by_hand_with_what_was_not_judged_and_not_usable(write, study):
    preferences = [1.9, 1.6, 1.5, 0, 1, None, 0.5]
    found, rows = study(
        write("a.jsonl", [ROW | {"instruction": str(i), "preference": p} for i, p in enumerate(preferences)])
    )
    # 0.9 + 0.6 + 0.5 + 0.5 + 0; two wins, two ties, one loss
    row = rows["m"]
    assert (row["win_rate"]["value"], row["discrete_win_rate"]["value"]) == (pytest.approx(0.5), pytest.approx(0.6))
    assert [row[name] for name in ("n", "n_wins", "n_draws", "n_wins_base", "not_judged")] == [5, 2, 2, 1, 1]
    assert any("a.jsonl:7" in line and "from 1 to 2, or 0 for a tie, got 0.5" in line for line in found["warnings"])


def test_annotators_and_models_are_never_pooled(write, study):
    changes = [{"preference": 2}, {"preference": 1, "annotator": "other"}, {"preference": 1.5, "generator_2": "n"}]
    found, _ = study(write("a.jsonl", [ROW | change for change in changes]))
    rows = [(row["annotator"], row["model"], row["win_rate"]["value"]) for row in found["tables"][0]["rows"]]
    assert rows == [("judge", "m", 1.0), ("judge", "n", 0.5), ("other", "m", 0.0)]


def test_a_run_gives_win_rates_over_its_pairs(write, study):
    pairs = [
        {"id": str(i), "question": f"q{i}", "answer_1": "a", "answer_2": "b", "answer_models": ["base", "m"]}
        for i in range(3)
    ]
    shown = (Shown(order=(0, 1), text="8 6"),)
    judgments = [
        Judgment(sample_id="0", mode="pair", verdict=PairVerdict(winner=1), shown=shown, probability=0.8),
        Judgment(sample_id="1", mode="pair", verdict=PairVerdict(winner=2), shown=shown),
        Judgment(sample_id="2", mode="pair", verdict=None, shown=shown, failure=Unparsed("off_grammar", "?")),
    ]
    run = write("small.jsonl", [judgment_row(one) for one in judgments])
    _, rows = study(run, "--rows", write("pairs.jsonl", pairs))
    assert rows["m"]["win_rate"]["value"] == pytest.approx(0.6)  # (0.2 + 1) / 2
    assert (rows["m"]["annotator"], rows["m"]["not_judged"]) == ("small", 1)
    with pytest.raises(ConfigError, match="--rows"):
        study(run)


def test_difficulties_are_joined_by_instruction_or_index_and_none_may_lack(write, study):
    rows = [ROW | {"instruction": str(i), "output_2": "x" * i**2, "preference": 1 + i % 7 / 7} for i in range(30)]
    hard = [{"instruction": str(i), "instruction_difficulty": (i % 5) / 5} for i in range(30)]
    path = write("a.jsonl", rows)
    found, _ = study(path, "--difficulty", write("hard.jsonl", hard))
    assert "and the instruction's difficulty" in found["protocol"]
    with pytest.raises(InputError, match="no difficulty of the instruction '29'"):
        study(path, "--difficulty", write("hard.jsonl", hard[:-1]), "--overwrite")


def test_a_published_models_win_rate_counted_by_pandas(shared_data, write, study):
    folder = shared_data / "alpaca_eval_judgments"
    table = pd.read_parquet(folder / "judgments.parquet")
    outputs, instructions = (pd.read_parquet(folder / f"{name}.parquet") for name in ("outputs", "instructions"))
    table["model"] = outputs["generator"].to_numpy()[table["output_2"]]
    mine = table[table["annotator"] == "weighted_alpaca_eval_gpt4_turbo"]
    model = mine["model"].value_counts().index[0]
    mine = mine[mine["model"] == model]
    rows = [
        {
            "instruction": instructions["instruction"][one.instruction],
            **{f"output_{side}": outputs["text"][getattr(one, f"output_{side}")] for side in (1, 2)},
            **{f"generator_{side}": outputs["generator"][getattr(one, f"output_{side}")] for side in (1, 2)},
            **{"preference": one.preference, "annotator": one.annotator},
        }
        for one in mine.itertuples()
    ]
    _, found = study(write("annotations.jsonl", rows))
    shares = mine["preference"] - 1
    assert found[model]["n"] == len(mine) > 300
    assert found[model]["win_rate"]["value"] == pytest.approx(shares.mean())
    assert found[model]["standard_error"] == pytest.approx(shares.sem())
    halves = (shares > 0.5) + (shares == 0.5) / 2
    assert found[model]["discrete_win_rate"]["value"] == pytest.approx(halves.mean())
    assert found[model]["length_controlled_winrate"] is not None
