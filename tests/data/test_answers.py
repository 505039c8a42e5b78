"""Answers of models: generators, questions, pairs, joins by id or text, and rows to judge with their truth."""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from judgelm.data.answers import (
    AnswerSet,
    Candidate,
    PairSampler,
    judged_rows,
    pair_of_models,
    pair_rows,
    read_collected,
    read_model_answers,
    read_questions,
)
from judgelm.data.generators import build_generator, merge_generators, parse_generator
from judgelm.data.labelled_set import read_labels
from judgelm.data.readers.values import similar_names_notes
from judgelm.data.samples import SampleStream
from judgelm.errors import ConfigError, InputError

CONFIG = Path(__file__).parents[2] / "configs" / "data" / "collect.yaml"
PAIR = {"question": "q", "answer_1": "a", "answer_2": "b"}


def test_the_shipped_config_is_valid():
    settings = yaml.safe_load(CONFIG.read_text())["generators"]
    names = [generator.name for generator in merge_generators(map(build_generator, settings))]
    assert names == ["vicuna-7b", "llama-7b", "served"]


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("model=x", "set a name and a model"),
        ("name=a,model=x,tempera=1", "tempera not found; available: name, engine"),
        ("name=a,model=x,temperature=warm", "temperature='warm': Input should be a valid number"),
        ("name=a,model=x,temperature=-1", "temperature is -1"),
        ("name=a/b,model=x", "used as a file name"),
        ("name=a,model=x,form=poem", "available: auto, chat, plain"),
        ("name=a,model=x,greedy", "expected NAME=VALUE"),
        ("name=a,model=x,decodings={}", "decodings: expected a list"),
        ("name=a,model=x,decodings=[{}],seed=1", "or separately, not both"),
    ],
)
def test_invalid_settings_of_a_generator_are_refused(text, finding):
    with pytest.raises(ConfigError, match=finding):
        parse_generator(text)


@pytest.mark.parametrize(("model", "finding"), [("y", "defined twice with different"), ("x", "two equal decodings")])
def test_two_generators_cannot_share_a_name(model, finding):
    with pytest.raises(ConfigError, match=finding):
        merge_generators([parse_generator("name=a,model=x"), parse_generator(f"name=a,model={model}")])


def test_invalid_questions_are_rejects(write):
    rejects = []
    path = write({"id": 1, "question": "q"}, {"id": 1, "question": "r"}, {"question": " "}, {"text": "q"},
                 {"question_body": "b", "category": "c", "reference": {"text": "r"}})  # fmt: skip
    first, second = read_questions(path, on_reject=rejects.append)
    assert (first.id, second.question, second.category, second.reference) == ("1", "b", "c", "r")
    assert [reject.line for reject in rejects] == [2, 3, 4]
    with pytest.raises(InputError, match="appears more than once"):
        read_questions(path)


ANSWERS = [Candidate(model, "greedy", text) for model, text in zip("abcde", ["x", "y", "z", "x ", "w"], strict=True)]


def test_pairs_are_drawn_by_seed_and_question_alone():
    draw = PairSampler(pairs=3, seed=1)
    assert draw("q1", ANSWERS) == draw("q1", ANSWERS)
    assert draw("q1", ANSWERS)[:1] == PairSampler(pairs=1, seed=1)("q1", ANSWERS)
    assert any(draw("q1", ANSWERS) != other for other in (draw("q2", ANSWERS), PairSampler(pairs=3)("q1", ANSWERS)))
    drawn = [(first.model, second.model) for i in range(900) for first, second in PairSampler()(str(i), ANSWERS)]
    pairs = Counter(map(frozenset, drawn))
    assert frozenset("ad") not in pairs  # the same text
    assert len(pairs) == 9  # 10 pairs of 5, less that one; 100 each expected, 3 standard deviations are 28
    assert all(70 < count < 130 for count in pairs.values())
    assert 400 < sum(first < second for first, second in drawn) < 500


def test_two_answers_of_a_model_are_paired_only_on_request():
    twice = [Candidate("a", "greedy", "x"), Candidate("a", "warm", "y")]
    assert PairSampler()("q", twice) == []
    assert len(PairSampler(same_model=True)("q", twice)) == 1


def test_the_order_of_files_does_not_matter_and_more_pairs_come_last(write):
    samples = read_questions(write(*({"id": i, "question": f"what is {i}"} for i in range(5))))
    names = [
        write(*({"question_id": i, "model": model, "text": f"{model}{i}"} for i in range(5)), name=f"{model}.jsonl")
        for model in "abc"
    ]

    def drawn(files, pairs):
        return list(pair_rows(samples, AnswerSet(files), PairSampler(pairs=pairs), counts=Counter()))

    two = drawn(names, 2)
    assert drawn(names[::-1], 2) == two
    assert drawn(names, 1) == two[:5]
    assert [row["question_id"] for row in two] == [f"{i}-{place}" for place in (1, 2) for i in range(5)]


def test_failed_and_truncated_answers_are_left_out(write):
    [question] = read_questions(write({"id": 0, "question": "q", "reference": "r"}))
    rows = [
        {"question_id": 0, "model": "a", "text": "x", "finish_reason": "length", "failure": None},
        {"question_id": 0, "model": "b", "text": None, "failure": {"code": "engine"}},
        {"question_id": 0, "model": "c", "text": "z"},
    ]
    path = write(*rows, name="a.jsonl")
    assert [answer.model for answer in AnswerSet([path]).of(question)] == ["a", "c"]
    complete = AnswerSet([path], drop_truncated=True)
    assert [answer.model for answer in complete.of(question, with_reference=True)] == ["c", "reference"]
    assert complete.left_out == 2
    with pytest.raises(InputError, match=r'b.jsonl:1: field "text" is missing'):
        AnswerSet([write({"question_id": 0, "model": "a"}, name="b.jsonl")])


@pytest.fixture
def questions(write):
    return read_questions(write(*({"id": f"k{n}", "question": f"What is {n}?"} for n in range(2)), name="q.jsonl"))


def outputs(write, model, *rows):
    """Writes the outputs of a model, if none are given one for each of two questions."""
    rows = rows or [{"instruction": f"What is {number}?", "output": f"{model}{number}"} for number in range(2)]
    return write(*(row | {"generator": model} for row in rows), name=f"{model}.jsonl")


def test_outputs_without_ids_join_questions_with_ids(questions, write):
    paths = outputs(write, "a"), outputs(write, "b")
    pairs = pair_of_models(questions, ("a", "b"), paths, Counter())
    assert [(pair.id, pair.answers) for pair in pairs] == [("k0", ("a0", "b0")), ("k1", ("a1", "b1"))]
    assert len(AnswerSet(paths).of(questions[0])) == 2


@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        ([{"instruction": "What is 7?", "output": "x"}], "have no ids"),
        ([{"question_id": "q0", "output": "x"}], "ids such as q0"),
        ([{"instruction": "What is 0?", "output": text} for text in "xy"], "two outputs"),
    ],
)
def test_the_error_says_why_answers_match_no_question(questions, write, rows, finding):
    with pytest.raises(InputError, match=finding):
        pair_of_models(questions, ("a", "b"), (outputs(write, "a", *rows), outputs(write, "b")), Counter())


@pytest.mark.parametrize(
    "row",
    [
        {"question_id": 81, "choices": [{"index": 0, "turns": ["Yes.", "And no."]}]},
        {"question_id": 81, "choices": [{"turns": [{"content": "Yes."}]}]},
        {"uid": "81", "messages": [{"role": "user"}, {"role": "assistant", "content": {"answer": "Yes."}}]},
    ],
)
def test_first_turns_of_published_answers(write, row):
    assert read_model_answers(outputs(write, "a", row))[1]["81"].text == "Yes."


def judged(write, task, *answers):
    """Answers to one of two questions as rows to judge, with their truth, and the counts."""
    rows = [{"id": "1", "question": "2 + 2?", "reference": "4", "metadata": {"data_set": "sums"}},
            {"id": "2", "question": "Which?", "options": ["x", "y"], "reference": "B", "category": "c"}]  # fmt: skip
    solved, counts = read_questions(write(*rows, name="q.jsonl")), Counter()
    return list(judged_rows(solved, read_collected([write(*answers)]), task, counts=counts)), counts


def answer(question, model, text, **more):
    return {"id": f"{question}#{model}", "question_id": question, "model": model, "decoding_method": "greedy",
            "text": text, "finish_reason": "stop", "failure": None, **more}  # fmt: skip


def test_each_answer_is_a_row_that_names_its_question(write):
    [made], counts = judged(write, "number", answer("1", "m", "so it is 4", task="number", answer="4"))
    assert made.row == {
        "id": "1/m", "question": "2 + 2?", "answer": "so it is 4", "answer_models": ["m"], "reference": "4",
        "metadata": {"data_set": "sums", "source_id": "1"},
    }  # fmt: skip
    truth = {"id": "1/m", "agent": "m", "dataset": "sums", "truth": True, "question": "1", "answer": "4"}
    assert (made.truth, counts["rows with a right answer"]) == (truth, 1)


def test_options_stay_with_the_row_and_a_reference_of_another_task_is_refused(write):
    [made], _ = judged(write, "choice", answer("2", "m", "The answer is (A)."))
    assert (made.row["metadata"]["options"], made.truth["truth"]) == (["x", "y"], False)
    with pytest.raises(InputError, match="is not a valid answer for task number"):
        judged(write, "number", answer("2", "m", "4"))


def test_several_answers_of_a_model_have_ids_of_their_own(write):
    rows = [answer("1", "m", str(seed), decoding_method=f"temperature=1,seed={seed}") for seed in (10, 2)]
    made, _ = judged(write, "number", *rows)
    assert [each.row["id"] for each in made] == ["1/m/temperature=1,seed=2", "1/m/temperature=1,seed=10"]


def test_a_truncated_answer_is_wrong_and_a_failure_is_left_out(write):
    failed = answer("1", "none", None, failure={"code": "engine", "text": "", "why": ""})
    [made], counts = judged(write, "number", answer("1", "cut", "The answer is 4", finish_reason="length"), failed)
    assert (made.truth["truth"], counts["answers left out: failed"]) == (False, 1)


def test_qa_rows_hold_the_answer_in_the_tags(write):
    untagged = answer("1", "n", "four", task="qa", answer=None)
    [made], counts = judged(
        write, "qa", answer("1", "m", "I think <ans>four</ans>", task="qa", answer="four"), untagged
    )
    assert (made.row["answer"], made.truth) == ("four", None)
    assert counts["answers left out: none in tags"] == 1


def test_a_question_about_a_pair_has_a_letter_as_its_reference(write):
    [question] = read_questions(write(PAIR | {"id": "1", "winner": 2}))
    assert (question.reference, question.metadata["pair"]) == ("B", ["a", "b"])


@pytest.mark.parametrize(
    "names",
    [
        {"model_1": " north", "model_2": "south\u00a0"},
        {"answer_models": ["north\u200b", "\ufeffsouth\t"]},
        {"answer_models": '["north ", " south"]'},
    ],
)
def test_model_names_of_rows_are_stripped(write, names):
    [sample] = SampleStream([write(PAIR | names)])
    assert sample.answer_models == ("north", "south")


def test_model_names_of_labels_and_answers_are_stripped(write):
    label = {"question_id": "1", "model_a": "north ", "model_b": "south", "label": "A"}
    assert [*read_labels(write(label)).labels] == ["1:north:south"]
    answers = [{"question_id": str(n), "model": f"north{' ' * n}", "text": "a"} for n in range(2)]
    assert read_model_answers(write(*answers))[0] == "north"


def test_model_names_that_differ_in_case_or_inner_blanks_have_a_note(write):
    rows = [PAIR | {"id": n, "winner": 1, "model_1": name, "model_2": "z"} for n, name in enumerate(("GPT 4", "gpt4"))]
    [note] = read_labels(write(*rows)).notes()
    assert '"GPT 4" and "gpt4"' in note
    assert similar_names_notes(["GPT-4", "gpt-5"]) == []
