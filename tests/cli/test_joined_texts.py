"""Commands that join by id: swapped answers, other texts, missing ids."""

import json

import pytest

from tests.support.jsonl_files import write_rows

ENGINE = ("--engine", "scripted", "--model")
QUESTIONS = {"Name a metal.": ("wood", "iron"), "Name a planet.": ("Rome", "Mars"), "Add 1 and 1.": ("3", "2")}
"""The second answer is right."""


def annotation(question, first, second, preference, **fields):
    models = {"generator_1": "old", "generator_2": "new"}
    return models | {"instruction": question, "output_1": first, "output_2": second, "preference": preference} | fields


@pytest.fixture
def judged(cli, tmp_path):
    """A run by a correct judge, over rows without ids whose first output is the old model's."""
    rows = [annotation(question, *answers, None) for question, answers in QUESTIONS.items()]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    script = {f"{question}|{'|'.join(answers)}": "2 9" for question, answers in QUESTIONS.items()}
    (tmp_path / "script.json").write_text(json.dumps(script))
    out = tmp_path / "run.jsonl"
    assert cli("judgelm-batch", tmp_path / "rows.json", "-o", out, *ENGINE, tmp_path / "script.json", "-q")[0] == 0
    return tmp_path


def labels_of(folder, rows, name="labels.json"):
    (folder / name).write_text(json.dumps(rows))
    return folder / name


def evaluated(cli, folder, labels):
    code, out, err = cli("judgelm", "eval", folder / "run.jsonl", "-l", labels, "--json", "-", "--bootstrap", "100")
    assert code == 0, err
    return json.loads(out)


def test_labels_of_swapped_outputs_are_reordered_with_a_note(cli, judged):
    new_first = {"generator_1": "new", "generator_2": "old"}
    rows = [annotation(question, right, wrong, 1.0, **new_first) for question, (wrong, right) in QUESTIONS.items()]
    labels = labels_of(judged, rows)
    result = evaluated(cli, judged, labels)
    assert (result["excluded"]["accuracy"]["value"], result["counts"]["joined"]) == (1.0, 3)
    assert result["notes"] == ["3 of 3 rows have the answers in a different order and were reordered."]
    assert result["win_rate"]["model"] == "old"  # wrote the answers that were judged as the first
    code, out, _ = cli("judgelm", "report", judged / "run.jsonl", "-s", labels)
    words = " ".join(out.split())
    assert code == 0
    assert "The verdict matches the label in 3 of 3 labelled pairs." in words
    assert "were reordered" in words
    code, out, _ = cli("judgelm", "study", "estimate", judged / "run.jsonl", "-l", labels, "--json", "-")
    estimates = json.loads(out)
    assert estimates["model"] == "old"
    assert "were reordered" in estimates["warnings"][-1]
    code, _, err = cli("judgelm", "report", judged / "run.jsonl", "-l", labels, "-o", judged / "report.html")
    assert (code, "were reordered" in (judged / "report.html").read_text()) == (0, True), err


@pytest.mark.parametrize("command", ["eval", "report", "study estimate"])
def test_labels_of_other_texts_end_with_1(cli, judged, command):
    ids = [json.loads(line)["id"] for line in (judged / "run.jsonl").read_text().splitlines()]
    rows = [
        annotation(question, "?", answers[1], 1.0, id=name)
        for name, (question, answers) in zip(ids, QUESTIONS.items(), strict=True)
    ]
    more = ("-o", judged / "report.html") if command == "report" else ()
    code, _, err = cli("judgelm", *command.split(), judged / "run.jsonl", "-l", labels_of(judged, rows), *more)
    assert code == 1
    assert "3 of 3 rows do not contain the texts" in " ".join(err.split())
    assert 'answer 1 differs: the row contains "?"' in " ".join(err.split())


def test_studies_of_models_compare_the_rows(cli, judged):
    rows = [annotation(question, *answers[::-1], None) for question, answers in QUESTIONS.items()]
    exchanged = labels_of(judged, rows, "exchanged.json")
    code, _, err = cli("judgelm", "study", "leaderboard", judged / "run.jsonl", "-r", exchanged, "-o", judged / "study")
    assert (code, "3 rows have the answers in a different order" in " ".join(err.split())) == (0, True)
    pairs = [row | {"id": f"p{index}"} for index, row in enumerate(rows)]
    run = labels_of(judged, pairs, "named.json")
    cli("judgelm-batch", run, "-o", judged / "a.jsonl", *ENGINE, "8 6", "-q")
    other = labels_of(judged, [row | {"output_1": "x"} for row in pairs], "other.json")
    cli("judgelm-batch", other, "-o", judged / "b.jsonl", *ENGINE, "8 6", "-q")
    for command in (("study", "compare-judges"), ("study", "panel")):
        more = ("-l", labels_of(judged, [row | {"preference": 1.0} for row in pairs])) if "panel" not in command else ()
        code, _, err = cli("judgelm", *command, judged / "a.jsonl", judged / "b.jsonl", *more, "-o", judged / "c.jsonl")
        assert (code, "b: 3 of 3 judgments do not match the texts" in " ".join(err.split())) == (1, True), err


def rows_named(folder, name, ids, **fields):
    """Write pairs with these ids; `fields` override the defaults."""
    return write_rows(folder / name, ({"id": key} | PAIR_TEXTS | fields for key in ids))


PAIR_TEXTS = {"question": "Which is a metal?", "answer_1": "Iron is.", "answer_2": "Wood is."}
JUDGED, OTHERS = ("m1", "m2", "m3", "m4"), ("z1", "z2")


@pytest.fixture
def run_of_four(cli, tmp_path):
    pairs = rows_named(tmp_path, "pairs.jsonl", JUDGED, winner=1)
    assert cli("judgelm-batch", pairs, "-o", tmp_path / "run.jsonl", *ENGINE, "8 6", "-q")[0] == 0
    return tmp_path


def joined_files(folder, ids):
    """Write one file of each kind that commands join by id."""
    own = {"solves": [{"text": "so A", "answer": "A"}] * 5, "failure": None}
    return {
        "references": write_rows(folder / "references.jsonl", ({"id": key, "reference": "Iron."} for key in ids)),
        "own": write_rows(folder / "own.jsonl", ({"id": key} | own for key in ids)),
        "rows": rows_named(folder, "rows.jsonl", ids),
        "reversed": write_rows(folder / "reversed.jsonl", ({"question_id": key, "pred_text": "6 8"} for key in ids)),
    }


SSR = ("--mode", "ssr", "--mode-arg", "when=always", "--mode-arg", "task=choice", "--self-answers", "{own}")
JOINS = {
    "references": ("judgelm-batch", "pairs.jsonl", "-o", "new.jsonl", *ENGINE, "8 6", "--references", "{references}"),
    "own answers": ("judgelm-batch", "pairs.jsonl", "-o", "new.jsonl", *ENGINE, "[[1]]", *SSR),
    "show": ("judgelm", "report", "run.jsonl", "--samples", "{rows}"),
    "export": ("judgelm", "export", "run.jsonl", "--samples", "{rows}", "-o", "run.csv"),
    "estimate": ("judgelm", "study", "estimate", "run.jsonl", "--labels", "pairs.jsonl", "--samples", "{rows}"),
    "reversed": ("judgelm", "eval", "run.jsonl", "--labels", "pairs.jsonl", "--reversed", "{reversed}"),
}


@pytest.mark.parametrize("join", JOINS)
def test_a_file_without_matching_ids_is_refused_by_name(cli, run_of_four, monkeypatch, join):
    monkeypatch.chdir(run_of_four)
    files = joined_files(run_of_four, OTHERS)
    used = next(path for name, path in files.items() if any(f"{{{name}}}" in word for word in JOINS[join]))
    code, _, err = cli(*(word.format(**files) for word in JOINS[join]))
    assert (code, used.stem in err, "traceback" in err.lower()) == (1, True, False), err
    assert not (run_of_four / "new.jsonl").exists()


@pytest.mark.parametrize("join", ["references", "own answers", "show", "export"])
def test_ids_that_a_file_lacks_are_counted(cli, run_of_four, monkeypatch, join):
    monkeypatch.chdir(run_of_four)
    files = joined_files(run_of_four, (JUDGED[0], *OTHERS))
    code, out, err = cli(*(word.format(**files) for word in JOINS[join]))
    words = " ".join(f"{out} {err}".split())
    assert (code, any(count in words for count in ("1 of the input's 4 ids", "3 of 4 judgments"))) == (0, True), words


def test_references_without_matching_ids_fail_at_the_end_of_a_pipe(cli, run_of_four):
    references = joined_files(run_of_four, OTHERS)["references"]
    pairs = (run_of_four / "pairs.jsonl").read_bytes()
    options = ("-o", run_of_four / "new.jsonl", *ENGINE, "8 6", "--references", references)
    code, _, err = cli("judgelm-batch", "-", *options, stdin=pairs)
    assert (code, "references.jsonl" in err, len((run_of_four / "new.jsonl").read_bytes().splitlines())) == (1, True, 4)


def test_self_answers_are_refused_by_modes_that_do_not_use_them(cli, run_of_four):
    own = joined_files(run_of_four, JUDGED)["own"]
    options = ("-o", run_of_four / "new.jsonl", *ENGINE, "8 6", "--self-answers", own)
    code, _, err = cli("judgelm-batch", run_of_four / "pairs.jsonl", *options)
    assert (code, "mode pair" in err) == (1, True), err
