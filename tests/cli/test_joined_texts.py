"""Commands that join by id, from the outside: exchanged answers, other texts, several annotators."""

import json

import pytest

ENGINE = ("--engine", "scripted", "--model")
QUESTIONS = {"Name a metal.": ("wood", "iron"), "Name a planet.": ("Rome", "Mars"), "Add 1 and 1.": ("3", "2")}
"""The second answer is right."""


def annotation(question, first, second, preference, **fields):
    models = {"generator_1": "old", "generator_2": "new"}
    return models | {"instruction": question, "output_1": first, "output_2": second, "preference": preference} | fields


@pytest.fixture
def judged(cli, tmp_path):
    """A run by a judge that is right, over rows without ids in which the old model's output is the first."""
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


def test_labels_of_exchanged_outputs_are_turned_round_and_said(cli, judged):
    new_first = {"generator_1": "new", "generator_2": "old"}
    rows = [annotation(question, right, wrong, 1.0, **new_first) for question, (wrong, right) in QUESTIONS.items()]
    labels = labels_of(judged, rows)
    found = evaluated(cli, judged, labels)
    assert (found["excluded"]["accuracy"]["value"], found["counts"]["joined"]) == (1.0, 3)
    assert found["notes"] == ["3 of 3 rows have the answers in another order than judged; they are turned round."]
    assert found["win_rate"]["model"] == "old"  # wrote the answers that were judged as the first
    code, out, _ = cli("judgelm", "show", judged / "run.jsonl", "-s", labels)
    words = " ".join(out.split())
    assert code == 0
    assert "The verdict is the label in 3 of 3 labelled pairs." in words
    assert "turned round" in words
    code, out, _ = cli("judgelm", "estimate", judged / "run.jsonl", "-l", labels, "--json", "-")
    estimates = json.loads(out)
    assert estimates["model"] == "old"
    assert "turned round" in estimates["warnings"][-1]
    code, _, err = cli("judgelm", "report", judged / "run.jsonl", "-l", labels, "-o", judged / "report.html")
    assert (code, "turned round" in (judged / "report.html").read_text()) == (0, True), err


@pytest.mark.parametrize("command", ["eval", "report", "estimate"])
def test_labels_of_other_texts_end_with_1(cli, judged, command):
    ids = [json.loads(line)["id"] for line in (judged / "run.jsonl").read_text().splitlines()]
    rows = [
        annotation(question, "?", answers[1], 1.0, id=name)
        for name, (question, answers) in zip(ids, QUESTIONS.items(), strict=True)
    ]
    more = ("-o", judged / "report.html") if command == "report" else ()
    code, _, err = cli("judgelm", command, judged / "run.jsonl", "-l", labels_of(judged, rows), *more)
    assert code == 1
    assert "3 of 3 rows have other texts than those judged under the same id" in " ".join(err.split())
    assert 'answer 1 differs, here "?"' in " ".join(err.split())


def test_studies_of_models_compare_the_rows(cli, judged):
    rows = [annotation(question, *answers[::-1], None) for question, answers in QUESTIONS.items()]
    exchanged = labels_of(judged, rows, "exchanged.json")
    code, _, err = cli("judgelm", "study", "leaderboard", judged / "run.jsonl", "-r", exchanged, "-o", judged / "study")
    assert (code, "3 rows have the answers in another order" in " ".join(err.split())) == (0, True)
    pairs = [row | {"id": f"p{index}"} for index, row in enumerate(rows)]
    run = labels_of(judged, pairs, "named.json")
    cli("judgelm-batch", run, "-o", judged / "a.jsonl", *ENGINE, "8 6", "-q")
    other = labels_of(judged, [row | {"output_1": "x"} for row in pairs], "other.json")
    cli("judgelm-batch", other, "-o", judged / "b.jsonl", *ENGINE, "8 6", "-q")
    for command in (("study", "compare-judges"), ("panel",)):
        more = ("-l", labels_of(judged, [row | {"preference": 1.0} for row in pairs])) if len(command) == 2 else ()
        code, _, err = cli("judgelm", *command, judged / "a.jsonl", judged / "b.jsonl", *more, "-o", judged / "c.jsonl")
        assert (code, "b: 3 of 3 judgments are not of the texts" in " ".join(err.split())) == (1, True), err
