"""The win rates of `judgelm study leaderboard`, on AlpacaEval's annotations and on a judge's own run."""

import numpy as np
import pytest

from judgelm.cli.study.pairs import leaderboard_command
from judgelm.errors import ConfigError, InputError
from tests.support.judged_items import write_run
from tests.support.studies import judged_pair, run_study, write_rows


def study(folder, *arguments):
    """The numbers, and the table of win rates."""
    result = run_study(leaderboard_command, folder, *arguments)
    return result, next(table for table in result["tables"] if table["name"] == "win-rates")


ROW = {
    "instruction": "i", "output_1": "long answer", "output_2": "short",
    "generator_1": "base", "generator_2": "m", "annotator": "judge",
}  # fmt: skip


def test_win_rates_by_hand_with_what_was_not_judged_and_not_usable(tmp_path):
    preferences = [1.9, 1.6, 1.5, 0, 1, None, 0.5]
    annotations = [ROW | {"instruction": str(i), "preference": p} for i, p in enumerate(preferences)]
    result, table = study(tmp_path, write_rows(tmp_path / "a.jsonl", annotations))
    # 0.9 + 0.6 + 0.5 + 0.5 + 0; two wins, two ties, one loss
    [row] = table["rows"]
    assert (row["win_rate"]["value"], row["discrete_win_rate"]["value"]) == (pytest.approx(0.5), pytest.approx(0.6))
    assert [row[name] for name in ("n", "n_wins", "n_draws", "n_wins_base", "not_judged")] == [5, 2, 2, 1, 1]
    assert any("a.jsonl:7" in line and "from 1 to 2, or 0 for a tie, got 0.5" in line for line in result["warnings"])


def test_annotators_and_models_are_never_pooled(tmp_path):
    changes = [{"preference": 2}, {"preference": 1, "annotator": "other"}, {"preference": 1.5, "generator_2": "n"}]
    _, table = study(tmp_path, write_rows(tmp_path / "a.jsonl", [ROW | change for change in changes]))
    rows = [(row["annotator"], row["model"], row["win_rate"]["value"]) for row in table["rows"]]
    assert rows == [("judge", "m", 1.0), ("judge", "n", 0.5), ("other", "m", 0.0)]


def test_a_run_gives_win_rates_over_its_pairs(tmp_path):
    base = {"answer_1": "a", "answer_2": "b", "answer_models": ["base", "m"]}
    pairs = [base | {"id": str(i), "question": f"q{i}"} for i in range(3)]
    judgments = [judged_pair("0", 1, probability=0.8), judged_pair("1", 2), judged_pair("2", None)]
    run = write_run(tmp_path / "small.jsonl", judgments)
    _, table = study(tmp_path, run, "--rows", write_rows(tmp_path / "pairs.jsonl", pairs))
    [row] = table["rows"]
    assert row["win_rate"]["value"] == pytest.approx(0.6)  # (0.2 + 1) / 2
    assert (row["model"], row["annotator"], row["not_judged"]) == ("m", "small", 1)
    with pytest.raises(ConfigError, match="--rows"):
        study(tmp_path, run)


def test_pairs_of_two_models_in_either_order_are_one_row(tmp_path):
    texts = {"answer_1": "a", "answer_2": "bbb"}
    orders = [("base", "m"), ("m", "base"), ("m", "base")]
    pairs = [texts | {"id": str(i), "question": f"q{i}", "answer_models": models} for i, models in enumerate(orders)]
    run = write_run(tmp_path / "small.jsonl", [judged_pair(str(i), 1) for i in range(3)])
    [row] = study(tmp_path, run, "--rows", write_rows(tmp_path / "pairs.jsonl", pairs))[1]["rows"]
    # m loses, wins, wins; its answers have 3, 1 and 1 characters
    assert [row[name] for name in ("model", "baseline", "n_wins", "n_wins_base")] == ["m", "base", 2, 1]
    assert row["avg_length"] == pytest.approx(5 / 3)
    assert row["length_note"] == "3 comparisons are too few (minimum: 10)"


def test_difficulties_are_joined_by_instruction_or_index_and_none_may_lack(tmp_path):
    rows = [ROW | {"instruction": str(i), "output_2": "x" * i**2, "preference": 1 + i % 7 / 7} for i in range(30)]
    hard = [{"instruction": str(i), "instruction_difficulty": (i % 5) / 5} for i in range(30)]
    path = write_rows(tmp_path / "a.jsonl", rows)
    _, table = study(tmp_path, path, "--difficulty", write_rows(tmp_path / "hard.jsonl", hard))
    assert "and the instruction's difficulty" in table["note"]
    [row] = table["rows"]
    assert row["length_controlled_winrate"] is not None
    assert row["standard_error"] == pytest.approx(np.std([i % 7 / 7 for i in range(30)], ddof=1) / 30**0.5)
    with pytest.raises(InputError, match="no difficulty for the instruction '29'"):
        study(tmp_path, path, "--difficulty", write_rows(tmp_path / "hard.jsonl", hard[:-1]), "--overwrite")
