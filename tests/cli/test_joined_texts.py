"""Commands that join by id, from the outside: exchanged answers, other texts, several annotators, another input."""

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
    assert (code, "The verdict is the label in 3 of 3 labelled pairs." in words, "turned round" in words) == (
        0,
        True,
        True,
    )
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


def test_three_peoples_rows_are_one_pair_with_three_votes(cli, judged):
    rows = [
        row
        for question, (wrong, right) in QUESTIONS.items()
        for row in (
            annotation(question, wrong, right, 2.0, annotator="a"),
            annotation(question, right, wrong, 1.0, annotator="b"),
            annotation(question, wrong, right, 1.0, annotator="c"),
        )
    ]
    labels = labels_of(judged, rows)
    out = judged / "once.jsonl"
    code, _, err = cli("judgelm-batch", labels, "-o", out, *ENGINE, judged / "script.json")
    assert (code, len(out.read_text().splitlines())) == (0, 3), err
    assert "further votes on a pair (judged once)" in err
    found = evaluated(cli, judged, labels)
    assert (found["excluded"]["accuracy"]["value"], found["counts"]["labels"]) == (1.0, 3)
    # of three votes, two alike: one of three pairs of annotators agrees, and the judge agrees with two of three
    humans = found["humans"]
    assert [humans[name]["value"] for name in ("human_human", "judge_human")] == pytest.approx([1 / 3, 2 / 3])
    assert found["notes"][0].startswith("3 ids have labels in several rows, which are votes")


def test_a_pair_without_a_majority_has_no_label_and_counts_for_peoples_agreement(cli, judged):
    (first, answers), (second, others), _ = QUESTIONS.items()
    rows = [annotation(first, *answers, 2.0), annotation(first, *answers, 1.0)]
    rows += [annotation(second, *others, 2.0), annotation(second, *others, 2.0)]
    found = evaluated(cli, judged, labels_of(judged, rows))
    assert (found["counts"]["labels"], found["counts"]["judgments_without_label"]) == (1, 2)
    assert (found["humans"]["human_human"]["value"], found["humans"]["human_human"]["n"]) == (0.5, 2)
    assert "1 without a majority have no label" in found["notes"][0]


def test_labels_without_texts_join_by_id_and_that_is_said(cli, judged):
    ids = [json.loads(line)["id"] for line in (judged / "run.jsonl").read_text().splitlines()]
    found = evaluated(cli, judged, labels_of(judged, [{"id": name, "winner": 2} for name in ids]))
    assert found["excluded"]["accuracy"]["value"] == 1.0
    assert found["notes"] == ["3 of 3 judgments join by id alone: the row or the run has no texts to compare."]


def test_standard_input_with_other_texts_is_another_input(cli, tmp_path):
    def row(first, second):
        return (json.dumps({"id": "0", "question": "q", "answer_1": first, "answer_2": second}) + "\n").encode()

    arguments = ("judgelm-batch", "-", "-o", tmp_path / "out.jsonl", *ENGINE, "9 1", "-q")
    assert cli(*arguments, stdin=row("good", "bad"))[0] == 0
    code, _, err = cli(*arguments, stdin=row("bad", "good"))
    assert (code, 'id "0"' in " ".join(err.split())) == (1, True)
    assert cli(*arguments, stdin=row("good", "bad"))[0] == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 1


def test_studies_of_models_compare_the_rows(cli, judged):
    rows = [annotation(question, *answers[::-1], None) for question, answers in QUESTIONS.items()]
    exchanged = labels_of(judged, rows, "exchanged.json")
    code, _, err = cli("judgelm", "study", "win-rates", judged / "run.jsonl", "-r", exchanged, "-o", judged / "study")
    assert (code, "3 rows have the answers in another order" in " ".join(err.split())) == (1, True)
    pairs = [row | {"id": f"p{index}"} for index, row in enumerate(rows)]
    run = labels_of(judged, pairs, "named.json")
    cli("judgelm-batch", run, "-o", judged / "a.jsonl", *ENGINE, "8 6", "-q")
    other = labels_of(judged, [row | {"output_1": "x"} for row in pairs], "other.json")
    cli("judgelm-batch", other, "-o", judged / "b.jsonl", *ENGINE, "8 6", "-q")
    for command in (("study", "compare-judges"), ("panel",)):
        more = ("-l", labels_of(judged, [row | {"preference": 1.0} for row in pairs])) if len(command) == 2 else ()
        code, _, err = cli("judgelm", *command, judged / "a.jsonl", judged / "b.jsonl", *more, "-o", judged / "c.jsonl")
        assert (code, "b: 3 of 3 judgments are not of the texts" in " ".join(err.split())) == (1, True), err
