"""`judgelm compare` with scripted models and a scripted judge."""

import json
import shutil
from pathlib import Path

import pytest

from judgelm.cli.compare import _identities
from judgelm.engines.catalog import ENGINES
from tests.support.jsonl_files import rows_of, write_rows
from tests.support.word_engine import WordEngine

JUDGE = ("--bootstrap", 100, "--engine", "scripted", "--judge")
A, B = ("name=a,engine=scripted,model=Paris", "name=b,engine=scripted,model=Lyon")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Enter a folder with 20 questions, and a judge that prefers Paris in both orders."""
    monkeypatch.chdir(tmp_path)
    write_rows("questions.jsonl", [{"id": f"q{i}", "question": f"What is {i}?"} for i in range(20)])
    write_judge(range(20))
    return tmp_path


def write_judge(paris, questions=20):
    """Write a script that prefers Paris on some questions, and Lyon on the others."""
    script = {}
    for index in range(questions):
        scores = ("9", "2") if index in paris else ("2", "9")
        script[f"What is {index}?|Paris|Lyon"] = " ".join(scores)
        script[f"What is {index}?|Lyon|Paris"] = " ".join(scores[::-1])
    Path("judge.json").write_text(json.dumps(script))


@pytest.fixture
def compare(cli, folder):
    """Compare two models; return exit code, standard output and standard error, each on one line."""

    def run(*arguments, models=(A, B)):
        command = ("judgelm", "compare", *models, "--questions", "questions.jsonl", "-o", "out", *JUDGE, "judge.json")
        code, out, err = cli(*command, *arguments)
        return code, " ".join(out.split()), " ".join(err.split())

    return run


def estimates():
    """Return the win rates in study.json by name."""
    study = json.loads(Path("out/study.json").read_text())
    return {
        row["estimate"]: row["rate"] for table in study["tables"] if table["name"] == "claim" for row in table["rows"]
    }


def test_the_claim_is_the_share_of_verdicts_and_everything_is_in_the_folder(compare, folder):
    write_judge(range(14))
    code, out, err = compare()
    assert code == 0, err
    # 14 of 20 are 70 %; standard error sqrt(0.7 * 0.3 / 19) = 0.1051, times t(19) = 2.093: 22.0 points
    assert "a beats b on 70.0 % (95 % interval 48.0 to 92.0) of 20 questions, according to judge.json" in out
    assert "The difference is not significant" in out
    assert "same winner in both orders │ 100.0" in out
    assert "questions 20, pairs 20, wins 14, ties 0, losses 6, failed 0, labels 0" in out
    assert rows_of("out/pairs.jsonl")[3] == {
        "id": "q3", "question": "What is 3?", "answer_1": "Paris", "answer_2": "Lyon", "answer_models": ["a", "b"],
    }  # fmt: skip
    assert {path.name for path in (folder / "out").iterdir()} >= {"answers", "judgments.jsonl", "report.html"}


def test_human_labels_correct_the_claim(compare):
    write_judge(range(14))
    # people say that b wins five of the ten questions on which the judge was for a
    write_rows("people.jsonl", [{"id": f"q{i}", "winner": 1 + i % 2} for i in range(10)])
    code, out, err = compare("--labels", "people.jsonl")
    assert code == 0, err
    assert "corrected with human labels on 10 of them" in out
    assert estimates()["labels alone"]["value"] == 0.5
    # by PPI++: the judge is constant on the labelled pairs, so its weight is 0
    assert estimates()["PPI++"]["value"] == pytest.approx(0.5)


def test_a_second_call_collects_only_missing_answers(compare):
    assert compare("--limit", 12)[0] == 0
    before = rows_of("out/judgments.jsonl")
    code, _, err = compare()
    assert code == 0, err
    assert "a: 20 of 20 asked, 12 of them before" in err
    assert rows_of("out/judgments.jsonl")[:12] == before
    assert len(rows_of("out/judgments.jsonl")) == len(rows_of("out/pairs.jsonl")) == 20
    code, _, err = compare("--limit", 12)  # fewer questions again: the others stay, and do not count
    assert code == 0, err
    assert estimates()["judge's verdicts"]["n"] == 12


def test_files_of_answers_are_models_too(compare):
    assert compare()[0] == 0
    for name in ("a", "b"):
        shutil.copy(f"out/answers/{name}.jsonl", f"{name}.jsonl")
    shutil.rmtree("out")
    code, out, err = compare(models=("a.jsonl", "other=b.jsonl"))
    assert code == 0, err
    assert "a beats other on 100.0 %" in out
    assert "other's answers: cost and time were not recorded" in out
    outputs = [{"instruction": f"What is {i}?", "output": "Paris", "generator": "m"} for i in range(20)]
    write_rows("outputs.jsonl", outputs)
    write_rows("questions.jsonl", [{"instruction": f"What is {i}?"} for i in range(20)])
    code, out, err = compare("--overwrite", models=("outputs.jsonl", B))
    assert "m beats b on 100.0 %" in out, err


def test_failures_are_counted_and_never_a_tie(compare):
    script = json.loads(Path("judge.json").read_text())
    script["What is 0?|Paris|Lyon"] = "I cannot say"
    del script["What is 1?|Paris|Lyon"]
    Path("judge.json").write_text(json.dumps(script))
    code, out, _ = compare()
    assert code == 2  # 2 of 20 are more than 5 %
    assert "a beats b on 100.0 %" in out
    assert "wins 18, ties 0, losses 0, failed 2" in out
    assert compare("--max-failure-rate", 0.1)[0] == 0


@pytest.mark.parametrize(
    ("models", "finding"),
    [
        ((A, "name=a,engine=scripted,model=Lyon"), "both models are named a"),
        ((A, "missing.jsonl"), "missing.jsonl: no such file"),
        ((A, "several.jsonl"), "several.jsonl: contains answers from several models (x, y)"),
        ((A, "twice.jsonl"), "twice.jsonl: 2 answers to question q0 (greedy, t=1)"),
        ((A, "few.jsonl"), "few.jsonl: contains no answer to 19 of 20 questions (first: q1; "),
        ((A, "others.jsonl"), "others.jsonl: the answer to q0 is for another question: 'Why?'"),
        ((A, "name=b,engine=scripted,model=x,decodings=[{},{temperature: 1}]"), "decodings"),
        ((A, "name=b,engine=scripted,model=x,temprature=1"), "temprature not found; available"),
        ((A, "no/such/model"), "no such folder"),
    ],
)
def test_models_that_cannot_be_compared_are_refused(compare, models, finding):
    answers = [{"question_id": f"q{i}", "model": "x", "text": "Lyon"} for i in range(20)]
    write_rows("several.jsonl", [*answers, answers[0] | {"model": "y"}])
    write_rows("twice.jsonl", [*answers, answers[0] | {"decoding_method": "t=1"}])
    write_rows("few.jsonl", answers[:1])
    write_rows("others.jsonl", [answers[0] | {"question_body": "Why?"}, *answers[1:]])
    code, _, err = compare(models=models)
    assert (code, finding in err) == (1, True), err


def test_labels_without_a_matching_pair_are_refused_first(compare, folder):
    write_rows("people.jsonl", [{"id": "other", "winner": 1}])
    code, _, err = compare("--labels", "people.jsonl")
    assert (code, "none of the label ids match a question id (for example 'other' and 'q" in err) == (1, True), err
    assert not (folder / "out").exists()
    write_rows("people.jsonl", [{"id": f"q{i}", "winner": 1} for i in range(3)])
    assert "3 labels are too few" in compare("--labels", "people.jsonl")[1]


def test_edited_pairs_are_not_overwritten(compare):
    assert compare()[0] == 0
    write_rows("out/pairs.jsonl", [row | {"winner": 2} for row in rows_of("out/pairs.jsonl")])
    for labels in (("--labels", "out/pairs.jsonl"), ()):
        code, _, err = compare(*labels)
        assert code == 1
        assert ("have changed since this pair was written" in err) != bool(labels), err
    assert rows_of("out/pairs.jsonl")[0]["winner"] == 2


def test_a_warning_names_a_judge_of_its_own_answers(compare):
    out = compare(models=("name=judge.json,engine=scripted,model=Paris", B))[1]
    assert "judge.json is judging its own answers" in out


def test_an_adapter_is_identified_with_its_base():
    assert _identities("trained-judge") & _identities("qwen-1.5b")
    assert not _identities("small-judge", None) & _identities("qwen-1.5b")


def test_question_sets_are_read_from_the_folder_or_the_error_names_the_file(cli, folder, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    command = ("judgelm", "compare", A, B, "--questions", "mt-bench", "-o", "out", *JUDGE, "judge.json")
    code, _, err = cli(*command)
    assert (code, "download raw/question.jsonl yourself" in " ".join(err.split())) == (1, True), err
    (folder / "out" / "questions" / "raw").mkdir(parents=True, exist_ok=True)
    turns = [{"question_id": i, "category": "math", "turns": [f"What is {i}?", "And why?"]} for i in range(20)]
    write_rows("out/questions/raw/question.jsonl", turns)
    code, _, err = cli(*command)
    assert code == 0, err
    assert rows_of("out/pairs.jsonl")[1]["question"] == "What is 1?"


@pytest.mark.parametrize(
    "prompt",
    ["{context}: {question} {answer}\nreply: Yes/No", "{context}: {question} {answer_1} {answer_2}\nreply: A/B/C"],
)
def test_a_prompt_judges_the_pairs_with_the_fields_of_the_questions(compare, monkeypatch, prompt):
    monkeypatch.setitem(ENGINES, "scripted", WordEngine)
    write_rows("questions.jsonl", [{"id": f"q{i}", "question": f"What is {i}?", "context": f"c{i}"} for i in range(20)])
    for name, text in (("a", "2 2"), ("b", "1 1")):
        write_rows(f"{name}.jsonl", [{"question_id": f"q{i}", "model": name, "text": text} for i in range(20)])
    Path("mine.txt").write_text(prompt)
    code, out, err = compare("--prompt", "mine.txt", models=("a.jsonl", "b.jsonl"))
    assert code == 0, err
    assert "a beats b on 100.0 %" in out
    assert rows_of("out/pairs.jsonl")[3]["metadata"] == {"context": "c3"}
