"""MT-Bench and FairEval, whose questions, answers and labels stand in files of their own."""

import json

import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.codes import majority
from judgelm.data.sources.importer import import_benchmark
from judgelm.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write(name, rows):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


def imported(name, tmp_path, *files):
    done = import_benchmark(name, files, tmp_path / "out.jsonl", overwrite=True)
    return done, {row["id"]: row for row in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())}


def conversation(*texts):
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


def vote(judge, winner, turn=1, first="alpaca", second="vicuna", **more):
    row = {"question_id": 81, "model_a": first, "model_b": second, "winner": winner, "judge": judge, "turn": turn}
    return row | more


QUESTION = {"question_id": 81, "category": "writing", "turns": ["Write.", "Rewrite."]}


def answers(model, *turns):
    return {"question_id": 81, "answer_id": "x", "model_id": model, "choices": [{"index": 0, "turns": list(turns)}]}


def test_votes_with_their_conversations_are_enough(tmp_path, write):
    sides = {
        "conversation_a": conversation("Write.", "A1", "Rewrite.", "A2"),
        "conversation_b": conversation("Write.", "B1", "Rewrite.", "B2"),
    }
    votes = [vote("expert_0", "model_a", **sides), vote("expert_1", "tie (bothbad)", 2, **sides)]
    _, rows = imported("mt-bench", tmp_path, write("votes.jsonl", votes))
    first, second = rows["81:alpaca:vicuna:1"], rows["81:alpaca:vicuna:2"]
    assert (first["question"], first["answer_1"], first["answer_2"], first["winner"]) == ("Write.", "A1", "B1", 1)
    assert (second["question"], second["answer_1"], second["winner"]) == ("Rewrite.", "A2", "tie")
    assert [one["answers"] for one in second["metadata"]["turns"]] == [["A1", "B1"], ["A2", "B2"]]
    assert len(first["metadata"]["turns"]) == 1
    assert first["category"] == "writing"


def test_votes_are_joined_with_questions_answers_and_references(tmp_path, write):
    files = [
        write("question.jsonl", [QUESTION]),
        write("model_answer/alpaca.jsonl", [answers("alpaca", "A1", "A2")]),
        write("model_answer/vicuna.jsonl", [answers("vicuna", "B1", "B2")]),
        write("reference_answer/gpt-4.jsonl", [answers("gpt-4", "R1", "R2")]),
        write("votes.jsonl", [vote("expert_0", "model_b", 2)]),
    ]
    _, rows = imported("mt-bench", tmp_path, *files)
    [row] = rows.values()
    assert (row["winner"], row["reference"], row["answer_models"]) == (2, "R2", ["alpaca", "vicuna"])
    assert [one["reference"] for one in row["metadata"]["turns"]] == ["R1", "R2"]


def test_a_pair_that_people_saw_either_way_round_is_one_row(tmp_path, write):
    files = [
        write("question.jsonl", [QUESTION]),
        write("alpaca.jsonl", [answers("alpaca", "A1", "A2")]),
        write("vicuna.jsonl", [answers("vicuna", "B1", "B2")]),
        write(
            "votes.jsonl",
            [
                vote("expert_0", "model_a"),  # alpaca
                vote("expert_1", "model_a", first="vicuna", second="alpaca"),  # vicuna
                vote("expert_2", "model_b", first="vicuna", second="alpaca"),  # alpaca
                vote("author_1", "model_b"),
            ],
        ),
    ]
    _, rows = imported("mt-bench", tmp_path, *files)
    [row] = rows.values()
    # alpaca has two of the experts' three votes; the author's is kept apart
    assert (row["winner"], row["votes"]) == (1, [1, 2, 1])
    assert row["metadata"]["other_votes"] == {"author_1": 2}
    assert read_labels(str(tmp_path / "out.jsonl")).labels[row["id"]].votes == (1, 2, 1)


def test_a_majority_is_more_than_half():
    assert majority((1, 2)) is None
    assert majority((1, 2, 2)) == 2
    assert majority(()) is None


def test_without_votes_every_pair_of_models_is_a_row_for_each_turn(tmp_path, write):
    files = [
        write("q.jsonl", [QUESTION]),
        *(write(f"{m}.jsonl", [answers(m, f"{m}1", f"{m}2")]) for m in ("a", "b", "c")),
    ]
    done, rows = imported("mt-bench", tmp_path, *files)
    assert (len(rows), done.unlabelled) == (3 * 2, 6)


def test_a_vote_without_its_answers_is_a_reject(tmp_path, write):
    files = [
        write("q.jsonl", [QUESTION]),
        write("a.jsonl", [answers("alpaca", "A1", "A2")]),
        write("v.jsonl", [answers("vicuna", "B1", "B2")]),
        write("votes.jsonl", [vote("expert_0", "model_a"), vote("expert_0", "model_a", second="llama")]),
    ]
    done, rows = imported("mt-bench", tmp_path, *files)
    assert len(rows) == 1
    assert "no answers of both models for question 81, turn 1" in done.rejects[0].message


def test_the_real_questions_need_answers_and_a_judges_verdicts_are_no_votes(shared_data, tmp_path):
    folder = shared_data / "mt_bench"
    references = str(folder / "reference_answer_gpt-4.jsonl")
    with pytest.raises(InputError, match="no answers in"):
        imported("mt-bench", tmp_path, str(folder / "question.jsonl"), references)
    with pytest.raises(InputError, match="a judge's verdicts, no votes of people"):
        imported("mt-bench", tmp_path, str(folder / "skycamp_gpt-4_pair.jsonl"))


def test_the_real_questions_and_categories(shared_data, tmp_path, write):
    folder = shared_data / "mt_bench"
    questions = [json.loads(line) for line in (folder / "question.jsonl").read_text().splitlines()]
    turns = [answers(model, "x", "y") | {"question_id": one["question_id"]} for model in "ab" for one in questions]
    files = [
        str(folder / "question.jsonl"),
        str(folder / "reference_answer_gpt-4.jsonl"),
        write("answers.jsonl", turns),
    ]
    done, rows = imported("mt-bench", tmp_path, *files)
    assert (done.rows, len(done.categories), set(done.categories.values())) == (160, 8, {20})
    assert rows["101:a:b:1"]["reference"].startswith("If you have just overtaken")


FAIR = [{"question_id": number, "text": f"q{number}", "category": "generic"} for number in (1, 2, 3)]


def fair_files(write, labels="CHATGPT\nTIE\nVICUNA13B"):
    return [
        write("question.jsonl", FAIR),
        *(
            write(
                name, [{"answer_id": "x", "model_id": model, "question_id": n, "text": f"{name}{n}"} for n in (3, 2, 1)]
            )
            for name, model in (("gpt35", "gpt-3.5-turbo:20230327"), ("vicuna", "vicuna-13b:20230322-clean-lang"))
        ),
        write("human.txt", labels),
    ]


def test_faireval_joins_labels_by_line_and_answers_by_id(tmp_path, write):
    _, rows = imported("faireval", tmp_path, *fair_files(write))
    assert [row["winner"] for row in rows.values()] == [1, "tie", 2]
    row = rows["faireval-3"]
    assert (row["question"], row["answer_1"], row["answer_2"]) == ("q3", "gpt353", "vicuna3")


def test_faireval_knows_the_winner_whichever_file_comes_first(tmp_path, write):
    questions, gpt, vicuna, labels = fair_files(write)
    _, rows = imported("faireval", tmp_path, vicuna, labels, gpt, questions)
    assert [row["winner"] for row in rows.values()] == [2, "tie", 1]


@pytest.mark.parametrize(
    ("labels", "finding"),
    [("TIE\nTIE", "2 labels for 3 questions"), ("TIE\nTIE\nGPT4", r'human.txt:3: "GPT4" names neither TIE nor one of')],
)
def test_faireval_labels_that_do_not_fit_are_refused(tmp_path, write, labels, finding):
    with pytest.raises(InputError, match=finding):
        imported("faireval", tmp_path, *fair_files(write, labels))


def test_faireval_says_which_file_is_missing(tmp_path, write):
    questions, gpt, _, labels = fair_files(write)
    with pytest.raises(InputError, match="got 1 files of questions and 1 of answers"):
        imported("faireval", tmp_path, questions, gpt, labels)
    with pytest.raises(InputError, match=r"expected one \.txt file"):
        imported("faireval", tmp_path, questions, gpt)
