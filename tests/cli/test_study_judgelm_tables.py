"""`judgelm study judgelm`: the YAML that assigns runs to rows."""

import json

import pytest

from tests.support.jsonl_files import write_rows


@pytest.fixture
def folder(batch, tmp_path):
    """A run of two pairs, and their labels."""
    rows = ({"id": name, "question": name, "answers": ["a", "b"]} for name in ("1", "2"))
    write_rows(tmp_path / "labels.jsonl", ({"id": name, "winner": 1} for name in ("1", "2")))
    batch(write_rows(tmp_path / "pairs.jsonl", rows), "--both-orders", out=tmp_path / "run.jsonl")
    return tmp_path


def tables(folder, text):
    (folder / "tables.yaml").write_text(text)
    return folder / "tables.yaml"


LABELS = "labels: labels.jsonl"
ROW = "{reference: no, method: mine, judgments: run.jsonl}"


def test_rows_have_both_treatments_of_the_run(cli, folder):
    # the answer shown first always gets the higher score: it is right in the given order, and the mean is a tie
    result, (ties, left_out) = table_of(cli, folder, f"{LABELS}\ntables:\n  - {{table: 1, runs: [{ROW}]}}\n")
    for row in (ties, left_out):
        assert (row["reference"], row["method"], row["agreement"]["value"], row["n"]) == ("no", "mine", 1.0, 2)
    assert left_out["agreement_by_mean"]["value"] == 0.0
    headings = {column["key"]: column["heading"] for column in result["tables"][0]["columns"]}
    assert headings["agreement"] == "agreement, given order ↑"
    assert headings["agreement_by_mean"] == "agreement, mean of both orders ↑"
    assert (folder / "out" / "report.html").is_file()


def authors_file(folder, name, texts):
    """The authors' output: `pred_text` by `question_id`."""
    write_rows(folder / name, ({"question_id": index, "pred_text": text} for index, text in texts.items()))


def table_of(cli, folder, text, *options):
    code, out, err = cli(
        "judgelm", "study", "judgelm", tables(folder, text), "-o", folder / "out", "--json", "-", *options
    )
    assert code == 0, err
    result = json.loads(out)
    return result, result["tables"][0]["rows"]


def test_pairs_missing_in_the_reversed_file_are_counted(cli, folder):
    authors_file(folder, "given.jsonl", {1: "8 6", 2: "8 6"})
    authors_file(folder, "reversed.jsonl", {1: "6 8", 9: "6 8"})
    row = "{judge_size: 7B, data_scale: 3.5k, judgments: given.jsonl, reversed: reversed.jsonl}"
    result, (ties, _) = table_of(cli, folder, f"{LABELS}\ntables: [{{table: 4, runs: [{row}]}}]")
    assert (ties["n"], ties["consistency"]["n"]) == (2, 1)
    assert "1 pairs have no reversed judgment" in result["warnings"][0]


def test_pandalms_protocol_makes_a_conflict_of_two_files_a_tie(cli, folder):
    authors_file(folder, "given.jsonl", {1: "8 6", 2: "8 6"})
    authors_file(folder, "reversed.jsonl", {1: "6 8", 2: "8 6"})
    row = "{method: m, judgments: given.jsonl, reversed: reversed.jsonl}"
    _, (ties, _) = table_of(cli, folder, f"{LABELS}\ntables: [{{table: 2, runs: [{row}]}}]")
    assert ties["accuracy"]["value"] == 0.5


def table_yaml(number, row):
    """A table of one row."""
    return f"tables: [{{table: {number}, runs: [{row}]}}]"


TIMED = "{method: mine, model_size: 7B, judgments: run.jsonl, gpus: 2}"


def test_prices_give_costs(cli, folder):
    prices = "prices: {gpu_hour: 3600, api_prompt_1k: 1000, api_reply_1k: 2000}"
    _, [row] = table_of(cli, folder, f"{LABELS}\n{prices}\n{table_yaml(3, TIMED)}")
    assert row["gpu_usd"] == pytest.approx(2 * row["total_s"])
    assert row["api_usd"] == pytest.approx(row["prompt_tokens"] + 2 * row["reply_tokens"])
    assert row["cost_ratio"] == pytest.approx(row["gpu_usd"] / row["api_usd"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (("prices: {gpu_hour: 2}", table_yaml(3, TIMED.replace(", gpus: 2", ""))), "each row requires gpus"),
        (("prices: {api_prompt_1k: 2}", table_yaml(3, TIMED)), "set both api_prompt_1k and api_reply_1k"),
        (("prices: {gpu_hour: 2}", table_yaml(1, ROW)), "Table 3, which has"),
        (("prices: {gpu_hour: -1}", table_yaml(3, TIMED)), "prices.gpu_hour: Input should be greater"),
        ([table_yaml(1, ROW.replace("}", ", reversed: run.jsonl}"))], "judgments and reversed are the same file"),
        ([table_yaml(1, ROW.replace("}", ", scale: ten}"))], "tables.0.runs.0.scale"),
        ([table_yaml(3, TIMED.replace("}", ", reversed: b.jsonl}"))], "table 3 measures the time of one run"),
        ([table_yaml(1, "{judgments: run.jsonl}")], "expected reference, method"),
        ([table_yaml(9, ROW)], "tables.0.table: Input should be 1, 2"),
        (["tables: []"], "no runs; list"),
        ([f"tables: [{{table: 1, runs: [{ROW}]}}, {{table: 1, runs: []}}]"], "appears twice"),
        (["labels: null", table_yaml(1, ROW)], "no labels"),
    ],
)
def test_invalid_files_are_refused(cli, folder, text, message):
    lines = text if "labels: null" in text else [LABELS, *text]
    file = tables(folder, "\n".join(lines))
    code, _, err = cli("judgelm", "study", "judgelm", file, "-o", folder / "out")
    assert code == 1
    assert message in " ".join(err.split())


@pytest.mark.parametrize("kind", ["imported", "panel"])
def test_runs_without_an_engine_have_no_times(cli, batch, folder, kind):
    if kind == "panel":
        batch(folder / "pairs.jsonl", "--both-orders", out=folder / "second.jsonl")
        made = ("study", "panel", folder / "run.jsonl", folder / "second.jsonl")
    else:
        both = {"scores": [8, 6], "review": "8 6", "scores_reverse": [6, 8], "review_reverse": "6 8"}
        judged = [{"question": name, "text": name, "Answer1": "a", "Answer2": "b"} | both for name in ("1", "2")]
        made = ("data", "import-judgments", write_rows(folder / "reviews.jsonl", judged), "--id", "{question}")
    code, _, err = cli("judgelm", *made, "-o", folder / "made.jsonl")
    assert code == 0, err
    row = "{method: m, model_size: 7B, judgments: made.jsonl}"
    _, [times] = table_of(cli, folder, f"{LABELS}\n{table_yaml(3, row)}")
    assert (times["pairs"], times["judge_s"]) == (2, None)


def test_the_authors_rows_read_the_labels_by_their_parser(cli, folder):
    reviews = {"1": "8 6", "2": "8  6"}  # the authors' parser refuses two blanks
    write_rows(folder / "labels.jsonl", ({"question_id": name, "text": text} for name, text in reviews.items()))
    _, (ties, left_out) = table_of(cli, folder, f"{LABELS}\n{table_yaml(1, ROW)}")
    assert (ties["n"], left_out["n"]) == (1, 2)
