"""`--column` and `--sheet`: recorded in the run's manifest, and used when its rows are read again."""

import csv
import json

import pytest

from tests.support.jsonl_files import write_rows

NAMES = ("--column", "id=Nr", "--column", "question=Prompt", "--column", "answer_1=Ours", "--column", "answer_2=Theirs")
HEADER = ["Nr", "Prompt", "Ours", "Theirs", "Urteil"]
ROWS = [[f"n{i}", f"q{i}", "a", "b", label] for i, label in enumerate(["links", "rechts", "links", "egal"])]
CODE = ("--column", "winner=Urteil", "--label-code", "links=first,rechts=second,egal=tie")


@pytest.fixture
def table(tmp_path):
    with (tmp_path / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([HEADER, *ROWS])
    return tmp_path / "pairs.csv"


@pytest.fixture
def run(batch, table, tmp_path):
    assert batch(table, *NAMES)[0] == 0
    return tmp_path / "out.jsonl"


@pytest.fixture
def workbook(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed: pip install -e '.[xlsx]'")
    book = openpyxl.Workbook()
    book.active.append(["about this file"])
    sheet = book.create_sheet("Pairs")
    for row in (HEADER, *ROWS):
        sheet.append(row)
    book.save(tmp_path / "pairs.xlsx")
    return tmp_path / "pairs.xlsx"


def test_the_manifest_records_the_names(run):
    fingerprint = json.loads(run.with_name("out.run.json").read_text())["fingerprint"]
    assert fingerprint["columns"] == {"id": "Nr", "question": "Prompt", "answer_1": "Ours", "answer_2": "Theirs"}


@pytest.mark.parametrize(
    "command",
    [
        ("eval", "RUN", "-l", "TABLE", *CODE),
        ("report", "RUN", "-l", "TABLE", "-o", "FOLDER/page.html", *CODE),
        ("report", "RUN", "-s", "TABLE"),
        ("export", "RUN", "-s", "TABLE"),
        ("study", "estimate", "RUN", "-l", "TABLE", "-s", "TABLE", *CODE),
        ("study", "compare-judges", "RUN", "RUN", "--name", "x", "--name", "y", "-l", "TABLE", "-o", "FOLDER/s", *CODE),
    ],
    ids=lambda command: command[0],
)
def test_commands_read_the_judged_file_by_the_runs_names(cli, run, table, tmp_path, command):
    paths = {"RUN": str(run), "TABLE": str(table)}
    words = [paths.get(word, word.replace("FOLDER", str(tmp_path))) for word in command]
    code, _, error = cli("judgelm", *words)
    assert code == 0, error
    assert "same options as the run: --column id=Nr" in error


def test_a_labels_file_uses_only_the_columns_that_it_has(cli, run, tmp_path):
    labels = write_rows(tmp_path / "labels.jsonl", [{"id": row[0], "winner": 1} for row in ROWS])
    code, out, error = cli("judgelm", "eval", run, "-l", labels)
    assert (code, "100.0 % of 4 pairs" in " ".join(out.split()), "same options as the run" in error) == (0, True, False)


def test_column_options_apply_to_the_file_that_has_the_column(cli, run, table, tmp_path):
    labels = write_rows(tmp_path / "labels.jsonl", [{"key": row[0], "choice": 1} for row in ROWS])
    own = ("--column", "id=key", "--column", "winner=choice")
    assert cli("judgelm", "study", "estimate", run, "-l", labels, "-s", table, *own)[0] == 0
    code, _, error = cli("judgelm", "study", "estimate", run, "-l", labels, "-s", table, "--column", "winner=chosen")
    assert (code, "--column winner=chosen: neither" in error) == (1, True)


def test_a_command_line_overrides_what_the_run_records(cli, run, tmp_path):
    labels = write_rows(tmp_path / "labels.jsonl", [{"Nr": "other", "key": row[0], "winner": 1} for row in ROWS])
    assert cli("judgelm", "eval", run, "-l", labels)[0] == 1
    assert cli("judgelm", "eval", run, "-l", labels, "--column", "id=key")[0] == 0


def test_other_columns_are_another_run(batch, run, table):
    code, _, error = batch(table, *NAMES[:5], "answer_1=Theirs", "--column", "answer_2=Ours")
    assert (code, 'columns.answer_1: was "Ours", now "Theirs"' in error) == (1, True)


def test_a_title_above_the_header_does_not_hide_the_names(cli, batch, table, tmp_path):
    table.write_text(f"Our first evaluation\n{table.read_text()}")
    assert batch(table, *NAMES)[0] == 0
    code, out, error = cli("judgelm", "report", tmp_path / "out.jsonl", "-s", table)
    assert (code, "4 pairs" in out, "--column id=Nr" in error) == (0, True, True), error


def test_a_panel_knows_the_names_of_its_runs(cli, batch, run, table, tmp_path):
    batch(table, *NAMES, out=tmp_path / "other.jsonl")
    assert cli("judgelm", "study", "panel", run, tmp_path / "other.jsonl", "-o", tmp_path / "panel.jsonl")[0] == 0
    assert cli("judgelm", "report", tmp_path / "panel.jsonl", "-s", table)[0] == 0


def test_a_sheet_is_recorded_with_the_run(cli, batch, workbook, tmp_path):
    code, _, error = batch(workbook, *NAMES)
    assert (code, "expected one non-empty sheet, got Sheet, Pairs; choose a sheet with --sheet" in error) == (1, True)
    assert batch(workbook, *NAMES, "--sheet", "2")[0] == 0
    code, out, error = cli("judgelm", "report", tmp_path / "out.jsonl", "-s", workbook)
    assert (code, "4 pairs" in out) == (0, True), error
    assert "--sheet 2" in error


@pytest.mark.parametrize("sheet", ["Pears", "3", "0"])
def test_a_missing_sheet_is_refused(batch, workbook, sheet):
    code, _, error = batch(workbook, *NAMES, "--sheet", sheet)
    assert (code, f'sheet "{sheet}" not found; choose one of Sheet, Pairs' in error) == (1, True)


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("Prompt,GPT-4 output,Llama output", "question=prompt 'answer_1=GPT-4 output' 'answer_2=Llama output'"),
        ("nummer,frage,antwort a,antwort b", "id=nummer question=frage 'answer_1=antwort a' 'answer_2=antwort b'"),
        ("task,ours,theirs,category", "question=task answer_1=ours answer_2=theirs"),
        ("instruction,reply", "question=instruction answer=reply"),
        ("user_prompt,x,y", "question=user_prompt answer_1=x answer_2=y"),
    ],
)
def test_unknown_columns_suggest_the_whole_command(batch, tmp_path, header, columns):
    (tmp_path / "t.csv").write_text(f"{header}\n{'1,' * header.count(',')}1\n")
    code, _, error = batch(tmp_path / "t.csv", "-q")
    suggested = error.partition("to use these columns: ")[2].replace("--column ", "")
    assert (code, suggested.rstrip().endswith(f"-q {columns}")) == (1, True), error


def test_unknown_labels_suggest_the_id_and_the_winner(cli, run, tmp_path):
    labels = write_rows(tmp_path / "labels.jsonl", [{"key": "n0", "verdict": 1}])
    code, _, error = cli("judgelm", "eval", run, "-l", labels)
    assert (code, error.rstrip().endswith("--column id=key --column winner=verdict")) == (1, True)


def test_the_suggested_command_hides_keys(cli, tmp_path):
    (tmp_path / "t.csv").write_text("prompt,ours,theirs\n1,2,3\n")
    options = ("--engine", "openai", "--engine-arg", "api_key=sk-secret", "--engine-arg", "base_url=http://me:pw0@x/v1")
    _, _, error = cli("judgelm-batch", tmp_path / "t.csv", "-o", tmp_path / "o.jsonl", "--model", "m", *options)
    assert "to use these columns" in error
    assert "sk-secret" not in error
    assert "pw0" not in error


@pytest.mark.parametrize(
    ("labels", "example"),
    [
        (["Antwort A", "Antwort B", "unentschieden"], "'antwort a=first,antwort b=second,unentschieden=tie'"),
        (["links", "rechts", "egal"], "links=first,rechts=second,egal=tie"),
        (["Modell 2", "Modell 1", "skip", "gleich"], "'modell 2=second,modell 1=first,skip=none,gleich=tie'"),
        (["ja", "nein"], "ja=first,nein=second"),
    ],
)
def test_unknown_labels_are_listed_with_a_label_code(cli, run, tmp_path, labels, example):
    rows = [{"id": f"n{i}", "winner": label} for i, label in enumerate(labels)]
    code, _, error = cli("judgelm", "eval", run, "-l", write_rows(tmp_path / "labels.jsonl", rows))
    assert code == 1
    assert f'"{labels[0].casefold()}" (1 times), "{labels[1].casefold()}" (1 times)' in error
    assert f"--label-code {example}" in error
