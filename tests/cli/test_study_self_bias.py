"""`judgelm study self-bias` on rating files and run files."""

import json

import pytest

from judgelm.records import GradeVerdict, Judgment, Shown, Unparsed
from tests.support.jsonl_files import rows_of, write_rows
from tests.support.judged_items import write_run


@pytest.fixture
def study(cli, tmp_path):
    """Run the study; return its numbers, or the message."""

    def run(*arguments):
        options = ("-o", tmp_path / "out", "--bootstrap", 100, "--draws", 2, "--json", "-")
        code, out, err = cli("judgelm", "study", "self-bias", *arguments, *options)
        return " ".join(err.split()) if code else json.loads(out)

    return run


def own_effects(result):
    [table] = [table for table in result["tables"] if table["name"] == "coefficients"]
    return [row["estimate"]["value"] for row in table["rows"] if row["term"] == "self-bias (gamma)"]


@pytest.fixture
def ratings(tmp_path):
    """Two models of one family judge each other and themselves; each rates itself 1 of 5 higher."""
    path = tmp_path / "ratings.csv"
    lines = ["prompt,dimension,judge,model,score,polite"]
    for item in range(20):
        for place, model in enumerate(("left", "right", "other")):
            human = 1 + (item + 2 * place) % 4
            lines.append(f"{item},tone,human,{model},{human},")
            lines += [
                f"{item},tone,{judge},{model},{human + (judge == model)},{(item + place) % 2}"
                for judge in ("left", "right")
            ]
    path.write_text("\n".join(lines) + "\n")
    return path, "--item-column", "prompt"


def test_the_command_writes_the_study_and_prints_json(study, ratings, tmp_path):
    families, debiased = tmp_path / "families.yaml", tmp_path / "debiased.jsonl"
    families.write_text("pair: [left, right]\n")
    result = study(*ratings, "--families", families, "--indicator", "polite", "--debiased", debiased)
    assert own_effects(result) == pytest.approx([0.2, 0.2])  # 1 of 5
    assert (tmp_path / "out").is_dir()
    first = rows_of(debiased)[0]
    assert first["judge"] == first["model"] == "left"
    assert first["debiased"] == pytest.approx(first["reference"])
    families.write_text("pair: left\n")
    assert "family pair: expected a list of strings" in study(*ratings, "--families", families)


def test_run_files_of_rubrics_are_ratings_too(study, tmp_path):
    # people give 1 to 4 of 5, each judge the same, and itself one level more
    scores = {
        (item, model): 1 + (item + 2 * place) % 4
        for item in range(12)
        for place, model in enumerate(("left", "right", "other"))
    }
    people = "".join(f"p{item},conciseness,human,{model},{score}\n" for (item, model), score in scores.items())
    (tmp_path / "human.csv").write_text(f"item,dimension,judge,model,score\n{people}")
    rows = (
        {"id": f"{i}/{model}", "item": f"p{i}", "question": f"q{i}", "answer": "a b", "answer_models": [model]}
        for i, model in scores
    )
    write_rows(tmp_path / "rows.jsonl", rows)
    runs = []
    for judge in ("left", "right"):
        judged = []
        for (item, model), score in scores.items():
            failure = Unparsed("off_grammar", "?") if (item, model) == (0, "other") else None
            given = None if failure else (score + (judge == model),)
            part = Shown(order=(0,), text="", part="conciseness", scores=given, failure=failure)
            verdict = given and GradeVerdict(score=given[0] / 5)
            judged.append(
                Judgment(sample_id=f"{item}/{model}", mode="rubric", verdict=verdict, shown=(part,), failure=failure)
            )
        runs += ["--run", f"{judge}={write_run(tmp_path / f'{judge}.jsonl', judged)}"]
    result = study(tmp_path / "human.csv", *runs, "--no-checks", "--rows", tmp_path / "rows.jsonl")
    assert own_effects(result) == pytest.approx([0.2, 0.2])
    assert result["counts"]["ratings without a score"] == 2
    assert "requires the judged rows" in study(tmp_path / "human.csv", *runs)


def test_a_run_without_a_model_of_the_answer_is_refused(study, tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", [{"id": "1", "question": "q", "answer": "a"}])
    judgment = Judgment(sample_id="1", mode="single", verdict=GradeVerdict(score=8), shown=())
    run = write_run(tmp_path / "run.jsonl", [judgment])
    assert "the row has 1 answers and 0 models" in study("--run", f"x={run}", "--rows", rows)
